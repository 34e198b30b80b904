"""The monitor alone, on tensors of the host: what it finds wrong, what it passes over, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang.recorder.monitor import NEWS, TOGETHER, Monitor  # noqa: E402 - it imports torch

PLACES = {
    "a": SimpleNamespace(rows=((0, 1, 1, 3), (0, 1, 1, 3), (0, 1, 2, 3)), delta=0),
    "b": SimpleNamespace(rows=((0, 1, 1),) * 3, delta=-1),
}
ROUNDS = TOGETHER * NEWS
"""Decodes after which the flag has been read."""


class Watched:
    """A monitor, and what it said."""

    def __init__(self, file: Path, every: int = 1) -> None:
        self.said: list[str] = []
        self.fed: list[Any] = []
        self.monitor = Monitor(self.fed.append, PLACES.get, file, self.said.append, every)

    def decode(self, first: int, second: int, **at: Any) -> None:
        """Both requests' next token, at these columns; their indices are 6 and 9."""
        rows = torch.tensor([[first, second]] * 3)
        batch = SimpleNamespace(rids=at.get("rids", ["a", "b"]))
        self.monitor.look("decode", batch, torch.tensor([6, 9]), at.get("rows", rows))

    def extend(self, rows: list[list[int]], rids: tuple[str, ...] = ("a", "b")) -> None:
        """A window of each: two of a's prompt from its second token on, and b's last and one behind it."""
        batch = SimpleNamespace(rids=list(rids), extend_seq_lens_cpu=[2, 2], extend_prefix_lens_cpu=[1, 2])
        self.monitor.look("extend", batch, torch.tensor([1, 2, 2, 3]), torch.tensor(rows))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "monitor.json")


def test_what_is_right_is_counted_and_nothing_is_said(watched: Watched, tmp_path: Path) -> None:
    watched.extend([[1, 1, 1, 2], [1, 1, 1, 2], [1, 2, 1, 2]])
    for _ in range(ROUNDS):
        watched.decode(6, 8)
    watched.monitor.close()
    assert watched.said == []
    found = json.loads((tmp_path / "monitor.json").read_text())
    assert found == {"wrong": False, "looked_at": {"extend": 1, "decode": ROUNDS}, "forwards": ROUNDS + 1}


@pytest.mark.parametrize("wrong", [(7, 8), (6, 9), (5, 8)])
def test_a_decode_off_its_delta_is_told_once(watched: Watched, wrong: tuple[int, int], tmp_path: Path) -> None:
    for _ in range(2 * ROUNDS):
        watched.decode(*wrong)
    assert len(watched.said) == 1
    assert json.loads((tmp_path / "monitor.json").read_text())["wrong"] is True


def test_one_wrong_row_is_enough(watched: Watched) -> None:
    watched.decode(6, 8, rows=torch.tensor([[6, 8], [6, 8], [6, 9]]))
    watched.monitor.close()
    assert len(watched.said) == 1


@pytest.mark.parametrize(("axis", "token"), [(axis, token) for axis in range(3) for token in range(4)])
def test_every_column_of_a_window_is_compared(watched: Watched, axis: int, token: int) -> None:
    rows = [[1, 1, 1, 2], [1, 1, 1, 2], [1, 2, 1, 2]]
    rows[axis][token] += 1
    watched.extend(rows)
    watched.monitor.close()
    assert len(watched.said) == 1


def test_what_waits_is_judged_before_another_batch_comes(watched: Watched) -> None:
    watched.decode(7, 8)
    watched.decode(9, 8, rids=["b", "b"], rows=torch.tensor([[5, 8]] * 3))
    watched.monitor.close()
    assert len(watched.said) == 1


def test_of_a_request_that_nobody_knows_nothing_is_said(watched: Watched) -> None:
    watched.decode(99, 99, rids=["a", "c"])
    watched.extend([[9] * 4] * 3, rids=("a", "c"))
    watched.monitor.close()
    assert watched.said == [] and watched.monitor.counts == {}


def test_a_table_that_is_too_short_is_wrong(watched: Watched) -> None:
    watched.decode(0, 0, rows=torch.tensor([[6]] * 3))
    assert len(watched.said) == 1


def test_decodes_and_verifies_are_passed_over_but_for_one_in_so_many(tmp_path: Path) -> None:
    passes = Watched(tmp_path / "monitor.json", every=3).monitor.passes
    assert [passes(batch) for batch in [_named("DECODE")] * 6] == [True, True, False, True, True, False]
    assert not any(passes(_named(mode)) for mode in ("EXTEND", "MIXED", "IDLE") for _ in range(3))
    assert passes(_named("TARGET_VERIFY"))


def test_its_own_failure_is_kept_beside_the_count(watched: Watched, tmp_path: Path) -> None:
    watched.monitor.failed(ValueError("no room"))
    assert (tmp_path / "monitor.error.txt").read_text() == "ValueError: no room\n"


def _named(mode: str) -> Any:
    return SimpleNamespace(forward_mode=SimpleNamespace(name=mode))
