"""What a scenario file may say: the words and numbers that are refused, with the field's place; and files of the first
format."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ropecheck.conformance.scenario.legal import LARGEST, WIDEST, refuse_nonsense
from ropecheck.conformance.scenario.operations import Operation, Scenario, Submit
from ropecheck.conformance.scenario.upgrade import upgraded
from ropecheck.conformance.scenario.words import decode, draft, extend, mixed, ragged_verify, verify, window
from ropecheck.spec.history import OutOfDomain, Run, image, text

PROMPT = (text(2), image(1, 4, 6))


def made(*ops: Operation, family: str = "qwen2_vl") -> Scenario:
    return Scenario(name="x", ops=ops, family=family)


def test_a_plain_scenario_is_legal() -> None:
    refuse_nonsense(made(Submit(0, PROMPT), extend([window(0)]), decode([0])))


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        (made(Submit(-1, PROMPT)), r"ops\[0\].req: -1 is not in 0"),
        (made(Submit(0, (text(LARGEST), text(1)))), f"ops: {LARGEST + 1} tokens and patches in all"),
        (made(Submit(0, (Run(kind="smell", tokens=1),))), r"ops\[0\].prompt\[0\].kind: 'smell'"),
        (made(Submit(0, (text(0),))), r"ops\[0\].prompt\[0\]: text has at least one token"),
        (made(Submit(0, (image(1, 4096, 4096),))), r"ops\[0\].prompt\[0\].grid: 16777216 patches"),
        (made(decode([0], path="round")), r"ops\[0\].path: 'round' is none of"),
        (made(decode([0], buffer="graph", buffer_rows=WIDEST + 1)), r"ops\[0\].buffer_rows: 4097"),
        (made(Submit(0, PROMPT), family="hunyuan_vl"), "hunyuan_vl has 4 rows"),
    ],
)
def test_nonsense_is_named_by_its_place(scenario: Scenario, why: str) -> None:
    with pytest.raises(OutOfDomain, match=why):
        refuse_nonsense(scenario)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "extend", "windows": [{"req": 0, "hit": 2}]}, extend([window(0, hit=2)])),
        ({"type": "decode", "reqs": [0], "pad": "graph", "pad_batch": 4}, decode([0], buffer="graph", buffer_rows=4)),
        ({"type": "mixed", "windows": [{"req": 1}], "decodes": [0]}, mixed([window(1)], [0])),
        ({"type": "draft", "reqs": [0], "num_steps": 3, "topk": 2}, draft([0], 3, 2)),
        ({"type": "verify", "reqs": [0], "parents": [[0, 0]], "topk": 2}, verify([0], [(0, 0)], 2)),
        ({"type": "verify", "reqs": [0], "parents": [[0]], "ragged": True}, ragged_verify([0], [(0,)])),
    ],
)
def test_an_operation_of_the_first_format_is_todays(old: dict[str, Any], new: Operation) -> None:
    (found,) = upgraded({"ops": [old]})["ops"]
    assert msgspec.convert(found, type(new)) == new


def test_a_field_that_nobody_knows_is_not_lost_silently() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"unknown field `speed` - at `\$.ops\[0\]`"):
        upgraded({"ops": [{"type": "decode", "reqs": [0], "speed": 9}]})


def test_todays_operations_are_left_alone() -> None:
    raw = {"ops": [msgspec.to_builtins(decode([0])), "nonsense"], "name": "x"}
    assert upgraded(raw) == raw
