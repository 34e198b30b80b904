"""Sessions and retraction, stated for all sizes: one history is placed in one way, however it came together.

Where a statement says "any history", a media run with any columns stands for it: prompt_table goes on from a history
only by its columns and the first position after them (`any_history` is the induction step of that; `many_runs` looks
at plain histories of more runs). One thing is left out: the number of a media item, which HunYuan-VL's fourth row
holds and which counts the items of the history.
"""

from __future__ import annotations

from collections.abc import Callable

from ropecheck.conformance.prove.routes import Cells, decodes
from ropecheck.conformance.prove.statement import Size, Theorem, World
from ropecheck.spec import laws, retraction, session
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import block, ramp
from ropecheck.spec.families.omni import audio, video_with_audio
from ropecheck.spec.history import (
    Column,
    History,
    OutOfDomain,
    Run,
    cut,
    delta_of,
    image,
    length,
    next_position,
    prompt_table,
    text,
    video,
)
from ropecheck.spec.modes import extend
from ropecheck.spec.modes.cells import Place
from ropecheck.spec.modes.extend import Window
from ropecheck.spec.session import Saved


def history(w: World, name: str, moves: bool = False) -> tuple[History, Size, bool]:
    """Any history that is not empty: (runs, tokens, whether it has media)."""
    if w.choose(f"{name} kind", ("media", "text")) == "media":
        run, tokens = w.media(name, moves)
        return (run,), tokens, True
    tokens = w.size(f"{name} tokens", 1)
    return (text(tokens),), tokens, False


def many_runs(w: World) -> None:
    """Plain histories of up to eight runs: each run starts after the largest position so far, and a cut keeps the
    columns. Its source says that prompt_table looks at no more of a history than one run after the other."""
    family, whole = FAMILIES["qwen2_vl"], tuple(run for _ in range(4) for run in (image(1, 4, 6), text(3)))
    for count in range(len(whole) + 1):
        for runs in (whole[:count], whole[1 : count + 1]):
            wanted: list[Column] = []
            for run in runs:
                start = 1 + max((max(column) for column in wanted), default=-1)
                own = [(start + i,) * 3 for i in range(run.tokens)] if run.is_text else family.media_columns(run, start)
                wanted.extend(own)
            found, tokens = prompt_table(family, runs), length(family, runs)
            parts = [prompt_table(family, cut(family, runs, keep)) for keep in range(tokens + 1)]
            prefixes = [tuple(wanted[:keep]) for keep in range(len(wanted) + 1)]
            if (found, tokens, parts) != (tuple(wanted), len(wanted), prefixes):
                w.same(f"tokens and table of {len(runs)} runs", (tokens, found), (len(wanted), tuple(wanted)))
                w.same(f"tables of the cuts of {len(runs)} runs", parts, prefixes)
    w.same("the last table", found, tuple(wanted))
    w.iterated("history", prompt_table, length, cut)


def any_history(w: World) -> None:
    """After any history and one more run, the next run starts at the first position that the columns leave free."""
    before, count, _ = history(w, "before")
    run, more, _ = history(w, "run")
    whole = prompt_table(w.family, (*before, *run, text(1)))
    w.same("tokens", w.count(whole), count + more + 1)
    start = next_position(prompt_table(w.family, (*before, *run)))
    w.same("the start of the next run", w.at(whole, count + more), (start,) * w.family.axes)
    for index in w.every(count):
        w.same("an earlier column", w.at(whole, index), w.at(prompt_table(w.family, before), index))
        for axis, position in enumerate(w.at(whole, index)):
            w.same(f"token {index}, row {axis}: below that start", bool(position < start), True)


def prefill(place: Place, tokens: Size) -> Cells:
    """One extend over everything."""
    return extend.forward([Window(place=place, prefix_len=0, extend_len=tokens)])


def fresh(w: World, runs: History, tokens: Size, has_media: bool) -> Cells:
    """What a new request with the whole history reads, in one prefill."""
    return prefill(Place(columns=prompt_table(w.family, runs), tabulated=tokens, has_media=has_media), tokens)


def _append(saved: Saved, other: History, new: History) -> History:
    return session.append(saved, new)


def _streaming_append(saved: Saved, other: History, new: History) -> History:
    return session.streaming_append(saved, new)


def _replace_with_parent(saved: Saved, other: History, new: History) -> History:
    return session.replace_with_parent(saved, new)


def _retry_after_abort(saved: Saved, other: History, new: History) -> History:
    return session.retry_after_abort(saved, other, new)


def _branch(saved: Saved, other: History, new: History) -> History:
    return session.branch(saved, (other,), new)


def _drop_previous_output(saved: Saved, other: History, new: History) -> History:
    return session.drop_previous_output(saved, new)


Operation = Callable[[Saved, History, History], History]
"""(saved parent, somebody else's turn, this turn) -> history."""

CONTINUE: tuple[Operation, ...] = (_append, _streaming_append, _replace_with_parent, _retry_after_abort)


def _turn_is_fresh(w: World, law: Callable[..., bool], operations: tuple[Operation, ...]) -> None:
    """A turn's windows, over a table that may end before its text, read what a fresh request reads."""
    parent, count, media_before = history(w, "prompt")
    new, more, media_now = history(w, "new turn")
    reply, unused = w.size("reply"), w.size("tokens past max_new_tokens")
    saved = Saved(prompt=parent, outputs=reply + unused, max_new_tokens=reply)
    other = (text(w.size("the other turn", 1)),)
    has_media = media_before or media_now

    def turn(operation: Operation) -> None:
        kept = 0 if operation is _drop_previous_output else reply
        total = count + kept + more
        columns = prompt_table(w.family, operation(saved, other, new))
        place = Place(columns=columns, tabulated=total if media_now else count, has_media=has_media)
        whole = (*parent, text(kept), *new)
        w.same("tokens", w.count(columns), total)
        w.alike(law, lambda: prefill(place, total), lambda: fresh(w, whole, total, has_media))

    w.among("operation", operations, turn)


def appended(w: World) -> None:
    """Every operation that goes on from a parent."""
    _turn_is_fresh(w, laws.appended, (*CONTINUE, _drop_previous_output))


def branched(w: World) -> None:
    """A branch beside a sibling of any size."""
    _turn_is_fresh(w, laws.branched, (_branch,))


def moved(w: World) -> None:
    """The parent's forwards placed its tokens already: prompt by prefill, reply by decodes; the new turn's own table is
    moved by the parent's next position, which the next decode would have read."""
    parent, count, media = history(w, "prompt", moves=True)
    new, more, _ = history(w, "new turn", moves=True)
    reply = w.size("reply")
    saved = Saved(prompt=parent, outputs=reply, max_new_tokens=reply)
    place = Place(columns=prompt_table(w.family, parent), tabulated=count, has_media=media)
    whole, own = prompt_table(w.family, session.append(saved, new)), prompt_table(w.family, new)
    w.same("tokens", w.count(whole), count + reply + more)
    for cell in (*prefill(place, count), *decodes(w, place, count, reply)):
        w.same(f"the parent's token {cell.index}", w.at(whole, cell.index), cell.column)
    (after,) = decodes(w, place, count + reply, 1)
    for index in w.every(more):
        column = tuple(position + shift for position, shift in zip(w.at(own, index), after.column, strict=True))
        w.same(f"the new turn's token {index}", w.at(whole, count + reply + index), column)


def added(w: World) -> None:
    """The delta of an append is the parent's plus that of the new turn by itself."""
    parent, _, _ = history(w, "prompt", moves=True)
    new, _, _ = history(w, "new turn", moves=True)
    reply = w.size("reply")
    whole = session.append(Saved(prompt=parent, outputs=reply, max_new_tokens=reply), new)
    parts = delta_of(prompt_table(w.family, parent)) + delta_of(prompt_table(w.family, new))
    w.same("delta", session.delta(session.table(w.family, whole)), parts)


def blocks_move(w: World) -> None:
    """A media block's columns, and a line's, move with their start, for any grid and any times of its frames.

    Two frames stand for any number: block's loops carry nothing from frame to frame, and see no other frame.
    """
    w.no_carry(block)
    start, rows, cols = w.size("start"), w.size("rows", 1), w.size("cols", 1)
    frames = tuple(w.size(f"time of frame {frame}") for frame in range(2))
    for there, here in w.pairs(lambda at: block(at, frames, rows, cols), start, 0):
        w.same("a column of a block", there, tuple(position + start for position in here))
    w.rows_apart(block)
    tokens = w.size("tokens", 1)
    for there, here in w.pairs(lambda at: ramp(at, tokens), start, 0):
        w.same("a column of a line", there, tuple(position + start for position in here))


RUNS: tuple[Run, ...] = (
    image(1, 4, 6),
    image(1, 2, 8),
    video(4, 4, 2, 0.5),
    video(3, 2, 2, 1.0),
    video(1, 4, 4),
    audio(5),
    video_with_audio(4, 4, 4, 1.0, 30),
)
"""Media of every kind; a family refuses what it does not have."""

FIXED = ("hunyuan_vl", "minicpm_v4_7")
"""Families whose columns do not move with their start: an image's lines and columns count from 0 (XD-RoPE); a marker
just outside of a canvas has no place outside of one at 0."""


def families_move(w: World) -> None:
    """Each family's media columns move with their start: these runs, any start."""
    start = w.size("start")
    family = FAMILIES[w.choose("family", tuple(name for name in FAMILIES if name not in FIXED))]
    run = w.choose("run", RUNS)
    try:
        here = family.media_columns(run, 0)
    except OutOfDomain:
        return
    there = family.media_columns(run, start)
    w.same("tokens", len(there), len(here))
    for left, right in zip(there, here, strict=True):
        w.same("a column", left, tuple(position + start for position in right))


def kept(w: World) -> None:
    """Wherever a history is cut, in text or inside media, the kept columns are those of the whole."""
    before, count, _ = history(w, "before")
    run, more, _ = history(w, "run")
    whole = (*before, *run)
    keep = w.size("offset")
    w.assume(keep <= count + more)
    short, table = prompt_table(w.family, cut(w.family, whole, keep)), prompt_table(w.family, whole)
    w.same("length", length(w.family, whole), count + more)
    w.same("tokens", w.count(short), keep)
    for index in w.every(keep):
        w.same(f"token {index}", w.at(short, index), w.at(table, index))


def offset(w: World) -> None:
    """An offset keeps so many tokens of prompt and reply, each where it was; the new turn's come after them."""
    parent, count, _ = history(w, "prompt")
    new, more, _ = history(w, "new turn")
    reply, keep = w.size("reply"), w.size("offset", 1)
    dropped = w.choose("drop_previous_output", (False, True))
    saved = Saved(prompt=parent, outputs=reply, max_new_tokens=reply)
    whole = parent if dropped else (*parent, text(reply))
    total = count if dropped else count + reply
    found = prompt_table(w.family, session.offset(w.family, saved, keep, dropped, new))
    left = keep if keep < total else total
    w.same("tokens", w.count(found), left + more)
    for index in w.every(left):
        w.same(f"kept token {index}", w.at(found, index), w.at(prompt_table(w.family, whole), index))


def resumed(w: World) -> None:
    """Prompt and outputs prefilled again, and the decodes after, read what one prefill and the decodes read before."""
    prompt, count, media = history(w, "prompt")
    outputs, more = w.size("outputs", 1), w.size("decodes after")
    place = Place(columns=prompt_table(w.family, prompt), tabulated=count, has_media=media)
    undisturbed = (*prefill(place, count), *decodes(w, place, count, outputs + more))
    tabulated = count + outputs if w.choose("outputs tabulated", (False, True)) else count
    again = Place(columns=retraction.table(w.family, prompt, outputs), tabulated=tabulated, has_media=media)
    w.same("tokens", w.count(again.columns), count + outputs)
    cells = (*prefill(again, count + outputs), *decodes(w, again, count + outputs, more))
    w.agree(laws.resumed, cells, undisturbed)


def gained(w: World) -> None:
    """The columns that a table gains for outputs: index + delta on every row, also right after media."""
    prompt, count, _ = history(w, "prompt")
    outputs = w.size("outputs")
    before, after = prompt_table(w.family, prompt), retraction.table(w.family, prompt, outputs)
    w.same("tokens", w.count(after), count + outputs)
    w.same("delta", delta_of(after), delta_of(before))
    for index in w.every(outputs):
        position = count + index + delta_of(before)
        w.same(f"output {index}", w.at(after, count + index), (position,) * w.family.axes)


HISTORIES = (many_runs, any_history)
ONE_RUN = "the runs of a history stand as one with any columns; media items have no numbers"
SOME_MEDIA = f"{ONE_RUN}; each family's own media: {len(RUNS)} runs, any start, without {' and '.join(FIXED)}"

THEOREMS = (
    Theorem(rule="laws.append_is_a_fresh_request", statements=(*HISTORIES, appended), limits=ONE_RUN),
    Theorem(rule="laws.branch_is_its_own_history", statements=(*HISTORIES, branched), limits=ONE_RUN),
    Theorem(rule="laws.retract_and_resume", statements=(*HISTORIES, resumed), limits=ONE_RUN),
    Theorem(rule="session.append", statements=(*HISTORIES, blocks_move, families_move, moved), limits=SOME_MEDIA),
    Theorem(rule="session.delta", statements=(*HISTORIES, blocks_move, families_move, added), limits=SOME_MEDIA),
    Theorem(rule="session.offset", statements=(*HISTORIES, kept, offset), limits=ONE_RUN),
    Theorem(rule="retraction.table", statements=(*HISTORIES, gained), limits=ONE_RUN),
)
"""What this file proves."""
