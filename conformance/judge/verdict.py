"""The judge: the outcome of a plan and an answer by the rules that are registered. It knows no engine, no known-failure
list and no other scenario."""

from dataclasses import replace

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.judge import laws as readings
from ropecheck.conformance.judge import states
from ropecheck.conformance.judge.ask import ask, no_tables
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun, failure_of
from ropecheck.conformance.judge.rotary import judge_rotary
from ropecheck.conformance.judge.signature import raise_signature, raised_line
from ropecheck.conformance.judge.tables import judge_tables
from ropecheck.conformance.judge.tally import ScenarioTally, times
from ropecheck.conformance.plan.planner import Check, CostCheck, LawCheck, Plan, StateCheck, TableCheck
from ropecheck.conformance.plan.rotary import RotaryCheck
from ropecheck.spec.rules import Rule
from ropecheck.spec.views import Copies

TROUBLE = (protocol.Raised, protocol.NotOfferedAnswer)


def judge(plan: Plan, answer: protocol.JobAnswer) -> Outcome:
    """The outcome of a scenario. The answer must hold one result per step (the client has checked that)."""
    if plan.optional:
        plan, answer = _until_refused(plan, answer)
    tally = ScenarioTally()
    broken = _broken_steps(plan, answer, tally)
    half_way = _half_way(plan, broken)
    for check in plan.checks:
        if half_way is not None and _last_result(check) >= half_way:
            continue
        if not broken and isinstance(check, TableCheck):  # nearly all of them
            tables = answer.results[check.result]
            if isinstance(tables, protocol.TablesAnswer):
                judge_tables(tally, check, tables)
                continue
        if isinstance(check, LawCheck):
            readings.judge_law(tally, check, answer)
            continue
        if isinstance(check, RotaryCheck):
            judge_rotary(tally, check, answer)
            continue
        result = answer.results[check.result]
        mode = _mode_of(check)
        if isinstance(result, protocol.NotOfferedAnswer):
            tally.not_offered.append((mode, result.reason))
        elif isinstance(result, protocol.Raised):
            doomed = bool(broken) and _doomed(plan.job.steps[check.result], check.result, broken)
            _raised(tally, check.op, mode, result, isinstance(check, StateCheck), doomed)
        elif isinstance(check, TableCheck) and isinstance(result, protocol.TablesAnswer):
            judge_tables(tally, check, result)
        elif isinstance(check, StateCheck) and isinstance(result, protocol.States):
            check = _spared(check, broken)
            before = None if check.since is None else answer.results[check.since]
            states.judge_states(tally, check, result, before if isinstance(before, protocol.States) else None)
        elif isinstance(check, CostCheck) and isinstance(result, protocol.Counted):
            _cost(tally, check, result)
        else:
            tally.unrun.append(Unrun(stage="decode", message=f"answered with {type(result).__name__}", step=check.op))
    tally.reached += plan.situations if tally.forwards else ()
    by_mode = tally.by_mode
    return Outcome(
        scenario=plan.scenario.id,
        name=plan.scenario.name,
        checked={rule: sum(modes.values()) for rule, modes in by_mode.items()},
        by_mode=by_mode,
        failures=tuple(tally.failures),
        not_offered=tuple(tally.not_offered),
        unrun=tuple(tally.unrun),
        modes=times(tally.forwards),
        situations=times(tally.reached),
        ran={mode: times(names) for mode, names in tally.called.items()},
        forwards=answer.forwards,
        engine_ns=answer.engine_ns,
        compare_ns=answer.compare_ns,
    )


def _until_refused(plan: Plan, answer: protocol.JobAnswer) -> tuple[Plan, protocol.JobAnswer]:
    """Plan and answer up to the first turn that the engine was free to refuse and did: what follows in the script was
    planned for one that it takes."""
    for check in plan.optional:
        seen = answer.results[check.result]
        if isinstance(seen, protocol.States) and any(one.aborted for one in seen.states if one.req in check.subject):
            checks = tuple(one for one in plan.checks if _last_result(one) <= check.result)
            return replace(plan, checks=checks), msgspec.structs.replace(
                answer, results=answer.results[: check.result + 1]
            )
    return plan, answer


def _broken_steps(plan: Plan, answer: protocol.JobAnswer, tally: ScenarioTally) -> dict[int, int]:
    """Exceptions in steps that no check looks at (arrivals, turns, ends): request -> the first step of its own that
    the engine failed in."""
    if not any(isinstance(result, TROUBLE) for result in answer.results):
        return {}
    looked_at = {check.result for check in plan.checks}
    looked_at.update(n for check in plan.checks if isinstance(check, RotaryCheck) for n in check.results)
    broken: dict[int, int] = {}
    for number, result in enumerate(answer.results):
        if broken:
            arrival = plan.job.steps[number]
            if isinstance(arrival, protocol.TurnStep) and arrival.parent in broken:
                broken.setdefault(arrival.req, number)
        if number in looked_at:
            continue
        if isinstance(result, protocol.NotOfferedAnswer):
            tally.not_offered.append(("state", result.reason))
        elif isinstance(result, protocol.Raised):
            step = protocol_tag(plan.job.steps[number])
            if result.stage != "engine":
                if _doomed(plan.job.steps[number], number, broken):
                    continue
                tally.unrun.append(Unrun(stage=result.stage, message=f"{step}: {raised_line(result)}"))
            else:
                broken.setdefault(getattr(plan.job.steps[number], "req", -1), number)
                for mode, rule in _broken_by_raising(tally, plan, number, step):
                    _fail_raised(tally, rule, mode, _op_of(plan, number), result)
    return broken


def _half_way(plan: Plan, broken: dict[int, int]) -> int | None:
    """The first step that ran on a request that never came to be: it stopped anywhere, and no script says what the
    other requests of its batch hold after it."""
    if not broken:
        return None
    for number, step in enumerate(plan.job.steps):
        if isinstance(step, protocol.BuildForward | protocol.Cost) and _doomed(step, number, broken):
            return number
    return None


def _last_result(check: Check) -> int:
    return max(check.results) if isinstance(check, RotaryCheck) else check.result


def _spared(check: StateCheck, broken: dict[int, int]) -> StateCheck:
    """The check without requests that the engine failed to make, and those that continue them."""
    if not any(one.request.req in broken for one in check.expected):
        return check
    kept = tuple(one for one in check.expected if one.request.req not in broken)
    return replace(check, expected=kept)


def _doomed(step: protocol.Step, number: int, broken: dict[int, int]) -> bool:
    """Whether this step needs a request that the engine failed to make or change in an earlier step: then it ran on
    a state that no request leads to, and its exception says nothing."""
    inner = step.forward if isinstance(step, protocol.Cost) else step
    reqs = getattr(inner, "reqs", None) or (getattr(inner, "req", -1),)
    return any(number > broken.get(req, number) for req in reqs)


def _broken_by_raising(tally: ScenarioTally, plan: Plan, number: int, step: str) -> list[tuple[str, Rule]]:
    """(mode, rule) of a step that raised: of a turn the most telling rule on its history, else that there is no
    table."""
    if isinstance(plan.job.steps[number], protocol.TurnStep):
        turns = (check.turn for check in plan.checks if isinstance(check, StateCheck) and check.result > number)
        asked = next((turn for turn in turns if turn is not None), None)
        if asked is not None and (found := ask(tally, "session", replace(asked, ids=()))):
            return [("session", found[-1][0])]
    return [(step, rule) for rule, _ in no_tables(tally, step)]


def _mode_of(check: TableCheck | StateCheck | CostCheck) -> str:
    if isinstance(check, TableCheck):
        return check.expected.mode.name
    return check.mode if isinstance(check, CostCheck) else "state"


def _raised(tally: ScenarioTally, op: int, mode: str, result: protocol.Raised, state: bool, doomed: bool) -> None:
    if doomed:
        return
    if result.stage != "engine" or state:
        tally.unrun.append(Unrun(stage=result.stage, message=f"{mode}: {raised_line(result)}", step=op))
        return
    for rule, _ in no_tables(tally, mode):
        _fail_raised(tally, rule, mode, op, result)


def _fail_raised(tally: ScenarioTally, rule: Rule, mode: str, op: int, result: protocol.Raised) -> None:
    tally.fail(
        Failure(
            rule=rule.id,
            mode=mode,
            signature=raise_signature(result.type, result.where),
            step=op,
            label="",
            message=raised_line(result),
            where=result.where,
        )
    )


def _cost(tally: ScenarioTally, check: CostCheck, result: protocol.Counted) -> None:
    tally.note(check.mode, result.ran)
    view = copies(check, result)
    where = {"waits": result.sync_lines, "reads": result.to_host_lines}
    for rule, found in ask(tally, check.mode, view):
        lines = ", ".join(where.get(found.axis, result.lines))
        message = f"{found.message}: {lines}"
        tally.fail(failure_of(rule.id, check.mode, found, step=check.op, message=message, where=lines))


def copies(check: CostCheck, result: protocol.Counted) -> Copies:
    """What was counted, as the rules on costs look at it."""
    return Copies(
        mode=check.mode,
        has_media=check.has_media,
        allowed=check.allowed,
        extra=check.extra,
        copies=result.copies,
        waits=result.syncs if result.method == "cuda" else None,
        reads=result.to_host if result.method == "meta" else None,
    )


def _op_of(plan: Plan, result: int) -> int:
    """The operation that a step belongs to: that of the next check after it, or the last one."""
    later = [check.op for check in plan.checks if check.result >= result]
    return later[0] if later else len(plan.scenario.ops) - 1


def protocol_tag(step: protocol.Step) -> str:
    """ "submit", "turn", .."""
    return str(step.__struct_config__.tag)
