"""What is found of a release, on modules of small fakes; that the real ones' names are found is said by every Hello."""

from __future__ import annotations

import functools
import inspect
import sys
from array import array
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters.sglang import absent_packages, capabilities
from ropecheck.adapters.sglang.capabilities import (
    FLAGS,
    PLACES,
    Engine,
    arguments_of,
    filled,
    find,
    parameters,
    taken,
    tokenized,
)
from ropecheck.adapters.sglang.imports import CannotImport


class Mode(IntEnum):
    EXTEND = 1
    DECODE = 2


class Req:
    """Of a release of 0.5.22 and later."""

    def __init__(self, rid: str, origin_input_ids: array[int]) -> None:
        self.prefix_len = 0


class OlderReq:
    def __init__(self, rid: str, origin_input_ids: list[int]) -> None:
        self.prefix_indices = []  # type: ignore[var-annotated]


class Session:
    def __init__(self, capacity: int, streaming: bool = False) -> None: ...

    def create_req(self, received: Any, tokenizer: Any, vocab_size: int) -> None: ...


class OlderSession:
    def __init__(self, capacity: int) -> None: ...

    def create_req(self, received: Any, tokenizer: Any) -> None: ...


class Media:
    mrope_position_delta_repeated_cache = None


class OlderBatch:
    def get_model_worker_batch(self) -> None: ...


class ForwardBatch:
    @staticmethod
    def init_new(batch: Any, model_runner: Any) -> None: ...


def slots(reqs: Any, positions: Any = None) -> None: ...


NEW: dict[str, Any] = {
    "ForwardMode": Mode,
    "ForwardBatch": ForwardBatch,
    "Req": Req,
    "Session": Session,
    "ScheduleBatch": object,
    "MultimodalInputs": Media,
    "assign_draft_cache_locs": slots,
}
OLD: dict[str, Any] = {
    **NEW,
    "Req": OlderReq,
    "Session": OlderSession,
    "ScheduleBatch": OlderBatch,
    "MultimodalInputs": object,
    "assign_draft_cache_locs": None,
}


def release(monkeypatch: pytest.MonkeyPatch, known: dict[str, Any], version: str = "0.5.23") -> Engine:
    """The engine where each name's last place holds what is known of it."""
    package = ModuleType("sglang")
    package.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang", package)
    held = {places[-1]: known.get(name) for name, places in PLACES.items()}

    def fake(place: str) -> Any:
        if held.get(place) == "broken":
            raise CannotImport(f"{place} fails")
        return held.get(place)

    monkeypatch.setattr(capabilities, "find", fake)
    return Engine()


def test_everything_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = release(monkeypatch, NEW)
    assert engine.version == "0.5.23" and engine.Req is Req and engine.RadixCache is None
    assert engine.found["Session"] == PLACES["Session"][-1] and engine.found["RadixCache"] == ""
    assert engine.modes == {"EXTEND": 1, "DECODE": 2} and engine.found["ForwardMode.DECODE"] == "member"
    assert engine.mode("DECODE") is Mode.DECODE and engine.mode("MIXED") is None
    assert {flag: engine.found[flag] for flag in FLAGS} == dict.fromkeys(FLAGS, "yes")
    assert all(getattr(engine, flag) for flag in FLAGS) and engine.found["streaming_sessions"] == "yes"
    assert engine.found["init_new"] == "batch, model_runner"
    assert engine.found["create_req"] == "received, tokenizer, vocab_size" and engine.broken == {}
    assert list(engine.session_takes) == ["capacity", "streaming"] and list(engine.req_takes) == [
        "rid",
        "origin_input_ids",
    ]
    assert engine.tokens([1, 2]) == array("q", [1, 2])
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = engine.no_such_name


def test_an_older_release_is_told_by_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = release(monkeypatch, OLD, "0.5.6")
    assert {flag: engine.found[flag] for flag in FLAGS} == dict.fromkeys(FLAGS, "")
    assert not any(getattr(engine, flag) for flag in FLAGS) and engine.found["streaming_sessions"] == ""
    assert engine.tokens((1, 2)) == [1, 2] and "vocab_size" not in engine.create_req_takes
    lacking = release(monkeypatch, {**OLD, "Session": None}, "0.5.6")
    assert lacking.create_req_takes == {} and "streaming" not in lacking.session_takes and "Session" in lacking.lost


def test_what_fails_is_kept_with_its_reason_and_the_next_place_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    newest, older = PLACES["SessionController"]
    engine = release(monkeypatch, NEW | {"RadixKey": "broken"})
    assert engine.broken == {"RadixKey": f"{PLACES['RadixKey'][0]} fails"} and engine.found["RadixKey"] == ""
    assert "RadixKey" not in engine.lost and "RadixCache" in engine.lost
    answers = {newest: CannotImport("fails"), older: "found"}

    def fake(place: str) -> Any:
        if isinstance(answer := answers[place], Exception):
            raise answer
        return answer

    monkeypatch.setattr(capabilities, "find", fake)
    assert engine._look_up("SessionController", (newest, older)) == "found"
    assert engine.found["SessionController"] == older and engine.broken["SessionController"] == "fails"


# ---------------------------------------------------------------- places

HOLDER = "capabilities_holder"


@pytest.fixture
def holder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a function, a class with a method, and an input with one."""

    class Owner:
        def method(self, *given: Any) -> Any:
            return self, given

    made: Any = ModuleType(HOLDER)
    made.function, made.Worker, made.DraftInput = len, Owner, Owner
    monkeypatch.setitem(sys.modules, HOLDER, made)
    return made


def test_a_place_is_a_name_or_a_method(holder: Any) -> None:
    assert find(f"{HOLDER}:function") is len and find(f"{HOLDER}:nothing") is None
    assert find(f"{HOLDER}:Nothing.method") is None and find(f"{HOLDER}:Worker.nothing") is None
    assert find(f"{HOLDER}:DraftInput.method") is holder.DraftInput.method
    found = find(f"{HOLDER}:Worker.method")
    assert isinstance(found, functools.partial) and found(1, 2) == (None, (1, 2))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModuleNotFoundError("x", name=HOLDER), None),
        (ModuleNotFoundError("x", name="capabilities_holder.part"), None),
        (ModuleNotFoundError("x", name="capabilities"), CannotImport),
        (ModuleNotFoundError("x", name="json"), CannotImport),
        (ImportError("x\ny", name=HOLDER), CannotImport),
        (OSError("x\ny"), CannotImport),
        (OSError(), CannotImport),
        (ModuleNotFoundError("x", name="decord.part"), ModuleNotFoundError),
        (ZeroDivisionError("x"), ZeroDivisionError),
    ],
)
def test_an_import_that_fails(error: Exception, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(absent_packages.VARIABLE, "")

    def fails(name: str) -> Any:
        raise error

    monkeypatch.setattr("importlib.import_module", fails)
    if kind is None:
        assert find(f"{HOLDER}.part:name") is None
        return
    with pytest.raises(kind) as raised:
        find(f"{HOLDER}.part:name")
    if kind is CannotImport:
        said = f"{HOLDER}.part cannot be imported: {type(error).__name__}: {'x' if str(error) else ''}"
        assert str(raised.value) == said


# ---------------------------------------------------------------- arguments


class Taking:
    def __init__(self, needed: Any, also: Any, given: Any = 5) -> None:
        self.all = needed, also, given


def test_what_a_class_takes_is_given_and_what_it_needs_is_none() -> None:
    assert filled(Taking, needed=1, unknown=2).all == (1, None, 5)
    assert filled(Taking, needed=1, also=2, given=3).all == (1, 2, 3)
    assert arguments_of(Taking) == (frozenset({"needed", "also", "given"}), ("needed", "also"))
    assert taken(Taking, given=0, unknown=2) == {"given": 0}
    assert parameters(None) == {} and parameters(Taking.__init__) == {"needed": "Any", "also": "Any", "given": "Any"}
    assert parameters(lambda bare: None) == {"bare": str(inspect.Parameter.empty)}


def test_a_request_asks_for_no_probabilities_and_no_stream() -> None:
    def kept(return_logprob: Any, logprob_start_len: Any, top_logprobs_num: Any, stream: Any, rid: Any) -> Any:
        return SimpleNamespace(**locals())

    plain = {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0, "stream": False}
    assert vars(tokenized(kept, rid="r", unknown=1)) == plain | {"rid": "r"}
    assert tokenized(kept, stream=True).stream is True and tokenized(kept).rid is None
