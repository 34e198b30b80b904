"""Requests and sessions over an engine of small fakes: what is handed to which of its functions, and in what order, in
releases that have them and in those that have not. What real ones make of it is test_adapter.py's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import protocol as p
from ropecheck.adapters.sglang import requests, sessions
from ropecheck.adapters.sglang.capabilities import Absent
from ropecheck.adapters.sglang.stand_ins import VOCABULARY
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import pack

pytestmark = pytest.mark.engine

FOUR = p.Tensor("int64", (3, 4), torch.arange(12, dtype=torch.int64).numpy().tobytes())
PICTURE = p.Item("image", 1, 3)
CLIP = p.Item("video", 3, 4, more=((5, 7),))
SAME = p.Item("image", 1, 3, pixels=2)


class Fields(SimpleNamespace):
    """What an engine's class keeps: what it was given."""


class Abort(SimpleNamespace):
    def __init__(self, message: str) -> None:
        super().__init__(message=message)


def noting(did: list[Any], name: str, **attributes: Any) -> Any:
    """An object that notes calls of the named methods."""
    methods = attributes.pop("methods", ())
    noted = {one: lambda *given, one=one: did.append((name, one, *given)) for one in methods}
    return SimpleNamespace(**noted, **attributes)


class Tokenized(Fields):
    def __init__(
        self, rid: Any, input_ids: Any, mm_inputs: Any, sampling_params: Any, session_params: Any, stream: bool
    ) -> None:
        super().__init__(rid=rid, input_ids=input_ids, mm_inputs=mm_inputs, stream=stream)
        self.sampling_params, self.session_params = sampling_params, session_params


class Controller:
    """Of a release that moves spans itself."""

    @staticmethod
    def adjust_mm_offsets(received: Any, req: Any, inputs: Any) -> None:
        assert isinstance(received, Tokenized) and received.mm_inputs is None
        inputs.moved = (received.rid, received.input_ids, received.sampling_params, req)


class Req(SimpleNamespace):
    def __init__(self, rid: str, text: str, ids: list[int], params: Any, vocab_size: int) -> None:
        super().__init__(rid=rid, text=text, origin_input_ids=ids, sampling_params=params, vocab_size=vocab_size)
        self.output_ids: list[int] = []
        self.finished_reason: Any = None
        self.multimodal_inputs: Any = None

    def extend_image_inputs(self, inputs: Any) -> None:
        self.multimodal_inputs = inputs


class Engine(SimpleNamespace):
    """A release; fields are what it has."""

    def __init__(self, **changed: Any) -> None:
        made = SimpleNamespace(
            from_processor_output=lambda output: SimpleNamespace(kind="output", **vars(output)),
            from_dict=lambda output: SimpleNamespace(kind="dict", **output),
        )
        pattern = SimpleNamespace(pad_input_tokens=lambda ids, inputs: [one + 1000 for one in ids])
        found = {
            "SamplingParams": Fields,
            "Req": Req,
            "MultimodalInputs": made,
            "MultimodalProcessorOutput": Fields,
            "MultimodalDataItem": Fields,
            "Modality": SimpleNamespace(IMAGE="an image", VIDEO="a video"),
            "SessionController": Controller,
            "PaddingPattern": lambda: pattern,
            "TokenizedGenerateReqInput": Tokenized,
            "FINISH_LENGTH": lambda length: f"length {length}",
            "FINISH_ABORT": Abort,
            "SessionParams": Fields,
            "Session": None,
            "session_takes": ("streaming",),
            "create_req_takes": ("vocab_size",),
            "InsertParams": Fields,
            "RadixKey": lambda *given: ("key", *given),
        }
        super().__init__(**(found | changed))

    def tokens(self, ids: Any) -> list[int]:
        return list(ids)

    def needs(self, *names: str) -> None:
        self.needed = names

    def absent(self, name: str, message: str) -> Exception:
        return Absent(f"{name}: {message}")


def state(**changed: Any) -> Any:
    return JobState(Engine(**changed), p.Job("s", ()))  # type: ignore[arg-type]


# ---------------------------------------------------------------- arrival


def test_a_request_of_text() -> None:
    job = state()
    requests.submit(job, p.SubmitStep(3, (5, 6), max_new_tokens=7))
    req = job.reqs[3]
    assert (req.rid, req.text, req.origin_input_ids, req.vocab_size) == ("r3", "", [5, 6], VOCABULARY)
    assert req.sampling_params == Fields(max_new_tokens=7) and req.multimodal_inputs is None


def media(*items: p.Item, view: bool = False) -> p.Media:
    return p.Media(FOUR, -2, items, view)


def test_a_request_with_media_goes_the_schedulers_way() -> None:
    job = state()
    requests.submit(job, p.SubmitStep(3, (5, 6, 7, 8), media(PICTURE)))
    req = job.reqs[3]
    inputs = req.multimodal_inputs
    assert inputs.kind == "output" and inputs.moved == ("r3", [5, 6, 7, 8], req.sampling_params, req)
    assert req.origin_input_ids == [1005, 1006, 1007, 1008]


@pytest.mark.parametrize("older", [False, True])
def test_what_a_processor_hands_over(older: bool) -> None:
    """Spans end with their last token; each item has a hash of its own unless its pixels are another's."""
    job = state(**({"MultimodalProcessorOutput": None} if older else {}))
    job.items = 10
    ids = tuple(range(50, 58))
    made = requests.processor_output(job, media(PICTURE, CLIP, SAME, SAME), ids)
    fields = made if older else vars(made)
    items = fields.pop("mm_items")
    assert [(one.modality, one.offsets) for one in items] == [
        ("an image", [(1, 2)]),
        ("a video", [(3, 3), (5, 6)]),
        ("an image", [(1, 2)]),
        ("an image", [(1, 2)]),
    ]
    first, second, third, fourth = (one.hash for one in items)
    assert (first, second) == (11, 12) and third == fourth > 1000 * job.items and job.items == 14
    table, delta = fields.pop("mrope_positions"), fields.pop("mrope_position_delta")
    assert table.tolist() == torch.arange(12).reshape(3, 4).tolist() and table.is_contiguous()
    assert delta.tolist() == [[-2]] and delta.dtype == torch.int64
    assert fields == {"im_token_id": 51, "video_token_id": 53}
    view = requests.processor_output(job, media(view=True), ids)
    strided = view["mrope_positions"] if older else view.mrope_positions
    assert torch.equal(strided, table) and not strided.is_contiguous()


def test_older_releases_have_a_dictionary_and_spans_of_the_turn() -> None:
    """There the adapter moves spans behind the history that was before the turn."""
    job = state(MultimodalProcessorOutput=None, SessionController=None)
    req = Req("r0", "", [1, 2, 3, 4, 5], None, 0)
    items = [Fields(offsets=[(0, 1), (2, 2)]), Fields(offsets=[(1, 1)])]
    requests.attach_media(job, req, {"mm_items": items}, recv_ids=[4, 5])
    assert req.multimodal_inputs.kind == "dict"
    assert [one.offsets for one in items] == [[(3, 4), (5, 5)], [(4, 4)]]


def test_what_reaches_the_scheduler_asks_for_no_stream() -> None:
    found = requests.received_input(state(), "r1", [1], "params", "session", "output")
    assert vars(found) == {
        "rid": "r1",
        "input_ids": [1],
        "mm_inputs": "output",
        "sampling_params": "params",
        "session_params": "session",
        "stream": False,
    }


# ---------------------------------------------------------------- life


def running(job: Any, did: list[Any], *methods: str, **attributes: Any) -> Any:
    """Request 0 of a job."""
    made = noting(did, "req", methods=methods, output_ids=[], origin_input_ids=[1, 2, 3], **attributes)
    job.reqs[0] = made
    return made


@pytest.mark.parametrize(
    ("streaming", "methods", "expected"),
    [(True, ("finish_req",), 1), (False, ("finish_req",), 0), (True, (), 0)],
)
def test_an_end_is_committed_to_a_streaming_session(streaming: bool, methods: Any, expected: int) -> None:
    job, did = state(), []  # type: ignore[var-annotated]
    req = running(job, did, session=noting(did, "session", methods=methods, streaming=streaming))
    requests.generate(job, p.Generate(0, (7, 8)))
    requests.generate(job, p.Generate(0, (9,)))
    requests.finish(job, p.Finish(0))
    assert req.output_ids == [7, 8, 9] and req.finished_reason == "length 3"
    assert did == [("session", "finish_req", req)] * expected
    del req.session
    requests.finish(job, p.Finish(0))


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_an_abort_marks_what_runs_and_gives_its_media_back(runs: bool, streaming: bool) -> None:
    job, did = state(), []  # type: ignore[var-annotated]
    session = noting(did, "session", methods=("abort_req",), streaming=streaming)
    req = running(job, did, "release_mm_inputs_on_abort", session=session, finished_reason=None)
    if runs:
        job.running.add(0)
    requests.abort(job, p.Abort(0))
    assert isinstance(req.finished_reason, Abort) == runs
    released = [("req", "release_mm_inputs_on_abort")]
    assert did == released + ([("session", "abort_req")] if streaming else [])
    job, did = state(), []
    running(job, did, session=SimpleNamespace(streaming=True), finished_reason=None)
    requests.abort(job, p.Abort(0))  # a release that has neither
    running(job, did, finished_reason=None)
    requests.abort(job, p.Abort(0))
    assert did == []


def test_a_window_begins_once_and_a_retracted_request_begins_again() -> None:
    job, did = state(), []  # type: ignore[var-annotated]
    req = running(job, did, "init_next_round_input", "reset_for_retract")
    considered = ("req", "init_next_round_input", None)
    requests.begin_window(job, 0, req)
    assert did == [considered] and job.running == {0}
    requests.schedule(job, p.Schedule(0, attempts=3))
    assert did == [considered] * 4 and job.considered == {0}
    requests.begin_window(job, 0, req)
    assert did == [considered] * 4 and job.considered == set()
    requests.begin_window(job, 0, req)
    assert did == [considered] * 5
    requests.schedule(job, p.Schedule(0))
    requests.retract(job, p.Retract(0))
    assert did[-1] == ("req", "reset_for_retract") and job.considered == job.running == set()


@pytest.mark.parametrize("older", [False, True])
def test_a_hit_is_a_prefix_that_a_cache_holds(older: bool) -> None:
    inserted: list[Any] = []
    cache = SimpleNamespace(insert=lambda *given: inserted.append(given))
    radix = SimpleNamespace(create_simulated=lambda: cache)
    job, did = state(RadixCache=radix, **({"InsertParams": None} if older else {})), []  # type: ignore[var-annotated]
    req = running(job, did, "init_next_round_input", extra_key="more")
    req.output_ids = [8, 9]
    requests.schedule(job, p.Schedule(0, attempts=2, hit=4))
    assert did == [("req", "init_next_round_input", cache)] * 2 and job.engine.needed == ("RadixCache", "RadixKey")
    (given,) = inserted
    key, value = given if older else (given[0].key, given[0].value)
    assert key == ("key", [1, 2, 3, 8], "more") and value.shape == (4,) and value.dtype == torch.int64
    del req.extra_key
    assert requests.prefix_cache(job, req, 2) is cache
    job.engine.RadixCache = None
    with pytest.raises(Absent, match="create_simulated"):
        requests.prefix_cache(job, req, 2)


# ---------------------------------------------------------------- what is seen


def seen(job: Any, **changed: Any) -> p.RequestState:
    """A request of text with a prefix of four tokens, and what is changed in it."""
    fields: dict[str, Any] = {
        "multimodal_inputs": None,
        "finished_reason": None,
        "origin_input_ids": [1, 2],
        "origin_input_ids_unpadded": [3, 4],
        "output_ids": [5],
        "prefix_len": 4,
    }
    job.reqs[0] = SimpleNamespace(**(fields | changed))
    return requests.request_state(job, 0)


def test_a_request_is_told_as_the_engine_holds_it() -> None:
    job = state()
    plain = p.RequestState(0, (1, 2), (3, 4), None, (5,), 4, None, None, None, ())
    assert seen(job) == plain == seen(job, fill_ids=[])
    assert seen(job, fill_ids=[7]).fill_ids == (7,)
    assert seen(job, fill_ids=[7], full_untruncated_fill_ids=[7, 8]).fill_ids == (7, 8)
    table, delta = torch.arange(6).reshape(3, 2), torch.tensor([[-1]])
    items = [Fields(offsets=[(1, 2), (4, 4)]), Fields(offsets=None), Fields(offsets=[(6, 7)])]
    inputs = Fields(mm_items=items, mrope_positions=table, mrope_position_delta=delta)
    found = seen(job, multimodal_inputs=inputs)
    assert (found.table, found.delta, found.delta_cache) == (pack(table), pack(delta), None)
    assert found.offsets == ((1, 3), (4, 5), (6, 8))
    inputs.mrope_position_delta_repeated_cache = delta + 1
    assert seen(job, multimodal_inputs=inputs).delta_cache == pack(delta + 1)
    older = seen(job)
    del job.reqs[0].prefix_len
    job.reqs[0].prefix_indices = [0] * 3
    assert older.prefix_len == 4 and requests.request_state(job, 0).prefix_len == 3


def test_an_abort_is_told_with_its_note() -> None:
    job = state()
    assert not seen(job, finished_reason="length").aborted
    for field in ("finished_reason", "to_finish"):
        found = seen(job, **{field: Abort("given up")})
        assert found.aborted and found.note == "given up"
    assert seen(job, to_finish=Abort("")).note == ""


def test_requests_that_were_not_made_are_left_out() -> None:
    job = state()
    seen(job)
    assert [one.req for one in requests.observe(job, p.Observe((0, 5))).states] == [0]
    job.absent[5] = "no sessions"
    with pytest.raises(Absent):
        requests.observe(job, p.Observe((0, 5)))


# ---------------------------------------------------------------- sessions


@pytest.mark.parametrize(
    ("takes", "streaming", "given"),
    [(("streaming",), True, {"streaming": True}), (("streaming",), False, {"streaming": False}), ((), False, {})],
)
def test_a_session_is_opened_as_the_release_has_them(takes: Any, streaming: bool, given: Any) -> None:
    job = state(Session=lambda *args, **named: (args, named), session_takes=takes)
    sessions.open_session(job, p.Open(2, streaming))
    assert job.sessions == {2: ((sessions.CAPACITY, "s2"), given)}


def test_sessions_that_a_release_has_not() -> None:
    for lacking, name in (({"Session": None}, "Session"), ({"Session": Fields, "session_takes": ()}, "streaming")):
        job = state(**lacking)
        with pytest.raises(Absent, match=name):
            sessions.open_session(job, p.Open(2, True))
        assert job.sessions == {}
        with pytest.raises(Absent, match="could not be opened"):
            sessions.turn(job, p.TurnStep(2, 7, (1,)))
        assert job.absent == {7: "its session could not be opened"}


def turned(step: p.TurnStep, refused: str = "", **changed: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """(the request of a turn, what arrived at the session, what came with it)."""
    job = state(**changed)
    came: list[Any] = []

    def create_req(received: Any, *more: Any) -> Any:
        came.append((received, more))
        made = Req(received.rid, "", [9, 9, *received.input_ids], received.sampling_params, 0)
        if refused:
            setattr(made, refused, Abort("no"))
        return made

    job.sessions[2] = SimpleNamespace(create_req=create_req)
    sessions.turn(job, step)
    ((received, more),) = came
    return job.reqs[step.req], received, more


def test_a_turn_says_what_it_builds_on() -> None:
    req, received, more = turned(p.TurnStep(2, 7, (5, 6), parent=3, replace=True, drop_previous_output=True))
    assert req.rid == received.rid == "r7" and received.input_ids == [5, 6] and received.mm_inputs is None
    assert received.sampling_params == Fields(max_new_tokens=1 << 20)
    assert received.session_params == Fields(id="s2", rid="r3", offset=None, replace=True, drop_previous_output=True)
    assert more == (None, VOCABULARY) and req.multimodal_inputs is None
    _, first, _ = turned(p.TurnStep(2, 7, (5, 6), offset=4, max_new_tokens=9))
    assert first.session_params == Fields(id="s2", rid=None, offset=4, replace=False, drop_previous_output=False)
    assert first.sampling_params == Fields(max_new_tokens=9)


def test_a_turn_with_media_unless_it_is_refused() -> None:
    step = p.TurnStep(2, 7, (5, 6, 7, 8), media=media(PICTURE))
    req, received, _ = turned(step)
    assert req.multimodal_inputs is not None and received.mm_inputs.mm_items
    assert req.multimodal_inputs.moved[:2] == ("r7", [5, 6, 7, 8])
    for refused in ("finished_reason", "to_finish"):
        assert turned(step, refused)[0].multimodal_inputs is None


def test_a_tokenizer_is_there_where_the_release_asks_for_one() -> None:
    started = p.TurnStep(2, 7, (5, 6), bos=True)
    assert turned(started)[2][0].bos_token_id == 5 and turned(started)[2][1] == VOCABULARY
    for step, bos in ((started, 5), (p.TurnStep(2, 7, (5, 6)), None)):
        (tokenizer,) = turned(step, create_req_takes=())[2]
        assert (tokenizer.vocab_size, tokenizer.bos_token_id) == (VOCABULARY, bos)
