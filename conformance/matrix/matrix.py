"""Rules by versions: one full run per target, reduced to a column, and what the columns say side by side.

Columns are kept under `.ropecheck/matrix/` and used again while the suite's own sources, the seed, the phases and the
target are the same. Known failures count as failures here: the matrix dates bugs, it does not forgive them.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.run import phases
from ropecheck.conformance.run.events import Event, Listener, Summary
from ropecheck.conformance.run.phases import Options
from ropecheck.conformance.run.session import Settings
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.targets.pip_overlay import version_key
from ropecheck.conformance.targets.provisioned import home
from ropecheck.conformance.targets.registry import Target
from ropecheck.conformance.version import spec_hash, suite_hash, suite_version
from ropecheck.conformance.versions import is_version


class FailureShape(msgspec.Struct, frozen=True):
    """One way in which a rule fails on a version."""

    mode: str
    signature: str
    count: int
    consequence: bool
    """It only follows from another rule's failure in the same scenarios."""
    witness: str
    """Id of the smallest scenario that shows it."""
    message: str


class Cell(msgspec.Struct, frozen=True):
    """One rule on one version. `checked` counts verdicts; 0 when the rule was never reached."""

    checked: int
    failures: tuple[FailureShape, ...] = ()


class TargetColumn(msgspec.Struct, frozen=True, kw_only=True):
    """What one run said."""

    target: str
    version: str
    torch: str
    suite: str
    seed: int
    cells: dict[str, Cell]
    not_offered: dict[str, tuple[str, ...]]
    """Mode -> why this target has nothing, or not everything, to check there."""
    unrun: dict[str, int]
    """Why scenarios could not run -> how many."""
    problem: str = ""
    """Why there is no result at all."""
    scenarios: int = 0
    forwards: int = 0
    seconds: float = 0.0


State = tuple[str, str]
"""("pass" | "fail" | "follows" | "not offered" | "could not run" | "not reached", why). "follows": it fails, but
only in the wake of another rule's failure in the same scenarios, or is not reached because its forwards raise."""


def state(column: TargetColumn, rule: str, signature: str = "") -> State:
    """What the column says about the rule. What a target does not have is never a pass.

    signature: only failures of this signature count; "" for all.
    """
    cell = column.cells.get(rule)
    failures = [] if cell is None else [s for s in cell.failures if signature in ("", s.signature)]
    if failures:
        causes = [shape for shape in failures if not shape.consequence]
        said = "; ".join(f"{shape.mode}: {shape.signature}" for shape in causes or failures)
        return "fail" if causes else "follows", said
    if cell is not None and cell.checked:
        return "pass", f"{cell.checked} checks"
    if column.problem:
        return "could not run", column.problem
    topic = rule.split(".", 1)[0]
    present = column.cells.get("table.present", Cell(0))
    if raising := [s.signature for s in present.failures if s.mode == topic and s.signature.startswith("raises")]:
        return "follows", f"{topic} {raising[0]}"
    if topic in column.not_offered:
        return "not offered", "; ".join(column.not_offered[topic])
    if column.not_offered:
        every = (reason for reasons in column.not_offered.values() for reason in reasons)
        return "not offered", "; ".join(dict.fromkeys(every))
    if column.unrun:
        return "could not run", next(iter(column.unrun))
    return "not reached", "no scenario of these phases checks it"


class VersionStep(msgspec.Struct, frozen=True):
    """When one way of failing came and went, over the columns in version order."""

    rule: str
    mode: str
    signature: str
    first_bad: str
    last_bad: str
    first_good: str
    """The first later version on which the rule is checked and does not fail so; "" when there is none."""
    consequence: bool


def bounds(columns: Sequence[TargetColumn], rule: str) -> tuple[str, str]:
    """(first bad, first good after the last bad) version of a rule; "" where there is none."""
    failing = [index for index, column in enumerate(columns) if state(column, rule)[0] == "fail"]
    if not failing:
        return "", ""
    later = [c.version for c in columns[failing[-1] + 1 :] if state(c, rule)[0] == "pass"]
    return columns[failing[0]].version, later[0] if later else ""


def steps(columns: Sequence[TargetColumn]) -> list[VersionStep]:
    """Every way of failing with its first bad, last bad and first good version, causes before consequences."""
    seen: dict[tuple[str, str, str], list[int]] = {}
    direct: set[tuple[str, str, str]] = set()
    for index, column in enumerate(columns):
        for rule, cell in column.cells.items():
            for shape in cell.failures:
                key = (rule, shape.mode, shape.signature)
                seen.setdefault(key, []).append(index)
                if not shape.consequence:
                    direct.add(key)
    found = []
    for key, failing in seen.items():
        later = [c.version for c in columns[failing[-1] + 1 :] if key[0] in c.cells and c.cells[key[0]].checked]
        first, last = columns[failing[0]].version, columns[failing[-1]].version
        found.append(VersionStep(*key, first, last, later[0] if later else "", key not in direct))
    return sorted(found, key=lambda step: (step.consequence, step.rule, step.mode, step.signature))


def in_version_order(columns: Iterable[TargetColumn]) -> list[TargetColumn]:
    """Oldest first; what is no version comes last."""
    return sorted(columns, key=lambda c: (not is_version(c.version), version_key(c.version)))


def without(column: TargetColumn, topics: Sequence[str]) -> TargetColumn:
    """The column without the rules and modes whose first word is among `topics`."""
    if not topics:
        return column
    return msgspec.structs.replace(
        column,
        cells={rule: cell for rule, cell in column.cells.items() if rule.split(".", 1)[0] not in topics},
        not_offered={m: why for m, why in column.not_offered.items() if m.split(".", 1)[0] not in topics},
    )


def rules_of(columns: Iterable[TargetColumn]) -> list[str]:
    """Rules that some column reached, grouped by mode: a mode's own rules lie together."""
    return sorted({rule for column in columns for rule in column.cells})


# ---------------------------------------------------------------- making columns


def column_of(
    target: Target, identity: str, *, seed: int, phase: Sequence[str], workers: int, listeners: Sequence[Listener] = ()
) -> TargetColumn:
    """Run the suite on the target, or take the result of the last time. identity: changes with the target's content;
    "" when that cannot be told, and nothing is kept.

    Raises KeyboardInterrupt when the run was interrupted.
    """
    asked = json.dumps([suite_hash(), seed, sorted(phase), target.name, identity, list(target.argv)])
    kept = home() / "matrix" / f"{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    if identity and (column := _read(kept)) is not None:
        return column
    column = _run(target, seed, phase, workers, listeners)
    if identity and not column.problem:
        write_atomic(kept, pretty(column))
    return column


def _read(path: Path) -> TargetColumn | None:
    """A kept column; one that cannot be read is run again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=TargetColumn)
    except (OSError, msgspec.MsgspecError):
        return None


def _run(target: Target, seed: int, phase: Sequence[str], workers: int, listeners: Sequence[Listener]) -> TargetColumn:
    out = home() / "matrix" / "runs" / target.name.replace("==", "-").replace("@", "-at-")
    settings = Settings(
        target=target,
        workers=workers,
        out=out,
        phases=phases.select(phase, target),
        options=Options(seed=seed),
        witnesses=False,
        complete=False,
    )
    try:
        summary = run_session(settings, list(listeners))
    except GaveUp as error:
        return reduce(None, target.name, seed, str(error))
    if summary.interrupted:
        raise KeyboardInterrupt
    return reduce(summary, target.name, seed, summary.gave_up)


def reduce(summary: Summary | None, target: str, seed: int, problem: str = "") -> TargetColumn:
    """A run's summary as a column."""
    if summary is None:
        return TargetColumn(
            target=target,
            version=target.partition("==")[2] or target,
            torch="",
            suite=suite_version(),
            seed=seed,
            cells={},
            not_offered={},
            unrun={},
            problem=problem,
        )
    cells = {rule: Cell(checked) for rule, (checked, _) in sorted(summary.rules.items())}
    for finding in summary.findings:
        rule, mode, signature = finding.key
        shape = FailureShape(
            mode=mode,
            signature=signature,
            count=finding.count,
            consequence=bool(finding.failure.follows),
            witness=finding.scenario.id,
            message=finding.failure.message,
        )
        cell = cells.get(rule, Cell(0))
        cells[rule] = Cell(max(cell.checked, 1), (*cell.failures, shape))
    reasons: dict[str, tuple[str, ...]] = {}
    for mode, reason in sorted(summary.not_offered):
        reasons[mode] = (*reasons.get(mode, ()), reason)
    unrun: dict[str, int] = {}
    for _, why, _ in summary.unrun:
        line = f"{why.stage}: {why.message}"
        unrun[line] = unrun.get(line, 0) + 1
    return TargetColumn(
        target=target,
        version=summary.header.hello.version,
        torch=summary.header.hello.torch,
        suite=f"{suite_version()} spec {spec_hash()}",
        seed=seed,
        cells=cells,
        not_offered=reasons,
        unrun=unrun,
        problem=problem,
        scenarios=summary.totals.scenarios,
        forwards=summary.totals.forwards,
        seconds=round(summary.totals.seconds, 1),
    )


def progress(say: Callable[[str], None]) -> Listener:
    """A listener that says nothing until something loud happens."""

    def listen(event: Event) -> None:
        if getattr(event, "loud", False):
            say(str(getattr(event, "message", "")))

    return listen
