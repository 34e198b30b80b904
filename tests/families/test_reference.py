"""The fast builders against the specification."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropecheck.reference import prompt_tables
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec import history as spec
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.history import History, OutOfDomain, cut, image, length, text
from tests.families.strategies import histories, prompts

Drawn = tuple[MediaFamily, History]


def wanted(family: MediaFamily, history: History) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(spec.prompt_table(family, history), dtype=np.int64).reshape(-1, family.axes).T


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
@settings(max_examples=25)
@given(st.data(), st.booleans())
def test_equals_the_specification(family: MediaFamily, data: st.DataObject, long: bool) -> None:
    history = data.draw(histories(family))
    keep = prompt_tables._LONG_RUNS
    prompt_tables._LONG_RUNS = 0 if long else keep
    try:
        table = prompt_table(family, history)
    finally:
        prompt_tables._LONG_RUNS = keep
    assert table.dtype == np.int64
    assert table.flags.writeable and table.flags.c_contiguous
    np.testing.assert_array_equal(table, wanted(family, history))
    assert delta(table) == spec.delta_of(spec.prompt_table(family, history))


@given(prompts(), st.data())
def test_a_cut_history_too(drawn: Drawn, data: st.DataObject) -> None:
    family, history = drawn
    short = cut(family, history, data.draw(st.integers(0, length(family, history))))
    np.testing.assert_array_equal(prompt_table(family, short), wanted(family, short))


def test_refusals_are_the_specifications() -> None:
    with pytest.raises(OutOfDomain, match="not divisible"):
        prompt_table(QWEN2_VL, (image(1, 3, 4),))


def test_a_returned_table_is_the_callers_own() -> None:
    first = prompt_table(QWEN2_VL, (text(5),))
    first[:] = -1
    np.testing.assert_array_equal(prompt_table(QWEN2_VL, (text(5),))[0], np.arange(5))


def test_empty_prompt() -> None:
    assert prompt_table(QWEN2_VL, ()).shape == (3, 0)
    assert delta(prompt_table(QWEN2_VL, ())) == 0


def test_numpy_users_do_not_pay_for_torch() -> None:
    used = "ropecheck.reference.prompt_tables, ropecheck.conformance.run.session"
    code = f"import sys, {used}; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
