"""Relations between forwards that need no oracle: one token of one history has one column, however it is reached.

Each law compares what two routes to the same token read. It holds for an engine that gets every absolute value wrong in
the same way, and it fails for a reference that disagrees with itself: laws check the checkers too. A *reading* maps a
token's index (the 1-D table) to its column (the three-row table).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropecheck.spec.history import Column
from ropecheck.spec.rules import MROPE, SPECULATIVE, rule

Reading = Mapping[int, Column]
"""Token index -> column, as some forwards read one request."""

SCHEDULING = "definition: how a scheduler cuts and orders work must not change what the model reads"
"""Where most laws come from."""


def agree(one: Reading, other: Reading) -> bool:
    """Whether two readings share a token, and agree on every token that they share."""
    shared = 0
    for index, column in one.items():
        if index in other:
            shared += 1
            if other[index] != column:
                return False
    return shared > 0


@rule("laws.chunked_prefill_is_one_prefill", source=SCHEDULING, bugs=("mistral.rs #2301", "ik_llama.cpp #988"))
def chunked(chunks: Reading, whole: Reading) -> bool:
    """A prompt prefilled in chunks must read the same columns as one prefill, for any cuts."""
    return agree(chunks, whole)


@rule("laws.extend_composes", source=SCHEDULING)
def composes(first_then_second: Reading, both: Reading) -> bool:
    """An extend of a + b tokens must read what an extend of a and then one of b read, after any prefix hit."""
    return agree(first_then_second, both)


@rule("laws.verify_chain_is_decodes", source=SPECULATIVE, bugs=("vllm #10350",))
def verified(verify: Reading, decodes: Reading) -> bool:
    """Row k of a verify on a chain must be the column of the k-th decode from there."""
    return agree(verify, decodes)


@rule("laws.draft_extend_is_verify_chain", source=SPECULATIVE, bugs=("sglang #28464",))
def draft_extended(draft_extend: Reading, verify: Reading) -> bool:
    """A draft extend must read the same columns as the verify of a chain of as many nodes."""
    return agree(draft_extend, verify)


@rule("laws.draft_step_is_a_decode", source=SPECULATIVE, bugs=("vllm #54498",))
def drafted(drafts: Reading, decodes: Reading) -> bool:
    """Draft forward s must read the column of the decode s steps later."""
    return agree(drafts, decodes)


@rule(
    "laws.append_is_a_fresh_request",
    source="public interface: a session turn stands for its whole history",
    bugs=("sglang #39145", "sglang #18152"),
)
def appended(turn: Reading, fresh: Reading) -> bool:
    """A session's turn must read the same columns as one fresh request with the whole history."""
    return agree(turn, fresh)


@rule("laws.branch_is_its_own_history", source="public interface: branches are independent", bugs=("sglang #39145",))
def branched(branch: Reading, fresh: Reading) -> bool:
    """A branch must read the columns of its own history, whatever its siblings do."""
    return agree(branch, fresh)


@rule("laws.retract_and_resume", source=SCHEDULING, bugs=("sglang #20916",))
def resumed(resumed: Reading, undisturbed: Reading) -> bool:
    """A request that was retracted and resumed must read the columns that it would have read undisturbed."""
    return agree(resumed, undisturbed)


@rule("laws.batch_order", source=SCHEDULING)
def permuted(one: Reading, other: Reading) -> bool:
    """A batch in another order must give every request the same columns."""
    return agree(one, other)


@rule("laws.batch_split", source=SCHEDULING)
def split(together: Reading, alone: Reading) -> bool:
    """A batch must give every request the columns that it gets alone."""
    return agree(together, alone)


@rule("laws.text_rows_are_the_index", source=MROPE, bugs=("vllm #18456",))
def text_rows(reading: Reading) -> bool:
    """A request without media must read three equal rows, equal to the 1-D row."""
    for index, column in reading.items():
        for position in column:
            if position != index:
                return False
    return len(reading) > 0


@rule("laws.same_step_twice", source=SCHEDULING, bugs=("vllm-omni #5684", "transformers #43952"))
def twice(first: Sequence[object], second: Sequence[object]) -> bool:
    """Building the same forward twice must give the same two tables."""
    return first == second


@rule("laws.speculation_places_the_same", source=SPECULATIVE, bugs=("vllm #10350", "elizaOS/llama.cpp #7"))
def same_place(speculative: Reading, plain: Reading) -> bool:
    """Speculative and plain decoding must place the same token of the target at the same column."""
    return agree(speculative, plain)
