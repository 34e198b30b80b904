"""What of the adapter answers before any engine is asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters import events, protocol
from ropecheck.adapters.sglang.recorder.sink import Files
from ropecheck.adapters.sglang.recorder.watch import Stop
from ropecheck.adapters.sglang.scheduler import drafts, hosts
from ropecheck.adapters.toys import words


def test_a_process_that_forked_no_scheduler_offers_no_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_HOSTS", [])
    assert hosts.descriptors() == ()
    answer = hosts.play(protocol.PlayStep(body=b"{}"))
    assert answer == protocol.NotOfferedAnswer("no process for schedulers was forked")


def test_a_drafts_configuration_is_as_wide_as_its_targets() -> None:
    target = {"hidden_size": 64, "vocab_size": 512, "vision_config": {}, "architectures": ["Target"]}
    assert drafts.config("standalone", target) is target
    assert drafts.lacking("standalone", "cuda") == "", "a whole model needs no worker of its own"


def test_a_draft_that_ranks_by_speed_comes_with_its_table() -> None:
    assert drafts.files("dflash") == {}
    (text,) = drafts.files("dspark_table").values()
    table = json.loads(text)
    assert len(table["sample_batch_tokens"]) == len(table["sample_steps_per_sec"])


def test_an_unknown_buffer_is_told() -> None:
    padding = pytest.importorskip("ropecheck.adapters.sglang.padding", reason="needs torch")
    forward: Any = SimpleNamespace(padding=protocol.Padding("nosuch", 2, 2), mode="decode")
    with pytest.raises(ValueError, match="unknown padding kind 'nosuch' of decode"):
        padding.padded(None, forward, None, None)


def test_tokens_that_are_decoded_and_encoded_again_are_the_same() -> None:
    pytest.importorskip("transformers")
    tokenizer = words.tokenizer(words.SPECIAL)
    ids = [*range(3, words.VOCABULARY), words.START, *reversed(range(3, 40))]
    assert tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False) == ids


HEADER = events.TraceHeader(version=2, family="qwen2_vl")


def test_events_go_to_a_file_and_a_judge_stops_the_engine(tmp_path: Path) -> None:
    sink = Files(tmp_path, HEADER, "one", judge=lambda event: "" if event is HEADER else "wrong here")
    sink.settle()
    sink.put(events.Retracted(req="a"))
    with pytest.raises(Stop, match="wrong here"):
        sink.settle()
    sink.failed(RuntimeError("gone"))
    assert sink.stream.path.with_suffix(".error.txt").read_text() == "RuntimeError: gone\n"
    assert len(sink.stream.path.read_bytes().splitlines()) == 2
