"""What can be large, small or odd in a run: declared dimensions, and which of their bounds what was judged has crossed.

A value that passes through a narrow type, or a clamp at some table's end, is right below a bound and wrong above it. A
run says of every bound whether anything was on its far side; a baseline knows those that must be.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import Timeline
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.history import History
from ropecheck.spec.views import ArrivedTurn

PREFIX = "bound"
"""Where reports and baselines count them, in the place of a mode or a rule."""

MAGNITUDES = {**{f"2^{power}": 1 << power for power in (7, 8, 11, 12, 15, 16, 24)}, "2^31-1": (1 << 31) - 1}
"""Bytes, halves, tables of rotary embeddings, shorts, single precision, and the last position of int32 lengths."""
LONG = "a prompt of 16 million tokens"

ROWS = (*range(1, 10), 33, 129)
WINDOWS = (1, 511, 512, 513, 1025)
"""Tokens of a row that prefills, around the 512 of a program of the 1-D kernel."""
NODES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17)
"""Tokens of a row that verifies or drafts, around the powers of two that kernels take as blocks."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One thing that varies, and where it counts as another value."""

    name: str
    bounds: tuple[str, ...]
    out_of_reach: Mapping[str, str] = field(default_factory=dict)
    """Bound -> what it would take."""
    needs: str = "forwards"
    """What a target must offer."""

    def names(self) -> tuple[str, ...]:
        """As reports write them."""
        return tuple(f"{self.name} {bound}" for bound in self.bounds)


def _magnitude(
    name: str, *out_of_reach: str, needs: str = "forwards", most: str = "2^31-1", why: str = LONG
) -> Dimension:
    bounds = tuple(bound for bound, value in MAGNITUDES.items() if value <= MAGNITUDES[most])
    return Dimension(name, bounds, dict.fromkeys(out_of_reach, why), needs)


ITEMS = {
    "": "an item each",
    "joined": "an item of several spans",
    "reversed": "items out of order",
    "equal": "items of equal pixels",
    "view": "a table that is a view of a wider one",
}
"""How a processor hands media over (`Submit.items`, `Turn.items`) -> the bound."""

LENGTHS = ("", "strided", "lagging")
"""How a batch's lengths stand in memory (`Build.lengths`)."""

TURNS = (
    *("on another turn", "on a turn that gave no reply", "on an unknown or refused turn", "on an unfinished turn"),
    *("beside an aborted sibling", "offset in the prompt", "offset in the reply", "offset behind all"),
    *(
        "with a start of sequence",
        "without the reply",
        "in place of all",
        "in place of others",
        "in place of others again",
    ),
)

FORWARDS = (
    _magnitude("index", "2^24", "2^31-1"),
    _magnitude("column"),
    _magnitude("delta above 0", "2^31-1", why="a column behind the last that int32 lengths reach"),
    _magnitude("delta below 0", "2^24", "2^31-1"),
    Dimension("rows", tuple(map(str, ROWS))),
    Dimension("tokens of a window", tuple(map(str, WINDOWS))),
    Dimension("tokens of a tree", tuple(map(str, NODES))),
    Dimension("seconds of a step", ("fraction", "above 60")),
    Dimension("media", tuple(ITEMS.values())),
    Dimension("lengths in memory", ("strided", "lagging")),
    Dimension("turn", TURNS),
)
"""What forwards and arrivals are asked about."""


def _of_family(name: str) -> Iterator[Dimension]:
    family = FAMILIES[name]
    if family.absolute_time:
        yield _magnitude(f"{name}: delta above 0", needs="prompt_tables", most="2^16")
    # Behind GLM-Image's table nothing is placed by a delta; HunYuan-VL's index row counts on, so that its delta is 0.
    if "image" in family.kinds and family not in (GLM_IMAGE, HUNYUAN_VL):
        yield _magnitude(f"{name}: delta below 0", needs="prompt_tables", most="2^12")


BUILDERS = tuple(dimension for name in FAMILIES for dimension in _of_family(name))
"""What the prompt tables of each family are asked about."""


def of_forward(tables: Mapping[str, BatchTables], lines: Iterable[Timeline], windows: bool) -> set[str]:
    """Bounds that a forward crosses. windows: its rows prefill."""
    lines = tuple(lines)
    live = [one for one in tables.values() if one.live]
    found = {f"rows {len(lines)}"} if len(lines) in ROWS else set()
    for one in live:
        found |= _crossed("index", int(one.positions.max()))
        if one.rows is not None:
            found |= _crossed("column", int(one.rows.max()))
        widths = {span.stop - span.start for span in one.spans}
        what, known = ("window", WINDOWS) if windows else ("tree", NODES)
        found |= {f"tokens of a {what} {width}" for width in widths.intersection(known)}
    if live:
        found |= _of_deltas("", [line.delta for line in lines])
    return found


def of_media(history: History, items: str) -> set[str]:
    """Bounds that a request's or turn's own media cross."""
    media = [run for run in history if not run.is_text]
    seconds = [run.seconds_per_grid for run in media if run.kind == "video"]
    found = {f"media {ITEMS[items]}"} if len(media) > 1 or (media and items in ("", "view")) else set()
    found |= {"seconds of a step fraction"} if any(one % 1 for one in seconds) else set()
    return found | ({"seconds of a step above 60"} if any(one > 60 for one in seconds) else set())


def of_turn(turn: ArrivedTurn, again: bool) -> set[str]:
    """Bounds that a turn crosses as it arrives. again: its parent has lost children to another one."""
    saved, found = turn.saved, set()
    if saved is not None and not turn.streaming:
        prompt, reply = len(saved.prompt), min(len(saved.outputs), saved.max_new_tokens)
        if turn.offset:
            behind = "behind all" if turn.offset > prompt + reply else "in the reply"
            found.add("offset in the prompt" if turn.offset <= prompt else f"offset {behind}")
    if saved is not None:
        found |= {"on another turn"} | ({"on a turn that gave no reply"} if not saved.max_new_tokens else set())
    for word, so in (
        ("on an unknown or refused turn", not turn.parent_known),
        ("on an unfinished turn", turn.parent_known and not turn.parent_finished),
        ("beside an aborted sibling", turn.aborted_sibling),
        ("without the reply", turn.drop_previous_output),
        ("in place of all", turn.replace and saved is None and turn.parent_known),
        ("in place of others", turn.replace and turn.siblings),
        ("in place of others again", turn.replace and again),
    ):
        found |= {word} if so else set()
    return {f"turn {word}" for word in found}


def of_prompt(family: str, deltas: Iterable[int]) -> set[str]:
    """Bounds that prompt tables of a family cross."""
    known = {name for one in BUILDERS for name in one.names()}
    return known & _of_deltas(f"{family}: ", list(deltas))


def counted(bounds: Iterable[str]) -> tuple[str, ...]:
    """As a report counts them, beside its situations."""
    return tuple(f"{PREFIX} x {name}" for name in sorted(bounds))


def _crossed(name: str, value: int) -> set[str]:
    return {f"{name} {bound}" for bound, least in MAGNITUDES.items() if value >= least}


def _of_deltas(prefix: str, deltas: list[int]) -> set[str]:
    above, below = max(deltas, default=0), -min(deltas, default=0)
    return _crossed(f"{prefix}delta above 0", above) | _crossed(f"{prefix}delta below 0", below)


def every(needs: str, families: Iterable[str] = tuple(FAMILIES)) -> tuple[str, ...]:
    """Every bound that a run can cross with what a target offers. families: those whose prompt tables it builds."""
    mine = [one for one in (*FORWARDS, *BUILDERS) if one.needs == needs and _family(one) in ("", *families)]
    return tuple(f"{one.name} {bound}" for one in mine for bound in one.bounds if bound not in one.out_of_reach)


def _family(one: Dimension) -> str:
    return one.name.partition(":")[0] if one.needs == "prompt_tables" else ""


@dataclass(frozen=True, slots=True)
class Reached:
    """One dimension in a run."""

    name: str
    bounds: tuple[tuple[str, int, str], ...]
    """(bound, how many times it was crossed, why no run crosses it or "")."""

    def text(self) -> str:
        """On one line."""
        crossed = [bound for bound, times, _ in self.bounds if times]
        apart = ", " if any(" " in bound for bound in crossed) else " "
        return f"{self.name} {'all' if len(crossed) == len(self.bounds) > 3 else apart.join(crossed)}"


def reached(situations: Mapping[str, int]) -> tuple[Reached, ...]:
    """Every dimension that anything in a run was asked about. situations: as a report counts them."""
    found = []
    for one in (*FORWARDS, *BUILDERS):
        counts = [situations.get(f"{PREFIX} x {name}", 0) for name in one.names()]
        if any(counts):
            reasons = [one.out_of_reach.get(bound, "") for bound in one.bounds]
            found.append(Reached(one.name, tuple(zip(one.bounds, counts, reasons, strict=True))))
    return tuple(found)


def said(situations: Mapping[str, int]) -> list[str]:
    """What a run crossed and what it did not, for people: a line each. Nothing where nothing was asked."""
    found = reached(situations)
    if not found:
        return []
    missed = [f"{one.name} {bound}" for one in found for bound, times, why in one.bounds if not times and not why]
    beyond = [f"{one.name} {bound} ({why})" for one in found for bound, times, why in one.bounds if why and not times]
    alike: dict[str, list[str]] = {}
    for one in found:
        family, _, text = one.text().rpartition(": ")
        alike.setdefault(text, []).append(family)
    told = [text if families == [""] else f"{text} ({', '.join(families)})" for text, families in alike.items()]
    lines = [f"bounds crossed: {'; '.join(told)}"]
    lines += [f"bounds not crossed: {'; '.join(missed)}"] if missed else []
    return lines + ([f"bounds out of a run's reach: {'; '.join(beyond)}"] if beyond else [])
