"""The torch reference that compares on a device, on the host: equal to the numpy tables for every chosen forward."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, TableCheck, decoded, plan
from ropecheck.conformance.run.seat import Unacceptable, answer_of
from ropecheck.conformance.scenarios.chosen import chosen, sizes
from ropecheck.conformance.selftest.reference_engine import ReferenceEngine

torch = pytest.importorskip("torch")
device_windows = pytest.importorskip("ropecheck.reference.device_windows")
device_compare = pytest.importorskip("ropecheck.conformance.device.compare")

SCENARIOS = (*chosen(), *(s for s in sizes.scenarios() if "1024" not in s.name))


def forwards(planned: Plan) -> list[tuple[protocol.Forward, TableCheck]]:
    """The forwards of a plan that carry their requests' columns, with what they must answer."""
    out = []
    for check in planned.checks:
        step = planned.job.steps[check.result]
        if isinstance(check, TableCheck) and isinstance(step, protocol.Forward) and step.expect:
            out.append((step, check))
    return out


def test_every_forward_of_the_chosen_scenarios() -> None:
    seen: dict[str, int] = {}
    for scenario in SCENARIOS:
        for step, check in forwards(plan(scenario, "cuda")):
            for label, name in check.labels.items():
                spans = device_compare.expected(step, label)
                want = check.expected.tables[name]
                if spans is None:
                    continue
                held = [decoded(line.table) for line in step.expect]
                found = device_windows.tables(spans, held, [line.delta for line in step.expect], "cpu")
                positions, rows = found[0], found[1:]
                assert np.array_equal(positions.numpy(), want.positions), (scenario.name, label)
                assert want.mrope is not None and np.array_equal(rows.numpy(), want.mrope), (scenario.name, label)
                comparator = device_compare.Comparator()
                assert comparator.add(step, label, positions, rows)
                wrong, off = rows.clone(), positions.clone()
                if wrong.numel():
                    wrong[2, -1] += 1
                    off[0] += 1
                    assert comparator.add(step, label, positions, wrong)
                    assert comparator.add(step, label, off, rows)
                    wrong[2, -1] -= 1  # an engine that goes on writing into its table: kept is what was added
                    right, rows_wrong, index_wrong = comparator.settle()
                    assert right is None and rows_wrong is not None and index_wrong is not None
                    assert rows_wrong[1][2, -1] == rows[2, -1] + 1 and index_wrong[0][0] == positions[0] + 1
                    assert not comparator.add(step, label, positions[:-1], rows[:, :-1])
                    assert not comparator.add(step, label, positions[:-1], rows)
                    assert not comparator.add(step, label, positions.int(), rows)
                    assert comparator.settle() == []
                seen[label if label == "padded" else step.mode] = seen.get(step.mode, 0) + 1
    modes = {"extend", "decode", "mixed", "split_prefill", "target_verify", "draft_decode", "draft_extend_v2", "padded"}
    assert modes <= set(seen)


def test_a_plan_for_the_host_carries_no_columns() -> None:
    assert all(not forwards(plan(scenario)) for scenario in chosen())


def test_a_worker_that_was_given_nothing_to_compare_with_is_not_believed() -> None:
    planned = plan(chosen()[0], "cuda")
    tables = protocol.Tables((protocol.Table("", None, None, True),))
    results = tuple(tables if isinstance(step, protocol.Forward) else protocol.Done() for step in planned.job.steps)
    body = msgspec.msgpack.encode(protocol.Answer(planned.job.id, results, 0, 1))
    assert answer_of(body, planned.job).results == results
    with pytest.raises(Unacceptable, match="not given the means"):
        answer_of(body, plan(chosen()[0], "cpu").job)


def test_matched_tables_are_checked_by_every_rule_that_they_satisfy() -> None:
    """What stayed on the device counts as what travelled."""
    scenario = next(s for s in chosen() if s.name == "mixed in one batch" or "mixed" in s.name)
    planned = plan(scenario, "cuda")
    engine = ReferenceEngine()
    whole = [engine.run(step) for step in planned.job.steps]
    results = []
    for result in whole:
        if isinstance(result, protocol.Tables):
            there = tuple(protocol.Table(table.label, None, None, True) for table in result.tables)
            result = protocol.Tables(there, result.changed, result.ran)
        results.append(result)
    left = judge(planned, protocol.Answer(scenario.id, tuple(whole), 0, 1))
    right = judge(planned, protocol.Answer(scenario.id, tuple(results), 0, 1))
    assert not left.failures and not right.failures
    assert left.checked == right.checked
