"""Scenarios -> candidate vectors. Inputs and expected tables come from the reference's lifecycle, so that `lint`, which
derives them from the specification, is a second opinion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
from ropecheck.reference.batches import Batch, Expected

from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.derive import derive
from ropecheck.conformance.vectors.make_prompts import prompts
from ropecheck.conformance.vectors.make_sessions import histories
from ropecheck.conformance.vectors.wire import request_of, table_of
from ropecheck.conformance.version import spec_hash
from ropecheck.reference.requests import State
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
        features = frozenset({case.family, f"{case.family} {case.rule}"})
        candidate = _candidate(scenario, 0, value, (table,), features, case.id)
        found.setdefault(candidate.vector.id, candidate)
    return tuple(found.values())


def _of_scenario(scenario: ops.Scenario) -> Iterator[Candidate]:
    state = State(family=scenario.family)
    states = [state]
    loads: dict[str, list[v.Load]] = {}
    for number, op in enumerate(scenario.ops):
        moved = apply(state, op)
        for expected in () if isinstance(op, ops.MeasureCost) else moved.forwards:
            yield from _forward(scenario, number, op, state, expected)
            yield from _padding(scenario, number, op, state, expected, loads)
        state = moved.state
        states.append(state)
    for number, value, tables in histories(scenario, states):
        yield _candidate(scenario, number, value, tables, frozenset())


def _forward(
    scenario: ops.Scenario, number: int, op: ops.Operation, state: State, expected: Expected
) -> Iterator[Candidate]:
    batch = batch_of(expected.batch)
    tables = tuple(table_of(label, built) for label, built in expected.tables.items() if label != "padded")
    if isinstance(batch, v.DraftDecode) and len(tables) != batch.num_steps - 1:
        return  # only the first forward of a loop was driven: as a vector the loop would be torn
    requests = () if isinstance(batch, v.DllmExtend) else _requests(state, expected.batch)
    value = v.ForwardInput(family=scenario.family, requests=requests, batch=batch)
    yield _candidate(scenario, number, value, tables, _situations(expected))


def _padding(
    scenario: ops.Scenario,
    number: int,
    op: ops.Operation,
    state: State,
    expected: Expected,
    loads: dict[str, list[v.Load]],
) -> Iterator[Candidate]:
    built = expected.tables.get("padded")
    if built is None or expected.buffer in ("frozen_kv", "multi_layer"):
        return  # whose graph replays a draft is the engine's affair: the vector would say the same
    buffer = "graph" if getattr(op, "pad", "") == "graph" else "dp"
    width = int(built.positions.size)
    load = v.Load(requests=_requests(state, expected.batch), batch=batch_of(expected.batch), padded_tokens=width)
    earlier = loads.setdefault(f"{buffer} {expected.batch.mode}", [])
    # A graph's buffers have the size of the largest capture; padding to other ranks makes a new tensor.
    capacity = 2 * max(width, *(one.padded_tokens for one in earlier), 0) if buffer == "graph" else width
    value = v.PaddingInput(
        family=scenario.family,
        buffer="graph" if buffer == "graph" else "dp",
        capacity=capacity,
        earlier=tuple(earlier) if buffer == "graph" else (),
        load=load,
    )
    features = _situations(expected) | {f"{buffer} {expected.batch.mode}", f"after {len(value.earlier)} loads"}
    if any(len(one.requests) > len(load.requests) for one in value.earlier):
        features |= {f"{expected.batch.mode} after more requests"}
    yield _candidate(scenario, number, value, (table_of("padded", built, capacity),), features)
    earlier.append(load)


def _candidate(
    scenario: ops.Scenario,
    number: int,
    value: v.Input,
    tables: tuple[v.Table, ...],
    situations: frozenset[str],
    source: str = "",
) -> Candidate:
    rules = sorted(frozenset().union(*(one.rules for one in derive(value))))
    known = all_rules()
    bugs = sorted({bug for rule in rules for bug in known[rule].bugs})
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
            rules=tuple(rules),
            bugs=tuple(bugs),
        ),
    )
    return Candidate(vector=vector, features=frozenset(rules) | situations, size=len(msgspec.json.encode(vector)))


def _situations(expected: Expected) -> frozenset[str]:
    """What the forward is an example of, and how many requests it holds."""
    return expected.situations | {f"{len(expected.batch.reqs)} requests"}


def _requests(state: State, batch: Batch) -> tuple[v.Request, ...]:
    return tuple(request_of(state, state.requests[req]) for req in batch.reqs)


def batch_of(batch: Batch) -> v.Batch:
    """What an engine is told of a batch."""
    match batch.mode:
        case "extend":
            return v.Extend(seq_lens=batch.seq_lens, prefix_lens=batch.prefix_lens, extend_lens=batch.extend_lens)
        case "split_prefill":
            return v.SplitPrefill(seq_lens=batch.seq_lens, prefix_lens=batch.prefix_lens, extend_lens=batch.extend_lens)
        case "mixed":
            return v.Mixed(
                seq_lens=batch.seq_lens,
                prefix_lens=batch.prefix_lens,
                extend_lens=batch.extend_lens,
                decoding=batch.decoding,
            )
        case "decode":
            return v.Decode(seq_lens=batch.seq_lens)
        case "draft_decode":
            return v.DraftDecode(seq_lens=batch.seq_lens, topk=batch.topk, num_steps=batch.num_steps)
        case "target_verify" if batch.verify_lens:
            return v.RaggedVerify(
                seq_lens=batch.seq_lens,
                topk=batch.topk,
                parents=batch.parents,
                verify_lens=batch.verify_lens,
                ragged_tokens=batch.ragged_tokens,
            )
        case "target_verify":
            return v.TargetVerify(seq_lens=batch.seq_lens, topk=batch.topk, parents=batch.parents)
        case "draft_extend_v2":
            return v.DraftExtendV2(seq_lens=batch.seq_lens, num_draft_tokens=batch.num_draft_tokens)
        case "dllm_extend":
            return v.DllmExtend(block_offsets=batch.block_offsets, block_size=batch.block_size)
        case "idle":
            return v.Idle()
        case _:
            raise ValueError(f"no vector form for mode {batch.mode}")
