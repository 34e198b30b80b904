"""Relations between forwards that need no oracle: one token of one history has one column, however it is reached.

Each law compares what two routes to the same token read. It holds for an engine that gets every absolute value wrong in
the same way, and it fails for a reference that disagrees with itself: laws check the checkers too. A *reading* maps a
token's index (the 1-D table) to its column (the three-row table).
"""

from __future__ import annotations

from collections.abc import Callable

from ropecheck.spec.rules import MROPE, SPECULATIVE, Violation, rule
from ropecheck.spec.views import Readings

SCHEDULING = "definition: how a scheduler cuts and orders work must not change what the model reads"
"""Where most laws come from."""


Judge = Callable[[Readings], Violation | None]


def _law(id: str, *, source: str, bugs: tuple[str, ...] = ()) -> Callable[[Judge], Judge]:
    """A rule that judges the pairs of its own law."""
    return rule(id, of=Readings, source=source, when=lambda pair: pair.law == id, bugs=bugs)


def agree(pair: Readings) -> Violation | None:
    """Whether two readings share a token, and agree on every token that they share."""
    right = pair.right or {}
    shared = [index for index in pair.left if index in right]
    for index in shared:
        if pair.left[index] != right[index]:
            one, other = str(pair.left[index]), str(right[index])
            return Violation(
                axis="token",
                at=index,
                expected=other,
                observed=one,
                shape="two routes, two columns",
                message=f"token {index}: {one} by one route, {other} by the other",
            )
    if shared:
        return None
    message = "the two routes read no token in common"
    return Violation(
        axis="token", expected="a token in common", observed="none", shape="no token in common", message=message
    )


@_law("laws.chunked_prefill_is_one_prefill", source=SCHEDULING, bugs=("mistral.rs #2301", "ik_llama.cpp #988"))
def chunked(pair: Readings) -> Violation | None:
    """A prompt prefilled in chunks must read the same columns as one prefill, for any cuts."""
    return agree(pair)


@_law("laws.extend_composes", source=SCHEDULING)
def composes(pair: Readings) -> Violation | None:
    """An extend of a + b tokens must read what an extend of a and then one of b read, after any prefix hit."""
    return agree(pair)


@_law("laws.verify_chain_is_decodes", source=SPECULATIVE, bugs=("vllm #10350",))
def verified(pair: Readings) -> Violation | None:
    """Row k of a verify on a chain must be the column of the k-th decode from there."""
    return agree(pair)


@_law("laws.draft_extend_is_verify_chain", source=SPECULATIVE, bugs=("sglang #28464",))
def draft_extended(pair: Readings) -> Violation | None:
    """A draft extend must read the same columns as the verify of a chain of as many nodes."""
    return agree(pair)


@_law("laws.draft_step_is_a_decode", source=SPECULATIVE, bugs=("vllm #54498",))
def drafted(pair: Readings) -> Violation | None:
    """Draft forward s must read the column of the decode s steps later."""
    return agree(pair)


@_law(
    "laws.append_is_a_fresh_request",
    source="public interface: a session turn stands for its whole history",
    bugs=("sglang #39145", "sglang #18152"),
)
def appended(pair: Readings) -> Violation | None:
    """A session's turn must read the same columns as one fresh request with the whole history."""
    return agree(pair)


@_law("laws.branch_is_its_own_history", source="public interface: branches are independent", bugs=("sglang #39145",))
def branched(pair: Readings) -> Violation | None:
    """A branch must read the columns of its own history, whatever its siblings do."""
    return agree(pair)


@_law("laws.retract_and_resume", source=SCHEDULING, bugs=("sglang #20916",))
def resumed(pair: Readings) -> Violation | None:
    """A request that was retracted and resumed must read the columns that it would have read undisturbed."""
    return agree(pair)


@_law("laws.batch_order", source=SCHEDULING)
def permuted(pair: Readings) -> Violation | None:
    """A batch in another order must give every request the same columns."""
    return agree(pair)


@_law("laws.batch_split", source=SCHEDULING)
def split(pair: Readings) -> Violation | None:
    """A batch must give every request the columns that it gets alone."""
    return agree(pair)


@_law("laws.text_rows_are_the_index", source=MROPE, bugs=("vllm #18456",))
def text_rows(pair: Readings) -> Violation | None:
    """A request without media must read three equal rows, equal to the 1-D row."""
    for index, column in pair.left.items():
        if any(position != index for position in column):
            right, seen = str((index,) * len(column)), str(column)
            return Violation(
                axis="token",
                at=index,
                expected=right,
                observed=seen,
                shape="rows differ from the index",
                message=f"token {index}: {seen}, must be {right}",
            )
    if pair.left:
        return None
    return Violation(
        axis="token", expected="a token", observed="none", shape="nothing read", message="nothing was read"
    )


@_law("laws.speculation_places_the_same", source=SPECULATIVE, bugs=("vllm #10350", "elizaOS/llama.cpp #7"))
def same_place(pair: Readings) -> Violation | None:
    """Speculative and plain decoding must place the same token of the target at the same column."""
    return agree(pair)


@_law("laws.one_token_one_column", source=SCHEDULING)
def one_column(pair: Readings) -> Violation | None:
    """Two forward modes that read the same token of the same history must read the same column."""
    return agree(pair)
