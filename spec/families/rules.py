"""What must hold of a family's prompt table, and of how a builder takes its input.

The views hold what a builder answered for one prompt beside the prompt itself. The rules on columns stand from the
particular to the whole: of those that a table's first wrong column breaks, the first says most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ropecheck.spec.families.canvas import canvases
from ropecheck.spec.families.declaration import GridFamily, MediaFamily, frame_times, merged_grid
from ropecheck.spec.families.glm_image import GLM_IMAGE, ahead_table
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, Picture
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.prompt import Prompt, history_of
from ropecheck.spec.families.qwen2_5_omni import Qwen2_5Omni
from ropecheck.spec.families.qwen3_omni import Qwen3Omni
from ropecheck.spec.families.released import continued, released_table
from ropecheck.spec.history import (
    Column,
    Delta,
    History,
    OutOfDomain,
    Run,
    delta_of,
    length,
    next_position,
    prompt_table,
    run_length,
)
from ropecheck.spec.rules import MROPE, Violation, rule

Seen = tuple[int | float, ...]
"""A column as answered; whole numbers are ints."""

Piece = tuple[Run, int, Sequence[Seen]]
"""A run, the index of its first token, and its columns."""

FOUR_AXES = ("index", "w", "h", "image")
RELEASED = "as the released code"
"""Shape of a table that is the model authors' released code's and not the paper's."""


@dataclass(kw_only=True)
class BuiltTable:
    """One prompt's table and delta, as a builder answered them."""

    family: MediaFamily
    history: History
    """The prompt."""
    columns: tuple[Seen, ...] | None
    """Observed; None: the batch's table has none for this prompt."""
    delta: int | float | None
    """Observed; None: there is none for this prompt."""
    targets: tuple[tuple[int, int, int], ...] = ()
    """GLM-Image: the grids that the model is told to write, whose columns are tabulated ahead."""

    @cached_property
    def right(self) -> tuple[Column, ...]:
        """The family's table."""
        if self.targets:
            return ahead_table(self.history, self.targets)
        return prompt_table(self.family, self.history)

    @cached_property
    def whole(self) -> bool:
        """Whether it has as many columns as it must, so that each can be laid beside its own."""
        return self.columns is not None and len(self.columns) == len(self.right)

    @cached_property
    def released(self) -> bool:
        """Whether it is the released code's table, where that is not the paper's."""
        if not self.whole or self.targets or self.columns == self.right:
            return False
        return self.columns == released_table(self.family, self.history)

    @cached_property
    def pieces(self) -> list[Piece]:
        """Every run of the prompt."""
        found: list[Piece] = []
        at = 0
        for run in self.history:
            size = run_length(self.family, run)
            found.append((run, at, (self.columns or ())[at : at + size]))
            at += size
        return found

    def media(self, *kinds: str) -> Iterator[Piece]:
        """The pieces of those kinds."""
        return (piece for piece in self.pieces if piece[0].kind in kinds)

    def videos(self) -> Iterator[Piece]:
        """The videos without a track of their own."""
        return (piece for piece in self.media("video") if not has_track(piece[0]))

    def wrong_at(self, at: int, right: Seen | None = None) -> Violation:
        """Column `at` is not `right`, the family's own if none is given."""
        wanted, seen = self.right[at] if right is None else right, (self.columns or ())[at]
        names = FOUR_AXES if self.family.axes == 4 else ("t", "h", "w")
        pairs = zip(names, wanted, seen, strict=False)
        axis, want, got = next((pair for pair in pairs if pair[1] != pair[2]), (names[0], wanted[0], seen[0]))
        expected, observed = _number(want), _number(got)
        message = f"{axis} is {observed}, the family says {expected}"
        return Violation(axis=axis, at=at, expected=expected, observed=observed, message=message)

    def differs(self, start: int, right: Sequence[Column]) -> Violation | None:
        """The first of the columns from `start` on that is not right."""
        for at, wanted in enumerate(right, start):
            if (self.columns or ())[at] != wanted:
                return self.wrong_at(at, wanted)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTensor:
    """A table or delta that a builder returned, before its values are looked at."""

    name: str
    """"table" or "delta"."""
    dtype: str
    shape: tuple[int, ...]
    right: tuple[tuple[int, ...], ...]
    """Shapes that are as good as each other; of a table the width is looked at elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TornPrompt:
    """What became of an input into which a processor's mistake was planted."""

    torn: str
    """"grid undivided", "intervals missing", "run cut short", .."""
    refused: bool
    """Observed."""
    tokens: int = 0
    """Observed: columns of the table that was returned instead."""


@dataclass(kw_only=True)
class ExpandedPrompt:
    """The prompt that an engine made of a client's message."""

    family: MediaFamily
    sent: History
    """The client's message."""
    prompt: Prompt
    """Observed: the kind of every token; the items are the client's."""
    written: tuple[str, ...]
    """The client's words and items (prompt.order)."""
    kept: tuple[str, ...]
    """Observed: those of the expanded prompt."""

    @cached_property
    def history(self) -> History:
        """What it is, as the client's items. Raises OutOfDomain where they are not in it."""
        if self.family is MINICPM_V4_7:
            return canvases(self.sent, self.prompt.kinds)
        return history_of(self.family, self.prompt)


# ---------------------------------------------------------------- shapes


@rule(
    "families.dtype_and_shape",
    of=BuiltTensor,
    source="SGLang's scheduler: MultimodalInputs.mrope_positions, mrope_position_delta",
)
def dtype_and_shape(built: BuiltTensor) -> Violation | None:
    """A builder's table must be int64 of shape [axes, P], and its delta of shape [1, 1].

    One per prompt of a batch: [axes, prompts, P], and [prompts, 1].
    """
    name, shape, right = built.name, built.shape, built.right
    if built.dtype != "int64":
        message = f"the {name} is {built.dtype}, not int64"
        return Violation(
            axis=name, expected="int64", observed=built.dtype, shape=f"{name} is {built.dtype}", message=message
        )
    if name == "delta":
        good, what = shape in right, "delta shape"
    elif len(shape) in {len(one) for one in right}:
        good, what = shape[0] == right[0][0], "wrong number of rows"
    else:
        good, what = False, "table shape"
    if good:
        return None
    wanted, found = str(list(right[0])), str(list(shape))
    message = f"the {name} is {found}, not {wanted}"
    return Violation(axis=name, expected=wanted, observed=found, shape=what, message=message)


@rule("families.table_width", of=BuiltTable, source=MROPE, when=lambda built: built.columns is not None)
def table_width(built: BuiltTable) -> Violation | None:
    """A prompt table must have one column per token: text tokens plus each item's placeholder tokens."""
    tokens, found = len(built.right), len(built.columns or ())
    if found == tokens:
        return None
    shape = "too few columns" if found < tokens else "too many columns"
    message = f"{found} columns for {tokens} tokens"
    return Violation(axis="t", at=min(found, tokens), expected=tokens, observed=found, shape=shape, message=message)


# ---------------------------------------------------------------- columns, from the particular to the whole


@rule(
    "families.hunyuan_vl.four_rows",
    of=BuiltTable,
    source="arXiv 2511.19575 (XD-RoPE)",
    when=lambda built: built.whole and built.family is HUNYUAN_VL,
    bugs=("vllm #53456", "vllm #55140", "llama.cpp #25514"),
)
def four_rows(built: BuiltTable) -> Violation | None:
    """HunYuan-VL's table must have four rows, the first one the token's index, and a delta of 0."""
    for at, column in enumerate(built.columns or ()):
        if len(column) != 4 or column[0] != at:
            return built.wrong_at(at, (at, *column[1:]))
    return None if built.delta == 0 else _wrong_delta(built, 0)


@rule(
    "families.text_rows_equal",
    of=BuiltTable,
    source=MROPE,
    when=lambda built: built.whole and any(run.is_text for run in built.history),
)
def text_rows_equal(built: BuiltTable) -> Violation | None:
    """A text token's column must hold one number on all rows, one more than the text token's before it.

    Markers that a family places with their item (MiniCPM-V's, those of Qwen2.5-Omni's tracks) are not text here.
    """
    for _, start, columns in built.media("text"):
        for i, column in enumerate(columns):
            if column != (columns[0][0] + i,) * built.family.axes:
                return built.wrong_at(start + i)
    return None


@rule("families.text_after_media", of=BuiltTable, source=MROPE, when=lambda built: built.whole)
def text_after_media(built: BuiltTable) -> Violation | None:
    """A run must start at the largest position so far, over all rows and all earlier runs, plus one.

    A video longer than it is high or wide decides by its time; of interleaved tracks the one that reaches furthest.
    One more is left free before a picture of MiniCPM-V that only newlines separate from the one before it.
    """
    if built.released and (found := built.differs(0, built.right)):
        return replace(found, shape=RELEASED)
    free: int | float = 0
    for run, start, columns in built.pieces:
        apart = isinstance(run, Picture) and run.after_newline
        if columns and columns[0][0] != free + apart:
            return built.wrong_at(start)
        free = max(free, max(map(max, columns), default=-1) + 1)
    return None


@rule(
    "families.glm_image.tabulated_ahead",
    of=BuiltTable,
    source="transformers glm_image, get_rope_index",
    when=lambda built: built.whole and bool(built.targets),
)
def tabulated_ahead(built: BuiltTable) -> Violation | None:
    """GLM-Image's table must continue past the prompt with the columns of every target, the last grid first, and of the
    end marker."""
    prompt = length(built.family, built.history)
    return built.differs(prompt, built.right[prompt:])


@rule(
    "families.minicpm_v4_7.canvas",
    of=BuiltTable,
    source="transformers minicpmv4_7, get_rope_index and its documentation",
    when=lambda built: built.whole and built.family is MINICPM_V4_7 and any(built.media("image", "video")),
)
def canvas(built: BuiltTable) -> Violation | None:
    """A picture, its slices and all their markers must share one canvas, and text must go on behind its longer side."""
    return _items(built, built.media("image", "video"))


@rule(
    "families.audio_in_video",
    of=BuiltTable,
    source="arXiv 2503.20215; arXiv 2509.17765",
    when=lambda built: built.whole and not built.released and any(map(has_track, built.history)),
    bugs=("sglang #16996", "vllm #16878", "Liger-Kernel #276"),
)
def audio_in_video(built: BuiltTable) -> Violation | None:
    """A video's audio must be interleaved by actual time: in chunks, video first, or token by token.

    Both tracks start at the same position, and neither is reordered within itself.
    """
    return _items(built, (piece for piece in built.media("video") if has_track(piece[0])))


@rule(
    "families.absolute_time",
    of=BuiltTable,
    source="arXiv 2502.13923 section 2.1.2; arXiv 2503.20215",
    when=lambda built: built.whole and built.family.absolute_time and any(built.videos()),
    bugs=("sglang #3674", "QwenLM/Qwen3-VL #893"),
)
def absolute_time(built: BuiltTable) -> Violation | None:
    """Frame k of a video must sit at start + floor(k * seconds_per_grid * tokens_per_second).

    The start is not scaled, and an image is not scaled.
    """
    for run, start, columns in built.videos():
        (t, h, w), rate = _timed(built.family, run)
        times = frame_times(run, t, rate)
        first = next_position(built.right[:start])
        for i, column in enumerate(columns):
            if column[0] != first + times[i // (h * w)]:
                return built.wrong_at(start + i, (first + times[i // (h * w)], *column[1:]))
    return None


@rule(
    "families.temporal_merge",
    of=BuiltTable,
    source="ERNIE 4.5 technical report; transformers ernie4_5_vl_moe",
    when=lambda built: built.whole and getattr(built.family, "temporal_merge", 1) > 1 and any(built.videos()),
)
def temporal_merge(built: BuiltTable) -> Violation | None:
    """A video of a family with temporal merge must have t / merge steps of tokens; an image keeps its one step."""
    for run, start, columns in built.videos():
        (_, h, w), _ = _timed(built.family, run)
        for i, column in enumerate(columns):
            if column[0] != columns[0][0] + i // (h * w):
                return built.wrong_at(start + i)
    return None


@rule(
    "families.frame_per_run",
    of=BuiltTable,
    source="arXiv 2511.21631; arXiv 2507.01006",
    when=lambda built: (
        built.whole and built.family.frames_apart and any(len(columns) > 1 for _, _, columns in built.media("video"))
    ),
    bugs=("sglang #13805", "sglang #8798", "transformers #44474", "vllm #33039"),
)
def frame_per_run(built: BuiltTable) -> Violation | None:
    """Where timestamps are text, each temporal step of a video must be a block of its own with one temporal id."""
    for _, start, columns in built.media("video"):
        for i, column in enumerate(columns):
            if column[0] != columns[0][0]:
                return built.wrong_at(start + i)
    return None


@rule(
    "families.table",
    of=BuiltTable,
    source=MROPE,
    when=lambda built: built.columns is None or (built.whole and not built.released),
)
def table_is_the_familys(built: BuiltTable) -> Violation | None:
    """A builder's prompt table must be the family's table, column for column."""
    if built.columns is None:
        return Violation(axis="table", shape="prompts unanswered", message="the prompt has no table")
    return built.differs(0, built.right)


# ---------------------------------------------------------------- the delta beside it


@rule("families.delta", of=BuiltTable, source=MROPE, when=lambda built: not built.released)
def delta(built: BuiltTable) -> Violation | None:
    """The delta beside a table must be max(table) + 1 - P.

    GLM-Image's is 0 by its authors' definition: its generated tokens read tabulated columns, never index + delta.
    """
    right = Delta(0) if built.family is GLM_IMAGE else delta_of(built.right)
    return None if built.delta == right else _wrong_delta(built, right)


@rule(
    "families.one_continuation",
    of=BuiltTable,
    source="arXiv 2503.20215; a table and its delta are two answers to one question",
    when=lambda built: (
        built.whole and any(map(has_track, built.history)) and built.history[-1].is_text and built.delta is not None
    ),
)
def one_continuation(built: BuiltTable) -> Violation | None:
    """Where a prompt ends with text, its delta must place the next token right behind that text."""
    columns = built.columns or ()
    right = continued(columns)
    if built.delta == right or built.delta is None:
        return None
    message = f"its text ends at {max(columns[-1])}, its delta {built.delta} goes on at {built.delta + len(columns)}; "
    message += f"behind its own text is {right}"
    shape = "contradicts its own table"
    return Violation(axis="delta", expected=_number(right), observed=_number(built.delta), shape=shape, message=message)


# ---------------------------------------------------------------- what must be refused


UNDIVIDED = "grid undivided"
UNTIMED = ("intervals missing", "interval missing", "interval left over")


@rule(
    "families.refuses_disagreeing_grids",
    of=TornPrompt,
    source="https://github.com/verl-project/verl/issues/5024",
    when=lambda prompt: prompt.torn != UNDIVIDED and prompt.torn not in UNTIMED,
    bugs=("verl #5024",),
)
def refuses_disagreeing_grids(prompt: TornPrompt) -> Violation | None:
    """Placeholder runs and grids that differ in number or length must be refused, never tabulated."""
    return _accepted(prompt)


@rule(
    "families.refuses_undivided_grid",
    of=TornPrompt,
    source=MROPE,
    when=lambda prompt: prompt.torn == UNDIVIDED,
)
def refuses_undivided_grid(prompt: TornPrompt) -> Violation | None:
    """A grid that a merge does not divide must be refused: its tokens would not cover it."""
    return _accepted(prompt)


@rule(
    "families.refuses_missing_intervals",
    of=TornPrompt,
    source="arXiv 2502.13923 section 2.1.2",
    when=lambda prompt: prompt.torn in UNTIMED,
    bugs=("sglang #3674", "transformers #41152", "verl #4419"),
)
def refuses_missing_intervals(prompt: TornPrompt) -> Violation | None:
    """A family of absolute time must be given every video's interval; a guess of one second is a wrong table."""
    return _accepted(prompt)


@rule("families.route_layout", of=ExpandedPrompt, source="a request's interface: its text and its media, in its order")
def route_layout(made: ExpandedPrompt) -> Violation | None:
    """The prompt that an engine expands must hold every word and every item that the client sent, in its order, each
    item with its tokens."""
    try:
        history = made.history
    except OutOfDomain as error:
        return _laid_otherwise(str(error))
    sent, found = ([run.kind for run in runs if not run.is_text] for runs in (made.sent, history))
    if sent != found:
        return _laid_otherwise(f"the prompt has {', '.join(found)}; the client sent {', '.join(sent)}")
    tokens, right = len(made.prompt.kinds), length(made.family, made.sent)
    if not made.family.frames_apart and tokens != right:
        return _laid_otherwise(f"the prompt has {tokens} tokens, the client's message {right}")
    if made.kept != made.written:
        return _laid_otherwise(f"the prompt has {' '.join(made.kept)}; the client sent {' '.join(made.written)}")
    return None


# ---------------------------------------------------------------- what they share


def _items(built: BuiltTable, pieces: Iterator[Piece]) -> Violation | None:
    """The first column of these items that is not the family's."""
    for _, start, columns in pieces:
        if found := built.differs(start, built.right[start : start + len(columns)]):
            return found
    return None


def _timed(family: MediaFamily, run: Run) -> tuple[tuple[int, int, int], int | None]:
    """A video's grid in tokens, and the positions of a second."""
    if isinstance(family, Qwen2_5Omni | Qwen3Omni):
        return merged_grid(run, family.merge), family.positions_per_second
    if not isinstance(family, GridFamily):
        raise OutOfDomain(f"{family.name} places no frames in time")
    return family.merged(run), family.tokens_per_second


def _wrong_delta(built: BuiltTable, right: int) -> Violation:
    if built.delta is None:
        return Violation(axis="delta", expected=right, shape="delta missing", message="the prompt has no delta")
    found = _number(built.delta)
    shape = "other value" if isinstance(found, int) else "delta between positions"
    return Violation(axis="delta", expected=right, observed=found, shape=shape, message=f"delta {found}, not {right}")


def _accepted(prompt: TornPrompt) -> Violation | None:
    if prompt.refused:
        return None
    message = f"a table of {prompt.tokens} columns though the input is torn: {prompt.torn}"
    return Violation(axis="input", shape="accepts", message=message)


def _laid_otherwise(message: str) -> Violation:
    return Violation(axis="prompt", shape="prompt laid out otherwise", message=message)


def _number(value: int | float) -> int | str:
    """A whole number as it is; anything between as text."""
    return value if isinstance(value, int) else str(value)
