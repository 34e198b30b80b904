"""Where in a job's answer a failure shows, and what a reproduction compares there."""

from typing import Any

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.plan.planner import Plan, decoded
from ropecheck.conformance.run.trace import steps_of


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to read in the answer.

    kind "table": the tables called `label` of step `step`. "raises": the step's exception. "count": its host-to-device
    operations, by the answer's field `name`. "state": the field `name` of request `request`.
    """

    kind: str
    step: int
    label: str = ""
    request: int = 0
    name: str = ""
    expected: Any = None
    """What must be there; None where only `observed` can be compared."""
    observed: Any = None
    """What was there."""


def look(plan: Plan, answer: protocol.JobAnswer, failure: Failure) -> Look:
    """Raises UsageError for a failure that one answer does not show: a law, which compares forwards."""
    for step in reversed(steps_of(plan, failure.step)):
        result = answer.results[step]
        first = failure.difference
        if isinstance(result, protocol.Raised) and failure.where:
            return Look(kind="raises", step=step, observed=f"{result.type} at {result.where}")
        if isinstance(result, protocol.TablesAnswer) and failure.signature == "table missing":
            return Look(kind="missing", step=step, label=failure.label)
        if isinstance(result, protocol.TablesAnswer) and (found := _table(result, step, failure)) is not None:
            return found
        if isinstance(result, protocol.Counted) and first is not None:
            name = "syncs" if first.axis == "waits" else "copies"
            return Look(kind="count", step=step, name=name, expected=first.expected, observed=getattr(result, name))
        if isinstance(result, protocol.States) and first is not None:
            for state in result.states:
                if state.req == first.request and first.axis in state.__struct_fields__:
                    return Look(
                        kind="state", step=step, request=state.req, name=first.axis, observed=raw(state, first.axis)
                    )
    raise UsageError(
        f"{failure.rule}: {failure.signature}: not shown by one answer of the engine, so there is no stand-alone form; "
        "`ropecheck replay` shows it, and `--as issue` describes it"
    )


def _table(result: protocol.TablesAnswer, step: int, failure: Failure) -> Look | None:
    """The failure's table, where this step has it."""
    if failure.expected is None or failure.observed is None:
        return None
    if all(table.label != failure.label for table in result.tables):
        return None
    expected, observed = (
        {"positions": view.positions, "rows": view.rows} for view in (failure.expected, failure.observed)
    )
    if failure.observed.rows is None:
        expected["rows"] = None  # nobody compared them
    return Look(kind="table", step=step, label=failure.label, expected=expected, observed=observed)


def raw(state: protocol.RequestState, field: str) -> Any:
    """A field as plain lists and numbers. The script does the same."""
    value = getattr(state, field)
    return decoded(value).tolist() if isinstance(value, protocol.Tensor) else msgspec.to_builtins(value)
