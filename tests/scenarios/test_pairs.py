"""Far values: the array covers what it says, and a bound counts where something that was judged is on its far side."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Operation, Scenario, Submit
from ropecheck.conformance.scenario.words import decode, extend, window
from ropecheck.conformance.scenarios import pairs
from ropecheck.reference.requests import State
from ropecheck.spec.history import image, text, video
from ropecheck.spec.views import ArrivedTurn, SavedTurn


def test_every_legal_pair_is_in_a_row() -> None:
    values = {"a": (1, 2, 3), "b": ("x", "y"), "c": (False, True)}
    rows = pairs.covering(values, ("a b", lambda row: not (row["a"] == 3 and row["b"] == "y")))
    for one, other in itertools.combinations(values, 2):
        found = {(row[one], row[other]) for row in rows}
        assert found == set(itertools.product(values[one], values[other])) - {(3, "y")}
    assert len(rows) < 10


def test_the_same_on_every_machine() -> None:
    script = "from ropecheck.conformance.scenarios.pairs import scenarios; print(*(one.id for one in scenarios()))"
    seeds = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    made = [subprocess.run([sys.executable, "-c", script], env=seed, capture_output=True, check=True) for seed in seeds]
    assert made[0].stdout == made[1].stdout
    assert made[0].stdout.decode().split() == [one.id for one in pairs.scenarios()]


def test_every_scenario_is_legal_and_together_they_cross_every_bound_of_forwards() -> None:
    found = pairs.scenarios()
    assert len({one.id for one in found}) == len({one.name for one in found}) == len(found)
    crossed: set[str] = set()
    for scenario in found:
        made = plan(scenario)
        crossed |= {*made.situations, *(name for check in made.checks for name in getattr(check, "situations", ()))}
    missed = set(dimensions.counted(dimensions.every("forwards"))) - crossed
    assert missed == {
        f"bound x turn {how}" for how in ("on an unfinished turn", "offset behind all", "in place of all")
    }


def _forward(family: str, *ops: Operation) -> set[str]:
    state = State(family=family)
    for op in ops:
        step = apply(state, op)
        state = step.state
    assert step.forward is not None
    return dimensions.of_forward(step.forward.tables, step.forward.lines, windows=False)


def test_the_last_position_is_crossed_and_no_other() -> None:
    """A word, a clip whose second step stands at 2^31 - 3, a word at 2^31 - 2; the next one stands at 2^31 - 1."""
    prompt = (text(1), video(2, 2, 2, float((1 << 31) - 4) / 2), text(1))
    assert {"column 2^24", "delta above 0 2^24", "rows 1"} <= _forward("qwen2_5_vl", *_read(prompt))
    assert "column 2^31-1" not in _forward("qwen2_5_vl", *_read(prompt))
    assert "column 2^31-1" in _forward("qwen2_5_vl", *_read(prompt), decode((0,)))


def _read(*prompts: tuple[object, ...]) -> tuple[Operation, ...]:
    arrivals = (Submit(req, prompt) for req, prompt in enumerate(prompts))  # type: ignore[arg-type]
    return (*arrivals, extend(tuple(window(req) for req in range(len(prompts)))))


def test_a_bound_is_crossed_at_it_and_not_below() -> None:
    at, below = (_forward("qwen2_vl", *_read((text(tokens),))) for tokens in (129, 128))
    assert "index 2^7" in at and "index 2^7" not in below
    assert not any(name.startswith("delta") for name in at)


def test_what_a_turn_is() -> None:
    saved = SavedTurn(prompt=(1, 2, 3), outputs=(4, 5), max_new_tokens=9)
    for offset, where in ((3, "in the prompt"), (4, "in the reply"), (5, "in the reply"), (6, "behind all")):
        turn = ArrivedTurn(saved=saved, new=(7,), offset=offset)
        assert dimensions.of_turn(turn, again=False) == {"turn on another turn", f"turn offset {where}"}
    twice = ArrivedTurn(saved=saved, new=(7,), replace=True, siblings=True)
    assert "turn in place of others again" in dimensions.of_turn(twice, again=True)
    assert "turn in place of others again" not in dimensions.of_turn(twice, again=False)


@pytest.mark.parametrize(
    ("items", "handed"),
    [
        ("", [("image", ((1, 7),)), ("video", ((7, 9),)), ("image", ((9, 10),))]),
        ("joined", [("image", ((1, 7), (9, 10))), ("video", ((7, 9),))]),
        ("reversed", [("image", ((9, 10),)), ("video", ((7, 9),)), ("image", ((1, 7),))]),
    ],
)
def test_how_items_are_handed_over(items: str, handed: list[tuple[str, tuple[tuple[int, int], ...]]]) -> None:
    prompt = (text(1), image(1, 4, 6), video(2, 2, 2), image(1, 2, 2))
    made = plan(Scenario("", (Submit(0, prompt, items=items), extend((window(0),)))))
    (submit,) = (step for step in made.job.steps if isinstance(step, protocol.SubmitStep))
    assert submit.media is not None
    assert [(item.kind, item.spans) for item in submit.media.items] == handed
    assert f"bound x media {dimensions.ITEMS[items]}" in made.situations


def test_what_a_run_says() -> None:
    lines = dimensions.said({"bound x rows 1": 2, "bound x index 2^7": 1, "decode x text only": 9})
    assert lines[0] == "bounds crossed: index 2^7; rows 1"
    assert "rows 129" in lines[1] and "index 2^24" not in lines[1] and "column" not in lines[1]
    assert lines[2].startswith("bounds out of a run's reach: index 2^24 (a prompt of 16 million tokens)")
    assert dimensions.said({"decode x text only": 9}) == []
    alike = {f"bound x {family}: delta below 0 2^7": 1 for family in ("qwen2_vl", "qwen3_vl")}
    assert dimensions.said(alike)[0] == "bounds crossed: delta below 0 2^7 (qwen2_vl, qwen3_vl)"
