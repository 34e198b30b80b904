"""From a scheduler's answer to an outcome."""

from ropecheck.adapters import events, protocol
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.trace.check import check_lines

PREFIX = "scheduler."
"""Stands before the modes of forwards that a scheduler makes, stepped here or in a server."""


def each(failure: Failure) -> tuple[str, ...]:
    """Every failure is of a kind of its own."""
    return (*failure.key, str(failure.step), failure.message)


def judge_script(script: Script, result: protocol.Result) -> Outcome:
    """The verdicts on one script, every failure: another may stand behind the first of its kind."""
    if isinstance(result, protocol.NotOfferedAnswer):
        return Outcome(scenario=script.id, name=script.name, not_offered=(("scheduler", result.reason),))
    if isinstance(result, protocol.Raised):
        why = Unrun(stage=result.stage, message=result.message)
        return Outcome(scenario=script.id, name=script.name, unrun=(why,))
    if not isinstance(result, protocol.Played):
        why = Unrun(stage="decode", message=f"a script was answered with {type(result).__name__}")
        return Outcome(scenario=script.id, name=script.name, unrun=(why,))
    checked = check_lines(events.lines(result.trace), script.name, PREFIX, kind=each)
    return Outcome(
        scenario=script.id,
        name=script.name,
        checked=checked.judge.checked,
        by_mode=checked.judge.by_mode,
        failures=tuple(ordered(checked.failures)),
        modes=checked.judge.modes,
        situations={f"{situation} ({script.server})": n for situation, n in checked.judge.situations.items()},
        functions=result.functions,
        forwards=checked.judge.forwards,
    )


def ordered(failures: list[Failure]) -> list[Failure]:
    """Causes before consequences."""
    return sorted(failures, key=lambda failure: bool(failure.follows))
