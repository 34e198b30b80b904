"""Is a set of vectors sound? Every problem is one line that names the file and the place.

Each expected table is derived a second time; the rules must find nothing in it, and of every folder each rule
that a vector names must find a fault that is planted there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.vectors import store
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.derive import derive
from ropecheck.conformance.vectors.faults import faults
from ropecheck.conformance.vectors.judged import judge_of, shown

MOST_BYTES = 5_000_000
"""What a repository should be asked to carry."""


Tried = set[tuple[str, str]]
"""(folder, rule)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What lint found."""

    files: int
    size: int
    """Bytes."""
    problems: tuple[str, ...]
    unreadable: int
    """How many of the problems are files that are no vectors at all."""


def lint(where: Path) -> LintReport:
    """Check every vector of a folder, or one. Raises UsageError when there is no such place."""
    problems: list[str] = []
    unreadable = 0
    size = 0
    seen: dict[str, Path] = {}
    tried: Tried = set()
    found = store.paths(where)
    for path in found:
        try:
            vector = store.read(path)
        except UsageError as error:
            problems.append(str(error))
            unreadable += 1
            continue
        size += path.stat().st_size
        problems.extend(f"{path}: {problem}" for problem in problems_of(vector, tried))
        problems.extend(_name(path, vector))
        if vector.id in seen:
            problems.append(f"{path}: id: the same as {seen[vector.id]}")
        seen.setdefault(vector.id, path)
    if size > MOST_BYTES:
        problems.append(f"{where}: {size} bytes of vectors, at most {MOST_BYTES}")
    return LintReport(files=len(found), size=size, problems=tuple(problems), unreadable=unreadable)


def problems_of(vector: v.Vector, tried: Tried) -> list[str]:
    """What is wrong inside one vector: its id, its expected tables, its provenance, and rules that see nothing wrong.

    tried: rules that have seen a planted fault; those of this vector join them.
    """
    found = list(_contents(vector))
    if not found:
        rules = {(v.folder_of(vector.input), rule) for rule in vector.provenance.rules}
        found = list(_blind(vector, {rule for _, rule in rules - tried}))
        tried |= rules
    return found


def _contents(vector: v.Vector) -> Iterator[str]:
    right = v.id_of(vector.input)
    if vector.id != right:
        yield f"id: {vector.id}, its input hashes to {right}"
    try:
        derived = derive(vector.input)
    except (ValueError, KeyError, IndexError) as error:
        what = f"no request or session {error}" if isinstance(error, KeyError) else str(error)
        yield f"input: not legal: {what}"
        return
    expected = tuple(one.table for one in derived)
    if [table.label for table in vector.expected] != [table.label for table in expected]:
        yield (
            f"expected: labels {[table.label for table in vector.expected]}, "
            f"the specification derives {[table.label for table in expected]}"
        )
        return
    found = [
        problem
        for number, (held, wanted) in enumerate(zip(vector.expected, expected, strict=True))
        for problem in _table(f"expected[{number}]", held, wanted)
    ]
    yield from found
    if not found:
        yield from _rules(vector)


def _rules(vector: v.Vector) -> Iterator[str]:
    """The rules find nothing in the right answer, and those that the vector names are the ones that were asked."""
    try:
        right = judge_of(vector.input)({table.label: table for table in vector.expected})
    except Exception as error:  # a rule's body may raise anything
        yield f"expected: judging the right answer raises {type(error).__name__}: {error}"
        return
    for failure in right.failures:
        yield f"expected: {failure.rule} says of the right answer: {failure.signature} ({failure.message})"
    rules = shown(right)
    if vector.provenance.rules != rules:
        yield f"provenance.rules: {list(vector.provenance.rules)}, the vector checks {list(rules)}"


def _blind(vector: v.Vector, rules: Iterable[str]) -> Iterator[str]:
    """Those of the rules, which the vector names, that find nothing in any of its planted faults."""
    left, judge = set(rules), judge_of(vector.input)
    for answered in faults(vector.expected) if left else ():
        try:
            left -= {failure.rule for failure in judge(answered).failures}
        except Exception as error:  # a rule that lets nonsense pass leaves it to the next one
            yield f"provenance.rules: judging a planted fault raises {type(error).__name__}: {error}"
            return
        if not left:
            return
    yield from (f"provenance.rules: {rule} finds no planted fault" for rule in sorted(left))


def _name(path: Path, vector: v.Vector) -> Iterator[str]:
    folder = v.folder_of(vector.input)
    if path.stem != vector.id:
        yield f"{path}: id: {vector.id}, the file is named {path.name}"
    if path.resolve().parent.name != folder:
        yield f"{path}: input: belongs into the folder {folder}"


def _table(where: str, held: v.ExpectedTable, wanted: v.ExpectedTable) -> Iterator[str]:
    """The first difference of every field."""
    for field in ("free", "optional_from", "tokens", "delta", "media_spans", "refused"):
        found, right = getattr(held, field), getattr(wanted, field)
        if found != right:
            yield f"{where}.{field}: {found}, the specification derives {right}"
    if held.positions != wanted.positions:
        yield f"{where}.positions{_difference(held.positions, wanted.positions)}"
    if held.rows != wanted.rows:
        if held.rows is None or wanted.rows is None or len(held.rows) != len(wanted.rows):
            yield f"{where}.rows: {_count(held.rows)} rows, the specification derives {_count(wanted.rows)}"
            return
        for axis, (found_row, right_row) in enumerate(zip(held.rows, wanted.rows, strict=True)):
            if found_row != right_row:
                yield f"{where}.rows[{axis}]{_difference(found_row, right_row)}"


def _difference(held: tuple[int, ...] | None, wanted: tuple[int, ...] | None) -> str:
    if held is None or wanted is None:
        return f": {'missing' if held is None else 'given'}, the specification derives {_count(wanted)} columns"
    if len(held) != len(wanted):
        return f": {len(held)} columns, the specification derives {len(wanted)}"
    column = next(i for i, pair in enumerate(zip(held, wanted, strict=True)) if pair[0] != pair[1])
    return f"[{column}]: {held[column]}, the specification derives {wanted[column]}"


def _count(values: tuple[object, ...] | None) -> str:
    return "no" if values is None else str(len(values))
