"""An engine's answers against the vectors: the same judge, rules and signatures as in a run."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ropecheck.conformance.errors import UsageError, json_of
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.vectors import store
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.judged import judge_of
from ropecheck.conformance.vectors.lint import Tried, problems_of
from ropecheck.spec.modes import mode_of

Answers = dict[str, tuple[v.Answer, ...] | v.Declined]
"""Vector id -> the engine's tables, or why it has none."""

_STEP = re.compile(r"step [1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What became of one vector. state: "pass", "fail", "not offered" or "missing"."""

    path: Path
    vector: v.Vector
    state: str
    failures: tuple[Failure, ...] = ()
    reason: str = ""


def read_answers(path: Path) -> Answers:
    """Raises UsageError naming file and field."""
    return json_of(path, Answers)


def grade_all(where: Path, answers: Mapping[str, tuple[v.Answer, ...] | v.Declined], but: Path) -> tuple[Grade, ...]:
    """Every vector of a folder, or one. Raises UsageError for an unsound vector or a meaningless answer."""
    out = []
    tried: Tried = set()
    for path in store.paths(where, but):
        vector = store.read(path)
        for problem in problems_of(vector, tried):
            raise UsageError(f"{path}: {problem}")
        answer = answers.get(vector.id)
        if answer is None:
            out.append(Grade(path=path, vector=vector, state="missing"))
        elif isinstance(answer, v.Declined):
            out.append(Grade(path=path, vector=vector, state="not offered", reason=answer.not_offered))
        else:
            try:
                failures = grade(vector, answer)
            except (ValueError, OverflowError) as error:
                raise UsageError(f"{but}: {vector.id}: {error}") from error
            out.append(Grade(path=path, vector=vector, state="fail" if failures else "pass", failures=failures))
    return tuple(out)


def shortfalls(grades: Iterable[Grade], without: Collection[str]) -> list[str]:
    """One line per folder that was not wholly answered. without: folders and vectors that the engine says it lacks; an
    answer there is a line too. Raises UsageError for a name that is neither."""
    by_folder: dict[str, list[Grade]] = {}
    for one in grades:
        by_folder.setdefault(v.folder_of(one.vector.input), []).append(one)
    ids = {one.vector.id for found in by_folder.values() for one in found}
    for name in without:
        if name not in ids and name not in v.folders():
            raise UsageError(f"--without {name}: no folder and no vector; folders: {', '.join(v.folders())}")
    out = []
    for folder, found in by_folder.items():
        lacked = [one for one in found if folder in without or one.vector.id in without]
        asked = [one for one in found if one not in lacked]
        answered = [one for one in asked if one.state in ("pass", "fail")]
        if len(answered) < len(asked):
            state = "partly offered" if answered else "not offered"
            out.append(f"{state:14}  {folder}: {len(answered)} of {len(asked)} vectors answered")
        for one in lacked:
            if one.state in ("pass", "fail"):
                out.append(f"{'offered':14}  {folder}/{one.vector.id}: answered, though --without names it")
    return out


def grade(vector: v.Vector, answer: tuple[v.Answer, ...]) -> tuple[Failure, ...]:
    """The failures of one vector. Raises ValueError for two tables of one label, or a label that means nothing."""
    return tuple(judge_of(vector.input)(_by_label(vector, answer)).failures)


def _by_label(vector: v.Vector, answer: tuple[v.Answer, ...]) -> dict[str, v.Answer]:
    """Surplus forwards of a loop are left to the judge: they are wrong, not meaningless."""
    asked = {table.label for table in vector.expected}
    loops = isinstance(vector.input, v.ForwardInput) and mode_of(vector.input.batch.mode).forwards is not None
    out: dict[str, v.Answer] = {}
    for number, table in enumerate(answer):
        if table.label not in asked and not (loops and _STEP.fullmatch(table.label)):
            raise ValueError(f"unknown label {table.label!r} - at `$[{number}].label`")
        if table.label in out:
            raise ValueError(f"label {table.label!r} twice - at `$[{number}].label`")
        out[table.label] = table
    return out
