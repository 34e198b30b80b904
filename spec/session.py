"""Session operations: each is defined by the history that it yields.

The new request's table is that history's table, exactly as if a fresh request had sent the same tokens and media.

    saved turn: prompt p, reply r (of a longer generation only the first max_new_tokens tokens count)
    append                 p + r + new
    branch                 the same, whatever the parent's other children did
    streaming append       the same, onto the last finished turn
    replace with a parent  the same, after which the parent's older children are gone
    replace without        new
    offset k               the first k tokens of p + r, then new
    drop_previous_output   p + new

Histories here are tuples: of runs (reference/turns.py builds requests of them) or of token ids (the rules below compare
an engine's). What must come out is said once, for both.
"""

from __future__ import annotations

from typing import TypeVar

from ropecheck.spec.held import delta_is, spans_are, table_is
from ropecheck.spec.ownership import tokens_are, tokens_shape
from ropecheck.spec.rules import MROPE, Violation, rule
from ropecheck.spec.views import ArrivedTurn, HeldState, SavedTurn

T = TypeVar("T")

PUBLIC = "public interface: session_params of a generate request"
"""Where the operations are defined."""


def reply_tokens(outputs: int, max_new_tokens: int) -> int:
    """Tokens of the reply that a later turn continues from: speculation and overlap may generate past the limit."""
    return min(outputs, max_new_tokens)


def continued(prompt: tuple[T, ...], reply: tuple[T, ...], new: tuple[T, ...]) -> tuple[T, ...]:
    """An append: the parent's whole prompt and its reply, the new turn after them."""
    return prompt + reply + new


def without_reply(prompt: tuple[T, ...], new: tuple[T, ...]) -> tuple[T, ...]:
    """drop_previous_output: the new turn follows the parent's prompt."""
    return prompt + new


def afresh(new: tuple[T, ...]) -> tuple[T, ...]:
    """replace without a parent, and the first turn of a session."""
    return new


def kept_of(context: int, offset: int) -> int:
    """How many of a context's tokens an offset keeps: those of context[:offset], which is how the interface writes it.

    0 keeps none, more than there are keeps all.
    """
    return len(range(context)[:offset])


def must_refuse(streaming: bool, in_flight: bool, parent_finished: bool, parent_known: bool, rewrites: bool) -> bool:
    """A turn whose parent is unknown or unfinished, or that rewrites or doubles a streaming session.

    Rewrites are replace, offset and drop_previous_output.
    """
    if streaming:
        return in_flight or rewrites
    return not parent_known or not parent_finished


def may_refuse(parent_finished: bool, parent_aborted: bool, replace: bool, offset: int | None = None) -> bool:
    """A turn on one that was given up, that replaces one that still runs, or whose offset is negative may be refused.

    A negative offset is no place in a context ("insertion point"); taken, it leaves off so many of the last tokens, as
    `context[:offset]` says.

    Where it is taken, its history is that of any other turn: the whole prompt of the turn that was given up, media
    included, the reply that its client got, and its own tokens; a replaced turn is ended. (SessionParams: the node that
    `rid` names "is aborted and its children are cleared before the new request is inserted". No word there takes media
    out of a context whose tokens stay.)
    """
    return parent_aborted or (replace and not parent_finished) or (offset or 0) < 0


def _reply(saved: SavedTurn) -> tuple[int, ...]:
    return saved.outputs[: reply_tokens(len(saved.outputs), saved.max_new_tokens)]


def _taken(turn: ArrivedTurn) -> bool:
    return turn.ids is not None and not _must_refuse(turn)


def _plain(turn: ArrivedTurn) -> bool:
    return _taken(turn) and turn.saved is not None and not turn.offset and not turn.drop_previous_output


def _must_refuse(turn: ArrivedTurn) -> bool:
    rewrites = turn.replace or bool(turn.offset) or turn.drop_previous_output
    return must_refuse(turn.streaming, turn.in_flight, turn.parent_finished, turn.parent_known, rewrites)


@rule("session.refused", of=ArrivedTurn, source=PUBLIC, when=lambda turn: not turn.may_refuse)
def refused(turn: ArrivedTurn) -> Violation | None:
    """A turn must be refused when its parent is unknown or unfinished, or rewrites or doubles a streaming session.

    Any other turn must be accepted, but for those on a turn that was given up or that replace a running one
    (may_refuse). A refused turn changes nothing.
    """
    must = _must_refuse(turn)
    if turn.refused == must:
        return None
    verb = "accepted" if must else "refused"
    note = f": {turn.note}" if turn.note else ""
    return Violation(
        axis="aborted", expected=str(must), observed=str(turn.refused), shape=verb, message=f"the turn was {verb}{note}"
    )


@rule(
    "session.append",
    of=ArrivedTurn,
    source=PUBLIC,
    when=lambda turn: _plain(turn) and not turn.replace,
    bugs=("sglang #39145", "sglang #39144", "sglang #18152"),
)
def append(turn: ArrivedTurn) -> Violation | None:
    """Appending must continue from the parent's whole prompt and its reply, the new turn's tokens after them.

    The reply's tokens have columns of their own, and the new media start after them.
    """
    assert turn.saved is not None
    return _ids(turn, continued(turn.saved.prompt, _reply(turn.saved), turn.new))


@rule(
    "session.reply_that_counts",
    of=ArrivedTurn,
    source=PUBLIC,
    when=lambda turn: _plain(turn) and turn.saved is not None and len(turn.saved.outputs) > turn.saved.max_new_tokens,
)
def reply_that_counts(turn: ArrivedTurn) -> Violation | None:
    """The reply that a later turn continues from must be output_ids[:max_new_tokens].

    Speculation and overlap may generate past the limit; a turn that asks for no reply (max_new_tokens 0) has none.
    """
    saved, ids = turn.saved, turn.ids
    assert saved is not None and ids is not None
    reply = ids[len(saved.prompt) : len(ids) - len(turn.new)]
    right = saved.outputs[: saved.max_new_tokens]
    if reply == right:
        return None
    return Violation(
        axis="ids",
        at=len(saved.prompt),
        expected=str(right),
        observed=str(reply),
        shape=tokens_shape(right, reply),
        message=f"a reply of {len(reply)} tokens, max_new_tokens is {saved.max_new_tokens}",
    )


@rule(
    "session.branch",
    of=ArrivedTurn,
    source=PUBLIC,
    when=lambda turn: _plain(turn) and turn.siblings and not turn.replace and not turn.streaming,
    bugs=("sglang #39145",),
)
def branch(turn: ArrivedTurn) -> Violation | None:
    """A branch must see its parent as it was saved, whatever the parent's other children did or brought."""
    assert turn.saved is not None
    return _ids(turn, continued(turn.saved.prompt, _reply(turn.saved), turn.new))


@rule(
    "session.streaming_append",
    of=ArrivedTurn,
    source=PUBLIC,
    when=lambda turn: _plain(turn) and turn.streaming,
    bugs=("sglang #33716", "sglang #38068", "sglang #39145"),
)
def streaming_append(turn: ArrivedTurn) -> Violation | None:
    """A streaming append must yield the same history as a plain append onto the last finished turn."""
    assert turn.saved is not None
    return _ids(turn, continued(turn.saved.prompt, _reply(turn.saved), turn.new))


@rule("session.replace_with_parent", of=ArrivedTurn, source=PUBLIC, when=lambda turn: _plain(turn) and turn.replace)
def replace_with_parent(turn: ArrivedTurn) -> Violation | None:
    """Replacing after a parent must yield the history of an append onto it; the parent's children are gone."""
    assert turn.saved is not None
    return _ids(turn, continued(turn.saved.prompt, _reply(turn.saved), turn.new))


@rule("session.replace_all", of=ArrivedTurn, source=PUBLIC, when=lambda turn: _taken(turn) and turn.saved is None)
def replace_all(turn: ArrivedTurn) -> Violation | None:
    """A turn without a parent must start afresh: nothing of the session's earlier turns or media is left."""
    return _ids(turn, afresh(turn.new))


@rule("session.offset", of=ArrivedTurn, source=PUBLIC, when=lambda turn: _taken(turn) and bool(turn.offset))
def offset(turn: ArrivedTurn) -> Violation | None:
    """An offset k > 0 must keep the first k tokens of the history, and the new turn's tokens come right after them.

    Media past the cut are gone: they shift nothing. Inside a media run the kept tokens keep their columns, because a
    column never depends on what follows, and text continues at the largest position kept + 1.
    """
    if turn.saved is None:
        return _ids(turn, afresh(turn.new))
    reply = () if turn.drop_previous_output else _reply(turn.saved)
    return _ids(turn, continued(turn.saved.prompt, reply, ())[: turn.offset] + turn.new)


@rule(
    "session.drop_previous_output",
    of=ArrivedTurn,
    source=PUBLIC,
    when=lambda turn: _taken(turn) and turn.saved is not None and turn.drop_previous_output and not turn.offset,
)
def drop_previous_output(turn: ArrivedTurn) -> Violation | None:
    """With drop_previous_output the parent's reply must be left out: the new turn follows the parent's prompt."""
    assert turn.saved is not None
    return _ids(turn, without_reply(turn.saved.prompt, turn.new))


@rule(
    "session.abort_and_retry",
    of=ArrivedTurn,
    source=PUBLIC,
    when=lambda turn: _plain(turn) and turn.aborted_sibling,
    bugs=("sglang #39145",),
)
def abort_and_retry(turn: ArrivedTurn) -> Violation | None:
    """An aborted turn must leave no trace: the retry sees the parent as it was saved."""
    assert turn.saved is not None
    return _ids(turn, continued(turn.saved.prompt, _reply(turn.saved), turn.new))


@rule(
    "session.table",
    of=HeldState,
    source=MROPE,
    when=lambda held: held.moment == "turn" and (held.place.has_media or held.table is not None),
    bugs=("sglang #39145", "sglang #39144", "sglang #33716"),
)
def table(held: HeldState) -> Violation | None:
    """Every column of the table that a turn's request holds must be the column of its own history at that index.

    A table may be shorter than the history (later text needs none); after a turn with media it covers the whole prompt.
    """
    return table_is(held)


@rule(
    "session.delta",
    of=HeldState,
    source=MROPE,
    when=lambda held: held.moment == "turn" and (held.place.has_media or held.delta is not None),
    bugs=("sglang #33716", "sglang-omni #1149"),
)
def delta(held: HeldState) -> Violation | None:
    """The delta of a turn's request must be one value of shape [1, 1]: max(table) + 1 - P of its own history."""
    return delta_is(held)


@rule(
    "session.media_spans",
    of=HeldState,
    source=PUBLIC,
    when=lambda held: held.moment == "turn",
    bugs=("sglang #33716",),
)
def media_spans(held: HeldState) -> Violation | None:
    """Each media item of a turn's request must point at its own placeholder tokens in the whole history.

    Items of earlier turns stay where they were; a new turn's items move by the tokens before it.
    """
    return spans_are(held)


def _ids(turn: ArrivedTurn, right: tuple[int, ...]) -> Violation | None:
    return tokens_are("ids", right, turn.ids or ())
