"""The rotation that a three-row table stands for, in numpy, composed from spec/rotary.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ropecheck.reference.requests import State, of, tokens_of
from ropecheck.reference.timeline import IntArray
from ropecheck.spec import rotary
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.rotary import Layout

Floats = npt.NDArray[np.float64]

METHODS = ("", "native", "device", "fused")

MOST = 1024
"""Tokens that one operation turns."""

LONGEST = 4096
"""Positions that an engine prepares."""

FAR = 50
"""How far a row is moved when it is moved alone."""


YARN = rotary.Scaling(4.0, 32768)

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "contiguous": Layout(128, 128, (16, 24, 24), "contiguous", 1e6),
        "interleaved": Layout(128, 128, (24, 20, 20), "interleaved", 5e6),
        "partial": Layout(64, 32, (4, 6, 6), "contiguous", 1e4),
        "uneven": Layout(128, 128, (16, 32, 16), "contiguous", 1e6),
        "uneven interleaved": Layout(128, 128, (26, 18, 20), "interleaved", 5e6),
        "scaled": Layout(128, 128, (16, 24, 24), "contiguous", 1e6, YARN),
        "scaled interleaved": Layout(128, 128, (24, 20, 20), "interleaved", 1e6, YARN),
        "short": Layout(128, 128, (16, 24, 24), "contiguous", 1e6, longest=32),
        "served": Layout(128, 128, (16, 24, 24), "contiguous", 1e6, longest=128_000),
        "cycled": Layout(64, 64, (8, 12, 12), "cycled", 1e4),
        "alternating": Layout(128, 128, (20, 22, 22), "alternating", 5e5),
    }
)
"""Qwen2-VL's, Qwen3-VL's, contiguous sections over the first half of a head, sections where h and w differ, the first
two with YaRN, the first one with few positions prepared and with as many as Qwen2.5-VL is served with, GLM-V's, and
Ernie-4.5-VL's."""


def bounded(layout: str) -> bool:
    """Whether a table may look past the layout's end, which is the point of it."""
    return LAYOUTS[layout].longest != LONGEST


def table_of(state: State, req: int, layout: str, method: str) -> IntArray:
    """The columns of the request's history. int64 [3, T].

    Raises OutOfDomain for a request that is over, for unknown names, and for a history that is too long.
    """
    request = of(state, req, "waiting", "running", "retracted")
    if layout not in LAYOUTS or method not in METHODS:
        raise OutOfDomain(f"layout {layout!r} or method {method!r} is unknown")
    tokens = tokens_of(request)
    if tokens > LAYOUTS[layout].longest:
        raise OutOfDomain(f"request {req} has {tokens} tokens, more than {layout!r} has positions: never admitted")
    if tokens > MOST:
        raise OutOfDomain(f"request {req} has {tokens} tokens; one rotation turns at most {MOST}")
    table = request.line.take(np.arange(tokens, dtype=np.int64))
    if table.shape[0] != 3 or (not bounded(layout) and int(table.max()) + FAR >= LONGEST):
        raise OutOfDomain(f"request {req}: a rotation reads three rows of positions below {LONGEST - FAR}")
    return table


def rotated(table: IntArray, heads: Floats, layout: Layout) -> Floats:
    """heads: [T, heads, head size]; dimension i and i + rotary_dim / 2 are a pair; the rest of a head stays."""
    return turned(table, heads, layout.axes, layout.base, layout.scaling)


def turned(
    table: IntArray, heads: Floats, which: Sequence[int], base: float, scaling: rotary.Scaling | None = None
) -> Floats:
    """The same, with the row of each pair given. which: one row number per pair."""
    pairs = len(which)
    positions = table[list(which)].T.astype(np.float64)  # [T, pairs]
    angles = positions * np.array([rotary.frequency(pair, pairs, base, scaling) for pair in range(pairs)])
    size = rotary.magnitude(scaling)
    cos, sin = size * np.cos(angles)[:, None, :], size * np.sin(angles)[:, None, :]
    first, second = heads[..., :pairs], heads[..., pairs : 2 * pairs]
    out = heads.copy()
    out[..., :pairs] = first * cos - second * sin
    out[..., pairs : 2 * pairs] = second * cos + first * sin
    return out
