"""Text after an Omni track: the paper and the released code differ, and a delta may contradict the text beside it."""

from __future__ import annotations

import numpy as np

from ropecheck.adapters.protocol import PromptTables
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.cases import track, words
from ropecheck.conformance.families.verdict import judge
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.known.differences import ANY, load
from ropecheck.conformance.reference_engine import tensor
from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI
from ropecheck.spec.families.released import continued, released_table
from ropecheck.spec.families.rules import BuiltTable, one_continuation
from ropecheck.spec.history import Column, delta_of, prompt_table

CASE = Case("x", "qwen2_5_omni", ((words(3), track(2, 4, 6, 1.0, 48), words(3)),))
(LAID,) = CASE.laid
PAPER = prompt_table(QWEN2_5_OMNI, LAID.history)
RELEASED = released_table(QWEN2_5_OMNI, LAID.history)


def verdict(table: tuple[Column, ...], delta: int) -> Outcome:
    rows = np.array(table, dtype=np.int64).T[:, None, :]
    return judge(CASE, PromptTables(tensor(rows), tensor(np.array([[delta]]))))


def shapes(outcome: Outcome) -> set[tuple[str, str]]:
    return {(failure.rule, failure.signature) for failure in outcome.failures}


def test_the_two_tables() -> None:
    assert len(PAPER) == len(RELEASED) == 34
    assert [column[0] for column in PAPER[-5:]] == [30, 30, 31, 32, 33]
    assert [column[0] for column in RELEASED[-5:]] == [16, 16, 17, 18, 19]
    assert PAPER[:-5] == RELEASED[:-5]
    assert (delta_of(PAPER), continued(PAPER), delta_of(RELEASED), continued(RELEASED)) == (0, 0, -4, -14)
    for table, value, right in ((PAPER, 0, True), (RELEASED, -4, False), (RELEASED, -14, True)):
        built = BuiltTable(family=QWEN2_5_OMNI, history=LAID.history, columns=table, delta=value)
        assert (one_continuation(built) is None) is right


def test_the_paper_passes_and_the_released_code_is_unsettled() -> None:
    assert verdict(PAPER, 0).state == "pass"
    assert shapes(verdict(RELEASED, -14)) == {("families.text_after_media", "as the released code")}
    (open_question,) = [entry for entry in load() if entry.kind == "unsettled"]
    (failure,) = verdict(RELEASED, -14).failures
    assert open_question.target == ANY and open_question.explains(CASE, failure, "any engine", "1.0")
    assert failure.expected is not None and failure.observed is not None  # both tables are told


def test_a_delta_that_contradicts_its_table_fails() -> None:
    found = shapes(verdict(RELEASED, -4))
    assert ("families.one_continuation", "contradicts its own table") in found
    assert ("families.delta", "other value") in shapes(verdict(PAPER, -4))


def test_a_third_table_is_a_mistake() -> None:
    wrong = (*RELEASED[:-1], (20, 20, 20))
    assert ("families.text_after_media", "as the released code") not in shapes(verdict(wrong, -14))
    assert verdict(wrong, -14).failures
    wrong = (*RELEASED[:10], (5, 5, 5), *RELEASED[11:])
    assert "as the released code" not in {shape for _, shape in shapes(verdict(wrong, -14))}


def test_where_they_agree_there_is_nothing_unsettled() -> None:
    (long_sound,) = Case("x", "qwen2_5_omni", ((words(1), track(1, 4, 4, 1.0, 500), words(2)),)).laid
    assert released_table(QWEN2_5_OMNI, long_sound.history) == prompt_table(QWEN2_5_OMNI, long_sound.history)
    (wide,) = Case("x", "qwen3_omni", ((words(1), track(1, 4, 40, 1.0, 40), words(2)),)).laid
    assert released_table(QWEN3_OMNI, wide.history)[-1] == (11, 11, 11)
    assert prompt_table(QWEN3_OMNI, wide.history)[-1] == (26, 26, 26)
