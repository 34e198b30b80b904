"""The family rules against the specification's own tables, worked examples, and planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.spec.families import FAMILIES, rules
from ropecheck.spec.families.declaration import MediaFamily, frame_times
from ropecheck.spec.families.ernie4_5_vl import ERNIE4_5_VL
from ropecheck.spec.families.glm_image import GLM_IMAGE, ahead_table
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, Picture
from ropecheck.spec.families.omni import audio, has_track, video_with_audio
from ropecheck.spec.families.prompt import Prompt, history_of, order
from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI
from ropecheck.spec.families.qwen3_vl import QWEN3_VL, video_frames
from ropecheck.spec.history import (
    Column,
    History,
    OutOfDomain,
    Run,
    delta_of,
    image,
    length,
    prompt_table,
    run_columns,
    text,
    video,
)
from tests.families.strategies import families, media, prompts

Drawn = tuple[MediaFamily, History]


def broken(family: MediaFamily, history: History, table: Sequence[Column], value: int | None = None) -> set[str]:
    """The rules that a table breaks; without a delta those on deltas do not count."""
    given = delta_of(table) if value is None else value
    built = rules.BuiltTable(family=family, history=history, columns=tuple(table), delta=given)
    found = ask(ScenarioTally(), "prompt_table", built)
    return {rule.id for rule, violation in found if value is not None or violation.axis != "delta"}


def refused(family: MediaFamily, prompt: Prompt) -> bool:
    try:
        history_of(family, prompt)
    except OutOfDomain:
        return True
    return False


def moved(column: Column) -> Column:
    return (*column[:-1], column[-1] + 1)


@given(prompts())
def test_every_table_keeps_the_general_rules(drawn: Drawn) -> None:
    family, history = drawn
    table = prompt_table(family, history)
    delta = 0 if family.name == "glm_image" else delta_of(table)
    assert broken(family, history, table, delta) == set()
    assert broken(family, history, table, delta + 1) >= {"families.delta"}


@given(prompts(), st.data())
def test_general_rules_see_a_planted_fault(drawn: Drawn, data: st.DataObject) -> None:
    family, history = drawn
    table = list(prompt_table(family, history))
    if not table:
        return
    at = data.draw(st.integers(0, len(table) - 1))
    assert "families.table_width" in broken(family, history, table[:-1])
    assert "families.table" in broken(family, history, [*table[:at], moved(table[at]), *table[at + 1 :]])
    late = (*history, text(2))
    good = prompt_table(family, late)
    assert "families.text_rows_equal" in broken(family, late, [*good[:-1], moved(good[-1])])
    behind = [*good[:-2], *((column[0] + 1,) * family.axes for column in good[-2:])]
    assert "families.text_after_media" in broken(family, late, behind)


@given(families(), st.data(), st.integers(0, 1000))
def test_a_block_moves_with_its_start(family: MediaFamily, data: st.DataObject, start: int) -> None:
    if family is HUNYUAN_VL:
        return  # its grid tokens are placed absolutely, by definition
    first = 1 if family is MINICPM_V4_7 else 0  # outside of a canvas at 0 there is nothing
    for run in data.draw(media(family)):
        before = run_columns(family, run, first)
        moved_on = tuple(tuple(p + start for p in column) for column in before)
        assert run_columns(family, run, first + start) == moved_on


def test_qwen2_vl_video_advances_by_its_time() -> None:
    table = prompt_table(QWEN2_VL, (text(2), video(8, 2, 2), text(2)))
    assert [column[0] for column in table] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_qwen2_5_vl_scales_neither_start_nor_images() -> None:
    history = (text(3), image(1, 4, 4), video(3, 2, 2, 1.5), text(1))
    table = prompt_table(QWEN2_5_VL, history)
    assert [column[0] for column in table] == [0, 1, 2, 3, 3, 3, 3, 5, 8, 11, 12]
    slow = [*table[:7], (5, 5, 5), (6, 5, 5), (7, 5, 5), *table[10:]]
    assert "families.absolute_time" in broken(QWEN2_5_VL, history, slow)


def test_fractional_time_is_rounded_down() -> None:
    columns = QWEN2_5_VL.media_columns(video(4, 2, 2, 0.25), 10)
    assert [column[0] for column in columns] == [10, 10, 11, 11]


@pytest.mark.parametrize(("fps", "frame", "time"), [(25, 29, 58), (15, 69, 230), (60, 138, 115), (30, 69, 115)])
def test_time_is_a_product_of_real_numbers(fps: int, frame: int, time: int) -> None:
    assert frame_times(video(frame + 1, 2, 2, 2 / fps), frame + 1, 25)[-1] == time


def test_qwen3_vl_frames_are_runs_with_one_time() -> None:
    history = video_frames((2, 4, 4), before=(5, 6))
    table = prompt_table(QWEN3_VL, history)
    assert [column[0] for column in table] == [0, 1, 2, 3, 4, 5, 5, 5, 5, 7, *range(8, 14), 14, 14, 14, 14, 16]
    ramped = [(i, i, i) for i in range(len(table))]
    assert "families.frame_per_run" in broken(QWEN3_VL, history, ramped)
    with pytest.raises(OutOfDomain, match="run of its own"):
        prompt_table(QWEN3_VL, (video(2, 4, 4),))
    with pytest.raises(OutOfDomain, match="timestamps"):
        video_frames((2, 4, 4), before=(5,))


def test_ernie_merges_time_for_videos_only() -> None:
    assert (ERNIE4_5_VL.token_count(video(4, 4, 4)), ERNIE4_5_VL.token_count(image(1, 4, 4))) == (8, 4)
    unmerged = [(i // 2, *column[1:]) for i, column in enumerate(prompt_table(ERNIE4_5_VL, (video(4, 4, 4),)))]
    assert "families.temporal_merge" in broken(ERNIE4_5_VL, (video(4, 4, 4),), unmerged)
    with pytest.raises(OutOfDomain, match="temporal merge"):
        ERNIE4_5_VL.token_count(video(3, 4, 4))


def test_qwen2_5_omni_interleaves_chunks_of_two_seconds() -> None:
    run = video_with_audio(2, 2, 2, 2.0, 60)
    table = prompt_table(QWEN2_5_OMNI, (text(1), run, text(1)))
    times = [column[0] for column in table]
    assert times == [0, 1, 1, 2, *range(2, 52), 52, *range(52, 62), 62, 62, 63]
    apart = [*table[:54], *table[55:65], table[54], *table[65:]]
    assert "families.audio_in_video" in broken(QWEN2_5_OMNI, (text(1), run, text(1)), apart)


def test_a_long_interval_leaves_a_chunk_without_video() -> None:
    table = QWEN2_5_OMNI.media_columns(video_with_audio(2, 4, 4, 4.0, 150), 0)
    frames = [i for i, column in enumerate(table) if column[1] != column[0] or column[2] != column[0]]
    assert [column[0] for column in table[2:6]] == [1, 1, 1, 1]
    assert frames[-3:] == [107, 108, 109]  # the second frame whole, before the third chunk's audio


def test_qwen3_omni_interleaves_by_time_video_first() -> None:
    run = video_with_audio(2, 2, 2, 1.0, 15)
    times = [column[0] for column in QWEN3_OMNI.media_columns(run, 0)]
    assert times == [0, 0, *range(1, 13), 13, 13, 14]
    with pytest.raises(OutOfDomain, match="does not round"):
        QWEN3_OMNI.media_columns(video(2, 2, 2, 0.5), 0)


def test_text_after_tracks_starts_past_the_widest() -> None:
    table = prompt_table(QWEN3_OMNI, (video_with_audio(1, 20, 2, 1.0, 3), text(1)))
    assert table[-1] == (10, 10, 10)


@pytest.mark.parametrize(("features", "tokens"), [(1, 1), (8, 1), (100, 13), (108, 14), (3000, 390)])
def test_qwen3_omni_audio_tokens(features: int, tokens: int) -> None:
    assert QWEN3_OMNI.audio_tokens(features) == tokens


@pytest.mark.parametrize(("features", "tokens"), [(4, 1), (100, 25), (3000, 750)])
def test_qwen2_5_omni_audio_tokens(features: int, tokens: int) -> None:
    assert QWEN2_5_OMNI.audio_tokens(features) == tokens


def test_hunyuan_has_four_rows() -> None:
    history = (text(1), image(1, 4, 4), image(1, 2, 2), text(1))
    table = prompt_table(HUNYUAN_VL, history)
    assert table[1:5] == ((1, 1, 1, 1), (2, 0, 0, 0), (3, 1, 0, 0), (4, 2, 0, 0))
    assert table[9:12] == ((9, 9, 9, 9), (10, 0, 0, 1), (11, 1, 0, 1)) or table[10][3] == 1
    assert "families.hunyuan_vl.four_rows" in broken(HUNYUAN_VL, history, [column[1:] for column in table])
    assert broken(HUNYUAN_VL, history, table, -3) == {"families.hunyuan_vl.four_rows", "families.delta"}


def test_glm_image_tabulates_ahead_last_grid_first() -> None:
    prompt = (text(2), image(1, 2, 3), text(2))
    targets = ((1, 2, 4), (1, 1, 2))
    table = ahead_table(prompt, targets)
    assert table[10:] == (
        (7, 7, 7),
        (7, 7, 8),
        *((9, 9 + row, 9 + col) for row in range(2) for col in range(4)),
        (13, 13, 13),
    )
    built = rules.BuiltTable(family=GLM_IMAGE, history=prompt, columns=table, delta=0, targets=targets)
    assert rules.tabulated_ahead(built) is None
    assert rules.tabulated_ahead(replace(built, targets=targets[::-1])) is not None
    with pytest.raises(OutOfDomain, match="no target"):
        ahead_table(prompt, ())


def kinds_of(family: MediaFamily, history: History) -> tuple[str, ...]:
    found: list[str] = []
    for run in history:
        found.extend([run.kind] * length(family, (run,)))
    return tuple(found)


@given(prompts())
def test_a_prompt_reads_back_as_its_history(drawn: Drawn) -> None:
    family, history = drawn
    if any(has_track(run) or isinstance(run, Picture) for run in history):
        return
    spaced: list[Run] = []
    for run in history:
        spaced.extend((run, text(1)))
    whole = tuple(spaced)
    apart = family.frames_apart
    prompt = Prompt(
        kinds=kinds_of(family, whole),
        image_grids=tuple(run.grid for run in history if run.kind == "image" and run.grid),
        video_grids=tuple(run.grid for run in history if run.kind == "video" and run.grid),
        seconds_per_grid=tuple(run.seconds_per_grid for run in history if run.kind == "video"),
        audio_tokens=tuple(run.tokens for run in history if run.kind == "audio"),
    )
    read = history_of(family, prompt)
    assert apart or prompt_table(family, read) == prompt_table(family, whole)
    assert not refused(family, prompt)
    if prompt.kinds and set(prompt.kinds) != {"text"}:
        place = next(i for i, kind in enumerate(prompt.kinds) if kind != "text")
        torn = replace(prompt, kinds=(*prompt.kinds[:place], *prompt.kinds[place + 1 :]))
        assert refused(family, torn)
        assert refused(family, replace(prompt, kinds=(*prompt.kinds, prompt.kinds[place])))
    if prompt.video_grids and family.absolute_time:
        assert refused(family, replace(prompt, seconds_per_grid=None))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_refused_grids(family: MediaFamily) -> None:
    wrong = [image(1, 0, 4), image(2, 4, 4), *([image(1, 3, 4)] if family.name != "glm_image" else ())]
    for run in wrong:
        with pytest.raises(OutOfDomain):
            family.token_count(run)
    if "audio" not in family.kinds:
        with pytest.raises(OutOfDomain):
            family.token_count(audio(5))
    if family.absolute_time:
        for seconds in (-1.0, float("nan"), float("inf")):
            with pytest.raises(OutOfDomain):
                family.media_columns(video(2, 2, 2, seconds), 0)


def test_items_of_one_kind_without_a_word_between_them_are_one() -> None:
    kinds = ("text", "word", "image", "image", "text", "image", "word", "image", "video")
    assert order(kinds) == ("word", "image", "word", "image", "video")
