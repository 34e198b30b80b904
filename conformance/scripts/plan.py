"""A script with every number resolved: token ids, prompt tables, hashes of pixels."""

import zlib
from collections.abc import Iterator

import msgspec

from ropecheck.adapters import events, play
from ropecheck.conformance.scripts import legal
from ropecheck.conformance.scripts.script import (
    Action,
    Arrive,
    Close,
    Continue,
    Flush,
    GiveUp,
    OpenSession,
    Pause,
    Script,
    Step,
)
from ropecheck.conformance.scripts.servers import server
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.history import History, run_length

FIRST_TEXT, TEXTS = 10, 480
"""Text tokens are in FIRST_TEXT .. FIRST_TEXT + TEXTS - 1: clear of the toy model's special tokens."""
PLACEHOLDERS = {"image": 505, "video": 506}


def play_of(script: Script) -> play.Play:
    """What crosses to the adapter. Raises OutOfDomain for a script that cannot be played."""
    legal.check(script)
    family = find_family(script.family)
    actions = script.actions + ((Continue(),) if legal.paused(script.actions) else ())
    header = events.TraceHeader(version=events.VERSION, family=script.family, configuration=script.server)
    timed = legal.timed(script.actions)
    told = tuple(one for action in actions for one in _resolved(family, action, timed))
    return play.Play(header=header, server=server(script.server), actions=told, accept=script.accept)


def req_name(req: int, copy: int = 0) -> str:
    """A request's name in the trace."""
    return f"r{req}" + (f".{copy}" if copy else "")


def session_name(session: int) -> str:
    """A session's name in the trace."""
    return f"s{session}"


def _resolved(family: MediaFamily, action: Action, timed: set[int]) -> Iterator[play.Action]:
    match action:
        case Arrive():
            for copy in range(action.copies):
                yield _arrive(family, action, copy)
        case Step(times=times):
            yield play.Rounds(times)
        case GiveUp(req=req):
            yield play.Tell(events.Aborted("" if req is None else req_name(req)))
        case OpenSession(session=session, streaming=streaming):
            yield play.Tell(events.Opened(session_name(session), streaming), session in timed)
        case Close(session=session, timeout=timeout):
            yield play.Tell(events.Closed(session_name(session)), timeout)
        case Pause(mode=mode):
            yield play.Tell(events.Control(f"pause {mode}"))
        case Continue():
            yield play.Tell(events.Control("continue"))
        case Flush():
            yield play.Tell(events.Control("flush"))


def _arrive(family: MediaFamily, action: Arrive, copy: int) -> play.Deliver:
    event = events.Arrived(
        req=req_name(action.req, copy),
        prompt=tuple(events.PromptRun(run.kind, run.tokens, run.grid, run.seconds_per_grid) for run in action.prompt),
        max_new_tokens=action.max_new_tokens,
        session="" if action.session is None else session_name(action.session),
        parent="" if action.parent is None else req_name(action.parent),
        offset=action.offset,
        replace=action.replace,
        drop_previous_output=action.drop_previous_output,
        beams=action.beams,
        embeds="input_embeds" in dict(action.more),
    )
    ids, items = _tokens(family, action.prompt, action.content)
    media = None
    if items:
        table = prompt_table(family, action.prompt)
        media = play.PlayMedia(rows=tuple(map(tuple, table.tolist())), delta=delta(table), items=items)
    return play.Deliver(
        event=event, ids=ids, media=media, stop_every=action.stop_every, priority=action.priority, more=action.more
    )


def _tokens(family: MediaFamily, prompt: History, content: int) -> tuple[tuple[int, ...], tuple[play.PlayItem, ...]]:
    ids: list[int] = []
    items: list[play.PlayItem] = []
    for run in prompt:
        count = run_length(family, run)
        if run.is_text:
            ids.extend(FIRST_TEXT + (content * 131 + place * 17) % TEXTS for place in range(len(ids), len(ids) + count))
            continue
        start = len(ids)
        ids.extend([PLACEHOLDERS[run.kind]] * count)
        pixels = zlib.crc32(msgspec.json.encode((run.kind, run.grid, content)))
        items.append(play.PlayItem(run.kind, start, start + count, pixels))
    return tuple(ids), tuple(items)
