"""The rotary embedding against the reference rotation: real tables, both layouts of sections, every row, and views."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from adapters import protocol
from conformance.run.ask import Asked, NoAnswer
from conformance.scenarios.script import PROMPTS
from reference import rotary
from reference.timeline import IntArray, timeline

Floats = npt.NDArray[np.float64]
Row = tuple[str, str, str, str]

LAYOUTS = (
    ("contiguous", 128, 128, (16, 24, 24), False, 1e6),
    ("interleaved", 128, 128, (24, 20, 20), True, 5e6),
    ("contiguous, half of the head", 64, 32, (4, 6, 6), False, 1e4),
)
"""Name, head size, rotary dimensions, sections, interleaved, base: Qwen2-VL's, Qwen3-VL's, and a partial rotation."""

TOLERANCE = 2e-4
"""Of float32 cosines of positions below a hundred."""

HEADS = (2, 1)

FAR = 50
"""How far a row is moved: far enough that its slowest pairs turn visibly."""


def checks(worker: Asked) -> Iterator[Row]:
    """(rule, what, problem, note) of every check."""
    for method in ("native", "device") if worker.device != "cpu" else ("native",):
        for layout in LAYOUTS:
            for name in ("two images", "image then video", "text"):
                yield from _checks(worker, method, layout, name)


def _checks(
    worker: Asked, method: str, layout: tuple[str, int, int, tuple[int, int, int], bool, float], name: str
) -> Iterator[Row]:
    what = f"{layout[0]}, {method}, {name}"
    _, head, dims, sections, interleaved, base = layout
    rule = "rotary.interleaved_sections" if interleaved else "rotary.contiguous_sections"
    prompt = PROMPTS[name]
    table = np.array(timeline("qwen2_vl", prompt, len(prompt)).table)
    heads = [given(table.shape[1], count, head) for count in HEADS]

    def ask(rows: IntArray, buffer: int = 0) -> list[Floats]:
        step = protocol.Rotary(
            table=tensor(rows), query=tensor(heads[0].astype(np.float32).reshape(len(heads[0]), -1)),
            key=tensor(heads[1].astype(np.float32).reshape(len(heads[1]), -1)), head_size=head, rotary_dim=dims,
            base=base, sections=sections, interleaved=interleaved, method=method, buffer=buffer,
        )
        result = worker.ask(protocol.Job(id=what, steps=(step,), device=worker.device))[0]
        if isinstance(result, protocol.NotOffered):
            raise NoAnswer(result.reason)
        if isinstance(result, protocol.Raised):
            line = f"{result.type}: {result.message.splitlines()[0] if result.message else ''} {result.where}"
            raise Failed(line) if result.stage == "engine" else NoAnswer(line)
        assert isinstance(result, protocol.Rotated)
        turned = zip((result.query, result.key), heads, strict=True)
        return [floats(part).reshape(wanted.shape) for part, wanted in turned]

    try:
        right = [
            rotary.rotated(table, part, sections=sections, interleaved=interleaved, base=base, rotary_dim=dims)
            for part in heads
        ]
        seen = ask(table)
        yield rule, what, far(seen, right), ""
        yield "rotary.rotation", what, far(seen, right), ""
        which = rotary.axes(dims // 2, sections, interleaved)
        for row, axis in enumerate("thw"):
            moved = table.copy()
            moved[row] += FAR
            yield "rotary.every_row_counts", f"{what}, row {axis} alone", moves(seen, ask(moved), which, row, dims), ""
        yield "rotary.view_is_a_copy", what, far(ask(table, buffer=table.shape[1] + 37), seen, 0.0), ""
    except Failed as error:
        yield rule, what, str(error), ""
    except NoAnswer as error:
        yield rule, what, "", str(error)


class Failed(Exception):
    """The engine raised."""


def given(tokens: int, heads: int, size: int) -> Floats:
    """Heads without zeros, the same every time."""
    count = tokens * heads * size
    return (1.0 + (np.arange(count, dtype=np.float64) * 7919 % 101) / 101).reshape(tokens, heads, size)


def far(seen: list[Floats], right: list[Floats], tolerance: float = TOLERANCE) -> str:
    """One line for the worst difference; "" when all are close."""
    for name, got, want in zip(("query", "key"), seen, right, strict=True):
        gap = np.abs(got - want)
        if not np.isfinite(got).all() or gap.max() > tolerance:
            token, head, dim = np.unravel_index(int(np.nan_to_num(gap, nan=np.inf).argmax()), gap.shape)
            return f"{name}, token {token}, head {head}, dimension {dim}: {got[token, head, dim]:.6g}, " \
                   f"must be {want[token, head, dim]:.6g}"
    return ""


def moves(before: list[Floats], after: list[Floats], which: list[int], row: int, dims: int) -> str:
    """Exactly the pairs of this row may have changed, and each of them must have, where its turn is not tiny."""
    pairs = dims // 2
    for name, old, new in zip(("query", "key"), before, after, strict=True):
        changed = np.abs(new - old).max(axis=(0, 1))
        both = np.maximum(changed[:pairs], changed[pairs:dims])
        for pair, axis in enumerate(which):
            if axis != row and both[pair] > 0:
                return f"{name}: pair {pair} is turned by row {'thw'[axis]}, but changed with row {'thw'[row]}"
        mine = [pair for pair, axis in enumerate(which) if axis == row]
        if not (both[mine[:2]] > 1e-3).all():
            return f"{name}: row {'thw'[row]} changed and pairs {mine[:2]} did not"
    return ""


def tensor(array: npt.NDArray[np.generic]) -> protocol.Tensor:
    """An array as it travels."""
    return protocol.Tensor(array.dtype.name, tuple(array.shape), np.ascontiguousarray(array).tobytes())


def floats(part: protocol.Tensor) -> Floats:
    """A float32 tensor, widened."""
    return np.frombuffer(part.data, dtype=np.dtype(part.dtype)).astype(np.float64)
