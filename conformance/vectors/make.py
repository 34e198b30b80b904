"""Scenarios -> candidate vectors. Inputs and expected tables come from the reference's lifecycle, so that `lint`, which
derives them from the specification, is a second opinion."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.scenario.forward import OWN_NAME, ExpectedTables
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.judged import rules_of
from ropecheck.conformance.vectors.make_prompts import prompts
from ropecheck.conformance.vectors.make_sessions import histories
from ropecheck.conformance.vectors.wire import batch_of, requests_of, table_of
from ropecheck.conformance.version import spec_hash
from ropecheck.reference.requests import State
from ropecheck.spec.modes import mode_of
from ropecheck.spec.rules import all_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A vector that might be kept, and what it would be kept for."""

    vector: v.Vector
    features: frozenset[str]
    """Rules, situations and shapes of requests that the vector is an example of."""
    size: int
    """Bytes, without white space."""

    @property
    def folder(self) -> str:
        return v.folder_of(self.vector.input)


def candidates(scenarios: Iterable[ops.Scenario]) -> tuple[Candidate, ...]:
    """Every vector that the scenarios hold, and the families' prompt tables; the first of each input."""
    found: dict[str, Candidate] = {}
    for scenario in scenarios:
        for candidate in _of_scenario(scenario):
            found.setdefault(candidate.vector.id, candidate)
    for case, name, value, table in prompts():
        scenario = ops.Scenario(name=case.name, ops=(), family=case.family, note=f"Prompt table: {name}.")
        kinds = {segment.kind for prompt in case.prompts for segment in prompt}
        features = frozenset({case.family, f"{case.family} {' '.join(sorted(kinds))}"})
        candidate = _candidate(scenario, 0, value, (table,), features, case.id)
        found.setdefault(candidate.vector.id, candidate)
    return tuple(found.values())


def _of_scenario(scenario: ops.Scenario) -> Iterator[Candidate]:
    state = State(family=scenario.family)
    states = [state]
    loads: dict[str, list[v.Load]] = {}
    for number, op in enumerate(scenario.ops):
        if isinstance(op, ops.Build) and op.path == "direct":
            op = msgspec.structs.replace(op, path="caller")  # all forwards of a loop: a vector says nothing of the path
        moved = apply(state, op)
        if any(request.doubtful for request in moved.state.requests.values()):
            return  # a right engine may refuse it: a vector has one answer
        if moved.forward is not None and not isinstance(op, ops.MeasureCost):
            yield from _forward(scenario, number, state, moved.forward)
            yield from _padding(scenario, number, state, moved.forward, loads)
        state = moved.state
        states.append(state)
    for number, value, tables in histories(scenario, states):
        yield _candidate(scenario, number, value, tables, frozenset())


def _forward(scenario: ops.Scenario, number: int, state: State, expected: ExpectedTables) -> Iterator[Candidate]:
    tables = tuple(table_of(label, built) for label, built in expected.tables.items() if label != "padded")
    value = v.ForwardInput(
        family=scenario.family,
        requests=requests_of(state, expected.batch),
        batch=batch_of(expected.batch),
        tier=int(expected.tables[""].positions.size) if expected.buffer == "tier" else 0,
    )
    yield _candidate(scenario, number, value, tables, _situations(expected))


def _padding(
    scenario: ops.Scenario, number: int, state: State, expected: ExpectedTables, loads: dict[str, list[v.Load]]
) -> Iterator[Candidate]:
    built, buffer, mode = expected.tables.get("padded"), expected.buffer, expected.mode.name
    if built is None or buffer in OWN_NAME:
        return  # whose graph replays a draft is the engine's affair: the vector would say the same
    width = int(built.positions.size)
    load = v.Load(requests=requests_of(state, expected.batch), batch=batch_of(expected.batch), padded_tokens=width)
    earlier = loads.setdefault(f"{buffer} {mode}", [])
    static = buffer != "dp"  # padding to other ranks makes a new tensor; a graph's has the size of the largest capture
    value = v.PaddingInput(
        family=scenario.family,
        buffer=buffer,
        capacity=2 * max(width, *(one.padded_tokens for one in earlier), 0) if static else width,
        earlier=tuple(earlier) if static else (),
        load=load,
    )
    features = _situations(expected) | {f"{buffer} {mode}", f"after {len(value.earlier)} loads"}
    if any(len(one.requests) > len(load.requests) for one in value.earlier):
        features |= {f"{mode} after more requests"}
    yield _candidate(scenario, number, value, (table_of("padded", built, value.capacity),), features)
    earlier.append(load)


def _candidate(
    scenario: ops.Scenario,
    number: int,
    value: v.Input,
    tables: tuple[v.ExpectedTable, ...],
    situations: frozenset[str],
    source: str = "",
) -> Candidate:
    rules = rules_of(value, tables)
    known, mode = all_rules(), mode_of(value.batch.mode) if isinstance(value, v.ForwardInput) else None
    bugs = sorted({bug for rule in rules for bug in (mode.bugs.get(rule) if mode else None) or known[rule].bugs})
    vector = v.Vector(
        schema=v.SCHEMA,
        id=v.id_of(value),
        input=value,
        expected=tables,
        provenance=v.Provenance(
            scenario=scenario.name,
            scenario_id=source or scenario.id,
            operation=number,
            spec=spec_hash(),
            reason=scenario.note,
            rules=rules,
            bugs=tuple(bugs),
        ),
    )
    return Candidate(vector=vector, features=frozenset(rules) | situations, size=len(msgspec.json.encode(vector)))


def _situations(expected: ExpectedTables) -> frozenset[str]:
    """What the forward is an example of, how many requests it holds, and to which side their deltas lie."""
    sides = {"delta above 0" if line.delta > 0 else "delta below 0" for line in expected.lines if line.delta}
    return expected.situations | {f"{len(expected.batch.reqs)} requests"} | sides
