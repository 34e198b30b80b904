"""Session operations, as operations on histories.

Each operation is defined by the history that it yields; the new request's table is that history's table, exactly as if
a fresh request had sent the same tokens and media.

    saved turn: prompt runs p, reply of r tokens (of a longer generation only the first max_new_tokens count)
    append                 p + text(r) + new
    branch                 the same, whatever the parent's other children did
    streaming append       the same, onto the last finished turn
    replace with a parent  the same, after which the parent's older children are gone
    replace without        new
    offset k               the first k tokens of p + text(r), then new
    drop_previous_output   p + new
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.history import Column, Delta, Family, History, Run, cut, delta_of, length, prompt_table, text
from ropecheck.spec.rules import MROPE, rule

PUBLIC = "public interface: session_params of a generate request"
"""Where the operations are defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A finished turn, as a later one sees it."""

    prompt: History
    """Its whole prompt, earlier turns included."""
    outputs: int
    """Tokens generated."""
    max_new_tokens: int


@rule("session.reply_that_counts", source=PUBLIC)
def reply(saved: Saved) -> int:
    """The reply that a later turn continues from must be output_ids[:max_new_tokens].

    Speculation and overlap may generate past the limit.
    """
    return min(saved.outputs, saved.max_new_tokens)


@rule("session.append", source=PUBLIC, bugs=("sglang #39145", "sglang #39144", "sglang #18152"))
def append(saved: Saved, new: History) -> History:
    """Appending must continue from the parent's whole prompt and its reply, the new turn's runs after them.

    The reply's tokens have columns of their own, and the new media start after them.
    """
    return joined(saved.prompt, (text(reply(saved)),), new)


@rule("session.branch", source=PUBLIC, bugs=("sglang #39145",))
def branch(saved: Saved, earlier_children: tuple[History, ...], new: History) -> History:
    """A branch must see its parent as it was saved, whatever the parent's other children did or brought."""
    del earlier_children
    return append(saved, new)


@rule("session.streaming_append", source=PUBLIC, bugs=("sglang #33716", "sglang #38068", "sglang #39145"))
def streaming_append(saved: Saved, new: History) -> History:
    """A streaming append must yield the same history as a plain append onto the last finished turn."""
    return append(saved, new)


@rule("session.replace_with_parent", source=PUBLIC)
def replace_with_parent(saved: Saved, new: History) -> History:
    """Replacing after a parent must yield the history of an append onto it; the parent's children are gone."""
    return append(saved, new)


@rule("session.replace_all", source=PUBLIC)
def replace_all(new: History) -> History:
    """Replacing without a parent must start afresh: nothing of the session's earlier turns or media is left."""
    return new


@rule("session.offset", source=PUBLIC)
def offset(family: Family, saved: Saved, keep: int, drop_reply: bool, new: History) -> History:
    """An offset k > 0 must keep the first k tokens of the history, and the new turn's runs come right after them.

    Media past the cut are gone: they shift nothing. Inside a media run the kept tokens keep their columns, because a
    column never depends on what follows, and text continues at the largest position kept + 1.
    """
    whole = saved.prompt if drop_reply else joined(saved.prompt, (text(reply(saved)),))
    return joined(cut(family, whole, min(keep, length(family, whole))), new)


@rule("session.drop_previous_output", source=PUBLIC)
def drop_previous_output(saved: Saved, new: History) -> History:
    """With drop_previous_output the parent's reply must be left out: the new turn follows the parent's prompt."""
    return joined(saved.prompt, new)


@rule("session.abort_and_retry", source=PUBLIC, bugs=("sglang #39145",))
def retry_after_abort(saved: Saved, aborted: History, new: History) -> History:
    """An aborted turn must leave no trace: the retry sees the parent as it was saved."""
    del aborted
    return append(saved, new)


@rule("session.refused", source=PUBLIC)
def refused(streaming: bool, in_flight: bool, parent_finished: bool, parent_known: bool, rewrites: bool) -> bool:
    """A turn must be refused when its parent is unknown or unfinished, or rewrites or doubles a streaming session.

    Rewrites are replace, offset and drop_previous_output. A refused turn changes nothing.
    """
    if streaming:
        return in_flight or rewrites
    return not parent_known or not parent_finished


def token_ids(kept: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The tokens of a turn's history: those kept from the parent, then its own."""
    return kept + new


@rule("session.table", source=MROPE, bugs=("sglang #39145", "sglang #39144", "sglang #33716"))
def table(family: Family, history: History) -> tuple[Column, ...]:
    """Every column of the table that a turn's request holds must be the column of its own history at that index.

    A table may be shorter than the history (later text needs none); after a turn with media it covers the whole prompt.
    """
    return prompt_table(family, history)


@rule("session.delta", source=MROPE, bugs=("sglang #33716", "sglang-omni #1149"))
def delta(columns: tuple[Column, ...]) -> Delta:
    """The delta of a turn's request must be one value of shape [1, 1]: max(table) + 1 - P of its own history."""
    return delta_of(columns)


@rule("session.media_spans", source=PUBLIC, bugs=("sglang #33716",))
def media_spans(starts: tuple[int, ...], before: int) -> tuple[int, ...]:
    """Each media item of a turn's request must point at its own placeholder tokens in the whole history.

    Items of earlier turns stay where they were; a new turn's items move by the tokens before it.
    """
    return tuple(start + before for start in starts)


def joined(*parts: History) -> History:
    """One history after another; empty text runs are dropped."""
    out: list[Run] = []
    for part in parts:
        out.extend(run for run in part if not (run.is_text and run.tokens == 0))
    return tuple(out)
