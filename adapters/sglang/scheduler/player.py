"""One script on one scheduler: its messages at the turns of the loop that it wants, and what the client gets back.

| spec field | adapter field | engine field |
| --- | --- | --- |
| a turn of the loop | play.Rounds.times | a call of `request_receiver.recv_requests` |
| what the client gets | events.Output | `BatchTokenIDOutput`, `AbortReq` on their way out |
| retraction | events.Retracted | `Req.reset_for_retract` |

Faked: `request_receiver` (requests come from the script), what sends outputs to other processes, and the clock, when a
session is to time out.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import traceback
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ropecheck.adapters import events, play
from ropecheck.adapters.sglang.meter import raised
from ropecheck.adapters.sglang.recorder import outputs
from ropecheck.adapters.sglang.recorder.tables import Given
from ropecheck.adapters.sglang.scheduler import intake
from ropecheck.adapters.sglang.scheduler.build import NoSuchArgument
from ropecheck.adapters.sglang.scheduler.network import Network


class Stuck(Exception):
    """The loop went round so often after the script's last action without coming to rest."""


class Over(Exception):
    """Nothing is left to do, in a loop that has no end of its own: those of a decode server up to 0.5.20."""


class OwnFault(Exception):
    """The suite's own stand-ins failed: nothing can be said of the engine."""


class Clock:
    """In place of the module `time`, where the engine reads how long a session has been idle."""

    def __init__(self) -> None:
        self.ahead = 0.0
        """Seconds that passed at once."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead


class Player:
    """A scheduler, and the script that it is given. Stands in for its request receiver."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.trace: list[bytes | Given] = []
        self.network = Network(scheduler, self.trace.append)
        self.network.install(scheduler.tp_worker.model_runner)
        inner = getattr(getattr(scheduler, "draft_worker", None), "draft_worker", None)
        for runner in getattr(inner, "draft_runners", None) or filter(None, [getattr(inner, "draft_runner", None)]):
            self.network.install(runner, draft=True)
        self._actions: deque[tuple[play.Action, Any]] = deque()
        """What the client does, each with the engine's message; None for a step."""
        self._made: list[weakref.ref[Any]] = []
        """The script's requests, as objects of the engine."""
        self.dead = False
        self._receiver = scheduler.request_receiver
        scheduler.request_receiver = self
        self._clock = Clock()
        for owner in (scheduler, scheduler.session_controller):
            sys.modules[type(owner).__module__].time = self._clock  # type: ignore[attr-defined]
        self._watch()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receiver, name)

    def emit(self, event: events.Event) -> None:
        """Add to the trace."""
        self.trace.append(events.line(event))

    # ------------------------------------------------------------ one script

    def play(self, script: play.Play) -> bytes:
        """The trace of a script. Whatever the loop raises is its last event; the scheduler is then of no further use
        (`dead`). Raises OwnFault, and NotOffered for a script with a message that the release does not have."""
        decodes = self._decodes()
        messages = [None if isinstance(one, play.Rounds) else intake.message(one, decodes) for one in script.actions]
        self.trace.clear()
        self.emit(script.header)
        self._actions.extend(zip(script.actions, messages, strict=True))
        self._wait, self._left, self._limit = 0, script.limit, script.limit
        self.network.accept, self.network.failed = script.accept, None
        arrivals = [one for one in script.actions if isinstance(one, play.Deliver)]
        self.network.stops = {one.event.req: one.stop_every for one in arrivals}
        self.network.widest = max((one.event.beams for one in arrivals if one.event.beams > 1), default=0)
        self.dead = False
        scheduler = self.scheduler
        scheduler.forward_ct = 0  # the engine's switch that forces retraction counts by it
        try:
            self._loop()
            self._rest()
        except Exception as error:
            self.dead = True
            self._actions.clear()
            said = raised(error)
            message = (said.message.splitlines() or [""])[0][:300]
            if (
                "'FakeKVManager' object has no attribute" in message
            ):  # an own fake of the engine's, behind its interface
                raise NoSuchArgument(f"this release's fake transfer does not do everything: {message}") from error
            if said.stage != "engine" and not isinstance(error, Stuck):
                raise OwnFault(f"{said.type}: {message} at {place(error)}") from error
            failed = self.network.failed
            brought = None if failed is None else failed.event()
            self.emit(events.Died(error=said.type, message=message, where=said.where, given=brought))
        return b"".join(one if isinstance(one, bytes) else self._told(one) for one in self.trace)

    def _told(self, given: Given) -> bytes:
        """A forward's line. Nobody waited for its tables before."""
        try:
            given.held.wait()
            return events.line(given.event())
        except RuntimeError:  # the device died, and they with it
            if not self.dead:
                raise
            return b""

    def _loop(self) -> None:
        """The engine's loop, until all is done."""
        self.scheduler.gracefully_exit = False
        with contextlib.suppress(Over):
            self.scheduler.run_event_loop()

    def recv_requests(self, local_reqs: Iterable[Any] | None = None) -> list[Any]:
        """What the engine's loop asks for at the start of every turn."""
        messages = list(local_reqs or ())
        for overdue in messages:  # the engine's own time limits
            self.emit(events.Aborted(req=overdue.rid))
        if self._wait:
            self._wait -= 1
            return messages
        while self._actions:
            action, message = self._actions.popleft()
            expires = isinstance(action, play.Tell) and message is None
            if expires and messages:  # they come first: the engine looks at its clock before it reads them
                self._actions.appendleft((action, message))
                return messages
            if isinstance(action, play.Rounds):
                self._wait = action.times - 1
                return messages
            self.emit(action.event)
            if expires:
                self._clock.ahead += 2 * intake.TIMEOUT
            else:
                messages.append(message)
        if not messages and self.scheduler.is_fully_idle():
            if self.scheduler.gracefully_exit:
                raise Over
            self.scheduler.gracefully_exit = True
        self._left -= 1
        if self._left < 0:
            if not (messages := self._hang_up()):
                raise Stuck("requests are left, and nothing moves them")
            self._left = self._limit
        return messages

    def _hang_up(self) -> list[Any]:
        """Messages that close the sessions which nobody waits for: what a session keeps between its turns, a row of the
        request pool too, is its client's to give back, and others may wait for it."""
        waiting = {
            req.session.session_id for ref in self._made if (req := ref()) and req.session and not req.finished()
        }
        idle = [
            events.Closed(session=name) for name in self.scheduler.session_controller.sessions if name not in waiting
        ]
        for event in idle:
            self.emit(event)
        return [intake.message(play.Tell(event)) for event in idle]

    def _rest(self) -> None:
        """Make the scheduler as good as new, and say what is still held when every session is closed."""
        scheduler = self.scheduler
        sessions = scheduler.session_controller
        for session in list(sessions.sessions):
            sessions.close(intake.message(play.Tell(events.Closed(session=session))))
        sessions.sessions.clear()  # also one whose end waits for a turn that was aborted before it ran
        scheduler.flush_cache()
        held = self._held()
        if held:  # a cycle is no leak, nor are the last two batches, which an overlapped loop pins until the next ones
            pins = getattr(scheduler, "batch_record_buf", [])
            pins[:] = [None] * len(pins)
            gc.collect()
            held = self._held()
        if held:  # the last batch's may go with the next one
            self._serve(list(self._made))
            gc.collect()
            held = self._held()
        self._made.clear()
        self.emit(events.Rest(retained=held))

    def _serve(self, made: list[weakref.ref[Any]]) -> None:
        """One more request, of which nothing is told, so that the engine lets go of its last batch."""
        trace = list(self.trace)
        event = events.Arrived(req="another", prompt=(), max_new_tokens=2)
        self._actions.append((play.Tell(events.Control("another")), self._another(event)))
        self._loop()
        self.scheduler.flush_cache()
        self.trace[:], self._made = trace, made

    def _another(self, event: events.Arrived) -> Any:
        return intake.message(play.Deliver(event, (11, 12)), self._decodes())

    def _decodes(self) -> bool:
        """Whether another engine computes prompts for this one."""
        return getattr(getattr(self.scheduler, "disaggregation_mode", None), "value", None) == "decode"

    def _held(self) -> tuple[str, ...]:
        return tuple(req.rid for ref in self._made if (req := ref()) is not None)

    # ------------------------------------------------------------ what is watched

    def _watch(self) -> None:
        """Hear of outputs and retractions. Once per process."""
        from sglang.srt.managers import schedule_batch
        from sglang.srt.managers.scheduler_components import output_sender

        def send_output(_: Any, output: Any, recv_obj: Any = None) -> None:
            self._output(output)

        output_sender.SenderWrapper.send_output = send_output
        reset = schedule_batch.Req.reset_for_retract

        def reset_for_retract(req: Any, *args: Any, **kwargs: Any) -> Any:
            self.emit(events.Retracted(req=req.rid))
            return reset(req, *args, **kwargs)

        schedule_batch.Req.reset_for_retract = reset_for_retract
        prebuilt: Any = getattr(schedule_batch.ScheduleBatch, "process_prebuilt", None)

        def process_prebuilt(batch: Any, *args: Any, **kwargs: Any) -> Any:
            for req in batch.reqs:
                self.emit(events.Transfer(req=req.rid, answers=tuple(req.output_ids)))
            return prebuilt(batch, *args, **kwargs)

        if prebuilt is not None:
            schedule_batch.ScheduleBatch.process_prebuilt = process_prebuilt
        make = schedule_batch.Req.__init__

        def made(req: Any, *args: Any, **kwargs: Any) -> None:
            make(req, *args, **kwargs)
            self._made.append(weakref.ref(req))

        schedule_batch.Req.__init__ = made

    def _output(self, output: Any) -> None:
        for event in outputs.told(output):
            self.emit(event)


def place(error: BaseException) -> str:
    """The innermost line of an exception."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
