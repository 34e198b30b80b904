"""The fast builders against the specification."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropecheck.reference import prompt_tables
from ropecheck.reference.prompt_ids import table_from_ids
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec import history as spec
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.history import History, OutOfDomain, Run, cut, image, length, text, video
from tests.families.strategies import prompts

Drawn = tuple[MediaFamily, History]
IDS = {"image": 101, "video": 102, "audio": 103}


def wanted(family: MediaFamily, history: History) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(spec.prompt_table(family, history), dtype=np.int64).reshape(-1, family.axes).T


@given(prompts(), st.booleans())
def test_equals_the_specification(drawn: Drawn, long: bool) -> None:
    family, history = drawn
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


@given(prompts())
def test_from_ids(drawn: Drawn) -> None:
    family, history = drawn
    if family is HUNYUAN_VL or any(has_track(run) for run in history) or family.frames_apart:
        return
    spaced: list[Run] = []
    for run in history:
        spaced.extend((run, text(1)))
    ids = [IDS.get(run.kind, 7) for run in spaced for _ in range(length(family, (run,)))]
    images = [run.grid for run in history if run.kind == "image" and run.grid]
    videos = [run.grid for run in history if run.kind == "video" and run.grid]
    seconds = [run.seconds_per_grid for run in history if run.kind == "video"]
    sounds = [run.tokens for run in history if run.kind == "audio"]
    array = np.array(ids, dtype=np.int64)
    table = table_from_ids(family, array, IDS, images, videos, seconds, sounds)
    np.testing.assert_array_equal(table, wanted(family, tuple(spaced)))
    if images:
        with pytest.raises(OutOfDomain):
            table_from_ids(family, array, IDS, images[1:], videos, seconds, sounds)
        with pytest.raises(OutOfDomain):
            table_from_ids(family, array, IDS, [*images, images[0]], videos, seconds, sounds)
        with pytest.raises(OutOfDomain):
            t, h, w = images[0]
            table_from_ids(family, array, IDS, [(t, h, w * 2), *images[1:]], videos, seconds, sounds)


def test_frames_apart_from_ids() -> None:
    family = FAMILIES["qwen3_vl"]
    ids = np.array([7, 7, 102, 102, 7, 7, 102, 102, 7], dtype=np.int64)
    table = table_from_ids(family, ids, IDS, video_grids=[(2, 2, 4)])
    history = (text(2), video(1, 2, 4), text(2), video(1, 2, 4), text(1))
    np.testing.assert_array_equal(table, wanted(family, history))


def test_missing_intervals_are_refused() -> None:
    ids = np.array([102], dtype=np.int64)
    with pytest.raises(OutOfDomain, match="intervals are missing"):
        table_from_ids(QWEN2_5_VL, ids, IDS, video_grids=[(1, 2, 2)])
    with pytest.raises(OutOfDomain, match="1 videos but 2 intervals"):
        table_from_ids(QWEN2_5_VL, ids, IDS, video_grids=[(1, 2, 2)], seconds_per_grid=[1.0, 1.0])


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
    used = "ropecheck.reference.prompt_ids, ropecheck.reference.windows, ropecheck.conformance.run.session"
    code = f"import sys, {used}; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
