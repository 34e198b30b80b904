"""Compares a forward's tables on the device that made them; a worker loads it by name, since adapters know no rules.

One flag per batch comes back, those of a whole job in one read. Where a flag says no, or where this module does not
know the mode, the whole tables travel and the verdict looks at them as on a host.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from adapters import protocol
from conformance.plan import decoded
from reference.device_windows import Lines, joined, read, same, widened
from spec.modes import decode, draft_decode, target_verify


class Comparator:
    """The comparisons of one job. Tables are kept as they are now: an engine may go on writing into its own."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._flags: list[Any] = []

    def add(self, forward: protocol.Forward, label: str, positions: Any, rows: Any) -> bool:
        """Compare both tables, without waiting for the answer. False: not for this module to say, nothing is kept."""
        if rows is None or positions is None:
            return False
        seen, wanted = joined(positions, rows), expected(forward, label, positions.device)
        flag = None if seen is None or wanted is None else same(seen, wanted)
        if flag is None:
            return False
        self._kept.append(seen)
        self._flags.append(flag)
        return True

    def settle(self) -> list[tuple[Any, Any] | None]:
        """Per table added since the last time: None when both tables are right, else (positions, rows) as they were."""
        kept, self._kept = self._kept, []
        flags, self._flags = self._flags, []
        return [None if right else (seen[0], seen[1:]) for right, seen in zip(read(flags), kept, strict=True)]


def expected(forward: protocol.Forward, label: str, device: Any) -> Any | None:
    """int64 [1 + axes, T] on the device, positions first: the table with this label; None for what is compared on the
    host."""
    if not forward.expect or forward.ragged_tokens:
        return None
    live = _live(forward, label, lines_of(forward.expect, str(device)))
    if label != "padded" or live is None:
        return live
    assert forward.padding is not None
    return widened(live, forward.padding.tokens)


def _live(forward: protocol.Forward, label: str, wanted: Lines) -> Any | None:
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
    return Lines([decoded(line.table) for line in expect], [line.delta for line in expect], device)
