"""The rotation that a three-row table stands for, in numpy, composed from spec/rotary.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reference.timeline import IntArray
from spec import rotary

Floats = npt.NDArray[np.float64]


def axes(pairs: int, sections: Sequence[int], interleaved: bool) -> list[int]:
    """Per pair, the row that turns it."""
    rule = rotary.interleaved_axis if interleaved else rotary.contiguous_axis
    return [rule(pair, sections) for pair in range(pairs)]


def rotated(
    table: IntArray, heads: Floats, *, sections: Sequence[int], interleaved: bool, base: float, rotary_dim: int
) -> Floats:
    """heads: [T, heads, head size]; dimension i and i + rotary_dim / 2 are a pair; the rest of a head stays."""
    pairs = rotary_dim // 2
    which = axes(pairs, sections, interleaved)
    positions = table[which].T.astype(np.float64)  # [T, pairs]
    angles = positions * base ** (-np.arange(pairs) / pairs)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    first, second = heads[..., :pairs], heads[..., pairs:rotary_dim]
    out = heads.copy()
    out[..., :pairs] = first * cos - second * sin
    out[..., pairs:rotary_dim] = second * cos + first * sin
    return out
