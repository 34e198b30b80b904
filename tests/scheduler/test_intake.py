"""A client's messages as the engine's own: which class, which fields, and what a release does not have."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

pytest.importorskip("torch")

from ropecheck.adapters import events, play
from ropecheck.adapters.sglang.scheduler.build import HIDDEN, PLACEHOLDERS, STOP, NoSuchArgument

PICTURE = play.PlayMedia(
    rows=((0, 1, 1, 3), (0, 1, 1, 3), (0, 1, 2, 3)),
    delta=-1,
    items=(play.PlayItem("image", 1, 3, 77), play.PlayItem("video", 3, 4, 78)),
)


@pytest.fixture
def intake(adapter: Any) -> Any:
    return adapter.intake


def deliver(more: tuple[tuple[str, Any], ...] = (), media: Any = None, priority: int = 0, **event: Any) -> play.Deliver:
    arrived = events.Arrived("r0", (), **{"max_new_tokens": 9} | event)
    return play.Deliver(arrived, (11, 12, 13, 14), media, priority=priority, more=more)


def test_a_request_asks_for_a_stream_and_the_likeliest_tokens(intake: Any) -> None:
    made = intake.message(deliver())
    assert type(made).__name__ == "TokenizedGenerateReqInput"
    assert (made.rid, list(made.input_ids), made.input_embeds, made.mm_inputs) == ("r0", [11, 12, 13, 14], None, None)
    assert (made.stream, made.return_logprob, made.priority, made.session_params) == (True, False, None, None)
    params = made.sampling_params
    assert (params.max_new_tokens, list(params.stop_token_ids), params.top_k) == (9, [STOP], 1)
    assert params.is_normalized and params.beam_width is None and made.bootstrap_room is None


def test_further_fields_go_where_they_belong(intake: Any) -> None:
    made = intake.message(deliver((("top_k", 3), ("temperature", 1), ("extra_key", "k")), priority=4))
    assert (made.sampling_params.top_k, made.sampling_params.temperature) == (3, 1)
    assert (made.extra_key, made.priority) == ("k", 4)


def test_embeddings_come_without_ids(intake: Any) -> None:
    made = intake.message(deliver(embeds=True))
    assert made.input_ids is None and [len(one) for one in made.input_embeds] == [HIDDEN] * 4


def test_a_beam_search_says_how_wide_it_is(intake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert intake.message(deliver(beams=2)).sampling_params.beam_width == 2
    assert intake.message(deliver(beams=1)).sampling_params.beam_width is None
    monkeypatch.setattr(intake, "SAMPLING", intake.SAMPLING - {"beam_width"})
    monkeypatch.setattr(intake, "SamplingParams", lambda **given: Params())
    assert intake.message(deliver(beams=1))
    with pytest.raises(NoSuchArgument, match="no beam search"):
        intake.message(deliver(beams=2))


class Params:
    """Of a release that knows nothing of beams."""

    def normalize(self, tokenizer: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("field", "value"),
    [("session", "s"), ("parent", "p"), ("offset", 0), ("replace", True), ("drop_previous_output", True)],
)
def test_a_turn_has_what_its_client_said_and_no_more(intake: Any, field: str, value: Any) -> None:
    made = intake.message(deliver(**{field: value})).session_params
    names = {"session": "id", "parent": "rid"}
    found = {name: getattr(made, name) for name in ("id", "rid", "offset", "replace", "drop_previous_output")}
    assert {name: held for name, held in found.items() if held is not None} == {names.get(field, field): value}


def test_a_prompt_that_another_engine_computes_names_its_place(intake: Any) -> None:
    made = intake.message(deliver(), True)
    assert (made.bootstrap_host, made.bootstrap_room) == (intake.FAKE, zlib.crc32(b"r0"))
    assert made.bootstrap_port


def test_media_are_a_processors_output(intake: Any) -> None:
    made = intake.message(deliver(media=PICTURE)).mm_inputs
    assert made.mrope_positions.tolist() == [[0, 1, 1, 3], [0, 1, 1, 3], [0, 1, 2, 3]]
    assert made.mrope_position_delta.tolist() == [[-1]] and str(made.mrope_positions.dtype) == "torch.int64"
    assert (made.im_token_id, made.video_token_id) == (PLACEHOLDERS["image"], PLACEHOLDERS["video"])
    items = [(one.modality.name, one.hash, list(one.offsets)) for one in made.mm_items]
    assert items == [("IMAGE", 77, [(1, 2)]), ("VIDEO", 78, [(3, 3)])], "the engine names the last token"
    assert [one.feature.tolist() for one in made.mm_items] == [[0.0], [0.0]]


@pytest.mark.parametrize(
    ("event", "name", "fields"),
    [
        (events.Opened("s", True), "OpenSessionReqInput", {"session_id": "s", "streaming": True, "timeout": None}),
        (events.Opened("s"), "OpenSessionReqInput", {"session_id": "s", "streaming": False}),
        (events.Closed("s"), "CloseSessionReqInput", {"session_id": "s"}),
        (events.Aborted("r0"), "AbortReq", {"rid": "r0", "abort_all": False}),
        (events.Aborted(), "AbortReq", {"rid": "", "abort_all": True}),
        (events.Control("flush"), "FlushCacheReqInput", {}),
        (events.Control("continue"), "ContinueGenerationReqInput", {}),
        (events.Control("pause retract"), "PauseGenerationReqInput", {"mode": "retract"}),
        (events.Control("pause in_place"), "PauseGenerationReqInput", {"mode": "in_place"}),
    ],
)
def test_every_other_message_is_the_engines_own(intake: Any, event: Any, name: str, fields: dict[str, Any]) -> None:
    made = intake.message(play.Tell(event))
    assert type(made).__name__ == name
    assert {field: getattr(made, field) for field in fields} == fields


def test_a_session_that_times_out_is_opened_so_and_closed_without_a_message(
    intake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = intake.message(play.Tell(events.Opened("s"), timeout=True))
    assert opened.timeout == intake.TIMEOUT and opened.capacity_of_str_len > 1000
    assert intake.message(play.Tell(events.Closed("s"), timeout=True)) is None

    def older(capacity_of_str_len: int, session_id: str, streaming: bool) -> str:
        return session_id

    monkeypatch.setattr(intake.io_struct, "OpenSessionReqInput", older)
    assert intake.message(play.Tell(events.Opened("s"))) == "s"
    with pytest.raises(NoSuchArgument, match="no timeout"):
        intake.message(play.Tell(events.Opened("s"), timeout=True))


def test_what_is_no_message_is_refused(intake: Any) -> None:
    with pytest.raises(ValueError, match="no message for"):
        intake.message(play.Tell(events.Retracted("r0")))  # type: ignore[arg-type]
