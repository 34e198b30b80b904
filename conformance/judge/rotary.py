"""The verdict on the rotary embedding's answers: which rule a wrong rotation breaks, and in what shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Difference, Failure, Unrun
from ropecheck.conformance.judge.signature import raise_signature, raised_line
from ropecheck.conformance.judge.tally import Tally
from ropecheck.conformance.plan.rotary import ROWS, RotaryCheck, heads
from ropecheck.reference.rotary import LAYOUTS, LONGEST, Floats, Layout, axes, rotated, turned
from ropecheck.spec.rotary import within_reach

MODE = "rotary"
"""What reports file it under."""

PARTS = ("query", "key")

TOLERANCE = 2e-4
"""Of float32 sines and cosines of positions up to a hundred; it grows with the position."""


def judge_rotary(tally: Tally, check: RotaryCheck, answer: protocol.Answer) -> None:
    """Judge the five answers; without the first there is nothing to compare the others with."""
    first, *others = (answer.results[number] for number in check.results)
    if LAYOUTS[check.layout].longest < LONGEST:
        _bound(tally, check, first)
        return
    seen = _read(tally, check, first, "rotary.rotation")
    if seen is None:
        return
    _rotation(tally, check, seen)
    for row, result in enumerate(others[:-1]):
        moved = _read(tally, check, result, "rotary.every_row_counts")
        if moved is not None:
            _row_counts(tally, check, seen, moved, row)
    view = _read(tally, check, others[-1], "rotary.view_is_a_copy")
    if view is not None:
        tally.check("rotary.view_is_a_copy", MODE)
        place = _first(view, seen, 0.0)
        if place is not None:
            _fail_at(tally, check, "rotary.view_is_a_copy", "a view differs from a copy", place, view, seen)


def _bound(tally: Tally, check: RotaryCheck, result: protocol.Result) -> None:
    """Positions beyond what the embedding has prepared: refused in words of its own, or turned all the same."""
    rule, layout = "rotary.readers_bound", LAYOUTS[check.layout]
    reach = within_reach(int(check.table.max()), layout.longest)
    if not reach and isinstance(result, protocol.Raised) and result.stage == "engine":
        tally.check(rule, MODE)
        if result.type in LOOKUPS:
            message = f"position {int(check.table.max())} of {layout.longest} prepared: {raised_line(result)}"
            _fail(tally, check, rule, "looks past its end", message, where=result.where)
        return
    seen = _read(tally, check, result, rule)
    if seen is None:
        return
    tally.check(rule, MODE)
    right = [rotated(check.table, part, layout) for part in heads(check.table.shape[1], layout.head_size)]
    place = _first(seen, right, _tolerance(check))
    if place is not None:
        _fail_at(tally, check, rule, "reads another position", place, seen, right)


LOOKUPS = ("IndexError", "RuntimeError")
"""What a tensor raises for an index that it does not have; an engine's refusal says which request and why."""


def _read(tally: Tally, check: RotaryCheck, result: protocol.Result, rule: str) -> list[Floats] | None:
    """Query and key as answered; None, and recorded under `rule`, where there are none."""
    if isinstance(result, protocol.NotOffered):
        tally.not_offered.append((MODE, result.reason))
    elif isinstance(result, protocol.Raised) and result.stage == "engine":
        tally.check(rule, MODE)
        _fail(tally, check, rule, raise_signature(result), raised_line(result), where=result.where)
    elif isinstance(result, protocol.Raised):
        tally.unrun.append(Unrun(stage=result.stage, message=f"{MODE}: {raised_line(result)}", step=check.op))
    elif not isinstance(result, protocol.Rotated):
        tally.unrun.append(Unrun(stage="decode", message=f"answered with {type(result).__name__}", step=check.op))
    else:
        tally.modes[MODE] = tally.modes.get(MODE, 0) + 1
        tally.note(MODE, result.ran)
        tally.check("rotary.table_is_read_only", MODE)
        if result.table_changed:
            _fail(tally, check, "rotary.table_is_read_only", "table changed", "turning heads wrote into the table")
        return _decoded(tally, check, result, rule)
    return None


def _decoded(tally: Tally, check: RotaryCheck, result: protocol.Rotated, rule: str) -> list[Floats] | None:
    out = []
    given = heads(check.table.shape[1], LAYOUTS[check.layout].head_size, check.method)
    for name, part, want in zip(PARTS, (result.query, result.key), given, strict=True):
        shape = (want.shape[0], want.shape[1] * want.shape[2])
        if (part.dtype, part.shape) != ("float32", shape):
            tally.check(rule, MODE)
            message = f"{name} is {part.dtype}{list(part.shape)}, must be float32{list(shape)}"
            _fail(tally, check, rule, "wrong shape" if part.shape != shape else f"dtype {part.dtype}", message)
            return None
        out.append(np.frombuffer(part.data, dtype="<f4").astype(np.float64).reshape(want.shape))
    return out


def _rotation(tally: Tally, check: RotaryCheck, seen: list[Floats]) -> None:
    """Every pair by its own row's angle, and nothing else. Where all rows are equal no section can be told apart."""
    layout = LAYOUTS[check.layout]
    given = heads(check.table.shape[1], layout.head_size, check.method)
    sections = section_rule(layout)
    if layout.scaling is not None:
        tally.check("rotary.scaling", MODE)
    right = [rotated(check.table, part, layout) for part in given]
    tally.check("rotary.rotation", MODE)
    if (check.table != check.table[:1]).any():
        tally.check(sections, MODE)
    place = _first(seen, right, _tolerance(check))
    if place is None:
        return
    signature = _section_signature(check, layout, given, seen, right)
    if signature:
        _fail_at(tally, check, sections, signature, place, seen, right)
    else:
        signature = _angle_signature(check, layout, given, seen, right)
        rule = "rotary.rotation" if layout.scaling is None else "rotary.scaling"
        _fail_at(tally, check, rule, signature, place, seen, right)


def section_rule(layout: Layout) -> str:
    """The rule that says which row turns which pair."""
    if layout.alternating:
        return "rotary.alternating_sections"
    return "rotary.interleaved_sections" if layout.interleaved else "rotary.contiguous_sections"


def _row_counts(tally: Tally, check: RotaryCheck, before: list[Floats], after: list[Floats], row: int) -> None:
    """Exactly the pairs of this row may differ, to the last bit, and each of them must."""
    rule, layout = "rotary.every_row_counts", LAYOUTS[check.layout]
    pairs = layout.rotary_dim // 2
    dims = [np.abs(new - old).max(axis=(0, 1)) != 0 for old, new in zip(before, after, strict=True)]
    which = layout.axes
    own = {pair for pair in range(pairs) if which[pair] == row}
    tally.check(rule, MODE)
    for name, changed in zip(PARTS, dims, strict=True):
        seen = {pair for pair in range(pairs) if changed[pair] or changed[pair + pairs]}
        rest = bool(changed[2 * pairs :].any())
        if seen == own and not rest:
            continue
        if not seen and not rest:
            signature = f"row {ROWS[row]} changes nothing"
        elif rest or seen - own:
            signature = f"row {ROWS[row]} changes what is not its own"
        else:
            signature = f"row {ROWS[row]} changes too few pairs"
        observed = _numbers(seen) + (" and the rest of the head" if rest else "")
        message = f"{name}: row {ROWS[row]} moved alone changes {observed}, must change {_numbers(own)}"
        difference = Difference(ROWS[row], None, check.req, _numbers(own), observed)
        _fail(tally, check, rule, signature, message, difference)
        return


def _section_signature(
    check: RotaryCheck, layout: Layout, given: Sequence[Floats], seen: list[Floats], right: list[Floats]
) -> str:
    """Which rows turned the wrong pairs; "" when rows do not explain every one of them."""
    pairs, tolerance = layout.rotary_dim // 2, _tolerance(check)
    if not _rest_stays(seen, right, pairs, tolerance):
        return ""
    other = axes(pairs, layout.sections, not layout.interleaved)
    if _pairs(
        seen, [turned(check.table, part, other, layout.base, layout.scaling) for part in given], pairs, tolerance
    ).all():
        return "sections contiguous" if layout.interleaved else "sections interleaved"
    which = layout.axes
    by_row = [
        _pairs(
            seen,
            [turned(check.table, part, [row] * pairs, layout.base, layout.scaling) for part in given],
            pairs,
            tolerance,
        )
        for row in range(len(ROWS))
    ]
    found = set()
    for pair in np.flatnonzero(~_pairs(seen, right, pairs, tolerance)):
        turning = [row for row in range(len(ROWS)) if by_row[row][pair]]
        if not turning:
            return ""
        found.add((which[pair], turning[0]))
    if len(found) > 1:
        return "pairs turned by other rows"
    return "".join(f"{ROWS[want]} pairs turned by {ROWS[got]}" for want, got in found)


def _angle_signature(
    check: RotaryCheck, layout: Layout, given: Sequence[Floats], seen: list[Floats], right: list[Floats]
) -> str:
    """What became of pairs that no row's angle explains."""
    pairs, tolerance = layout.rotary_dim // 2, _tolerance(check)
    if not all(np.isfinite(part).all() for part in seen):
        return "not finite"
    if not _rest_stays(seen, right, pairs, tolerance):
        return "rest of the head changed"
    if _first(seen, list(given), tolerance) is None:
        return "not turned"
    which = layout.axes
    if (
        _first(seen, [turned(-check.table, part, which, layout.base, layout.scaling) for part in given], tolerance)
        is None
    ):
        return "turned backwards"
    lengths = [np.hypot(part[..., :pairs], part[..., pairs : 2 * pairs]) for part in (*seen, *given)]
    kept = all(np.allclose(got, want, atol=tolerance) for got, want in zip(lengths[:2], lengths[2:], strict=True))
    return "another angle" if kept else "other values"


def _tolerance(check: RotaryCheck) -> float:
    return TOLERANCE * max(1.0, float(check.table.max()) / 100)


def _close(got: Floats, want: Floats, tolerance: float) -> npt.NDArray[np.bool_]:
    """Per dimension of a head, whether it is right for every token and head."""
    return np.asarray((np.abs(got - want) <= tolerance).all(axis=(0, 1)), dtype=np.bool_)


def _pairs(got: Sequence[Floats], want: Sequence[Floats], pairs: int, tolerance: float) -> npt.NDArray[np.bool_]:
    """Per pair, whether both of its dimensions are right in query and key."""
    near = np.ones(pairs, dtype=np.bool_)
    for one, other in zip(got, want, strict=True):
        close = _close(one, other, tolerance)
        np.logical_and(near, close[:pairs] & close[pairs : 2 * pairs], out=near)
    return near


def _rest_stays(got: Sequence[Floats], want: Sequence[Floats], pairs: int, tolerance: float) -> bool:
    """Whether the dimensions that no pair holds are right."""
    return all(bool(_close(*both, tolerance)[2 * pairs :].all()) for both in zip(got, want, strict=True))


def _first(got: list[Floats], want: list[Floats], tolerance: float) -> tuple[int, int, int, int] | None:
    """(part, token, head, dimension) of the first difference; None when all are close. Not a number is never close."""
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        wrong = np.argwhere(~(np.abs(one - other) <= tolerance))
        if len(wrong):
            token, head, dim = (int(index) for index in wrong[0])
            return number, token, head, dim
    return None


def _fail_at(
    tally: Tally,
    check: RotaryCheck,
    rule: str,
    signature: str,
    place: tuple[int, int, int, int],
    got: list[Floats],
    want: list[Floats],
) -> None:
    part, token, head, dim = place
    observed, expected = (f"{values[part][token, head, dim]:.6g}" for values in (got, want))
    message = f"{PARTS[part]}, token {token}, head {head}, dimension {dim}: {observed}, must be {expected}"
    difference = Difference(f"{PARTS[part]}, dimension {dim},", token, check.req, expected, observed)
    _fail(tally, check, rule, signature, message, difference)


def _fail(
    tally: Tally,
    check: RotaryCheck,
    rule: str,
    signature: str,
    message: str,
    difference: Difference | None = None,
    where: str = "",
) -> None:
    """Another method is a kernel of its own: its faults are findings of their own."""
    tally.fail(
        Failure(
            rule=rule,
            mode=MODE,
            signature=signature if check.method == "native" else f"{signature} ({check.method})",
            step=check.op,
            label=check.method,
            message=f"{check.layout}, {check.method}: {message}",
            difference=difference,
            where=where,
        )
    )


def _numbers(pairs: set[int]) -> str:
    """ "pairs 16..39", "no pair", "24 pairs from 1 to 61"."""
    if not pairs:
        return "no pair"
    low, high = min(pairs), max(pairs)
    return f"pairs {low}..{high}" if high - low + 1 == len(pairs) else f"{len(pairs)} pairs from {low} to {high}"
