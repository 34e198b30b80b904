"""The consumer of the three-row table: which row turns which pair of a head's dimensions, and by how much.

Dimension i of a head and dimension i + n are pair i of n; what lies behind the n pairs stays as it is.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import add, mul, sub

from ropecheck.spec.rules import MROPE, Violation, rule
from ropecheck.spec.views import Ints

T, H, W = 0, 1, 2
ROWS = "thw"

INTERLEAVED = "Qwen3-VL's configuration (mrope_interleaved): h and w take every third pair"
"""Where the second layout comes from."""


# ---------------------------------------------------------------- which row turns a pair


def contiguous_axis(pair: int, sections: Sequence[int]) -> int:
    """The first sections[0] pairs read row t, the next sections[1] row h, the rest w."""
    if pair < sections[T]:
        return T
    return H if pair < sections[T] + sections[H] else W


def interleaved_axis(pair: int, sections: Sequence[int]) -> int:
    """Pair 3k + 1 reads row h for k below sections[1], pair 3k + 2 row w for k below sections[2], the others t."""
    step, axis = divmod(pair, 3)
    return axis if axis != T and step < sections[axis] else T


def alternating_axis(pair: int, sections: Sequence[int]) -> int:
    """h and w take turns over the first sections[1] + sections[2] pairs, t reads the rest."""
    if pair < sections[H] + sections[W]:
        return H if pair % 2 == 0 else W
    return T


def cycled_axes(pairs: int, sections: Sequence[int]) -> list[int]:
    """Pairs go to t, h and w in turn; a row that has its section's pairs passes its turn on to the next that has not.

    >>> cycled_axes(8, (2, 3, 3))
    [0, 1, 2, 0, 1, 2, 1, 2]
    """
    found: list[int] = []
    for pair in range(pairs):
        turns = ((pair + later) % 3 for later in range(3))
        found.append(next(row for row in turns if found.count(row) < sections[row]))
    return found


AXIS: dict[str, Callable[[int, Sequence[int]], int]] = {
    "contiguous": contiguous_axis,
    "interleaved": interleaved_axis,
    "alternating": alternating_axis,
    "cycled": lambda pair, sections: cycled_axes(pair + 1, sections)[pair],
}
"""Arrangement of the sections -> the row of a pair."""


# ---------------------------------------------------------------- by how much it is turned


@dataclass(frozen=True, slots=True)
class Scaling:
    """YaRN: the context is `factor` times as long as the one of training."""

    factor: float
    original: int
    """Positions of training."""
    fast: float = 32.0
    slow: float = 1.0
    """Turns over the original context from which a pair keeps its angle, and up to which it is slowed in full."""


@cache
def frequency(pair: int, pairs: int, base: float, scaling: Scaling | None = None) -> float:
    """The angle of pair i of n at position 1: base^(-i/n), or as its scaling says (arXiv 2309.00071 section 3.2).

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


# ---------------------------------------------------------------- what the rules look at


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model's embedding reads the rows. sections: pairs of row t, h and w; their sum is rotary_dim / 2."""

    head_size: int
    rotary_dim: int
    sections: tuple[int, int, int]
    arrangement: str
    """A name in `AXIS`."""
    base: float
    scaling: Scaling | None = None
    longest: int = 4096
    """Positions that the embedding has prepared."""

    @property
    def pairs(self) -> int:
        return self.rotary_dim // 2

    @property
    def axes(self) -> list[int]:
        """Per pair, the row that turns it."""
        return axes(self.pairs, self.sections, self.arrangement)


def axes(pairs: int, sections: Sequence[int], arrangement: str) -> list[int]:
    """Per pair, the row that turns it."""
    return [AXIS[arrangement](pair, sections) for pair in range(pairs)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHeads:
    """The heads of all tokens, of query or key."""

    name: str
    shape: tuple[int, ...]
    """[T, heads * head size]."""
    dims: tuple[array[float], ...]
    """Per dimension of a head its values (doubles), token by token and head by head; () where they cannot be laid
    beside the given ones."""
    dtype: str = "float32"


Heads = tuple[TokenHeads, ...]


@dataclass(kw_only=True)
class Rotation:
    """Heads before and after they were turned by a table."""

    layout: Layout
    table: tuple[Ints, ...]
    """Rows t, h and w: int [3][T]."""
    given: Heads
    seen: Heads | None
    """Observed; None where the embedding raised."""
    tolerance: float

    @cached_property
    def wrong(self) -> tuple[int, ...]:
        """Pairs that are not turned by their own row's angle, in query or key."""
        which = self.layout.axes
        return tuple(pair for pair in range(self.layout.pairs) if not self.turned_by(pair, which[pair]))

    @cached_property
    def rest(self) -> bool:
        """Whether a dimension behind the pairs has changed."""
        return bool(self.changed(range(2 * self.layout.pairs, self.layout.head_size)))

    @cached_property
    def other_rows(self) -> dict[int, list[int]]:
        """Wrong pair -> the rows by whose angle it is turned instead."""
        return {pair: [row for row in range(len(ROWS)) if self.turned_by(pair, row)] for pair in self.wrong}

    @property
    def by_rows(self) -> bool:
        """Whether something is wrong, and all of it is that pairs are turned by other rows."""
        return bool(self.wrong) and not self.rest and all(self.other_rows.values())

    def turned_by(self, pair: int, row: int) -> bool:
        """Whether both dimensions of the pair are turned by this row's angle, in query and key."""
        return next(self._places([(pair, row)]), None) is None

    def places(self, which: Sequence[int], sign: int = 1) -> list[HeadPlace]:
        """Per part and dimension, the first value that is not right where pair i is turned by row which[i]; `sign`:
        forwards or backwards."""
        behind = self.changed(range(2 * self.layout.pairs, self.layout.head_size))
        return [*self._places(enumerate(which), sign), *behind]

    def changed(self, dims: Iterable[int]) -> list[HeadPlace]:
        """Per part and dimension, the first value that is not what it was."""
        pairs = list(enumerate(zip(self.given, self.seen or (), strict=True)))
        return [
            place
            for dim in dims
            for part, (given, seen) in pairs
            if given.dims[dim].tobytes() != seen.dims[dim].tobytes()
            for place in self._far(part, dim, given.dims[dim])
        ]

    def _places(self, turns: Iterable[tuple[int, int]], sign: int = 1) -> Iterator[HeadPlace]:
        layout, size = self.layout, magnitude(self.layout.scaling)
        for pair, row in turns:
            angle = sign * frequency(pair, layout.pairs, layout.base, layout.scaling)
            cos = [size * math.cos(position * angle) for position in self.table[row]]
            sin = [size * math.sin(position * angle) for position in self.table[row]]
            for part, given in enumerate(self.given):
                one, two = given.dims[pair], given.dims[pair + layout.pairs]
                heads = len(one) // max(len(cos), 1)
                c, s = _each(cos, heads), _each(sin, heads)
                first = list(map(sub, map(mul, c, one), map(mul, s, two)))
                second = list(map(add, map(mul, c, two), map(mul, s, one)))
                yield from self._far(part, pair, first)
                yield from self._far(part, pair + layout.pairs, second)

    def _far(self, part: int, dim: int, right: Sequence[float]) -> Iterator[HeadPlace]:
        seen = () if self.seen is None else self.seen[part].dims[dim]
        off_by = list(map(sub, right, seen))
        if not off_by or (
            math.isfinite(sum(off_by)) and -self.tolerance <= min(off_by) and max(off_by) <= self.tolerance
        ):
            return
        for at, off in enumerate(off_by):
            if not -self.tolerance <= off <= self.tolerance:  # not a number is never close
                yield HeadPlace(part, at, dim, right[at], seen[at])
                return


@dataclass(frozen=True, slots=True, order=True)
class HeadPlace:
    """A wrong value: query before key, token by token, head by head, dimension by dimension."""

    part: int
    at: int
    """Token and head: token * heads + head."""
    dim: int
    right: float
    seen: float


def _each(values: list[float], times: int) -> list[float]:
    return [value for value in values for _ in range(times)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMoved:
    """The same heads turned twice: by a table, and by it with one row moved far."""

    layout: Layout
    row: int
    before: Heads
    after: Heads | None
    """None where the embedding raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfView:
    """The same heads turned by a table, and by a view of the first columns of a wider buffer."""

    layout: Layout
    copy: Heads
    view: Heads | None
    """None where the embedding raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A table whose positions may lie past what the embedding has prepared."""

    position: int
    """The largest one."""
    prepared: int
    error: str
    """The type of the exception that was raised; "" where heads were turned."""
    rotation: Rotation
    """By the positions as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAfter:
    """The table after heads were turned by it."""

    changed: bool


# ---------------------------------------------------------------- the rules


def _rows_differ(view: Rotation) -> bool:
    """Where all rows are equal no section can be told apart."""
    t, *others = view.table
    return view.seen is not None and _unlike(view.given, view.seen) is None and any(row != t for row in others)


def _arranged(*names: str) -> Callable[[Rotation], bool]:
    return lambda view: view.layout.arrangement in names and _rows_differ(view)


@rule("rotary.contiguous_sections", of=Rotation, source=MROPE, when=_arranged("contiguous"))
def contiguous_sections(view: Rotation) -> Violation | None:
    """With contiguous sections, a head's first sections[0] pairs must turn by row t, the next sections[1] by h, the
    rest by w."""
    return _sections(view)


@rule("rotary.interleaved_sections", of=Rotation, source=INTERLEAVED, when=_arranged("interleaved", "cycled"))
def interleaved_sections(view: Rotation) -> Violation | None:
    """With interleaved sections, pair 3k + 1 must turn by row h for k below sections[1], pair 3k + 2 by w for k below
    sections[2], every other pair by t.

    GLM-V's way (mrope_interleaved_glm; sglang #21671 by its authors): t, h and w in turn, each for its section's pairs.
    """
    return _sections(view)


@rule(
    "rotary.alternating_sections",
    of=Rotation,
    source="ERNIE 4.5 technical report; transformers ernie4_5_vl_moe",
    when=_arranged("alternating"),
)
def alternating_sections(view: Rotation) -> Violation | None:
    """With alternating sections, rows h and w must take turns over the first sections[1] + sections[2] pairs, h first,
    and row t must turn the rest."""
    return _sections(view)


@rule(
    "rotary.rotation",
    of=Rotation,
    source="arXiv 2104.09864 (RoFormer) equation 34",
    when=lambda view: view.layout.scaling is None,
)
def rotation(view: Rotation) -> Violation | None:
    """Pair i of n must be turned by the angle position * base^(-i/n), and the rest of a head must stay."""
    return _angles(view)


@rule(
    "rotary.scaling",
    of=Rotation,
    source="arXiv 2309.00071 (YaRN) section 3.2 and 3.4",
    when=lambda view: view.layout.scaling is not None,
)
def scaling(view: Rotation) -> Violation | None:
    """A scaled embedding must keep the angle of fast pairs, divide that of slow ones by the factor, and go from one to
    the other in even steps; sections say which row a pair reads, scaled or not."""
    return _angles(view)


LOOKUPS = ("IndexError", "RuntimeError", "AcceleratorError")
"""What a tensor raises for an index that it does not have, on a host and on a device. An engine's refusal says which
request, and why."""


def within_reach(position: int, prepared: int) -> bool:
    """Whether the embedding has prepared the position."""
    return 0 <= position < prepared


@rule(
    "rotary.readers_bound",
    of=Reach,
    source="public interface: a request is admitted by its tokens, a rotation reads positions",
)
def readers_bound(reach: Reach) -> Violation | None:
    """Every position of a table must be one that the rotary embedding reading it has prepared, or can prepare.

    A request whose positions run ahead of its tokens must be refused, or the embedding must grow: a lookup past its end
    raises on a host, and reads foreign memory on a device.
    """
    if reach.error and within_reach(reach.position, reach.prepared):
        return Violation(axis="heads", message="raised for positions that are prepared")
    if reach.error in LOOKUPS:
        message = f"position {reach.position} of {reach.prepared} prepared"
        return Violation(axis="heads", shape="looks past its end", message=message)
    if reach.error:
        return None
    view = reach.rotation
    return _unlike(view.given, view.seen) or _wrong_place(view, "reads another position")


@rule("rotary.every_row_counts", of=RowMoved, source=MROPE)
def every_row_counts(moved: RowMoved) -> Violation | None:
    """Changing one row of the table must change the pairs that this row turns, and must change no others.

    To the last bit.
    """
    if moved.after is None or _unlike(moved.before, moved.after):
        return _unlike(moved.before, moved.after)
    pairs, name = moved.layout.pairs, ROWS[moved.row]
    own = {pair for pair, row in enumerate(moved.layout.axes) if row == moved.row}
    for before, after in zip(moved.before, moved.after, strict=True):
        changed = {dim for dim, old in enumerate(before.dims) if old.tobytes() != after.dims[dim].tobytes()}
        found = {dim % pairs for dim in changed if dim < 2 * pairs}
        rest = any(dim >= 2 * pairs for dim in changed)
        if found == own and not rest:
            continue
        if not found and not rest:
            what = "changes nothing"
        else:
            what = "changes what is not its own" if rest or found - own else "changes too few pairs"
        right, seen = _numbers(own), _numbers(found) + (" and the rest of the head" if rest else "")
        return Violation(
            axis=name,
            expected=right,
            observed=seen,
            shape=f"row {name} {what}",
            message=f"{before.name}: row {name} moved alone changes {seen}, must change {right}",
        )
    return None


@rule(
    "rotary.table_is_read_only",
    of=TableAfter,
    source="public interface: every layer of a model turns by the same table",
)
def table_is_read_only(table: TableAfter) -> Violation | None:
    """Turning heads must leave the table as it was, and must not depend on the tables that were turned by before."""
    if not table.changed:
        return None
    return Violation(axis="table", shape="table changed", message="turning heads wrote into the table")


@rule("rotary.view_is_a_copy", of=OfView, source="a graph buffer's live columns are a view of a wider table")
def view_is_a_copy(of: OfView) -> Violation | None:
    """A table that is a view of the first columns of a wider buffer must give what a copy of it gives."""
    if problem := _unlike(of.copy, of.view):
        return problem
    turned = Rotation(layout=of.layout, table=(), given=of.copy, seen=of.view, tolerance=0.0)
    return _wrong_place(turned, "a view differs from a copy", turned.changed(range(of.layout.head_size)))


# ---------------------------------------------------------------- what they share


def _sections(view: Rotation) -> Violation | None:
    """Pairs that turn by another row than their own. A pair that no row turns is the angle's matter."""
    if not view.by_rows:
        return None
    layout = view.layout
    other = "contiguous" if layout.arrangement == "interleaved" else "interleaved"
    if not view.places(axes(layout.pairs, layout.sections, other)):
        return _wrong_place(view, f"sections {other}")
    which = layout.axes
    found = {(which[pair], rows[0]) for pair, rows in view.other_rows.items()}
    named = [f"{ROWS[own]} pairs turned by {ROWS[row]}" for own, row in found]
    return _wrong_place(view, named[0] if len(named) == 1 else "pairs turned by other rows")


def _angles(view: Rotation) -> Violation | None:
    """Values that no row's angle explains."""
    if problem := _unlike(view.given, view.seen):
        return problem
    if not (view.wrong or view.rest) or view.by_rows:
        return None
    return _wrong_place(view, _angle_shape(view))


def _angle_shape(view: Rotation) -> str:
    seen = view.seen or ()
    if not all(math.isfinite(value) for part in seen for dim in part.dims for value in dim):
        return "not finite"
    if view.rest:
        return "rest of the head changed"
    if not view.changed(range(view.layout.head_size)):
        return "not turned"
    if not view.places(view.layout.axes, -1):
        return "turned backwards"
    pairs = view.layout.pairs
    lengths = [
        [
            math.hypot(x, y)
            for pair in range(pairs)
            for x, y in zip(part.dims[pair], part.dims[pair + pairs], strict=True)
        ]
        for part in (*view.given, *seen)
    ]
    half = len(view.given)
    kept = all(
        abs(one - two) <= view.tolerance
        for before, after in zip(lengths[:half], lengths[half:], strict=True)
        for one, two in zip(before, after, strict=True)
    )
    return "another angle" if kept else "other values"


def _unlike(given: Heads, seen: Heads | None) -> Violation | None:
    """Heads that cannot be laid beside the given ones."""
    if seen is None:
        return Violation(axis="heads", message="no heads were answered")
    for right, part in zip(given, seen, strict=True):
        if (part.dtype, part.shape) == ("float32", right.shape):
            continue
        return Violation(
            axis=part.name,
            shape="wrong shape" if part.shape != right.shape else f"dtype {part.dtype}",
            message=f"{part.name} is {part.dtype}{list(part.shape)}, must be float32{list(right.shape)}",
        )
    return None


def _wrong_place(view: Rotation, shape: str, places: Sequence[HeadPlace] | None = None) -> Violation | None:
    """The first wrong value, under that shape; None where all are right."""
    first = min(view.places(view.layout.axes) if places is None else places, default=None)
    if first is None:
        return None
    part = view.given[first.part]
    token, head = divmod(first.at, part.shape[1] // view.layout.head_size)
    observed, expected = f"{first.seen:.6g}", f"{first.right:.6g}"
    return Violation(
        axis=f"{part.name}, dimension {first.dim},",
        at=token,
        expected=expected,
        observed=observed,
        shape=shape,
        message=f"{part.name}, token {token}, head {head}, dimension {first.dim}: {observed}, must be {expected}",
    )


def _numbers(pairs: set[int]) -> str:
    """ "pairs 16..39", "no pair", "24 pairs from 1 to 61"."""
    if not pairs:
        return "no pair"
    low, high = min(pairs), max(pairs)
    return f"pairs {low}..{high}" if high - low + 1 == len(pairs) else f"{len(pairs)} pairs from {low} to {high}"
