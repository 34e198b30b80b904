"""The rotation that a three-row table stands for, in numpy, composed from spec/rotary.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ropecheck.reference.requests import State, line_of, of, tokens_of
from ropecheck.reference.timeline import IntArray
from ropecheck.spec import rotary
from ropecheck.spec.history import OutOfDomain

Floats = npt.NDArray[np.float64]

METHODS = ("", "native", "device")

MOST = 1024
"""Tokens that one operation turns."""

LONGEST = 4096
"""Positions that an engine prepares."""

FAR = 50
"""How far a row is moved when it is moved alone."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which pairs of a head the rows turn. sections: pairs of row t, h and w; their sum is rotary_dim / 2."""

    head_size: int
    rotary_dim: int
    sections: tuple[int, int, int]
    interleaved: bool
    base: float


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "contiguous": Layout(128, 128, (16, 24, 24), False, 1e6),
        "interleaved": Layout(128, 128, (24, 20, 20), True, 5e6),
        "partial": Layout(64, 32, (4, 6, 6), False, 1e4),
    }
)
"""Qwen2-VL's, Qwen3-VL's, and contiguous sections over the first half of a head."""


def table_of(state: State, req: int, layout: str, method: str) -> IntArray:
    """The columns of the request's history. int64 [3, T].

    Raises OutOfDomain for a request that is over, for unknown names, and for a history that is too long.
    """
    request = of(state, req, "waiting", "running", "retracted")
    if layout not in LAYOUTS or method not in METHODS:
        raise OutOfDomain(f"layout {layout!r} or method {method!r} is unknown")
    tokens = tokens_of(request)
    if tokens > MOST:
        raise OutOfDomain(f"request {req} has {tokens} tokens; one rotation turns at most {MOST}")
    table = line_of(state, request).take(np.arange(tokens, dtype=np.int64))
    if table.shape[0] != 3 or int(table.max()) + FAR >= LONGEST:
        raise OutOfDomain(f"request {req}: a rotation reads three rows of positions below {LONGEST - FAR}")
    return table


def axes(pairs: int, sections: Sequence[int], interleaved: bool) -> list[int]:
    """Per pair, the row that turns it."""
    rule = rotary.interleaved_axis if interleaved else rotary.contiguous_axis
    return [rule(pair, sections) for pair in range(pairs)]


def rotated(
    table: IntArray, heads: Floats, *, sections: Sequence[int], interleaved: bool, base: float, rotary_dim: int
) -> Floats:
    """heads: [T, heads, head size]; dimension i and i + rotary_dim / 2 are a pair; the rest of a head stays."""
    return turned(table, heads, axes(rotary_dim // 2, sections, interleaved), base)


def turned(table: IntArray, heads: Floats, which: Sequence[int], base: float) -> Floats:
    """The same, with the row of each pair given. which: one row number per pair."""
    pairs = len(which)
    positions = table[list(which)].T.astype(np.float64)  # [T, pairs]
    angles = positions * base ** (-np.arange(pairs) / pairs)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    first, second = heads[..., :pairs], heads[..., pairs : 2 * pairs]
    out = heads.copy()
    out[..., :pairs] = first * cos - second * sin
    out[..., pairs : 2 * pairs] = second * cos + first * sin
    return out
