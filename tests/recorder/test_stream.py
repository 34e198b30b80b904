"""A stream of events on its way to files: order, rotation, what is dropped, and what stops an engine. No engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ropecheck.adapters import events
from ropecheck.adapters.recording import SUFFIX, Stream
from ropecheck.conformance.trace.folder import streams, summary

HEADER = events.TraceHeader(version=events.VERSION, family="qwen2_vl")


class Late:
    """An event that is complete when it is told so."""

    def __init__(self, event: events.Event) -> None:
        self._event = event
        self.settled = False

    def ready(self) -> bool:
        return self.settled

    def wait(self) -> bool:
        return self.settled

    def event(self) -> events.Event:
        return self._event


def written(folder: Path) -> list[events.Event]:
    decode = msgspec.json.Decoder(events.Event).decode
    return [decode(line) for path in sorted(folder.glob(f"*{SUFFIX}")) for line in path.read_bytes().splitlines()]


def stream(folder: Path, **settings: int | Callable[[events.Event], None]) -> Stream:
    return Stream(folder, HEADER, "one", thread=False, **settings)  # type: ignore[arg-type]


def test_events_wait_for_an_earlier_one_and_keep_their_order(tmp_path: Path) -> None:
    made = stream(tmp_path)
    late = Late(events.Forward(mode="decode"))
    made.put(events.Retracted("a"))
    made.put(late)
    made.put(events.Rest())
    made.pump()
    assert written(tmp_path) == [HEADER, events.Retracted("a")]
    late.settled = True
    made.pump()
    assert written(tmp_path)[2:] == [events.Forward(mode="decode"), events.Rest()]


def test_what_finds_no_room_is_counted_where_it_is_missing(tmp_path: Path) -> None:
    made = stream(tmp_path, waiting=3)
    assert [made.put(events.Retracted(str(number))) for number in range(5)] == [True, True, True, False, False]
    made.pump()
    made.put(events.Rest())
    made.close()
    assert [type(event) for event in written(tmp_path)] == [
        events.TraceHeader, *[events.Retracted] * 3, events.Dropped, events.Rest,
    ]  # fmt: skip
    assert events.Dropped(2) in written(tmp_path)
    assert made.dropped == 2


def test_files_rotate_and_only_the_last_ones_stay(tmp_path: Path) -> None:
    made = stream(tmp_path, largest=300, keep=2)
    for number in range(40):
        made.put(events.Retracted(f"request {number}"))
        made.pump()
    made.close()
    paths = streams(tmp_path)["one"]
    assert len(paths) == 2
    assert sum(path.stat().st_size for path in paths) < 2 * 400
    heads = [event for event in written(tmp_path) if isinstance(event, events.TraceHeader)]
    assert heads[1].part == heads[0].part + 1 > 1
    assert written(tmp_path)[-1] == events.Retracted("request 39")


def test_a_thread_writes_and_a_full_disk_does_not_reach_the_engine(tmp_path: Path) -> None:
    made = Stream(tmp_path / "a", HEADER, "one")
    made.put(events.Rest())
    made.close()
    assert written(tmp_path / "a") == [HEADER, events.Rest()]

    broken = Stream(tmp_path / "b", HEADER, "one", largest=1)
    for path in (tmp_path / "b").iterdir():
        path.unlink()
    (tmp_path / "b").rmdir()
    broken.put(events.Rest())
    broken.close()
    assert threading.active_count() >= 1
    assert not broken.put(events.Rest())


def test_whoever_listens_may_stop_the_engine(tmp_path: Path) -> None:
    def listen(event: events.Event) -> None:
        if isinstance(event, events.Died):
            raise RuntimeError("stop")

    made = stream(tmp_path, listener=listen)
    made.put(events.Rest())
    made.put(events.Died("E", "m"))
    made.put(events.Rest())
    with pytest.raises(RuntimeError, match="stop"):
        made.pump()
    assert written(tmp_path)[-1] == events.Died("E", "m"), "the witness is written before anybody is stopped"


def arrival(name: str) -> events.Arrived:
    return events.Arrived(name, (events.PromptRun("text", 2),), 4)


def prefill(name: str) -> events.Forward:
    return events.Forward(
        mode="extend", reqs=(name,), tokens=(2,), positions=(0, 1), rows=((0, 1),) * 3, answers=((7,),),
        seq_lens=(2,), prefix_lens=(0,),
    )  # fmt: skip


def decode(name: str, at: int) -> events.Forward:
    return events.Forward(
        mode="decode",
        reqs=(name,),
        tokens=(1,),
        positions=(at,),
        rows=((at,),) * 3,
        answers=((8,),),
        seq_lens=(at + 1,),
    )


def judged(folder: Path, *wanted: events.Event) -> tuple[int, list[str]]:
    (folder / f"x.0000{SUFFIX}").write_bytes(b"".join(map(events.line, (HEADER, *wanted))))
    made = summary(folder)
    return made.exit_code, made.lines


def test_after_a_declared_gap_only_later_requests_are_judged(tmp_path: Path) -> None:
    before = (arrival("a"), prefill("a"), decode("a", 2))
    assert judged(tmp_path, *before, decode("a", 9))[0] == 1
    code, lines = judged(tmp_path, *before, events.Dropped(3), decode("a", 9), decode("unseen", 4))
    assert code == 0, lines
    assert any("3 events were dropped" in line for line in lines)
    wrong = (arrival("b"), prefill("b"), decode("b", 9))
    assert judged(tmp_path, *before, events.Dropped(3), *wrong)[0] == 1


def test_an_undeclared_gap_is_a_failure(tmp_path: Path) -> None:
    events_ = (arrival("a"), prefill("a"), decode("a", 2), decode("a", 3))
    assert judged(tmp_path, *events_)[0] == 0
    assert judged(tmp_path, *events_[:2], events_[3])[0] == 1


def test_a_later_part_alone_begins_in_the_middle(tmp_path: Path) -> None:
    later = msgspec.structs.replace(HEADER, part=3)
    body: tuple[events.Event, ...] = (decode("old", 5), arrival("b"), prefill("b"), decode("b", 2))
    (tmp_path / f"x.0003{SUFFIX}").write_bytes(b"".join(events.line(event) for event in (later, *body)))
    assert summary(tmp_path).exit_code == 0
    following = msgspec.structs.replace(HEADER, part=4)
    (tmp_path / f"x.0004{SUFFIX}").write_bytes(events.line(following) + events.line(decode("b", 3)))
    assert summary(tmp_path).exit_code == 0
    (tmp_path / f"x.0004{SUFFIX}").write_bytes(events.line(following) + events.line(decode("b", 4)))
    assert summary(tmp_path).exit_code == 1
