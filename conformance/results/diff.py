"""What one report has that another has not."""

import msgspec

from ropecheck.conformance.report.json_file import FindingReport, Report
from ropecheck.conformance.run.events import BROKEN

Key = tuple[str, str, str]


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of both reports, and in words what is different about it."""

    before: FindingReport
    after: FindingReport
    what: tuple[str, ...]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    new: tuple[FindingReport, ...]
    """Only in the second, or expected in the first and not in the second."""
    gone: tuple[FindingReport, ...]
    changed: tuple[Changed, ...]
    no_longer_checked: tuple[str, ...]
    """Rules and modes that the first reached and the second did not."""
    broken: tuple[str, ...]
    """Known failures that became stale, changed or expired."""

    @property
    def exit_code(self) -> int:
        return 1 if self.new or self.broken else 0


def diff(before: Report, after: Report) -> Diff:
    """From the first report to the second. They may be of different suites, versions and scenarios."""
    old, now = _by_key(before), _by_key(after)
    turned = {key for key in old.keys() & now.keys() if old[key].known and not now[key].known}
    changed = []
    for key in sorted(old.keys() & now.keys() - turned):
        what = _differences(old[key], now[key])
        if what:
            changed.append(Changed(before=old[key], after=now[key], what=what))
    return Diff(
        new=tuple(now[key] for key in sorted((now.keys() - old.keys()) | turned)),
        gone=tuple(old[key] for key in sorted(old.keys() - now.keys())),
        changed=tuple(changed),
        no_longer_checked=tuple(sorted(_checked(before) - _checked(after))),
        broken=tuple(sorted(_broken(after) - _broken(before))),
    )


def _by_key(report: Report) -> dict[Key, FindingReport]:
    return {(one.rule, one.mode, one.signature): one for one in report.findings}


def _differences(old: FindingReport, now: FindingReport) -> tuple[str, ...]:
    what = []
    if old.known != now.known:
        what.append("now expected")
    if old.count != now.count:
        what.append(f"failures {old.count} -> {now.count}")
    if old.witness.id != now.witness.id:
        what.append(f"witness {old.witness.id} -> {now.witness.id}")
    if old.first_difference != now.first_difference:
        what.append("another first difference")
    return tuple(what)


def _checked(report: Report) -> set[str]:
    return {f"rule {r.id}" for r in report.rules if r.checked} | {f"mode {m.id}" for m in report.modes if m.checked}


def _broken(report: Report) -> set[str]:
    return {f"known failure {one.name} is {one.state}" for one in report.part.known if one.state in BROKEN}


def lines(found: Diff) -> list[str]:
    """For people, the most important last."""
    told = [f"no longer reached: {name}" for name in found.no_longer_checked]
    told += [f"gone     {_named(one)}" for one in found.gone]
    told += [f"changed  {_named(one.after)}: {'; '.join(one.what)}" for one in found.changed]
    told += [f"broken   {line}" for line in found.broken]
    told += [f"NEW      {_named(one)}, witness {one.witness.id}" for one in found.new]
    counts = (len(found.new), len(found.gone), len(found.changed))
    return [*told, "{} new, {} gone, {} changed".format(*counts)]


def _named(one: FindingReport) -> str:
    known = ", expected" if one.known else ""
    return f"{one.rule}  {one.mode}: {one.signature} ({one.count} failures{known})"
