"""Right answers of the reference with one thing changed, put before the judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, StateCheck, TableCheck, decoded, plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer, tensor
from ropecheck.conformance.scenario.operations import Operation, Scenario
from ropecheck.reference.timeline import IntArray

Change = Callable[[Any], protocol.Result]


def planned(*ops: Operation, repeat: bool = False) -> Plan:
    return plan(Scenario(name="x", family="qwen2_vl", ops=ops, repeat=repeat))


def result_of(one: Plan, op: int, kind: type[Any] = TableCheck) -> int:
    """The number of the result that the operation's last check of a kind looks at."""
    found: list[int] = [check.result for check in one.checks if isinstance(check, kind) and check.op == op]
    return found[-1]


def answered(one: Plan, changes: dict[int, Change]) -> protocol.JobAnswer:
    """What the reference answers, some results changed."""
    right = answer(one.job, ReferenceEngine())
    results = tuple(
        changes[number](result) if number in changes else result for number, result in enumerate(right.results)
    )
    return msgspec.structs.replace(right, results=results)


def judged(one: Plan, changes: dict[int, Change]) -> Outcome:
    return judge(one, answered(one, changes))


def instead(result: protocol.Result) -> Change:
    return lambda right: result


def table(edit: Callable[[IntArray], Any], label: str = "", which: str = "mrope") -> Change:
    """A forward's table, edited. edit: gets a copy of it, changes it in place or gives another array."""

    def change(right: protocol.TablesAnswer) -> protocol.TablesAnswer:
        pairs = []
        for pair in right.tables:
            if pair.label == label:
                values = decoded(getattr(pair, which)).copy()
                values = values if (other := edit(values)) is None else other
                pair = msgspec.structs.replace(pair, **{which: tensor(values)})
            pairs.append(pair)
        return msgspec.structs.replace(right, tables=tuple(pairs))

    return change


def index(edit: Callable[[IntArray], Any], label: str = "") -> Change:
    return table(edit, label, "positions")


def cell(*at: int | slice, value: int) -> Callable[[IntArray], None]:
    """An edit that puts a value into one cell."""

    def edit(values: IntArray) -> None:
        values[at] = value

    return edit


def pairs(edit: Callable[[tuple[protocol.TablePair, ...]], tuple[protocol.TablePair, ...]]) -> Change:
    return lambda right: msgspec.structs.replace(right, tables=edit(right.tables))


def fields(label: str = "", **other: Any) -> Change:
    """Fields of a table's pair."""
    return pairs(
        lambda all_: tuple(msgspec.structs.replace(one, **other) if one.label == label else one for one in all_)
    )


def state(req: int, **other: Any) -> Change:
    """Fields of what a request holds."""

    def change(right: protocol.States) -> protocol.States:
        return protocol.States(
            tuple(msgspec.structs.replace(one, **other) if one.req == req else one for one in right.states)
        )

    return change


def state_of(one: Plan, op: int) -> int:
    """The number of the result that shows the states after an operation."""
    return result_of(one, op, StateCheck)
