"""A known difference of prompt tables hides its own answer and no other: every number of it is asked for.

No engine: the builder that has the listed differences answers, and is then given another fault in the same place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from ropecheck.adapters.protocol import PromptTables, Raised, Result
from ropecheck.conformance.families import accepted
from ropecheck.conformance.families.case import Case, step
from ropecheck.conformance.families.routes import PREFIX, TWICE
from ropecheck.conformance.families.verdict import array
from ropecheck.conformance.families.verdict import judge as judge_builder
from ropecheck.conformance.known import builders
from ropecheck.conformance.known.differences import KnownDifference, explaining, load, predicted, witness
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.routes.cases import PAIRED, pairs
from ropecheck.conformance.routes.kinds import sent_kinds
from ropecheck.conformance.routes.verdict import AS_TEXT
from ropecheck.conformance.routes.verdict import judge as judge_route
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families import FAMILIES

DIFFERENCES = load()
VERSIONS = {"sglang": "0.5.23", "transformers": "5.19.0"}


def release(known: KnownDifference) -> tuple[str, str]:
    target = known.target if known.target in VERSIONS else "transformers"
    return target, VERSIONS[target]


def given(known: KnownDifference, case: Case) -> Result:
    """What a builder answers that has the release's differences."""
    if case.torn:
        return torn(known, case)
    if AS_TEXT in known.signatures:
        return unexpanded(case)
    mine = {one.gives for one in DIFFERENCES if one.applies(case, *release(known))}
    kinds = sent_kinds(case) if case.builder.startswith(PREFIX) and TWICE not in case.builder else None
    empty = PromptTables(tensor(np.zeros((3, 0), np.int64)), tensor(np.zeros((1, 1), np.int64)), kinds=kinds)
    laid = builders.laid_of(case, empty)
    assert laid is not None
    return builders.answer(case, laid, empty, mine)


def unexpanded(case: Case) -> PromptTables:
    """Two words and a start marker, one placeholder, an end marker and three words, every token at its index."""
    assert case.name == "glm_image: one picture (token prompt)"
    return counted((0, 0, 0, 1, 0, 0, 0, 0))


def counted(kinds: tuple[int, ...]) -> PromptTables:
    table = np.tile(np.arange(len(kinds)), (3, 1))
    return PromptTables(tensor(table), tensor(np.zeros((1, 1), np.int64)), kinds=kinds)


def torn(known: KnownDifference, case: Case) -> PromptTables:
    """The table of the reading that the entry names."""
    reading = accepted.READINGS[known.signatures[0].removeprefix("accepts, ")](case)
    assert reading is not None
    table = reading if isinstance(reading, np.ndarray) else prompt_table(FAMILIES[case.family], reading)
    delta = 0 if case.family == "glm_image" else int(table.max()) + 1 - len(step(case).ids[0])
    return PromptTables(tensor(table[:, None, :]), tensor(np.array([[delta]])))


def unexplained(known: KnownDifference, case: Case, result: Result) -> list[str]:
    """What no entry of the list explains, as a run decides it."""
    judge = judge_route if case.builder.startswith(PREFIX) else judge_builder
    entries, at = DIFFERENCES, release(known)
    must = predicted(case, result, entries, *at)
    return [
        failure.rule for failure in judge(case, result).failures if not explaining(case, failure, must, entries, *at)
    ]


def tables(change: Callable[[np.ndarray], None]) -> Callable[[Result], Result | None]:
    """The same answer with another table."""

    def fault(result: Result) -> Result | None:
        if not isinstance(result, PromptTables) or result.hit is not None:
            return None
        table = array(result.table).copy()
        change(table)
        return replace(result, table=tensor(table))

    return fault


def last_column(table: np.ndarray) -> None:
    table[..., -1] += 7


def text_at_zero(table: np.ndarray) -> None:
    table[..., table.shape[-1] // 2 :] = 0


def nonsense(table: np.ndarray) -> None:
    table[:] = 424242


def another_delta(result: Result) -> Result | None:
    if not isinstance(result, PromptTables) or result.hit is not None:
        return None
    return replace(result, delta=tensor(array(result.delta) - 999))


def another_error(result: Result) -> Result | None:
    return replace(result, message=f"another {result.message}") if isinstance(result, Raised) else None


def another_kind(result: Result) -> Result | None:
    return Raised("engine", "ZeroDivisionError", "planted", "")


def one_less_hit(result: Result) -> Result | None:
    hit = isinstance(result, PromptTables) and result.hit
    return replace(result, hit=hit - 1) if hit else None


def far_hit(result: Result) -> Result | None:
    return replace(result, hit=424242) if isinstance(result, PromptTables) and result.hit is not None else None


def a_word_less(result: Result) -> Result | None:
    """What is a fault where the prompt is as the client wrote it."""
    if not isinstance(result, PromptTables) or result.kinds is None or result != counted(result.kinds):
        return None
    return counted(result.kinds[:-1])


def an_item_earlier(result: Result) -> Result | None:
    if not isinstance(result, PromptTables) or result.kinds is None or a_word_less(result) is None:
        return None
    return counted((*result.kinds[1:], 0))


FAULTS: tuple[Callable[[Result], Result | None], ...] = (
    *map(tables, (last_column, text_at_zero, nonsense)),
    *(another_delta, another_error, another_kind, one_less_hit, far_hit, a_word_less, an_item_earlier),
)


@pytest.mark.parametrize("known", DIFFERENCES, ids=lambda known: known.id)
def test_what_it_gives_is_explained_and_three_other_faults_are_new(known: KnownDifference) -> None:
    assert known.gives or all(shape.startswith("accepts, ") for shape in known.signatures)
    case = witness(known)
    result = given(known, case)
    assert not unexplained(known, case, result)
    planted = [fault(result) for fault in FAULTS]
    if isinstance(result, Raised):  # a table where it raises: right but for a cell
        without = wrong_table(case)
        planted += [without, *[fault(without) for fault in FAULTS[:3]]]
    new = [fault for fault in planted if fault is not None and fault != result and unexplained(known, case, fault)]
    assert len(new) >= 3
    if AS_TEXT in known.signatures:
        assert a_word_less(result) in new and an_item_earlier(result) in new


def wrong_table(case: Case) -> Result:
    """A wrong table of this prompt: every token at its index, one on."""
    table = np.tile(np.arange(1, len(case.laid[0].ids) + 1), (FAMILIES[case.family].axes, 1))
    kinds = sent_kinds(case) if case.builder.startswith(PREFIX) else None
    return PromptTables(tensor(table), tensor(np.array([[0]])), kinds=kinds)


def test_what_a_builder_with_another_difference_serves_from_a_prefix_cache_is_right() -> None:
    """Up to another item, however far the columns go on alike: a hit across it is nobody's listed answer."""
    for family in (*PAIRED, "qwen3_omni"):
        for case in pairs(family):
            served = builders.answer(case, case.laid, counted(()), {builders.FLOATS})
            assert not judge_route(case, served).failures, case.name
            assert isinstance(served, PromptTables) and served.hit is not None
            assert judge_route(case, replace(served, hit=served.hit + 1)).failures or served.hit == len(
                case.laid[1].ids
            )
