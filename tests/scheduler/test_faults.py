"""How a function's text is changed in memory: which one, in what holder, and when it is refused."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from ropecheck.adapters.sglang.scheduler import faults
from ropecheck.adapters.sglang.scheduler.faults import Patch, apply

TEXT = """
SCALE = 10


def twice(value):
    return value * 2


def called():
    global SCALE
    SCALE = 11


class Held:
    factor = 3

    def times(self, value: "NoSuchName") -> "NoSuchName":
        if value:
            value += 1
        return value * self.factor

    @staticmethod
    def fixed(value):
        return value + SCALE

    @classmethod
    def of(cls, value):
        return cls.factor + value
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of those functions."""
    file = tmp_path / "ropecheck_toy.py"
    file.write_text(
        TEXT.replace('"NoSuchName"', "NoSuchName").replace("\nSCALE", "from __future__ import annotations\nSCALE", 1)
    )
    spec = importlib.util.spec_from_file_location("ropecheck_toy", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ropecheck_toy", module)
    spec.loader.exec_module(module)
    return module


def patch(function: str, old: str, new: str) -> Patch:
    return Patch("", "ropecheck_toy", function, old, new)


def test_each_kind_of_function_is_changed_where_it_stands(toy: Any) -> None:
    apply(patch("twice", "value * 2", "value * SCALE"))
    apply(patch("Held.times", "value * self.factor", "value - self.factor"))
    apply(patch("Held.fixed", "value + SCALE", "value - SCALE"))
    apply(patch("Held.of", "cls.factor + value", "cls.factor - value"))
    assert (toy.twice(3), toy.Held().times(5), toy.Held.fixed(4), toy.Held().of(2)) == (30, 3, -6, 1)
    assert toy.Held().fixed(4) == -6 and toy.Held.of(2) == 1


def test_lines_are_changed_at_their_own_indent(toy: Any) -> None:
    """A patch is written as the lines stand in the file."""
    apply(patch("Held.times", "if value:\n            value += 1", "if not value:\n            value += 7"))
    assert toy.Held().times(0) == 21 and toy.Held().times(2) == 6


def test_what_stood_there_can_be_put_back(toy: Any) -> None:
    before = {name: vars(toy.Held)[name] for name in ("times", "fixed", "of")}
    for function, old in (("times", "* self"), ("fixed", "+ SCALE"), ("of", "+ value")):
        owner, name, value = apply(patch(f"Held.{function}", old, f"- {old[2:]}"))
        assert (owner, name, value) == (toy.Held, function, before[function])
        setattr(owner, name, value)
    assert apply(patch("twice", "* 2", "* 3"))[:2] == (toy, "twice")
    assert {name: vars(toy.Held)[name] for name in before} == before


@pytest.mark.parametrize(("old", "times"), [("no such text", 0), ("value", 2)])
def test_a_text_that_does_not_stand_there_once_is_refused(toy: Any, old: str, times: int) -> None:
    with pytest.raises(LookupError, match=f"twice: the text to change stands there {times} times"):
        apply(patch("twice", old, "x"))
    assert toy.twice(3) == 6


def test_the_environment_names_a_fault_or_a_function(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(faults.FAULTS, "thrice", patch("twice", "* 2", "* 3"))
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    faults.install()
    assert (toy.twice(1), toy.SCALE) == (2, 10)
    monkeypatch.setenv(faults.VARIABLE, "thrice")
    faults.install()
    assert (toy.twice(1), toy.SCALE) == (3, 10)
    monkeypatch.setenv(faults.VARIABLE, "ropecheck_toy:called")
    faults.install()
    assert toy.SCALE == 11
    monkeypatch.setenv(faults.VARIABLE, "no such fault")
    with pytest.raises(KeyError):
        faults.install()
