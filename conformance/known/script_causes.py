"""Why a known failure of a scheduler happens: what the client's script must hold for its bug to apply, and what wrong
columns come out where there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.scripts.script import Arrive, OpenSession, Pause, Script
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.trace.live import BEHIND, LEFT_OUT
from ropecheck.conformance.trace.shape import GIVEN_UP
from ropecheck.spec.history import History

ScriptCause = Callable[[Script, Failure], bool]


def turns(script: Script) -> list[Arrive]:
    """The requests that are turns of a session."""
    return [one for one in script.actions if isinstance(one, Arrive) and one.session is not None]


def brings_media(prompt: History) -> bool:
    """Whether a prompt holds a picture or a clip."""
    return any(not run.is_text for run in prompt)


def may_retract(script: Script) -> bool:
    """Whether anything takes a running request's memory back."""
    if any(name.startswith("SGLANG_TEST_RETRACT") for name in servers()[script.server].environment):
        return True
    paused = any(isinstance(one, Pause) and one.mode == "retract" for one in script.actions)
    return paused or script.server in ("small_pool", "priority")


def refused_turn_goes_on(script: Script, failure: Failure) -> bool:
    """A turn joins a session that has another one, names one that it has not, or rewrites a streaming one; of a turn
    that raises, it brings media."""
    seen: set[int | None] = set()
    for turn in turns(script):
        taken = "take" in failure.signature and script.server != "decode_only"  # there any second turn is
        odd = turn.parent is not None or turn.offset is not None or turn.replace or turn.drop_previous_output
        if (turn.session in seen or odd) and (brings_media(turn.prompt) or taken):
            return True
        seen.add(turn.session)
    return False


def clearing_walks_a_changing_dict(script: Script, _: Failure) -> bool:
    """replace without a parent in a session that has a turn."""
    seen: set[int | None] = set()
    for turn in turns(script):
        if turn.replace and turn.parent is None and turn.session in seen:
            return True
        seen.add(turn.session)
    return False


def close_drops_the_media(_: Script, failure: Failure) -> bool:
    """The request's session, an ordinary one, was closed before, and the wrong columns are plain indices."""
    return "closed" in failure.past and "streaming" not in failure.past and failure.signature == "delta missing"


def abort_drops_the_media(_: Script, failure: Failure) -> bool:
    """A turn continues one that was given up, and what comes out knows none of its media."""
    return "given up" in failure.past and failure.signature == GIVEN_UP


def output_follows_the_t_row(_: Script, failure: Failure) -> bool:
    """The request, or a turn that it shares media inputs with, was retracted before."""
    return "retracted" in failure.past


def cut_keeps_the_parents_media(_: Script, failure: Failure) -> bool:
    """A turn of its session had an offset."""
    return "offset" in failure.past


def offset_zero_is_none(_: Script, failure: Failure) -> bool:
    """A turn of its session had the offset 0."""
    return "offset 0" in failure.past


def retraction_ends_a_turn(script: Script, failure: Failure) -> bool:
    """A streaming session's turn was retracted; for the end of a server: may be, and another turn comes."""
    if failure.rule != "schedule.survives":
        return {"streaming", "retracted"} <= set(failure.past)
    streams = {one.session for one in script.actions if isinstance(one, OpenSession) and one.streaming}
    sessions = [turn.session for turn in turns(script) if turn.session in streams]
    return may_retract(script) and len(sessions) > len(set(sessions))


def members_have_no_media(_: Script, failure: Failure) -> bool:
    """The request is a beam search, and the wrong columns are plain indices."""
    return failure.signature == "delta missing" and "beams" in failure.past


def members_have_no_entry(script: Script, _: Failure) -> bool:
    """A beam search beside a request with media, on a server that retracts."""
    arrived = [one for one in script.actions if isinstance(one, Arrive)]
    searches, media = any(one.beams > 1 for one in arrived), any(brings_media(one.prompt) for one in arrived)
    return searches and media and may_retract(script)


def pause_retracts_a_search(script: Script, _: Failure) -> bool:
    """A pause with retraction while a beam search may run."""
    seen = False
    for action in script.actions:
        seen = seen or (isinstance(action, Arrive) and action.beams > 1)
        if seen and isinstance(action, Pause) and action.mode == "retract":
            return True
    return False


def preemption_retracts_a_search(script: Script, failure: Failure) -> bool:
    """A beam search is retracted where rows are few: for a later request of a higher priority, or by a pause."""
    if "max_running_requests" in servers()[script.server].arguments and pause_retracts_a_search(script, failure):
        return True
    lowest: int | None = None
    for one in script.actions:
        if isinstance(one, Arrive):
            if lowest is not None and one.priority > lowest:
                return "enable_priority_scheduling" in servers()[script.server].arguments
            if one.beams > 1:
                lowest = one.priority if lowest is None else min(lowest, one.priority)
    return False


def rows_are_promised_twice(script: Script, _: Failure) -> bool:
    """A beam search beside another request, on a server that runs few at once."""
    searches = any(isinstance(one, Arrive) and one.beams > 1 for one in script.actions)
    copies = sum(one.copies for one in script.actions if isinstance(one, Arrive))
    return searches and copies > 1 and "max_running_requests" in servers()[script.server].arguments


def padding_counts_no_beams(script: Script, _: Failure) -> bool:
    """A beam search on a server whose forwards are padded to be gathered."""
    searches = any(isinstance(one, Arrive) and one.beams > 1 for one in script.actions)
    return searches and "moe_dense_tp_size" in servers()[script.server].arguments


def transferred_turn_has_a_record_too_many(script: Script, failure: Failure) -> bool:
    """A second turn of a streaming session on a decode server."""
    streams = {one.session for one in script.actions if isinstance(one, OpenSession) and one.streaming}
    sessions = [turn.session for turn in turns(script) if turn.session in streams]
    return script.server == "decode_only" and len(sessions) > len(set(sessions)) and "take" in failure.signature


SCRIPT_CAUSES: Mapping[str, ScriptCause] = {
    cause.__name__.replace("_", "-"): cause
    for cause in (
        refused_turn_goes_on,
        clearing_walks_a_changing_dict,
        close_drops_the_media,
        abort_drops_the_media,
        output_follows_the_t_row,
        cut_keeps_the_parents_media,
        offset_zero_is_none,
        retraction_ends_a_turn,
        members_have_no_media,
        members_have_no_entry,
        pause_retracts_a_search,
        preemption_retracts_a_search,
        rows_are_promised_twice,
        padding_counts_no_beams,
        transferred_turn_has_a_record_too_many,
    )
}

SPREADS: Mapping[str, frozenset[str]] = {
    "output-follows-the-t-row": frozenset({"continues from one row", BEHIND}),
    "retraction-ends-a-turn": frozenset({"delta missing", LEFT_OUT}),
    "close-drops-the-media": frozenset({"delta missing"}),
    "abort-drops-the-media": frozenset({GIVEN_UP}),
    "cut-keeps-the-parents-media": frozenset({"columns of the parent"}),
    "members-have-no-media": frozenset({"delta missing"}),
}
"""Shapes in which a request's later rows show what went wrong in it before; any other is a finding of its own."""


def spreads(script: Script, failure: Failure) -> bool:
    """Whether a later failure of a request has a shape in which a cause spreads that applies to it; of rows alone."""
    if not (failure.rule.startswith("table.") and failure.follows.startswith("table.")):
        return True
    return any(
        failure.signature in shapes and SCRIPT_CAUSES[cause](script, failure) for cause, shapes in SPREADS.items()
    )
