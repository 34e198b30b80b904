"""Sessions and retraction, stated for all sizes: one history is placed in one way, however it came together.

Where a statement says "any history", a media run with any columns stands for it: prompt_table goes on from a history
only by its columns and the first position after them (`any_history` is the induction step of that; `many_runs` looks
at plain histories of more runs). One thing is left out: the number of a media item, which HunYuan-VL's fourth row
holds and which counts the items of the history.
"""

from collections.abc import Callable
from typing import Any

from ropecheck.conformance.prove.laws import decodes, extend
from ropecheck.conformance.prove.statement import Size, Theorem, World
from ropecheck.spec import history as spec_history
from ropecheck.spec import retraction, session
from ropecheck.spec.families import FAMILIES, declaration
from ropecheck.spec.families.omni import audio, video_with_audio
from ropecheck.spec.history import Column, History, OutOfDomain, Run, image, text, video
from ropecheck.spec.views import ArrivedTurn, SavedTurn


def history(w: World, name: str, moves: bool = False) -> tuple[History, Size, bool]:
    """Any history that is not empty: (runs, tokens, whether it has media)."""
    if w.choose(f"{name} kind", ("media", "text")) == "media":
        run, tokens = w.media(name, moves)
        return (run,), tokens, True
    tokens = w.size(f"{name} tokens", 1)
    return (text(tokens),), tokens, False


def many_runs(w: World) -> None:
    """Plain histories of up to eight runs: each run starts after the largest position so far, and a cut keeps the
    columns."""
    family, whole = FAMILIES["qwen2_vl"], tuple(run for _ in range(4) for run in (image(1, 4, 6), text(3)))
    table, cut, length = spec_history.prompt_table, spec_history.cut, spec_history.length
    for count in range(len(whole) + 1):
        for runs in (whole[:count], whole[1 : count + 1]):
            wanted: list[Column] = []
            for run in runs:
                start = 1 + max((max(column) for column in wanted), default=-1)
                own = [(start + i,) * 3 for i in range(run.tokens)] if run.is_text else family.media_columns(run, start)
                wanted.extend(own)
            found, tokens = table(family, runs), length(family, runs)
            parts = [table(family, cut(family, runs, keep)) for keep in range(tokens + 1)]
            prefixes = [tuple(wanted[:keep]) for keep in range(len(wanted) + 1)]
            if (found, tokens, parts) != (tuple(wanted), len(wanted), prefixes):
                w.same(f"tokens and table of {len(runs)} runs", (tokens, found), (len(wanted), tuple(wanted)))
                w.same(f"tables of the cuts of {len(runs)} runs", parts, prefixes)
    w.same("the last table", found, tuple(wanted))


def any_history(w: World) -> None:
    """After any history and one more run, the next run starts at the first position that the columns leave free."""
    before, count, _ = history(w, "before")
    run, more, _ = history(w, "run")
    whole, early = w.table((*before, *run, text(1))), w.table((*before, *run))
    w.same("tokens", w.count(whole), count + more + 1)
    start = spec_history.next_position(early)
    w.same("the start of the next run", w.at(whole, count + more), (start,) * w.axes)
    index = w.below("token", count + more)
    w.same("an earlier column", w.at(whole, index), w.at(early, index))
    for axis, position in enumerate(w.at(whole, index)):
        w.same(f"row {axis} is below that start", bool(position < start), True)


OTHER = (text(2),)


def _turn_is_fresh(w: World, law: str, operation: str) -> None:
    """A turn's windows, over a table that may end before its text, read what a fresh request reads."""
    parent, count, media_before = history(w, "prompt")
    new, more, media_now = history(w, "new turn")
    outputs, most = w.size("outputs"), w.size("max_new_tokens")
    kept = session.reply_tokens(outputs, most)
    w.same("tokens of the reply that count", kept, outputs if outputs < most else most)
    if operation == "drop_previous_output":
        kept, runs = 0, session.without_reply(parent, new)
    else:
        runs = session.continued(parent, (text(kept),), new)
    total, has_media = count + kept + more, media_before or media_now
    turn = w.place(runs, total if media_now else count, has_media)
    fresh = extend(w, w.place((*parent, text(kept), *new), total, has_media), 0, total)
    w.same("tokens", w.count(turn.rows[0]), total)
    w.alike(law, extend(w, turn, 0, total), fresh)


def appended(w: World) -> None:
    """A turn that goes on from a parent, with its reply and without."""
    operation = w.choose("operation", ("append", "drop_previous_output"))
    _turn_is_fresh(w, "laws.append_is_a_fresh_request", operation)


def branched(w: World) -> None:
    """A branch: its history takes nothing of its siblings."""
    _turn_is_fresh(w, "laws.branch_is_its_own_history", "append")


def moved(w: World) -> None:
    """The parent's forwards placed its tokens already: prompt by prefill, reply by decodes; the new turn's own table is
    moved by the parent's next position, which the next decode would have read."""
    parent, count, media = history(w, "prompt", moves=True)
    new, more, _ = history(w, "new turn", moves=True)
    reply = w.size("reply")
    place = w.place(parent, count, media)
    whole, own = w.table(session.continued(parent, (text(reply),), new)), w.table(new)
    w.same("tokens", w.count(whole), count + reply + more)
    old = w.choose("forward", (extend(w, place, 0, count), decodes(w, place, count, reply), None))
    if old is not None:
        index = old.token(w.below("token", old.count))
        w.same("the parent's token", w.at(whole, index), place.column(index))
        return
    after = place.column(decodes(w, place, count + reply, 1).token(0))
    index = w.below("token", more)
    column = tuple(position + shift for position, shift in zip(w.at(own, index), after, strict=True))
    w.same("the new turn's token", w.at(whole, count + reply + index), column)


def added(w: World) -> None:
    """The delta of an append is the parent's plus that of the new turn by itself."""
    parent, _, _ = history(w, "prompt", moves=True)
    new, _, _ = history(w, "new turn", moves=True)
    whole = session.continued(parent, (text(w.size("reply")),), new)
    delta = [spec_history.delta_of(w.table(runs)) for runs in (whole, parent, new)]
    w.same("delta", delta[0], delta[1] + delta[2])


def lines_move(w: World) -> None:
    """A line's columns move with their start, for any number of tokens."""
    start, tokens = w.size("start"), w.size("tokens", 1)
    there, here = declaration.ramp(start, tokens, w.axes), declaration.ramp(0, tokens, w.axes)
    w.same("tokens", w.count(there), tokens)
    index = w.below("token", tokens)
    w.same("a column of a line", w.at(there, index), tuple(position + start for position in w.at(here, index)))


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
stands one position before its picture, where there is one."""


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
    w.same("columns", there, tuple(tuple(position + start for position in column) for column in here))


def kept(w: World) -> None:
    """Wherever a history is cut, in text or inside media, the kept columns are those of the whole."""
    before, count, _ = history(w, "before")
    run, more, _ = history(w, "run")
    keep = w.size("offset")
    w.assume(keep <= count + more)
    runs = w.read((*before, *run))
    short, table = w.table(spec_history.cut(w.family, runs, keep)), w.table((*before, *run))
    w.same("length", spec_history.length(w.family, runs), count + more)
    w.same("tokens", w.count(short), keep)
    index = w.below("token", keep)
    w.same("a kept column", w.at(short, index), w.at(table, index))


def resumed(w: World) -> None:
    """Prompt and outputs prefilled again, and the decodes after, read what one prefill and the decodes read before."""
    prompt, count, media = history(w, "prompt")
    outputs, more = w.size("outputs", 1), w.size("decodes after")
    place = w.place(prompt, count, media)
    undisturbed = (extend(w, place, 0, count), decodes(w, place, count, outputs + more))
    tabulated = count + outputs if w.choose("outputs tabulated", (False, True)) else count
    again = w.place(retraction.history(prompt, (text(outputs),)), tabulated, media)
    w.same("tokens", w.count(again.rows[0]), count + outputs)
    route = (extend(w, again, 0, count + outputs), decodes(w, again, count + outputs, more))
    w.agree("laws.retract_and_resume", route, undisturbed)


def gained(w: World) -> None:
    """The columns that a table gains for outputs: index + delta on every row, also right after media."""
    prompt, count, _ = history(w, "prompt")
    outputs = w.size("outputs")
    before, after = w.table(prompt), w.table(retraction.history(prompt, (text(outputs),)))
    delta = spec_history.delta_of(before)
    w.same("tokens", w.count(after), count + outputs)
    w.same("delta", spec_history.delta_of(after), delta)
    index = w.below("output", outputs)
    w.same("an output", w.at(after, count + index), (count + index + delta,) * w.axes)


def taken(rule: str, **asked: Any) -> Callable[[World], None]:
    """The rule takes the one history that the operation must yield, token by token."""

    def takes(w: World) -> None:
        """A turn whose tokens are those of its history: the parent's prompt, the reply that counts, its own."""
        prompt, new = w.ids("prompt", w.size("prompt tokens", 1)), w.ids("new turn", w.size("new tokens", 1))
        outputs, most = w.size("outputs"), w.size("max_new_tokens")
        if rule == "session.reply_that_counts":
            w.assume(outputs > most)
        reply = w.ids("outputs", outputs)
        saved = SavedTurn(prompt=prompt, outputs=reply, max_new_tokens=most)
        whole = prompt if asked.get("drop_previous_output") else prompt + reply[: outputs if outputs < most else most]
        offset = w.size("offset", 1) if rule == "session.offset" else 0
        kept = new[:0] if rule == "session.replace_all" else (whole[:offset] if rule == "session.offset" else whole)
        turn = ArrivedTurn(
            saved=None if rule == "session.replace_all" else saved, new=new, ids=kept + new, offset=offset, **asked
        )
        w.accepts(rule, turn)

    return takes


HISTORIES = (many_runs, any_history)
ONE_RUN = "the runs of a history stand as one with any columns; media items have no numbers"
SOME_MEDIA = f"{ONE_RUN}; each family's own media: {len(RUNS)} runs, any start, without {' and '.join(FIXED)}"
MOVES = (lines_move, families_move)
TAKEN = "that the right tokens are taken, not that others are not"

THEOREMS = (
    Theorem(rule="laws.append_is_a_fresh_request", statements=(*HISTORIES, appended), limits=ONE_RUN),
    Theorem(rule="laws.branch_is_its_own_history", statements=(*HISTORIES, branched), limits=ONE_RUN),
    Theorem(rule="laws.retract_and_resume", statements=(*HISTORIES, resumed), limits=ONE_RUN),
    Theorem(
        rule="session.append",
        statements=(*HISTORIES, *MOVES, moved, taken("session.append")),
        limits=f"{SOME_MEDIA}; {TAKEN}",
    ),
    Theorem(rule="session.delta", statements=(*HISTORIES, *MOVES, added), limits=SOME_MEDIA),
    Theorem(
        rule="session.offset", statements=(*HISTORIES, kept, taken("session.offset")), limits=f"{ONE_RUN}; {TAKEN}"
    ),
    Theorem(rule="retraction.table", statements=(*HISTORIES, gained), limits=ONE_RUN),
    *(
        Theorem(rule=rule, statements=(taken(rule, **asked),), limits=TAKEN)
        for rule, asked in {
            "session.branch": {"siblings": True},
            "session.streaming_append": {"streaming": True},
            "session.replace_with_parent": {"replace": True},
            "session.replace_all": {"replace": True},
            "session.abort_and_retry": {"aborted_sibling": True},
            "session.drop_previous_output": {"drop_previous_output": True},
            "session.reply_that_counts": {},
        }.items()
    ),
)
"""What this file proves."""
