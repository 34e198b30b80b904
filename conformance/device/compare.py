"""Compares a forward's tables on the device that made them; a worker loads it by name, since adapters know no rules.

One flag comes back per batch. Where it says no, or where this module does not know the mode, the whole tables travel
and the verdict looks at them as on a host.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from adapters import protocol
from conformance.plan import decoded
from reference.device_windows import Lines, lines, same
from spec.modes import decode, draft_decode, target_verify


def matches(forward: protocol.Forward, label: str, positions: Any, rows: Any) -> bool:
    """Whether both tables are the right ones. False also where that is not for this module to say."""
    if rows is None or positions is None:
        return False
    wanted = expected(forward, label, positions.device)
    if wanted is None:
        return False
    flags = [same(seen, want) for seen, want in zip((positions, rows), wanted, strict=True)]
    if flags[0] is None or flags[1] is None:
        return False
    return bool((flags[0] & flags[1]).item())


def expected(forward: protocol.Forward, label: str, device: Any) -> tuple[Any, Any] | None:
    """(positions, rows), torch tensors, of the table with this label; None for a mode that is compared on the host."""
    if not forward.expect or forward.ragged_tokens or label == "padded":
        return None
    wanted = lines_of(forward.expect, str(device))
    seq_lens, count = forward.seq_lens, len(forward.reqs)
    match forward.mode:
        case "extend" | "split_prefill" | "mixed":
            return wanted.windows(forward.prefix_lens, forward.extend_lens)
        case "decode":
            return wanted.windows([decode.index_of(seq_len) for seq_len in seq_lens], (1,) * count)
        case "target_verify":
            return wanted.offsets_from(seq_lens, [target_verify.depths(parents) for parents in forward.parents])
        case "draft_decode":
            step = int(label.removeprefix("step ")) if label.startswith("step ") else 0
            first = [draft_decode.index_of(seq_len, step) for seq_len in seq_lens]
            return wanted.offsets_from(first, ((0,) * forward.topk,) * count)
        case "draft_extend_v2":
            return wanted.windows(seq_lens, (forward.num_draft_tokens,) * count)
        case _:
            return None


@lru_cache(maxsize=64)
def lines_of(expect: tuple[protocol.Line, ...], device: str) -> Lines:
    """The requests' columns, copied to the device once per batch of requests."""
    return lines([decoded(line.table) for line in expect], [line.delta for line in expect], device)
