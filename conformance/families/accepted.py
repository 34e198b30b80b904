"""What became of a torn input that a builder accepted, in words: a known difference names the one that it means, so
that any other answer is new."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ropecheck.conformance.families.case import Case, step
from ropecheck.conformance.families.torn import TOO_MANY
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7
from ropecheck.spec.history import Column, History, Run, next_position, run_columns, run_length, text

Array = npt.NDArray[np.generic]

OTHER = "accepts, and answers something else"


def outcome(case: Case, table: Array, delta: Array) -> str:
    """The signature of an accepted torn input: the name of the reading that gives this table [axes, P] and delta."""
    tokens = len(step(case).ids[0])
    for name, reading in READINGS.items():
        read = reading(case)
        if read is None:
            continue
        right = read if isinstance(read, np.ndarray) else prompt_table(FAMILIES[case.family], read)
        continued = 0 if case.family == "glm_image" else int(right.max()) + 1 - tokens
        if np.array_equal(table, right) and delta.reshape(-1).tolist() == [continued]:
            return f"accepts, {name}"
    return OTHER


def whole(case: Case) -> History | None:
    """The prompt as if nothing were torn. A list's last entry is not looked at, or a grid is cut to what the merge
    divides."""
    return case.laid[0].history


def by_the_grid(case: Case) -> History | None:
    """Every run as long as its grid says, from its first placeholder on; text up to the next one."""
    more = {"run cut short": -1, "run too long": TOO_MANY}.get(case.torn)
    runs = list(case.laid[0].history)
    at = next((i for i, run in enumerate(runs) if not run.is_text), len(runs)) + 1
    if more is None or at >= len(runs) or not runs[at].is_text:
        return None
    return (*runs[:at], text(runs[at].tokens + more), *runs[at + 1 :])


def from_what_is_left(case: Case) -> History | None:
    """The same, where the next item starts at the next placeholder, be it one that the item before has left over."""
    if case.torn not in ("run cut short", "run too long"):
        return None
    kinds = step(case).kinds[0]
    family = FAMILIES[case.family]
    runs: list[Run] = []
    at = 0
    for run in case.laid[0].history:
        if run.is_text:
            continue
        start = next((i for i in range(at, len(kinds)) if kinds[i]), len(kinds))
        runs += [text(start - at), run]
        at = start + run_length(family, run)
    return (*runs, text(len(kinds) - at)) if at <= len(kinds) else None


def as_text(case: Case) -> History | None:
    """The item whose grid is missing stands as text."""
    if case.torn != "grid missing":
        return None
    runs = list(case.laid[0].history)
    last = max((i for i, run in enumerate(runs) if not run.is_text), default=None)
    if last is None:
        return None
    item = text(run_length(FAMILIES[case.family], runs[last]))
    return (*runs[:last], item, *runs[last + 1 :])


def counted_on(case: Case) -> History | None:
    """Every token at its index, media or not."""
    return (text(len(step(case).ids[0])),)


def as_a_line(case: Case) -> Array | None:
    """A crop whose tokens do not fill its grid stands as a line on a canvas of one token: the table, int64 [3, P]."""
    if case.family != MINICPM_V4_7.name or case.torn not in ("run cut short", "run too long"):
        return None
    columns: list[Column] = []
    start, torn = 0, case.torn
    for run in case.laid[0].history:
        if run.is_text or not torn:
            placed = run_columns(MINICPM_V4_7, run, start)
            start = max(start, next_position(placed))
        else:
            tokens = run_length(MINICPM_V4_7, run) - 2 + (TOO_MANY if torn == "run too long" else -1)
            line = [(start + i,) * 3 for i in range(tokens)]
            placed = ((start, start - 1, start - 1), *line, (start, start + 1, start + 1))
            start, torn = start + 2, ""
        columns += placed
    return np.array(columns, dtype=np.int64).T


READINGS: dict[str, Callable[[Case], History | Array | None]] = {
    "as if whole": whole,
    "walks by the grid": by_the_grid,
    "walks by the grid into what is left over": from_what_is_left,
    "the item as text": as_text,
    "counts on": counted_on,
    "the crop as a line": as_a_line,
}
"""How a builder that does not compare may read a torn input. None: the reading is none of that tear."""
