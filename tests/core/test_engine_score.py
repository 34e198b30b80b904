"""Edits of an engine's source: they are found, made in memory, and taken back; the drawing and the score."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from ropecheck.adapters.sglang import plant, spoil
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.selftest.engine_score import (
    SYNTAX,
    EngineFault,
    Functions,
    ScoredEdit,
    by_phase,
    draw,
    exit_code,
    line,
    load,
    summary,
)

SOURCE = """
class Table:
    def __init__(self):
        self.rows = []

    def last(self, width):
        if width > 3:
            self.rows.append(width)
        return max(width - 1, len(self.rows))


class Wide(Table):
    def __init__(self):
        super().__init__()
        self.rows.append(9)


def total(values):
    return sum(value + 1 for value in values)


def named(name, values):
    found = 0
    for value in values:
        found += value
    return found if name in ("a", "b") else 0
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "toy_engine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("toy_engine", None)
    yield importlib.import_module("toy_engine")
    plant.restore()
    sys.modules.pop("toy_engine", None)


def test_places_are_counted_by_kind(engine: Any) -> None:
    counts = plant.count("toy_engine", "Table.last")
    assert {kind: counts[kind] for kind in SYNTAX if kind in counts} == {
        "condition": 1,
        "bound": 1,
        "number": 2,
        "sign": 1,
        "lost line": 1,
    }
    assert all(counts[kind] == 1 for kind in spoil.VALUES)  # of what it returns
    assert "first alone" not in counts and "another name" not in counts
    assert plant.count("toy_engine", "Table.first") == plant.count("no_engine", "f") == {}


@pytest.mark.parametrize(
    ("edit", "nth", "answer"),
    [("sign", 0, 6), ("condition", 0, 4), ("lost line", 0, 4), ("number", 0, 4), ("number", 1, 3), ("bound", 0, 4)],
)
def test_an_edit_is_made_and_taken_back(engine: Any, edit: str, nth: int, answer: int) -> None:
    assert engine.Table().last(5) == 4
    table = engine.Table()
    assert plant.plant("toy_engine", "Table.last", edit, nth).startswith("line ")
    assert table.last(5) == answer
    plant.restore()
    assert engine.Table().last(5) == 4


def test_the_only_call_of_a_parents_method_can_be_lost(engine: Any) -> None:
    plant.plant("toy_engine", "Wide.__init__", "lost line", 0)
    with pytest.raises(AttributeError, match="rows"):
        engine.Wide()
    plant.restore()
    assert engine.Wide().rows == [9]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("through int16", [32767, 32768], [32767, -32768]),
        ("through float16", [2047, 2049], [2047, 2048]),
        ("through float32", [(1 << 24) - 1, (1 << 24) + 1], [(1 << 24) - 1, 1 << 24]),
        ("clamp at 4095", [4095, 4096], [4095, 4095]),
        ("clamp at 32767", [32767, 32768], [32767, 32767]),
        ("above 0 lost", [-3, 0, 5], [-3, 0, 0]),
        ("ninth as eighth", [*range(8), 8, 9], [*range(8), 7, 9]),
    ],
)
def test_what_an_edit_does_to_a_value(kind: str, before: list[int], after: list[int]) -> None:
    torch = pytest.importorskip("torch")
    assert spoil.value(kind, torch.tensor(before)).tolist() == spoil.value(kind, before) == after
    (held,) = spoil.value(kind, (torch.tensor(before),))
    assert held.tolist() == after
    assert spoil.value(kind, ["a"]) == ["a"] and spoil.value(kind, torch.tensor([True])).tolist() == [True]
    assert spoil.value(kind, torch.tensor([-0.5])).tolist() == [-0.5]


def test_a_loop_that_ends_after_the_first_and_a_name_that_is_not_known(engine: Any) -> None:
    assert engine.named("b", [1, 2]) == 3 and engine.named("c", [1, 2]) == 0
    plant.plant("toy_engine", "named", "first alone", 0)
    assert engine.named("b", [1, 2]) == 1
    plant.plant("toy_engine", "named", "another name", 1)
    assert engine.named("b", [1, 2]) == 0 and engine.named("a", [1, 2]) == 3


def test_one_edit_at_a_time(engine: Any) -> None:
    plant.plant("toy_engine", "Table.last", "sign", 0)
    plant.plant("toy_engine", "total", "number", 0)
    assert engine.Table().last(5) == 4 and engine.total([1, 2]) == 7
    with pytest.raises(LookupError, match="1 places"):
        plant.plant("toy_engine", "total", "number", 1)
    assert engine.total([1, 2]) == 5


def test_a_seed_is_one_set_spread_over_kinds() -> None:
    entry = Functions("m", ("f", "g"))
    offers = [(entry, "f", {"sign": 5, "number": 9, "bound": 1, "through int16": 9}), (entry, "g", {"call": 1})]
    drawn = draw(offers, 0)
    assert drawn == draw(offers, 0) and len(drawn) == 4
    assert {one.edit for one in drawn if one.function == "f"} == {"sign", "number", "bound"}
    assert len({one.name for one in drawn}) == 4


def test_the_score_says_what_is_missed() -> None:
    fault = EngineFault("m", "f", "sign", 0)
    caught, missed = ScoredEdit(fault, "line 3", True, "table.index (off by one)"), ScoredEdit(fault, "line 3", False)
    argued, absent = (
        ScoredEdit(fault, "line 3", False, equivalent="never read"),
        ScoredEdit(fault, "", False, "not planted: x"),
    )
    assert summary([caught, missed, argued, absent]) == "1 caught, 1 argued to be no faults, 1 missed, of 3"
    assert [exit_code(found) for found in ([caught, argued], [missed], [absent])] == [0, 1, 4]
    assert exit_code([ScoredEdit(fault, "line 3", True, equivalent="never read")]) == 1
    assert [line(one).split()[0] for one in (caught, missed, argued, absent)] == ["caught", "missed", "no", "not"]


def test_the_list_is_checked(tmp_path: Path) -> None:
    assert sum(len(one.names) * one.places for one in load().function) >= 40
    (tmp_path / "f.toml").write_text('[[function]]\nmodule = "m"\nnamed = []\n')
    with pytest.raises(UsageError, match=r"f\.toml"):
        load(tmp_path / "f.toml")


def test_what_each_phase_catches_and_what_it_alone_does() -> None:
    def scored(nth: int, *phases: str) -> ScoredEdit:
        return ScoredEdit(EngineFault("m", "f", "sign", nth), "line 1", bool(phases), phases=phases)

    found = [scored(0, "chosen", "laws"), scored(1, "laws"), scored(2)]
    assert list(by_phase(found)) == ["chosen: 1 of 2; alone 0: ", "laws: 2 of 2; alone 1: f: sign 1"]
