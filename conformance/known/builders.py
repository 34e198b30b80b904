"""The known differences of prompt tables at work: what a builder that has them answers, and is right otherwise.

A difference explains a failure when the answer is this one's, number for number; any other answer is new.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.fields import NEWLINE
from ropecheck.conformance.families.layout import Laid
from ropecheck.conformance.families.routes import PREFIX, TWICE
from ropecheck.conformance.families.verdict import Array, array
from ropecheck.conformance.families.verdict import judge as judge_builder
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.routes.verdict import expanded, pair, placed
from ropecheck.conformance.routes.verdict import judge as judge_route
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import GridFamily, block, merged_grid, ramp
from ropecheck.spec.families.glm_image import ahead_table, written_history
from ropecheck.spec.families.hunyuan_vl import HunYuanVL
from ropecheck.spec.families.minicpm_v import Picture
from ropecheck.spec.families.omni import has_track, vision_columns
from ropecheck.spec.families.qwen2_5_omni import Qwen2_5Omni, marked
from ropecheck.spec.families.qwen3_omni import Qwen3Omni
from ropecheck.spec.history import Column, OutOfDomain, Run, next_position, run_columns

FRAME_ONLY = "text goes on behind a video's frame, however long the video"
SINGLE = "times are taken in single precision"
ONE_SECOND = "every interval is one second"
ONE_FRAME = "every interval is two seconds"
FILMS = "every interval is 1/12 second"
CHUNKS = "a token that passes several chunks opens one"
RELEASED = "text goes on behind the piece of a track that was placed last"
NEWLINES = "a newline behind a picture stands at the picture's base"
LINES = "every token has its index"
ORDINALS = "an image's number counts the batch's"
PADDED = "padding counts in the delta"
SLIPPED = "columns ahead are the next prompt's"
FLOATS = "tables and deltas are float32"
FLAT = "a delta has one dimension"
WHOLE_HIT = "the whole prompt is hit"

INTERVALS = {ONE_SECOND: 1.0, ONE_FRAME: 2.0, FILMS: 1 / 12}


WALKED = frozenset({FRAME_ONLY, SINGLE, CHUNKS, RELEASED, NEWLINES, LINES, ORDINALS, *INTERVALS})
"""What changes the columns of a prompt."""

TRAITS = WALKED | {PADDED, SLIPPED, FLOATS, FLAT, WHOLE_HIT}
"""What an entry's `gives` may say, beside "TYPE: message" of one whose signature is that something raises."""


def predicted(case: Case, result: protocol.Result, gives: Collection[str]) -> tuple[Failure, ...]:
    """What fails in a case on a builder that differs in these ways.

    Empty where the answer is neither this one nor right: what it gives is explained by nothing.
    """
    judge = judge_route if case.builder.startswith(PREFIX) else judge_builder
    laid = laid_of(case, result)
    if not gives or laid is None:
        return ()
    seen = judge(case, result)
    answers = [answer(case, laid, result, traits) for traits in (set(gives), set(gives) - {RELEASED})]
    if not seen.failures:
        return judge(case, answers[0]).failures
    return next((judge(case, one).failures for one in answers if agree(case, laid, one, result)), ())


def laid_of(case: Case, result: protocol.Result) -> Sequence[Laid] | None:
    """The prompts: as the case lays them out, or as the engine expanded them; None where the items are not in it."""
    if not isinstance(result, protocol.PromptTables) or result.kinds is None or result.hit is not None:
        return case.laid
    try:
        return (placed(case, expanded(case, result.kinds).history, len(result.kinds)),)
    except OutOfDomain:
        return None


def answer(case: Case, laid: Sequence[Laid], result: protocol.Result, gives: Collection[str]) -> protocol.Result:
    """What the builder answers. result: of what was really answered, the expanded prompt counts."""
    raising = next((text for text in gives if text not in TRAITS), None)
    if raising is not None:
        kind, _, message = raising.partition(": ")
        return protocol.Raised("engine", kind, message, "")
    seen = result if isinstance(result, protocol.PromptTables) else None
    tables, deltas = tables_of(case, laid, gives)
    if case.builder.startswith(PREFIX + TWICE):
        hit = len(laid[1].ids) if WHOLE_HIT in gives else pair(case, 0).most
        return protocol.PromptTables(tensor(tables[1]), tensor(np.zeros((1, 1), np.int64)), hit=hit)
    dtype = np.float32 if FLOATS in gives else np.int64
    delta = np.array(deltas, dtype=dtype)
    if case.builder.startswith(PREFIX):
        return protocol.PromptTables(
            tensor(tables[0].astype(dtype)), tensor(delta[:, None]), kinds=None if seen is None else seen.kinds
        )
    table, ahead = packed(tables, [len(one.ids) for one in laid])
    ahead = slipped(tables, laid) if SLIPPED in gives else ahead
    delta = delta if FLAT in gives else delta[:, None]
    return protocol.PromptTables(tensor(table.astype(dtype)), tensor(delta), None if ahead is None else tensor(ahead))


def agree(case: Case, laid: Sequence[Laid], mine: protocol.Result, seen: protocol.Result) -> bool:
    """Whether two answers say the same: dtypes, and every number of every prompt."""
    if isinstance(mine, protocol.Raised) or isinstance(seen, protocol.Raised):
        same = isinstance(mine, protocol.Raised) and isinstance(seen, protocol.Raised)
        return same and (mine.type, mine.message) == (seen.type, seen.message)  # type: ignore[union-attr]
    if not isinstance(mine, protocol.PromptTables) or not isinstance(seen, protocol.PromptTables):
        return False
    if mine.hit is not None or seen.hit is not None:
        return mine.hit == seen.hit
    if (mine.table.dtype, mine.delta.dtype) != (seen.table.dtype, seen.delta.dtype):
        return False
    routed = case.builder.startswith(PREFIX)
    if mine.delta.shape != seen.delta.shape and not routed:
        return False
    if not np.array_equal(array(mine.delta).reshape(-1), array(seen.delta).reshape(-1)):
        return False
    columns = [each_prompt(one, laid) for one in (mine, seen)]
    return all(np.array_equal(one, other) for one, other in zip(*columns, strict=True))


def each_prompt(answer: protocol.PromptTables, laid: Sequence[Laid]) -> list[Array]:
    """Of each prompt its own columns, and those that are read ahead of it."""
    table = array(answer.table)
    rows = table[:, None, :] if table.ndim == 2 else table
    ahead = () if answer.ahead is None else array(answer.ahead)
    width = max(len(one.ids) for one in laid)
    found = []
    for n, one in enumerate(laid[: rows.shape[1]]):
        own = rows[:, n, width - len(one.ids) :]
        if n < len(ahead) and one.targets:
            read = ahead[n][:, : len(ahead_table(one.history, one.targets)) - len(one.ids)]
            own = np.concatenate((own, read), axis=1)
        found.append(own)
    return found


def tables_of(case: Case, laid: Sequence[Laid], gives: Collection[str]) -> tuple[list[Array], list[int]]:
    """Every prompt's table, int64 [axes, P] with the columns ahead, and its delta."""
    tables: list[Array] = []
    images = 0
    for one in laid:
        changed = not WALKED.isdisjoint(gives)
        history = written_history(one.history, one.targets) if one.targets else one.history
        tables.append(
            walked(case.family, one, gives, images) if changed else prompt_table(FAMILIES[case.family], history)
        )
        images += len(one.image_grids)
    deltas = [0 if case.family == "glm_image" else int(table.max()) + 1 - table.shape[1] for table in tables]
    if PADDED in gives and not any(one.image_grids or one.video_grids for one in laid):
        width = max(len(one.ids) for one in laid)
        for n, one in enumerate(laid):
            if len(one.ids) < width:
                deltas[n] = max(int(tables[n].max()), 1) + 1 - len(one.ids)
    return tables, deltas


def slipped(tables: Sequence[Array], laid: Sequence[Laid]) -> Array | None:
    """GLM-Image's columns ahead, [prompts with grids, axes, columns]: a row that ends early is filled with its end."""
    with_grids = [(table, len(one.ids)) for table, one in zip(tables, laid, strict=True) if one.image_grids]
    width = max((table.shape[1] - tokens for table, tokens in with_grids), default=0)
    rows = []
    for table, tokens in with_grids:
        end = int(table.max()) + (table.shape[1] == tokens)
        filler = np.full((len(table), width - table.shape[1] + tokens), end, dtype=np.int64)
        rows.append(np.concatenate((table[:, tokens:], filler), axis=1))
    return np.stack(rows) if width else None


def packed(tables: Sequence[Array], tokens: Sequence[int]) -> tuple[Array, Array | None]:
    """A batch padded on the left, int64 [axes, prompts, width], and what stands ahead, [prompts, axes, columns]."""
    width, axes = max(tokens), tables[0].shape[0]
    table = np.zeros((axes, len(tables), width), dtype=np.int64)
    ahead = np.zeros((len(tables), axes, max(t.shape[1] - n for t, n in zip(tables, tokens, strict=True))), np.int64)
    for n, (made, count) in enumerate(zip(tables, tokens, strict=True)):
        table[:, n, width - count :] = made[:, :count]
        ahead[n, :, : made.shape[1] - count] = made[:, count:]
    return table, ahead if ahead.shape[2] else None


def walked(name: str, laid: Laid, traits: Collection[str], images: int) -> Array:
    """One prompt's table, run by run. images: those of the batch's earlier prompts."""
    family = FAMILIES[name]
    if LINES in traits:
        return np.array(ramp(0, len(laid.ids), family.axes), dtype=np.int64).T
    columns: list[Column] = []
    start = 0
    for run in laid.history:
        if seconds := next((value for trait, value in INTERVALS.items() if trait in traits), None):
            run = replace(run, seconds_per_grid=seconds) if run.kind == "video" else run
        if isinstance(run, Picture) and NEWLINES in traits:
            run = replace(run, after_newline=False)
        after: int | None = None
        if run.is_text:
            made = ramp(start, run.tokens, family.axes)
            if NEWLINES in traits and columns:
                made = swallowed(laid, len(columns), run.tokens, columns, start)
        elif isinstance(family, Qwen2_5Omni | Qwen3Omni) and has_track(run):
            made, after = tracked(family, run, start, traits)
        elif isinstance(family, HunYuanVL):
            made = family.numbered_columns(run, start, images)
            images += 1
        elif SINGLE in traits and run.kind == "video":
            made = in_single_precision(family, run, start)
        else:
            made = run_columns(family, run, start)
        columns += made
        if FRAME_ONLY in traits and not run.is_text:
            _, h, w = merged_grid(run, getattr(family, "merge", 2), getattr(family, "temporal_merge", 1))
            after = start + max(h, w)
        start = after if after is not None else max(start, next_position(made))
    return np.array(columns, dtype=np.int64).reshape(-1, family.axes).T


def swallowed(laid: Laid, at: int, tokens: int, before: list[Column], start: int) -> tuple[Column, ...]:
    """Text that begins with newlines behind a picture: they stand at the picture's base."""
    count = 0
    ends_a_picture = any(stop == at for _, stop in laid.media)
    while ends_a_picture and count < tokens and laid.ids[at + count] == NEWLINE:
        count += 1
    return ((before[-1][0],) * 3,) * count + ramp(start, tokens - count)


def tracked(
    family: Qwen2_5Omni | Qwen3Omni, run: Run, start: int, traits: Collection[str]
) -> tuple[tuple[Column, ...], int]:
    """A video with its sound, and where text goes on."""
    if RELEASED not in traits:
        made = run_columns(family, run, start)
        return made, next_position(made)
    if CHUNKS not in traits or isinstance(family, Qwen3Omni):
        return family.released_columns(run, start)
    size = family.positions_per_second * family.seconds_per_chunk
    tracks = (vision_columns(run, start + 1, family.merge, family.positions_per_second), ramp(start + 1, run.tokens))
    pieces = [counted(track, start + 1, size) for track in tracks]
    content: list[Column] = []
    end = start
    for chunk in range(max(map(len, pieces))):
        for track in pieces:
            if chunk < len(track):
                content += track[chunk]
                end = next_position(track[chunk])
    return marked(start, content, end), end + 1


def counted(track: Sequence[Column], start: int, size: int) -> list[Sequence[Column]]:
    """A track cut where a token passes the next boundary; one boundary a token."""
    cuts = [0]
    for at, column in enumerate(track):
        if column[0] - start >= len(cuts) * size:
            cuts.append(at)
    return [track[one:other] for one, other in zip(cuts, [*cuts[1:], len(track)], strict=True)]


def in_single_precision(family: object, run: Run, start: int) -> tuple[Column, ...]:
    """A video whose times are taken in float32."""
    if isinstance(family, GridFamily):
        (t, h, w), rate = family.merged(run), family.tokens_per_second
    else:
        assert isinstance(family, Qwen2_5Omni)
        (t, h, w), rate = merged_grid(run, family.merge), family.positions_per_second
    times = np.arange(t, dtype=np.float32) * np.float32(run.seconds_per_grid) * np.float32(rate or 1)
    return block(start, [int(time) for time in times], h, w)
