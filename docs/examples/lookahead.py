"""Lookahead decoding's verify (arXiv 2402.02057), as a forward mode outside the repository.

Per request one forward holds the newest token, a window of `window` columns by `levels` levels of guesses, and `ngrams`
candidates of `levels` tokens. A guess of level l and column w stands at seq_len + l + w; token j of a candidate follows
the newest token, at seq_len + 1 + j. seq_len counts committed tokens.

    ropecheck run --mode-file docs/examples/lookahead.py
    ropecheck explain lookahead_verify --mode-file docs/examples/lookahead.py
"""

from __future__ import annotations

from typing import Annotated, Any

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Tokens, Whole, at, mode


@mode(
    "lookahead_verify",
    reads=RUNNING,
    given_indices=True,
    source="arXiv 2402.02057 section 3 (lookahead decoding)",
)
def lookahead_verify(
    seq_len: CommittedLen,
    window: Annotated[int, Whole(1, 5)],
    levels: Annotated[int, Whole(1, 4)],
    ngrams: Annotated[int, Whole(0, 3)],
) -> Tokens:
    """A lookahead verify reads the window's guesses level by level, then each candidate's tokens, request by request.

    >>> list(lookahead_verify.tokens(seq_len=9, window=3, levels=2, ngrams=1))
    [9, 10, 11, 10, 11, 12, 10, 11]
    """
    guesses = [level + column for level in range(levels) for column in range(window)]
    candidates = [1 + token for _ in range(ngrams) for token in range(levels)]
    return at(seq_len, tuple(guesses + candidates))


def sglang(state: Any, forward: Any) -> Any:
    """SGLang has no lookahead; its verify takes the 1-D positions from whoever drafts, and builds the three rows."""
    import torch

    from ropecheck.adapters.protocol import TablesAnswer
    from ropecheck.adapters.sglang import batches, forwards

    batch = batches.schedule_batch(state, forward, member="TARGET_VERIFY")
    positions = torch.tensor(forward.positions, dtype=torch.int64, device=batch.device)
    width = len(forward.positions) // len(forward.reqs)
    batch.spec_info = forwards.verify_info(state, batch, positions, num_steps=1, topk=1, num_draft_tokens=width)
    tables = []
    for again in ("", "again") if forward.repeat else ("",):
        made = batches.init_new(state, batch, batches.runner_for(state, "target_verify"))
        tables.append(state.table(again, forward, made))
    return TablesAnswer(tuple(tables))
