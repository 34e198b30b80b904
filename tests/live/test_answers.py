"""Answers beside fresh ones: what is a wrong position, and what is rounding."""

from __future__ import annotations

from ropecheck.conformance.live.client import Completion, SentRequest, whole
from ropecheck.conformance.live.media import IMAGE_PAD, ClientPrompt, picture, prompt_of
from ropecheck.conformance.live.scripts import ALONE, CROWD, LONGER, MANY, groups
from ropecheck.conformance.scripts.legal import check
from ropecheck.conformance.scripts.script import Arrive
from ropecheck.spec.history import image, text
from ropecheck.spec.live import Replayed, same_answer


def shape(got: tuple[int, ...], right: tuple[int, ...], **more: tuple[float, ...]) -> str:
    found = same_answer(Replayed(got=got, right=right, tolerance=0.01, **more))
    return found.shape if found is not None else ""


def test_another_token_is_wrong_unless_two_were_equally_likely() -> None:
    assert shape((5, 6), (5, 6), margins=(1.0, 1.0)) == ""
    assert shape((5, 6), (5, 7), margins=(1.0, 1.0)) == "another token"
    assert shape((5, 6), (5, 7), margins=(1.0, 0.001)) == ""
    assert shape((5, 6), (5, 7)) == "another token", "without margins nothing is a tie"


def test_the_same_tokens_at_other_probabilities_are_wrong() -> None:
    assert shape((5,), (5,), got_logprobs=(-1.0,), right_logprobs=(-1.0001,)) == ""
    assert shape((5,), (5,), got_logprobs=(-1.0,), right_logprobs=(-1.2,)) == "another probability"
    assert shape((5, 6, 7), (5, 6)) == "longer"
    assert shape((5, 6), (5, 6, 7)) == "", "a request that was given up has the beginning"


def asked(tokens: tuple[int, ...], limit: int, finished: str = "length") -> SentRequest:
    before = SentRequest("a", Arrive(0, (text(2),), limit), ClientPrompt((11, 12), ("p",)))
    before.answer = Completion(tokens=tokens, finished=finished)
    return before


def test_a_turn_stands_for_its_whole_history() -> None:
    new = ClientPrompt((13,), ("q",))
    turn = Arrive(1, (text(1),), session=0, parent=0)
    assert whole(asked((7, 8), 2), turn, new) == ClientPrompt((11, 12, 7, 8, 13), ("p", "q"))
    assert whole(None, turn, new) == new
    dropped = Arrive(1, (text(1),), session=0, parent=0, drop_previous_output=True)
    assert whole(asked((7, 8), 2), dropped, new) == ClientPrompt((11, 12, 13), ("p", "q"))
    cut = Arrive(1, (text(1),), session=0, parent=0, offset=1)
    assert whole(asked((7, 8), 2), cut, new) is None
    assert whole(asked((7, 8), 2, finished="abort"), turn, new) is None


def test_a_prompt_has_one_placeholder_per_picture() -> None:
    made = prompt_of((text(2), image(1, 4, 6), text(1)), content=3, patch=14)
    assert made.ids.count(IMAGE_PAD) == len(made.pictures) == 1
    assert made.pictures[0].startswith("data:image/png;base64,iVBOR")
    assert picture(28, 28, 1) != picture(28, 28, 2)


def test_every_script_can_be_played() -> None:
    names = [script.name for group in groups("overlap", "qwen2_5_vl", True) for script in group.scripts]
    assert sorted(names) == sorted((*CROWD, *ALONE, *LONGER, *MANY))
    for group in groups("overlap", "qwen2_5_vl", True):
        for script in group.scripts:
            check(script)
            for action in script.actions:
                if isinstance(action, Arrive):
                    prompt_of(action.prompt, action.content, 14)
