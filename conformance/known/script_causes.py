"""Why a known failure of a scheduler happens: what the client's script must hold for its bug to apply, and what wrong
columns come out where there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.scripts.script import Arrive, Close, Open, Pause, Script
from ropecheck.conformance.scripts.servers import servers
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
    """A turn joins a session that has another one; of a turn that raises, it brings media."""
    seen: set[int | None] = set()
    for turn in turns(script):
        if turn.session in seen and (brings_media(turn.prompt) or "take" in failure.signature):
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


def close_drops_the_media(script: Script, failure: Failure) -> bool:
    """An ordinary session with media is closed, and the wrong columns are plain indices."""
    ordinary = {one.session for one in script.actions if isinstance(one, Open) and not one.streaming}
    closed = {one.session for one in script.actions if isinstance(one, Close)} & ordinary
    media = {turn.session for turn in turns(script) if brings_media(turn.prompt)}
    return bool(closed & media) and failure.signature == "delta missing"


def output_follows_the_t_row(script: Script, _: Failure) -> bool:
    """Something retracts, and a prompt ends with media."""
    ends = (not one.prompt[-1].is_text for one in script.actions if isinstance(one, Arrive))
    return may_retract(script) and any(ends)


def cut_keeps_the_parents_media(script: Script, _: Failure) -> bool:
    """A turn with an offset."""
    return any(turn.offset for turn in turns(script))


def members_have_no_media(script: Script, failure: Failure) -> bool:
    """A beam search of a prompt with media, and the wrong columns are plain indices."""
    searched = (one for one in script.actions if isinstance(one, Arrive) and one.beams > 1)
    return failure.signature == "delta missing" and any(brings_media(one.prompt) for one in searched)


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


SCRIPT_CAUSES: Mapping[str, ScriptCause] = {
    cause.__name__.replace("_", "-"): cause
    for cause in (
        refused_turn_goes_on,
        clearing_walks_a_changing_dict,
        close_drops_the_media,
        output_follows_the_t_row,
        cut_keeps_the_parents_media,
        members_have_no_media,
        members_have_no_entry,
        pause_retracts_a_search,
    )
}
