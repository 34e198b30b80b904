"""The rotary embedding as an operation: its reference, its plan on each device, and verdicts on odd answers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.rotary import as_part
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.plan.rotary import RotaryCheck, heads
from ropecheck.conformance.reference_engine import ReferenceEngine, answer, tensor
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Abort, Operation, Rotate, Scenario, Submit
from ropecheck.conformance.scenario.words import decode
from ropecheck.conformance.scenarios.chosen import rotary as rotations
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, running, scenario
from ropecheck.conformance.scenarios.random import shrink
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.conformance.store.files import pretty, read_any, subject_of
from ropecheck.reference.requests import State
from ropecheck.reference.rotary import LAYOUTS, LONGEST, MOST, rotated
from ropecheck.spec import rotary as rules
from ropecheck.spec.history import OutOfDomain, text, video
from tests.core.support import outcome

PICTURES = scenario("pictures", "", Submit(0, PROMPTS["two images"]), Rotate(0))


def checks(planned: Plan) -> list[RotaryCheck]:
    return [check for check in planned.checks if isinstance(check, RotaryCheck)]


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=25)  # of each layout; 30 ms each
@given(columns=st.lists(st.tuples(*[st.integers(0, 90)] * 3), min_size=1, max_size=3))
def test_the_reference_rotation_is_the_rules(name: str, columns: list[tuple[int, int, int]]) -> None:
    layout = LAYOUTS[name]
    table = np.array(columns, dtype=np.int64).T
    part, _ = heads(len(columns), layout.head_size)
    assert [layout.axes.count(axis) for axis in range(3)] == list(layout.sections)

    def broken(turned: np.ndarray) -> set[str]:
        given, seen = (as_part("query", values) for values in (part, turned))
        rows = tuple(map(tuple, table.tolist()))
        view = rules.Rotation(layout=layout, table=rows, given=(given,), seen=(seen,), tolerance=1e-6)
        return {rule.id for rule, _ in ask(ScenarioTally(), "rotary", view)}

    right = rotated(table, part, layout)
    angle = "rotary.rotation" if layout.scaling is None else "rotary.scaling"
    assert not broken(right)
    assert broken(right * 1.01) == {angle}
    by_t = rotated(table[[0, 0, 0]], part, layout)
    differ = bool((table != table[:1]).any())
    sections = "interleaved" if name == "cycled" else layout.arrangement
    assert broken(by_t) == ({f"rotary.{sections}_sections"} if differ else set())


def test_every_layout_and_rule_is_in_the_chosen_scenarios() -> None:
    scenarios = rotations.scenarios()
    assert {op.layout for one in scenarios for op in one.ops if isinstance(op, Rotate)} == {*LAYOUTS} - {"served"}
    assert {rule for one in scenarios for rule in outcome(one).checked if rule.startswith("rotary.")} == {
        "rotary.alternating_sections",
        "rotary.contiguous_sections",
        "rotary.interleaved_sections",
        "rotary.readers_bound",
        "rotary.rotation",
        "rotary.scaling",
        "rotary.every_row_counts",
        "rotary.view_is_a_copy",
        "rotary.table_is_read_only",
    }


def test_each_device_takes_the_methods_that_it_has() -> None:
    """And what one device's plan began with is not handed to the other's."""
    for _ in range(2):
        assert [check.method for check in checks(plan(PICTURES, "cpu"))] == ["native"]
        assert [check.method for check in checks(plan(PICTURES, "cuda"))] == ["native", "device"]
    short = scenario("short", "", Submit(0, (text(30),)), Rotate(0, "short"))
    assert [check.method for check in checks(plan(short, "cuda"))] == ["device"]  # a lookup past its end ends a device
    assert len(plan(short, "cuda").job.steps) == 2
    one = scenario("one", "", Submit(0, PROMPTS["two images"]), Rotate(0, method="device"))
    assert [check.method for check in checks(plan(one, "cpu"))] == ["device"]


def test_the_table_is_that_of_the_history_so_far() -> None:
    after = scenario("after", "", running(PROMPTS["two images"]), decode((0,)), Rotate(0))
    (before,), (later,) = checks(plan(PICTURES)), checks(plan(after))
    width = before.table.shape[1]
    assert later.table.shape == (3, width + 2)  # the prefill and the decode emitted one token each
    assert (later.table[:, :width] == before.table).all()
    free = int(before.table.max()) + 1
    assert later.table[:, width:].tolist() == [[free, free + 1]] * 3


def test_sections_are_not_said_to_be_checked_where_all_rows_are_equal() -> None:
    words = outcome(scenario("words", "", Submit(0, PROMPTS["text"]), Rotate(0)))
    assert "rotary.rotation" in words.checked and "rotary.contiguous_sections" not in words.checked


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        ((Rotate(0),), "does not exist"),
        ((Submit(0, PROMPTS["text"]), Abort(0), Rotate(0)), "is aborted"),
        ((Submit(0, PROMPTS["text"]), Rotate(0, "diagonal")), "'diagonal'"),
        ((Submit(0, PROMPTS["text"]), Rotate(0, method="both")), "'both'"),
        ((Submit(0, (text(MOST + 1),)), Rotate(0)), "at most 1024"),
    ],
)
def test_what_cannot_be_turned_is_refused(ops: tuple[Operation, ...], reason: str) -> None:
    state = State(family="qwen2_vl")
    with pytest.raises(OutOfDomain, match=reason):
        for op in ops:
            state = apply(state, op).state


def test_positions_beyond_the_prepared_ones_are_refused() -> None:
    state = apply(State(family="qwen2_5_vl"), Submit(0, (video(2, 2, 2, seconds_per_grid=float(LONGEST)),))).state
    with pytest.raises(OutOfDomain, match="positions below"):
        apply(state, Rotate(0))


@pytest.mark.parametrize(("field", "value"), [("layout", "diagonal"), ("method", "both")])
def test_a_file_with_an_unknown_word_is_one_line(field: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_bytes(pretty(PICTURES))
    assert subject_of(read_any(path)) == PICTURES
    path.write_bytes(pretty(scenario("x", "", PICTURES.ops[0], Rotate(0, **{field: value}))))
    with pytest.raises(UsageError, match=rf"ops\[1\]\.{field}: '{value}' is none of"):
        read_any(path)


# ---------------------------------------------------------------- verdicts on odd answers


def judged(change: Callable[[int, protocol.Result], protocol.Result], device: str = "cpu") -> Outcome:
    """The outcome when the results of the rotations are changed; the first one has number 0."""
    planned = plan(PICTURES, device)
    given = answer(planned.job, ReferenceEngine())
    first = next(chain.from_iterable(check.results for check in checks(planned)))
    results = tuple(
        change(number - first, result) if number >= first else result for number, result in enumerate(given.results)
    )
    return judge(planned, msgspec.structs.replace(given, results=results))


def only(number: int, other: protocol.Result) -> Callable[[int, protocol.Result], protocol.Result]:
    return lambda at, result: other if at == number else result


OURS = protocol.Raised("adapter", "CannotImport", "sglang.x cannot be imported: OSError: libcuda", "")
THEIRS = protocol.Raised("engine", "IndexError", "out of range", "sglang/srt/layers/rotary.py:7 forward")


def test_what_is_not_offered_is_said_once_and_is_no_failure() -> None:
    found = judged(lambda _at, _result: protocol.NotOfferedAnswer("none here"))
    assert found.not_offered == (("rotary", "none here"),)
    assert (found.state, found.checked) == ("not_offered", {})


def test_an_exception_of_the_adapter_could_not_run() -> None:
    found = judged(lambda _at, _result: OURS)
    assert not found.failures and [unrun.message for unrun in found.unrun] == [
        "rotary: CannotImport: sglang.x cannot be imported: OSError: libcuda"
    ]


@pytest.mark.parametrize(
    ("number", "rule"),
    [(0, "rotary.rotation"), (1, "rotary.every_row_counts"), (4, "rotary.view_is_a_copy")],
)
def test_an_exception_of_the_engine_breaks_the_rule_of_its_step(number: int, rule: str) -> None:
    (failure,) = judged(only(number, THEIRS)).failures
    assert failure.key == (rule, "rotary", "raises IndexError in forward")
    assert failure.where == THEIRS.where


def edited(edit: Callable[[np.ndarray], np.ndarray]) -> Callable[[int, protocol.Result], protocol.Result]:
    """The first rotation's key, edited."""

    def change(at: int, result: protocol.Result) -> protocol.Result:
        if at:
            return result
        assert isinstance(result, protocol.Rotated)
        key = np.frombuffer(result.key.data, np.float32).reshape(result.key.shape).copy()
        return protocol.Rotated(result.query, tensor(edit(key)))

    return change


def poke(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def edit(key: np.ndarray) -> np.ndarray:
        key[3, 17] = value
        return key

    return edit


@pytest.mark.parametrize(
    ("edit", "signature", "message"),
    [
        (poke(float("nan")), "not finite", "key, token 3, head 0, dimension 17: nan, must be "),
        (poke(99.0), "other values", "key, token 3, head 0, dimension 17: 99, must be "),
        (lambda key: key[:-1], "wrong shape", "key is float32[19, 384], must be float32[20, 384]"),
        (lambda key: key.astype(np.float64), "dtype float64", "key is float64[20, 384], must be float32[20, 384]"),
    ],
)
def test_a_wrong_key_is_named(edit: Callable[[np.ndarray], np.ndarray], signature: str, message: str) -> None:
    failures = judged(edited(edit)).failures
    assert failures[0].key == ("rotary.rotation", "rotary", signature)
    assert message in failures[0].message and failures[0].message.startswith("contiguous, native: ")


def test_heads_that_come_back_as_they_went_are_not_turned() -> None:
    query, key = (tensor(part.astype(np.float32).reshape(len(part), -1)) for part in heads(20, 128))
    assert judged(only(0, protocol.Rotated(query, key))).failures[0].key == ("rotary.rotation", "rotary", "not turned")


def test_the_kernels_fault_is_not_the_tensor_versions() -> None:
    """On a GPU both ways are judged, and a finding says which one is wrong."""
    planned = plan(PICTURES, "cuda")
    second = checks(planned)[1].result - checks(planned)[0].result
    (failure,) = judged(only(second, THEIRS), "cuda").failures
    assert failure.signature == "raises IndexError in forward (device)" and failure.label == "device"


def test_a_fault_shrinks_to_a_rotation_of_one_run() -> None:
    make = MUTANTS["rotary backwards"].make
    large = scenario("large", "", running(PROMPTS["two images"], PROMPTS["text"]), decode((1, 0)), Rotate(0), Rotate(1))
    key = ("rotary.rotation", "rotary", "turned backwards")
    small, failure = shrink(large, key, lambda candidate: outcome(candidate, make))
    assert failure is not None
    assert [type(op) for op in small.ops] == [Submit, Rotate]
    (rotation,) = (op for op in small.ops if isinstance(op, Rotate))
    assert rotation.method == "native"
    assert sum(run.tokens for op in small.ops if isinstance(op, Submit) for run in op.prompt) <= 2


def test_scenarios_that_only_turn_have_something_to_check() -> None:
    assert plan(PICTURES).checks
    with pytest.raises(OutOfDomain, match="nothing to check"):
        plan(Scenario(name="x", ops=PICTURES.ops[:1]))


def test_yarn_by_its_numbers() -> None:
    """Head 128, base 1e6, factor 4, 32,768 positions of training: the ramp goes from pair 23 to pair 40."""
    yarn = rules.Scaling(4.0, 32768)
    assert rules.magnitude(yarn) == pytest.approx(1.138629, abs=1e-6)
    right = {0: 1.0, 23: 1e6 ** (-23 / 64), 30: 0.00106436, 39: 6.49039e-5, 40: 4.44570e-5, 63: 3.10234e-7}
    for pair, value in right.items():
        assert rules.frequency(pair, 64, 1e6, yarn) == pytest.approx(value, rel=1e-5)
    assert rules.frequency(30, 64, 1e6) == pytest.approx(0.00153993, rel=1e-5)
    assert rules.magnitude(None) == 1.0 and rules.within_reach(4095, 4096) and not rules.within_reach(4096, 4096)


def test_h_and_w_take_turns_and_t_reads_the_rest() -> None:
    assert [rules.alternating_axis(pair, (2, 2, 2)) for pair in range(6)] == [1, 2, 1, 2, 0, 0]


def test_a_longer_context_grows_sines_and_cosines_and_no_shorter_one_does() -> None:
    """0.1 ln 2 + 1 = 1.0693."""
    grown = [rules.magnitude(scaling) for scaling in (None, *(rules.Scaling(factor, 32) for factor in (0.5, 1.0, 2.0)))]
    assert grown == pytest.approx([1.0, 1.0, 1.0, 1.069315], abs=1e-6)


def test_an_embedding_reaches_the_positions_that_it_has_prepared() -> None:
    assert [rules.within_reach(position, 3) for position in (-1, 0, 2, 3)] == [False, True, True, False]
