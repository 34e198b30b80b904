"""The consumer of the three-row table: which row turns which pair of a head's dimensions, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ropecheck.spec.rules import MROPE, label

T, H, W = 0, 1, 2

INTERLEAVED = "Qwen3-VL's configuration (mrope_interleaved): h and w take every third pair"
"""Where the second layout comes from."""


@label("rotary.contiguous_sections", source=MROPE)
def contiguous_axis(pair: int, sections: Sequence[int]) -> int:
    """With contiguous sections, a head's first sections[0] pairs must turn by row t, the next sections[1] by h, the
    rest by w."""
    if pair < sections[T]:
        return T
    return H if pair < sections[T] + sections[H] else W


@label("rotary.interleaved_sections", source=INTERLEAVED)
def interleaved_axis(pair: int, sections: Sequence[int]) -> int:
    """With interleaved sections, pair 3k + 1 must turn by row h for k below sections[1], pair 3k + 2 by w for k below
    sections[2], every other pair by t."""
    step, axis = divmod(pair, 3)
    return axis if axis != T and step < sections[axis] else T


@label("rotary.alternating_sections", source="ERNIE 4.5 technical report; transformers ernie4_5_vl_moe")
def alternating_axis(pair: int, sections: Sequence[int]) -> int:
    """With alternating sections, rows h and w must take turns over the first sections[1] + sections[2] pairs, h first,
    and row t must turn the rest."""
    if pair < sections[H] + sections[W]:
        return H if pair % 2 == 0 else W
    return T


@dataclass(frozen=True, slots=True)
class Scaling:
    """YaRN: the context is `factor` times as long as the one of training."""

    factor: float
    original: int
    """Positions of training."""
    fast: float = 32.0
    slow: float = 1.0
    """Turns over the original context from which a pair keeps its angle, and up to which it is slowed in full."""


@label("rotary.rotation", source="arXiv 2104.09864 (RoFormer) equation 34")
def turned(
    first: float, second: float, position: int, pair: int, pairs: int, base: float, scaling: Scaling | None = None
) -> tuple[float, float]:
    """Pair i of n must be turned by the angle position * base^(-i/n), or as its scaling says."""
    angle = position * frequency(pair, pairs, base, scaling)
    cos, sin = math.cos(angle), math.sin(angle)
    size = magnitude(scaling)
    return size * (first * cos - second * sin), size * (second * cos + first * sin)


@label("rotary.scaling", source="arXiv 2309.00071 (YaRN) section 3.2 and 3.4")
def frequency(pair: int, pairs: int, base: float, scaling: Scaling | None = None) -> float:
    """A scaled embedding must keep the angle of fast pairs, divide that of slow ones by the factor, and go from one to
    the other in even steps; sections say which row a pair reads, scaled or not.

    The ramp goes from the last pair that turns `fast` times or more over the original context to the first that turns
    `slow` times or less, rounded outwards.
    """
    own = math.pow(base, -pair / pairs)
    if scaling is None:
        return own
    low = max(math.floor(_pair_of(scaling.fast, pairs, base, scaling.original)), 0)
    high = min(math.ceil(_pair_of(scaling.slow, pairs, base, scaling.original)), 2 * pairs - 1)
    ramp = min(max((pair - low) / (high - low), 0.0), 1.0)
    return own * (1 - ramp) + own / scaling.factor * ramp


def _pair_of(turns: float, pairs: int, base: float, original: int) -> float:
    """The pair, between whole numbers, that turns so many times over the original context."""
    return pairs * math.log(original / (turns * 2 * math.pi)) / math.log(base)


def magnitude(scaling: Scaling | None) -> float:
    """What sines and cosines are multiplied by: 0.1 ln(factor) + 1 (arXiv 2309.00071 equation 22)."""
    return 1.0 if scaling is None or scaling.factor <= 1 else 0.1 * math.log(scaling.factor) + 1


@label(
    "rotary.readers_bound", source="public interface: a request is admitted by its tokens, a rotation reads positions"
)
def within_reach(position: int, prepared: int) -> bool:
    """Every position of a table must be one that the rotary embedding reading it has prepared, or can prepare.

    A request whose positions run ahead of its tokens must be refused, or the embedding must grow: a lookup past its end
    raises on a host, and reads foreign memory on a device.
    """
    return 0 <= position < prepared


@label("rotary.every_row_counts", source=MROPE)
def depends(axis_of_pair: int, changed_row: int) -> bool:
    """Changing one row of the table must change the pairs that this row turns, and must change no others."""
    return axis_of_pair == changed_row


@label("rotary.table_is_read_only", source="public interface: every layer of a model turns by the same table")
def table_after(table: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Turning heads must leave the table as it was, and must not depend on the tables that were turned by before."""
    return table


@label("rotary.view_is_a_copy", source="a graph buffer's live columns are a view of a wider table")
def same_for_a_view(width: int, buffer: int) -> bool:
    """A table that is a view of the first columns of a wider buffer must give what a copy of it gives."""
    return width <= buffer
