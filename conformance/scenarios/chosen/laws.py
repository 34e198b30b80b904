"""Instances of the laws: each scenario reaches the same tokens by two routes."""

from collections.abc import Iterable, Iterator

from ropecheck.conformance.scenario.operations import (
    Abort,
    Accept,
    Finish,
    Law,
    Open,
    Operation,
    Pick,
    Retract,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, verify, window
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, answer, chain, media, prefill, replies, scenario
from ropecheck.conformance.scenarios.chosen.script import TALL as SECOND_IMAGE
from ropecheck.reference.timeline import token_count
from ropecheck.spec.history import History, text

PAIRS: tuple[tuple[str, str], ...] = (("image", "text"), ("two images", "long video"), ("image last", "video"))
"""Requests that share a batch."""


def scenarios() -> list[Scenario]:
    """Every instance."""
    out: list[Scenario] = []
    for name, prompt in PROMPTS.items():
        out += _cuts(name, prompt)
        out.append(_speculation(name, prompt))
        out.append(_retraction(name, prompt))
        out += _sessions(name, prompt)
    for pair in PAIRS:
        out += _batches(*pair)
    return out


def instance(name: str, note: str, laws: tuple[Law, ...], *ops: Operation | Iterable[Operation]) -> Scenario:
    """A scenario that is an instance of these laws."""
    built = scenario(name, note, *ops)
    return Scenario(name=name, ops=built.ops, note=note, laws=laws)


def two(law: str, left: tuple[int, tuple[int, ...]], right: tuple[int, tuple[int, ...]]) -> Law:
    """A law on two readings: (request, operations) each."""
    return Law(f"laws.{law}", Pick(*left), Pick(*right))


def _cuts(name: str, prompt: History) -> Iterator[Scenario]:
    """Requests 0 and 1 have the same prompt; 0 is prefilled whole, 1 in two or three windows."""
    length = token_count("qwen2_vl", prompt)
    for cut in sorted({1, length // 2, length - 1} - {0}):
        if cut >= length:
            continue
        text_only = (Law("laws.text_rows_are_the_index", Pick(0, (2,))),) if name == "text" else ()
        yield instance(
            f"law: {name} cut at {cut}",
            "One prefill, and the same in two windows.",
            (two("chunked_prefill_is_one_prefill", (1, (3, 4)), (0, (2,))), *text_only),
            Submit(0, prompt),
            Submit(1, prompt),
            prefill(0),
            extend((window(1, cut),)),
            prefill(1),
            decode((0, 1)),
        )
    if length > 3:
        yield instance(
            f"law: {name} after a hit",
            "After a prefix hit, the rest at once and in two windows.",
            (two("extend_composes", (1, (3, 4)), (0, (2,))),),
            Submit(0, prompt),
            Submit(1, prompt),
            extend((window(0, hit=1),)),
            extend((window(1, 1, hit=1),)),
            prefill(1),
        )


def _speculation(name: str, prompt: History) -> Scenario:
    """One request: a verify, a draft extend and a draft that change nothing, then decodes over the same tokens; and a
    twin that accepts what the first one decodes."""
    text_only = (Law("laws.text_rows_are_the_index", Pick(0, (3, 4, 5))),) if name == "text" else ()
    return instance(
        f"law: {name} drafted, verified and decoded",
        "Four routes to the next four tokens.",
        (
            two("verify_chain_is_decodes", (0, (3,)), (0, (6, 7, 8, 9))),
            two("draft_extend_is_verify_chain", (0, (4,)), (0, (3,))),
            two("draft_step_is_a_decode", (0, (5,)), (0, (6, 7, 8, 9))),
            two("speculation_places_the_same", (1, (10, 12)), (0, (6, 7, 8, 9))),
            *text_only,
        ),
        Submit(0, prompt),
        Submit(1, prompt),
        prefill(0, 1),
        verify((0,), (chain(4),), path="direct"),
        draft_extend((0,), 4, path="direct"),
        draft((0,), num_steps=4),
        *(decode((0,)) for _ in range(4)),
        verify((1,), (chain(3),), path="direct"),
        Accept(1, 2),
        verify((1,), (chain(3),), path="direct"),
    )


def _retraction(name: str, prompt: History) -> Scenario:
    """Requests 0 and 1 have the same prompt; 1 is retracted after three tokens."""
    return instance(
        f"law: {name} retracted and resumed",
        "Undisturbed, and retracted half-way.",
        (two("retract_and_resume", (1, (7, 8)), (0, (2, 3, 4, 5))),),
        Submit(0, prompt),
        Submit(1, prompt),
        answer(0, 1),
        decode((0, 1)),
        decode((0,)),
        Retract(1),
        answer(1),
    )


def _sessions(name: str, first: History) -> Iterator[Scenario]:
    """A session's second turn, and a fresh request with the whole history."""
    start: list[Operation] = [Open(0), Turn(0, 0, first), prefill(0), *replies(0, 3), Finish(0)]
    at = len(start)
    for what, second in (("text", (text(3),)), ("image", media(SECOND_IMAGE))):
        whole: History = (*first, text(3), *second)
        yield instance(
            f"law: {name} then {what}",
            "A turn, and one fresh request with its whole history.",
            (two("append_is_a_fresh_request", (1, (at + 1, at + 2)), (2, (at + 4, at + 5))),),
            *start,
            Turn(0, 1, second, 0),
            answer(1),
            Submit(2, whole),
            answer(2),
        )
        yield instance(
            f"law: {name} branches to {what}",
            "A branch beside a busy and an aborted sibling.",
            (two("branch_is_its_own_history", (3, (at + 5, at + 7)), (4, (at + 9, at + 10))),),
            *start,
            Turn(0, 1, media(SECOND_IMAGE), 0),
            prefill(1),
            Turn(0, 2, (text(1),), 0),
            Abort(2),
            Turn(0, 3, second, 0),
            prefill(3),
            decode((1,)),
            decode((3, 1)),
            Submit(4, whole),
            answer(4),
        )


def _batches(one: str, other: str) -> Iterator[Scenario]:
    """Requests 0 and 1; 2 and 3 are their twins, taken in another order or alone."""
    a, b = PROMPTS[one], PROMPTS[other]
    arrivals: list[Operation] = [Submit(0, a), Submit(1, b), Submit(2, a), Submit(3, b)]
    trees = ((0, 0), (0, 1))
    yield instance(
        f"law: {one} and {other}, order",
        "The same batch in two orders.",
        (two("batch_order", (2, (5, 7, 9)), (0, (4, 6, 8))), two("batch_order", (3, (5, 7, 9)), (1, (4, 6, 8)))),
        *arrivals,
        prefill(0, 1),
        prefill(3, 2),
        decode((0, 1)),
        decode((3, 2)),
        verify((0, 1), trees, topk=2, path="direct"),
        verify((3, 2), tuple(reversed(trees)), topk=2, path="direct"),
    )
    yield instance(
        f"law: {one} and {other}, alone",
        "Together, and each alone.",
        (two("batch_split", (0, (4, 7)), (2, (5, 8))), two("batch_split", (1, (4, 7)), (3, (6, 9)))),
        *arrivals,
        prefill(0, 1),
        prefill(2),
        prefill(3),
        decode((0, 1)),
        decode((2,)),
        decode((3,)),
    )
