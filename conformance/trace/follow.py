"""What the client's history says of each request, without judging: for a monitor that compares where the tables are."""

from ropecheck.adapters import events
from ropecheck.conformance.trace.live import Histories
from ropecheck.spec.views import Place


class TraceFollower:
    """Feed it all events but forwards. Raises OutOfDomain for a family that the specification does not have."""

    def __init__(self, family: str) -> None:
        self._histories = Histories(family)

    def feed(self, event: events.Event) -> None:
        """Follow one event."""
        histories = self._histories
        match event:
            case events.Arrived():
                histories.arrive(event)
            case events.Opened():
                histories.open(event)
            case events.Closed(session=session):
                histories.close(session)
            case events.Aborted(req=req):
                histories.abort(req)
            case events.Rest() | events.Died():
                histories.rest()
            case events.Output(req=req, tokens=tokens, finished=finished):
                live = histories.live.get(req)
                if live is not None:
                    live.delivered += len(tokens)
                    if finished:
                        histories.finish(live, finished)
            case _:
                pass

    def place(self, req: str) -> Place | None:
        """Where a request's tokens sit; None where nothing is known of it."""
        live = self._histories.live.get(req)
        return None if live is None or live.refuse or not self._histories.judged(req) else live.place
