"""What must hold of a family's prompt table, as predicates over a table that somebody built.

`table` is a sequence of columns; `history` is the prompt as runs. A predicate answers True when the rule holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.families.declaration import GridFamily, MediaFamily, frame_times
from ropecheck.spec.families.glm_image import GLM_IMAGE, ahead_table
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, Picture
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.prompt import Prompt, history_of
from ropecheck.spec.families.qwen2_5_omni import Qwen2_5Omni
from ropecheck.spec.families.qwen3_omni import Qwen3Omni
from ropecheck.spec.history import Column, History, OutOfDomain, Run, delta_of, length, prompt_table, run_length
from ropecheck.spec.rules import MROPE, label

Table = Sequence[Column]


def pieces(family: MediaFamily, history: History, table: Table) -> list[tuple[Run, Table]]:
    """Every run with its columns."""
    found: list[tuple[Run, Table]] = []
    at = 0
    for run in history:
        size = run_length(family, run)
        found.append((run, table[at : at + size]))
        at += size
    return found


@label("families.table", source=MROPE)
def table_is_the_familys(family: MediaFamily, history: History, table: Table) -> bool:
    """A builder's prompt table must be the family's table, column for column."""
    return tuple(table) == prompt_table(family, history)


@label("families.table_width", source=MROPE)
def table_width(family: MediaFamily, history: History, table: Table) -> bool:
    """A prompt table must have one column per token: text tokens plus each item's placeholder tokens."""
    return len(table) == length(family, history)


@label("families.delta", source=MROPE)
def delta(family: MediaFamily, history: History, value: int) -> bool:
    """The delta beside a table must be max(table) + 1 - P.

    GLM-Image's is 0 by its authors' definition: its generated tokens read tabulated columns, never index + delta.
    """
    return value == (0 if family is GLM_IMAGE else delta_of(prompt_table(family, history)))


@label("families.text_rows_equal", source=MROPE)
def text_rows_equal(family: MediaFamily, history: History, table: Table) -> bool:
    """A text token's column must hold one number on all rows, one more than the text token's before it.

    Markers that a family places with their item (MiniCPM-V's, those of Qwen2.5-Omni's tracks) are not text here.
    """
    for run, columns in pieces(family, history, table):
        if run.is_text:
            for i, column in enumerate(columns):
                if column != (columns[0][0] + i,) * family.axes:
                    return False
    return True


@label("families.text_after_media", source=MROPE)
def text_after_media(family: MediaFamily, history: History, table: Table) -> bool:
    """A run must start at the largest position so far, over all rows and all earlier runs, plus one.

    A video longer than it is high or wide decides by its time; of interleaved tracks the one that reaches furthest.
    One more is left free before a picture of MiniCPM-V that only newlines separate from the one before it.
    """
    free = 0
    for run, columns in pieces(family, history, table):
        apart = isinstance(run, Picture) and run.after_newline
        if columns and columns[0][0] != free + apart:
            return False
        for column in columns:
            free = max(free, *(position + 1 for position in column))
    return True


@label("families.dtype_and_shape", source="SGLang's scheduler: MultimodalInputs.mrope_positions, mrope_position_delta")
def dtype_and_shape(axes: int, width: int, dtype: str, table: tuple[int, ...], delta: tuple[int, ...]) -> bool:
    """A builder's table must be int64 of shape [axes, P], and its delta of shape [1, 1]."""
    return dtype == "int64" and table == (axes, width) and delta == (1, 1)


@label(
    "families.refuses_disagreeing_grids",
    source="https://github.com/verl-project/verl/issues/5024",
    bugs=("verl #5024",),
)
def refuses_disagreeing_grids(family: MediaFamily, prompt: Prompt) -> bool:
    """Placeholder runs and grids that differ in number or length must be refused, never tabulated."""
    try:
        history_of(family, prompt)
    except OutOfDomain:
        return True
    return False


@label("families.refuses_undivided_grid", source=MROPE)
def refuses_undivided_grid(family: MediaFamily, run: Run) -> bool:
    """A grid that a merge does not divide must be refused: its tokens would not cover it."""
    try:
        family.token_count(run)
    except OutOfDomain:
        return True
    return False


@label(
    "families.refuses_missing_intervals",
    source="arXiv 2502.13923 section 2.1.2",
    bugs=("sglang #3674", "transformers #41152", "verl #4419"),
)
def refuses_missing_intervals(family: MediaFamily, prompt: Prompt) -> bool:
    """A family of absolute time must be given every video's interval; a guess of one second is a wrong table."""
    return not (family.absolute_time and prompt.video_grids) or refuses_disagreeing_grids(family, prompt)


@label(
    "families.absolute_time",
    source="arXiv 2502.13923 section 2.1.2; arXiv 2503.20215",
    bugs=("sglang #3674", "QwenLM/Qwen3-VL #893"),
)
def absolute_time(family: GridFamily, run: Run, start: int, columns: Table) -> bool:
    """Frame k of a video must sit at start + floor(k * seconds_per_grid * tokens_per_second).

    The start is not scaled, and an image is not scaled.
    """
    t, h, w = family.merged(run)
    times = frame_times(run, t, family.tokens_per_second)
    return all(column[0] == start + times[i // (h * w)] for i, column in enumerate(columns))


@label(
    "families.frame_per_run",
    source="arXiv 2511.21631; arXiv 2507.01006",
    bugs=("sglang #13805", "sglang #8798", "transformers #44474", "vllm #33039"),
)
def frame_per_run(family: MediaFamily, history: History, table: Table) -> bool:
    """Where timestamps are text, each temporal step of a video must be a block of its own with one temporal id."""
    for run, columns in pieces(family, history, table):
        if run.kind == "video" and len({column[0] for column in columns}) != 1:
            return False
    return True


@label("families.temporal_merge", source="ERNIE 4.5 technical report; transformers ernie4_5_vl_moe")
def temporal_merge(family: GridFamily, run: Run, tokens: int) -> bool:
    """A video of a family with temporal merge must have t / merge steps of tokens; an image keeps its one step."""
    t, h, w = run.grid or (0, 0, 0)
    steps = t // family.temporal_merge if run.kind == "video" else t
    return tokens == steps * (h // family.merge) * (w // family.merge)


@label(
    "families.audio_in_video",
    source="arXiv 2503.20215; arXiv 2509.17765",
    bugs=("sglang #16996", "vllm #16878", "Liger-Kernel #276"),
)
def audio_in_video(family: Qwen2_5Omni | Qwen3Omni, run: Run, start: int, columns: Table) -> bool:
    """A video's audio must be interleaved by actual time: in chunks, video first, or token by token.

    Both tracks start at the same position, and neither is reordered within itself.
    """
    return not has_track(run) or tuple(columns) == family.media_columns(run, start)


@label(
    "families.hunyuan_vl.four_rows",
    source="arXiv 2511.19575 (XD-RoPE)",
    bugs=("vllm #53456", "vllm #55140", "llama.cpp #25514"),
)
def four_rows(history: History, table: Table, delta: int) -> bool:
    """HunYuan-VL's table must have four rows, the first one the token's index, and a delta of 0."""
    index = all(len(column) == 4 and column[0] == i for i, column in enumerate(table))
    return index and delta == 0 and len(table) == length(HUNYUAN_VL, history)


@label("families.glm_image.tabulated_ahead", source="transformers glm_image, get_rope_index")
def tabulated_ahead(history: History, targets: Sequence[tuple[int, int, int]], table: Table) -> bool:
    """GLM-Image's table must continue past the prompt with the columns of every target, the last grid first, and of the
    end marker."""
    return tuple(table) == ahead_table(history, targets)


@label("families.minicpm_v4_7.canvas", source="transformers minicpmv4_7, get_rope_index and its documentation")
def canvas(run: Run, start: int, columns: Table) -> bool:
    """A picture, its slices and all their markers must share one canvas, and text must go on behind its longer side."""
    return tuple(columns) == MINICPM_V4_7.media_columns(run, start)


@label("families.route_layout", source="a request's interface: its text and its media, in its order")
def route_layout(family: MediaFamily, prompt: Prompt) -> bool:
    """The prompt that an engine expands must hold every item that the client sent, in its order, with its tokens."""
    return not refuses_disagreeing_grids(family, prompt)
