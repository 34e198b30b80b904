"""UNO's forwards, as modes outside the repository: why SGLang's batches of them fail with M-RoPE models.

UNO drafts with an adapter on the target: a seed and masks in one forward from the first uncommitted token on, then a
verify of what they came to, one token further. Both are the target's forwards, so a model with three rows reads three
rows in them. SGLang 0.5.20 to 0.5.23 (`UnoWorkerV2._make_forward_batch`) build the batch with the 1-D table alone, and
nothing refuses such a model: without graphs there is nothing to look up, with them the buffers keep the columns of the
batch before. The server wants a GPU, FlashAttention 3 and an adapter; the function that builds its batches does not.

    ropecheck replay "any mode: uno_draft" "any mode: uno_verify" --mode-file docs/examples/uno.py
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Tokens, Whole, mode, span

SOURCE = "definition: a token stands at its index, whoever drafts it"


@mode("uno_draft", reads=RUNNING, given_indices=True, source=SOURCE)
def uno_draft(seq_len: CommittedLen, width: Annotated[int, Whole(2, 6)]) -> Tokens:
    """An UNO draft reads the newest token, then a mask for each token that it drafts.

    >>> list(uno_draft.tokens(seq_len=9, width=3))
    [9, 10, 11]
    """
    return span(seq_len, width)


@mode("uno_verify", reads=RUNNING, given_indices=True, source=SOURCE)
def uno_verify(seq_len: CommittedLen, width: Annotated[int, Whole(2, 6)]) -> Tokens:
    """An UNO verify reads what was drafted behind the newest token.

    >>> list(uno_verify.tokens(seq_len=9, width=3))
    [10, 11, 12]
    """
    return span(seq_len + 1, width)


def sglang(state: Any, forward: Any) -> Any:
    """The batch as the worker builds it for both forwards."""
    import torch

    from ropecheck.adapters.protocol import TablesAnswer
    from ropecheck.adapters.sglang import batches
    from ropecheck.adapters.sglang.imports import imported

    place = imported("sglang.srt.speculative.uno_worker_v2")
    if place is None:
        raise state.engine.absent("UNO", "this release has no UNO")
    batch = batches.schedule_batch(state, forward, member="TARGET_VERIFY")
    positions = torch.tensor(forward.positions, dtype=torch.int64, device=batch.device)
    worker = object.__new__(place.UnoWorkerV2)
    worker.forward_width = forward.batch.number("width")
    worker.model_runner = SimpleNamespace(kv_index_translator=SimpleNamespace(bind_own_plan=lambda made: None))
    kinds = place.SpecInputType
    tables = []
    for again in ("", "again") if forward.repeat else ("",):
        made = worker._make_forward_batch(
            spec_input_type=kinds.UNO_DRAFT if forward.batch.mode == "uno_draft" else kinds.UNO_VERIFY,
            input_ids=torch.zeros_like(positions),
            positions=positions,
            out_cache_loc=torch.zeros_like(positions),
            prefix_lens=batch.seq_lens,
            seq_lens_cpu=batch.seq_lens_cpu,
            seq_lens_sum=None,
            req_pool_indices=batch.req_pool_indices,
        )
        tables.append(state.table(again, forward, made))
    return TablesAnswer(tuple(tables))
