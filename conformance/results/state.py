"""What a report comes to: its exit code, and the warnings that follow from its other fields."""

from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.report.part import RunPart
from ropecheck.conformance.run.baseline import below_lines
from ropecheck.conformance.run.counts import overdue_lines
from ropecheck.conformance.run.events import BROKEN
from ropecheck.conformance.run.notices import not_offered_lines, unreached_lines


def exit_code(report: Report) -> int:
    """As run.events.Summary.exit_code says of a run."""
    part = report.part
    if part.interrupted:
        return 130
    if any(not finding.known for finding in report.findings) or any(one.state in BROKEN for one in part.known):
        return 1
    if part.gave_up or report.totals.could_not_run or part.lost:
        return 3
    return 0 if any(rule.checked for rule in report.rules) and not part.below else 4


def whole(part: RunPart) -> bool:
    """Whether every shard of what it covers is there, and ran to its end."""
    return all(covers.whole for covers in part.covers) and not part.interrupted and not part.gave_up


def derived_warnings(report: Report) -> list[str]:
    """In words what other fields say; the report's remaining warnings say more than they do."""
    part = report.part
    lines: list[str] = []
    if whole(part) and any(covers.complete for covers in part.covers):
        lines += unreached_lines(part.unreached)
    lines += not_offered_lines({(one.mode, one.reason): one.scenarios for one in part.not_offered})
    lines += overdue_lines(part.entries)
    lines += below_lines(part.reach, part.below)
    lines += [f"known failure {one.name} is {one.state}: {one.message}" for one in part.known if one.state in BROKEN]
    lines += [f"could not run: {one.name} ({one.id}): {one.stage}: {one.message}" for one in part.unrun]
    if part.gave_up:
        lines.append(f"the run ended early: {part.gave_up}")
    if part.interrupted:
        lines.append("the run was interrupted")
    return lines


def own_warnings(report: Report) -> list[str]:
    """The warnings that no other field says."""
    derived = set(derived_warnings(report))
    return [line for line in report.warnings if line not in derived]
