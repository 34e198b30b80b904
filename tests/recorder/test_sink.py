"""A recorder's files: who judges, who stops the engine, and what is left when the recorder itself fails. And the hook
that waits for an import."""

from __future__ import annotations

import atexit
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

from ropecheck.adapters import events
from ropecheck.adapters.sglang.recorder import hook, sink, watch

HEADER = events.TraceHeader(version=events.VERSION, family="qwen2_vl")
A, B, C = (events.Retracted(name) for name in "abc")


def written(folder: Path) -> list[events.Event]:
    decode = msgspec.json.Decoder(events.Event).decode
    return [decode(line) for path in sorted(folder.glob("*.ndjson")) for line in path.read_bytes().splitlines()]


def judged(folder: Path, wrong: Callable[[events.Event], str], **how: int) -> tuple[sink.Files, list[events.Event]]:
    """Files with a judge, and what it is asked."""
    asked: list[events.Event] = []

    def judge(event: events.Event) -> str:
        asked.append(event)
        return wrong(event)

    return sink.Files(folder, HEADER, "one", judge=judge, **how), asked


def test_a_judge_is_asked_of_each_event_and_the_first_wrong_one_stops_the_engine(tmp_path: Path) -> None:
    made, asked = judged(tmp_path, lambda event: f"{event.req} is wrong" if event in (B, C) else "")
    assert asked == [HEADER]
    made.put(A)
    made.settle()
    for event in (B, C):
        made.put(event)
    with pytest.raises(watch.Stop) as stop:
        made.settle()
    assert str(stop.value).splitlines()[0] == "b is wrong"
    assert str(tmp_path) in str(stop.value)
    assert asked == [HEADER, A, B], "after the first nothing more is asked"
    with pytest.raises(watch.Stop, match="b is wrong"):
        made.settle()


def test_without_a_judge_nothing_is_written_in_the_engines_own_time(tmp_path: Path) -> None:
    made = sink.Files(tmp_path, HEADER, "one")
    made.put(A)
    made.settle()
    made.close()
    assert written(tmp_path) == [HEADER, A]


def test_the_recorders_own_failure_is_told_beside_what_was_recorded_before(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, lambda event: "")
    made.put(A)
    made.failed(ValueError("no such field"))
    assert written(tmp_path) == [HEADER, A]
    (told,) = tmp_path.glob("*.error.txt")
    assert told.read_text() == "ValueError: no such field\n"
    assert told.name.startswith("one."), "beside the stream's own files"


def test_what_a_process_leaves_at_its_end_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    made, _ = judged(tmp_path, lambda event: "")
    made.put(A)
    assert written(tmp_path) == [HEADER]
    for function in at_exit:
        function()
    assert written(tmp_path) == [HEADER, A]


def test_files_are_as_large_as_they_may_be(tmp_path: Path) -> None:
    made, _ = judged(tmp_path, lambda event: "", largest=1)
    for event in (A, B):
        made.put(event)
        made.settle()
    made.close()
    parts = [json.loads(path.read_text().splitlines()[0])["part"] for path in sorted(tmp_path.glob("*.ndjson"))[1:]]
    assert parts and parts == sorted(set(parts))


# ---------------------------------------------------------------- the hook


def test_what_is_imported_already_is_watched_at_once() -> None:
    seen: list[object] = []
    before = list(sys.meta_path)
    hook.install(seen.append, trigger="json")
    assert seen == [json] and sys.meta_path == before


def test_the_hook_waits_for_its_module_alone_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("waited_for", "no_such_one"):
        monkeypatch.setattr(sys, "modules", dict(sys.modules))
        (tmp_path / "waited_for.py").write_text("value = 3\n")
        (tmp_path / "another_one.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path))
        seen: list[int] = []
        before = list(sys.meta_path)
        hook.install(lambda module, seen=seen: seen.append(module.value), trigger=name)  # type: ignore[misc]
        assert sys.meta_path[1:] == before, "it is asked first"
        importlib.import_module("another_one")
        assert seen == [] and len(sys.meta_path) == len(before) + 1
        if name == "waited_for":
            importlib.import_module(name)
            assert seen == [3], "the module has run by then"
        else:
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)
            assert seen == []
        assert sys.meta_path == before
