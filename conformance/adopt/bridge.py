"""Between scenarios and an in-process adapter: plans are answered step by step, tables by the adapter."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.adopt.notes import functions
from ropecheck.conformance.adopt.types import Adapter, Asked, HeldRequest, NotOffered
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Check, CostCheck, Plan, TableCheck, plan
from ropecheck.conformance.plan.rotary import RotaryCheck
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.subject import AnyPlan, Subject
from ropecheck.reference.timeline import Timeline
from ropecheck.spec.modes.declaration import Mode

NO_STATE = "an in-process adapter has no request objects: sessions and ownership need the worker protocol"
NO_CHANGE = "an in-process adapter is given numbers that it cannot change"
NO_DTYPE = "the adapter answers with lists, which have no dtype"
NO_PADDING = "the adapter does not set offers_padding"


class _Malformed(Exception):
    """The adapter returned what is no pair of tables."""


class Checker:
    """Checks single scenarios on an adapter. modes: those that it is asked for."""

    def __init__(self, adapter: Adapter, modes: frozenset[str]) -> None:
        self._adapter = adapter
        self._modes = modes
        self._pads = bool(getattr(adapter, "offers_padding", False)) and "padding" in modes

    def __call__(self, scenario: Scenario) -> Outcome:
        planned = plan(scenario)
        asked = _reached(planned, self._pads)
        typed: list[str] = []
        outcome = judge(asked, _answer(asked, self._adapter, self._modes, typed))
        vacuous = {"ownership.batch_is_read_only": NO_CHANGE}
        if not typed and not any(failure.rule == "table.dtype" for failure in outcome.failures):
            vacuous["table.dtype"] = NO_DTYPE
        declined = [(rule, reason) for rule, reason in vacuous.items() if rule in outcome.checked]
        if not self._pads and any(isinstance(one, TableCheck) and "padded" in one.labels for one in planned.checks):
            declined.append(("padding", NO_PADDING if "padding" in self._modes else "padding was not asked for"))
        return msgspec.structs.replace(
            outcome,
            not_offered=(*outcome.not_offered, *declined),
            checked={rule: count for rule, count in outcome.checked.items() if rule not in vacuous},
            by_mode={rule: modes for rule, modes in outcome.by_mode.items() if rule not in vacuous},
        )

    def traced(self, scenarios: Iterable[Subject]) -> dict[str, tuple[AnyPlan, protocol.JobAnswer]]:
        """Scenarios once more, with the functions that ran for each step; by their ids."""
        plans = [_reached(plan(one), self._pads) for one in scenarios if isinstance(one, Scenario)]
        return {
            asked.scenario.id: (asked, _answer(asked, self._adapter, self._modes, [], traced=True)) for asked in plans
        }


def _reached(planned: Plan, pads: bool) -> Plan:
    """The plan with only the checks that an in-process adapter can be put to: it counts no copies and turns no heads,
    there is no second way to build a forward, and padded tables are asked for only where they are offered."""
    checks: list[Check] = []
    for check in planned.checks:
        if isinstance(check, CostCheck | RotaryCheck) or (isinstance(check, TableCheck) and check.positions_only):
            continue
        if isinstance(check, TableCheck) and not pads:
            check = replace(check, labels={label: name for label, name in check.labels.items() if label != "padded"})
        checks.append(check)
    return replace(planned, checks=tuple(checks))


def _answer(
    planned: Plan, adapter: Adapter, modes: frozenset[str], typed: list[str], traced: bool = False
) -> protocol.JobAnswer:
    """One result per step. `typed` collects the dtypes of tables that have one of their own."""
    checks = {check.result: check for check in planned.checks if isinstance(check, TableCheck)}
    results: list[protocol.Result] = []
    ran: list[tuple[str, ...]] = []
    for number, step in enumerate(planned.job.steps):
        names: list[str] = []
        match step:
            case protocol.Observe():
                results.append(protocol.NotOfferedAnswer(NO_STATE))
            case protocol.BuildForward() if number in checks and checks[number].expected.mode.name not in modes:
                results.append(protocol.NotOfferedAnswer(f"{checks[number].expected.mode.name} was not asked for"))
            case protocol.BuildForward() if number in checks:
                with functions(names) if traced else nullcontext():
                    results.append(_forward(step, checks[number], adapter, typed))
            case _:
                results.append(protocol.Done())
        ran.append(tuple(names))
    forwards = sum(isinstance(result, protocol.TablesAnswer) for result in results)
    return protocol.JobAnswer(planned.job.id, tuple(results), 0, forwards, traced=tuple(ran) if traced else ())


def _forward(step: protocol.BuildForward, check: TableCheck, adapter: Adapter, typed: list[str]) -> protocol.Result:
    """Every table that the step is checked for, each asked for anew."""
    mode = check.expected.mode
    found = []
    for label in check.labels:
        try:
            answered = adapter.forward(_asked(step, check.expected.lines, label))
            if isinstance(answered, NotOffered):
                return protocol.NotOfferedAnswer(str(answered) or f"{mode.name} is not offered")
            found.append(_table(mode, label, answered, typed))
        except NotOffered as error:
            return protocol.NotOfferedAnswer(str(error) or f"{mode.name} is not offered")
        except _Malformed as error:
            return protocol.Raised("adapter", "TypeError", str(error), "")
        except Exception as error:  # an engine's exception is a verdict, not the end of the run
            return protocol.Raised("engine", type(error).__name__, str(error), _where(error))
    return protocol.TablesAnswer(tuple(found))


def _asked(step: protocol.BuildForward, lines: tuple[Timeline, ...], label: str) -> Asked:
    requests = tuple(HeldRequest(table=_rows(line), delta=line.delta if line.has_media else 0) for line in lines)
    padding = step.padding if label == "padded" else None
    return Asked(
        batch=step.batch,
        requests=requests,
        step=int(label.removeprefix("step ")) if label.startswith("step ") else 0,
        padded_tokens=step.tier if padding is None else padding.tokens,
        buffer=("tier" if step.tier else "") if padding is None else padding.kind,
    )


def _rows(line: Timeline) -> tuple[tuple[int, ...], ...] | None:
    return tuple(map(tuple, line.table[:, : line.tabulated].tolist())) if line.has_media else None


def _table(mode: Mode, label: str, answered: object, typed: list[str]) -> protocol.TablePair:
    """An adapter's pair as a worker would send it. Raises _Malformed."""
    if not isinstance(answered, tuple | list) or len(answered) != 2:
        raise _Malformed(f"forward({mode.name}) must return (positions, rows), not {type(answered).__name__}")
    positions, rows = answered
    typed.extend(name for name in map(_dtype_of, answered) if name)
    return protocol.TablePair(label, _tensor(positions, mode.index_dtype), _tensor(rows, "int64"))


def _dtype_of(values: object) -> str:
    """numpy's name of an array's or a torch tensor's dtype; "" for lists."""
    return str(getattr(values, "dtype", "")).removeprefix("torch.")


def _tensor(values: Any, usual: str) -> protocol.Tensor | None:
    """A list, numpy array or torch tensor. Lists have no dtype and get the usual one; ragged ones are malformed."""
    if values is None:
        return None
    name = _dtype_of(values)
    plain = values.tolist() if hasattr(values, "tolist") else _lists(values)
    try:
        array = np.asarray(plain)
    except ValueError as error:
        raise _Malformed(f"rows of unequal width: {error}") from error
    if array.size == 0:
        array = array.astype(usual)
    if not name:
        name = usual if array.dtype.kind in "iu" else array.dtype.name
    try:
        array = array.astype(name)
    except TypeError as error:
        raise _Malformed(f"a table of dtype {name}: {error}") from error
    return protocol.Tensor(name, tuple(array.shape), np.ascontiguousarray(array).tobytes())


def _lists(values: Any) -> Any:
    """Rows may be tensors in a list."""
    return [item.tolist() if hasattr(item, "tolist") else item for item in values]


def _where(error: BaseException) -> str:
    """The innermost frame, "file.py:line function"."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else ""
