"""What fails in a scheduler's event stream because of the known bugs.

The judge is asked again of what a scheduler with them holds: a failure is expected where it finds nothing wrong then.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from ropecheck.adapters import events, protocol
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known.endings import SILENT, ended_by, silenced_by
from ropecheck.conformance.known.scheduler import KnownHistories
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.trace.judge import Judge
from ropecheck.conformance.trace.verdict import PREFIX


def predicted(
    script: Script, result: protocol.Result, failures: Sequence[Failure], bugs: Collection[str]
) -> tuple[Failure, ...]:
    """What fails in a script on a scheduler with these bugs, of what did."""
    if not failures or not isinstance(result, protocol.Played):
        return ()
    stream = map(_decoder.decode, events.lines(result.trace))
    return expected(stream, failures, bugs, servers()[script.server].arguments)


_decoder = msgspec.json.Decoder(events.Event)


def expected(
    stream: Iterable[events.Event], failures: Sequence[Failure], bugs: Collection[str], server: Mapping[str, object]
) -> tuple[Failure, ...]:
    """Those of a stream's failures that these bugs give, to the number, each with its causes.

    None of a request in which anything else is wrong where only these bugs let it be judged.
    """
    told = list(stream)
    try:
        right, known = (_Second(told, which, server) for which in (frozenset[str](), bugs))
    except (LookupError, ValueError):  # an engine's numbers that fit no table
        return ()
    seen = known.histories.looked - known.wrong.keys()
    unlike = {named(one) for spot, one in known.wrong.items() if spot not in right.histories.looked}
    return tuple(
        msgspec.structs.replace(failure, causes=causes)
        for failure in failures
        if (failure.rule == SURVIVES or (_spot(failure, failure.step) in seen and named(failure) not in unlike))
        and (causes := known.causes(failure))
    )


class _Second:
    """A stream judged again, beside what a scheduler with these bugs holds."""

    def __init__(self, stream: Sequence[events.Event], bugs: Collection[str], server: Mapping[str, object]) -> None:
        made: list[KnownHistories] = []

        def histories(family: str) -> KnownHistories:
            made.append(KnownHistories(family, bugs, server))
            return made[0]

        judge = Judge(PREFIX, histories)
        self.wrong: dict[tuple[int, int | None], Failure] = {}
        self.end = ""
        places: list[int] = []
        for place, event in in_order(stream):
            places.append(place)
            if made:
                made[0].see(event, place)
            self.end = ended_by(made[0], event) if isinstance(event, events.Died) else self.end
            for found in judge.feed(event):
                self.wrong[_spot(found, places[found.step])] = found
        (self.histories,) = made

    def causes(self, failure: Failure) -> tuple[str, ...]:
        """Of a failure that these bugs give, which ones."""
        if failure.rule == SURVIVES:
            end = self.end or (silenced_by(self.histories) if failure.signature == SILENT else "")
            return (end,) if end else ()
        return tuple(sorted(self.histories.causes.get(named(failure), ())))


SURVIVES = "schedule.survives"


def named(failure: Failure) -> str:
    """The request that a failure speaks of; "" for none."""
    found = re.match(r"request (\S+): ", failure.message)
    return found[1] if found else ""


def _spot(failure: Failure, place: int) -> tuple[int, int | None]:
    return place, None if failure.difference is None else failure.difference.request


CLIENT = (events.Arrived, events.Opened, events.Closed, events.Aborted, events.Control)


def in_order(stream: Iterable[events.Event]) -> Iterator[tuple[int, events.Event]]:
    """Events by their place in the stream, what a pause with retraction did directly behind it: clients' messages are
    told before the engine has taken the first of them."""
    waiting: list[tuple[int, events.Event]] = []
    for place, event in enumerate(stream):
        waiting.append((place, event))
        if not isinstance(event, (*CLIENT, events.Output, events.Retracted)):
            yield from _sorted(waiting)
            waiting = []
    yield from _sorted(waiting)


def _sorted(waiting: list[tuple[int, events.Event]]) -> list[tuple[int, events.Event]]:
    pause = next((n for n, (_, one) in enumerate(waiting) if one == events.Control("pause retract")), None)
    last = next((n for n in range(len(waiting) - 1, -1, -1) if isinstance(waiting[n][1], events.Retracted)), None)
    if pause is None or last is None:
        return waiting
    later = {one.req for _, one in waiting[pause:] if isinstance(one, events.Arrived)}
    done = [
        (place, one)
        for place, one in waiting[pause : last + 1]
        if isinstance(one, events.Retracted | events.Output) and one.req not in later
    ]
    rest = [pair for pair in waiting[pause + 1 :] if pair not in done]
    return [*waiting[: pause + 1], *done, *rest]
