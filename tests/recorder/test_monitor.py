"""The monitor alone, on tensors of the host: what it finds wrong, what it passes over, and what it says of it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters import events  # noqa: E402 - the others import torch
from ropecheck.adapters.sglang.recorder import monitor as module  # noqa: E402
from ropecheck.adapters.sglang.recorder.monitor import NEWS, TOGETHER, Monitor  # noqa: E402
from tests.recorder.support import Event, OnGpu, Torch  # noqa: E402

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


@pytest.mark.parametrize(("words", "silent"), [("CUDA error: device-side assert triggered", True), ("a size", False)])
def test_only_a_failed_kernel_silences_its_end(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, words: str, silent: bool
) -> None:
    def fails(wait: bool = False) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(watched.monitor, "_news", fails)
    with contextlib.nullcontext() if silent else pytest.raises(RuntimeError, match=words):
        watched.monitor.close()


def test_a_batch_that_has_not_changed_is_asked_for_once(watched: Watched) -> None:
    asked: list[str] = []
    watched.monitor._place = lambda req: (asked.append(req), PLACES[req])[1]  # type: ignore[func-returns-value]
    for _ in range(3):
        watched.decode(6, 8)
    assert asked == ["a", "b"]
    watched.monitor.put(events.Retracted("a"))
    watched.decode(6, 8)
    assert asked == ["a", "b"]
    arrived = events.Arrived("a", (), 1)
    watched.monitor.put(arrived)
    watched.decode(6, 8)
    assert asked == ["a", "b"] * 2, "a name may come again"
    assert watched.fed == [events.Retracted("a"), arrived]
    watched.extend([[1, 1, 1, 2], [1, 1, 1, 2], [1, 2, 1, 2]])
    watched.decode(6, 8, rids=["b", "a"])
    assert asked == ["a", "b"] * 3 + ["b", "a"]


def test_a_wider_batch_of_the_same_requests_is_another(watched: Watched) -> None:
    """Verifies of two nodes each, then decodes."""
    batch = SimpleNamespace(rids=["a", "b"])
    for _ in range(ROUNDS):
        watched.monitor.look("target_verify", batch, torch.tensor([6, 7, 9, 10]), torch.tensor([[6, 7, 8, 9]] * 3))
        watched.decode(6, 8)
    watched.monitor.close()
    assert watched.said == [] and watched.monitor.counts == {"target_verify": ROUNDS, "decode": ROUNDS}
    watched.monitor.look("target_verify", batch, torch.tensor([6, 7, 9, 10]), torch.tensor([[6, 7, 8, 8]] * 3))
    watched.monitor.close()
    assert len(watched.said) == 1


def test_nothing_is_written_while_all_is_right_and_its_folder_is_made_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "not" / "yet" / "monitor.json"
    watched = Watched(file)
    for _ in range(ROUNDS):
        watched.decode(6, 8)
    assert not file.exists()
    watched.monitor.close()
    assert json.loads(file.read_text())["forwards"] == ROUNDS
    other = Watched(tmp_path / "neither" / "monitor.json")
    other.monitor.failed(ValueError("x"))
    assert (tmp_path / "neither" / "monitor.error.txt").exists()


def test_without_rows_there_is_nothing_to_compare(watched: Watched) -> None:
    watched.monitor.look("decode", SimpleNamespace(rids=["a"]), torch.tensor([6]), None)
    watched.monitor.close()
    assert (watched.said, watched.monitor.counts, watched.monitor._seen) == ([], {}, 1)


def test_a_batch_of_nobody_is_right(watched: Watched) -> None:
    nobody = torch.tensor([], dtype=torch.int64)
    watched.monitor.look("idle", SimpleNamespace(rids=[]), nobody, nobody.expand(3, 0))
    watched.monitor.close()
    assert watched.said == [] and watched.monitor.counts == {"idle": 1}


def on_gpu(watched: Watched, first: int, rounds: int = 1) -> None:
    """Decodes whose tables are on a GPU."""
    for _ in range(rounds):
        rows = torch.tensor([[first, 8]] * 3).as_subclass(OnGpu)
        positions = torch.tensor([6, 9]).as_subclass(OnGpu)
        watched.monitor.look("decode", SimpleNamespace(rids=["a", "b"]), positions, rows)


def test_on_a_gpu_the_flag_comes_when_it_is_there_and_nobody_waits(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Torch()
    monkeypatch.setattr(module, "torch", fake)
    on_gpu(watched, 7, NEWS)
    assert watched.said == [], "the first copy has been asked for"
    Event.reached = False
    on_gpu(watched, 7, NEWS)
    assert watched.said == []
    Event.reached = True
    on_gpu(watched, 7, NEWS)
    assert len(watched.said) == 1 and (Event.waited, fake.waits) == (0, 0)


def test_on_a_gpu_the_last_flag_is_waited_for(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Torch()
    monkeypatch.setattr(module, "torch", fake)
    on_gpu(watched, 6, ROUNDS)
    assert watched.said == []
    Event.reached = False
    on_gpu(watched, 7)
    watched.monitor.close()
    assert len(watched.said) == 1 and fake.waits == 1 and Event.waited == 2


def test_on_a_gpu_windows_are_compared_too(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "torch", Torch())
    batch = SimpleNamespace(rids=["a"], extend_seq_lens_cpu=[2], extend_prefix_lens_cpu=[1])
    for last, said in ((1, 0), (2, 1)):
        rows = torch.tensor([[1, 1], [1, 1], [1, last + 1]]).as_subclass(OnGpu)
        watched.monitor.look("extend", batch, torch.tensor([1, 2]).as_subclass(OnGpu), rows)
        watched.monitor.close()
        assert len(watched.said) == said


def _named(mode: str) -> Any:
    return SimpleNamespace(forward_mode=SimpleNamespace(name=mode))
