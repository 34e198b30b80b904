"""Laws on an engine's own answers: what its forwards read, token by token, without an oracle."""

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import failure_of
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.plan.planner import LawCheck, Reading, decoded
from ropecheck.spec.history import Column
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Readings

Read = dict[int, Column]

MODE = "laws"
"""What reports file them under."""


def judge_law(tally: ScenarioTally, check: LawCheck, answer: protocol.JobAnswer) -> None:
    """Check one law. Says nothing where a forward has no readable table: its own rules have said so."""
    left = _read(check.left, answer)
    right = None if check.right is None else _read(check.right, answer)
    if left is None or (check.right is not None and right is None):
        return
    for _rule, found in ask(tally, MODE, Readings(law=check.law, left=left, right=right)):
        _fail(tally, check, found)


def _read(parts: tuple[Reading, ...], answer: protocol.JobAnswer) -> Read | None:
    """Index -> column over several forwards; None when a table is missing, misshapen or contradicts itself in width."""
    out: Read = {}
    for part in parts:
        result = answer.results[part.result]
        if not isinstance(result, protocol.TablesAnswer):
            return None
        by_label = {table.label: table for table in result.tables}
        for label in part.labels:
            table = by_label.get(label)
            if table is None or table.positions is None or table.mrope is None:
                return None
            positions, rows = decoded(table.positions), decoded(table.mrope)
            if rows.ndim != 2 or positions.shape != rows.shape[1:] or positions.size < part.stop:
                return None
            for column in range(part.start, part.stop):
                out[int(positions[column])] = tuple(rows[:, column].tolist())
    return out


def _fail(tally: ScenarioTally, check: LawCheck, found: Violation) -> None:
    """A law's failure follows from a rule that the same request broke at one of the same operations, if one did."""
    ops = {part.op for part in (*check.left, *(check.right or ()))}
    reqs = {part.req for part in (*check.left, *(check.right or ()))}
    causes = [
        failure.follows or failure.rule
        for failure in tally.failures
        if failure.step in ops and (failure.difference is None or failure.difference.request in reqs)
    ]
    causes += [tally.tainted[req] for req in sorted(reqs) if req in tally.tainted]
    tally.fail(failure_of(check.law, MODE, found, check.req, step=check.op, follows=causes[0] if causes else ""))
