"""What a recorder makes of the engine's messages: a client's request, and what goes back to clients. No engine: objects
with the fields that its messages have."""

from __future__ import annotations

from types import SimpleNamespace as Message
from typing import Any

import numpy as np

from ropecheck.adapters.events import Output, PromptRun
from ropecheck.adapters.sglang.recorder.arrivals import UNLIMITED, arrive, prompt
from ropecheck.adapters.sglang.recorder.outputs import told


def request(tokens: int, *items: Message, session: Message | None = None, **sampling: Any) -> Message:
    return Message(
        rid="a",
        input_ids=[1] * tokens,
        mm_inputs=Message(mm_items=list(items)) if items else None,
        session_params=session,
        sampling_params=Message(**sampling),
    )


def item(kind: str, *offsets: tuple[int, int], **fields: Any) -> Message:
    return Message(modality=Message(name=kind), offsets=list(offsets), **fields)


def test_text_is_what_no_item_covers() -> None:
    picture = item("MULTI_IMAGES", (2, 5), image_grid_thw=np.array([[1, 4, 4]]))
    sound = item("AUDIO", (7, 9))
    assert prompt(request(11, sound, picture)) == (
        PromptRun(kind="text", tokens=2),
        PromptRun(kind="image", grid=(1, 4, 4)),
        PromptRun(kind="text", tokens=1),
        PromptRun(kind="audio", tokens=3),
        PromptRun(kind="text", tokens=1),
    )
    assert prompt(request(0)) == ()


def test_frames_that_stand_apart_are_a_span_each() -> None:
    grid = np.array([[2, 4, 4]])
    apart = item("VIDEO", (0, 3), (6, 9), video_grid_thw=grid, second_per_grid_ts=np.array([0.5]))
    assert prompt(request(10, apart)) == (
        PromptRun(kind="video", grid=(1, 4, 4), seconds_per_grid=0.5),
        PromptRun(kind="text", tokens=2),
        PromptRun(kind="video", grid=(1, 4, 4), seconds_per_grid=0.5),
    )
    together = item("VIDEO", (0, 7), video_grid_thw=grid, second_per_grid_ts=[2.0])
    assert prompt(request(8, together)) == (PromptRun(kind="video", grid=(2, 4, 4), seconds_per_grid=2.0),)


def test_a_turn_keeps_what_its_client_said() -> None:
    session = Message(id="s", rid="before", offset=3, replace=None, drop_previous_output=True)
    found = arrive(request(4, session=session, max_new_tokens=7, beam_width=2))
    assert (found.session, found.parent, found.offset, found.replace) == ("s", "before", 3, False)
    assert (found.drop_previous_output, found.max_new_tokens, found.beams) == (True, 7, 2)
    alone = arrive(request(4, max_new_tokens=None))
    assert (alone.session, alone.max_new_tokens, alone.beams) == ("", UNLIMITED, 1)


def test_answers_and_ends() -> None:
    batch = Message(
        rids=["a", "b"], output_ids=[[5], None], finished_reasons=[None, {"type": "abort", "message": "no"}]
    )
    assert list(told(batch)) == [Output(req="a", tokens=(5,)), Output(req="b", finished="abort", message="no")]
    found = Message(sequences=[Message(tokens=[8, 9])])
    best = Message(rids=["a"], output_ids=[[5]], finished_reasons=[{"type": "length"}], beam_search_output=[found])
    assert list(told(best)) == [Output(req="a", tokens=(8, 9), finished="length")]
    assert list(told(Message(abort_all=False, rid="a", finished_reason=None))) == [Output(req="a", finished="abort")]
    assert list(told(Message(other=1))) == []
