"""The pool: one worker per core, each fed one scenario after another; what kills a worker costs that scenario alone.

A single selector loop, no threads. Each worker has a short queue (`depth`): its head is running, the rest waits in
the pipe so that the worker never idles between scenarios. The time limit counts for the head only, and a worker
that works is given it in processor seconds: a scenario's verdict does not depend on what else the machine does.
"""

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, Self

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.judge.outcome import Unrun
from ropecheck.conformance.run.client import Process
from ropecheck.conformance.run.inflight import Slot, rescue
from ropecheck.conformance.run.seat import (
    Doubted,
    P,
    Reply,
    RunLimits,
    Seat,
    Ticket,
    Unacceptable,
    WrongProtocol,
    answer_of,
    hello_of,
    poisoned,
)
from ropecheck.conformance.run.warm import NotForked, Warm, can_fork
from ropecheck.conformance.targets.registry import Target

IDLE = 0.05
"""A worker that used less of a processor than this share of its time does not work: it hangs."""


class Pool(Generic[P]):
    """Workers of one target. `out` gets their logs and in-flight scenarios. Use as a context manager.

    `warn` takes one-line messages about restarts and workers that are given up. `warm` forks the workers and stays when
    the pool ends; without one the pool has its own, where the target can fork. `version` tells code that changed since
    `warm` forked last.
    """

    def __init__(
        self,
        target: Target,
        *,
        device: str,
        workers: int,
        out: Path,
        limits: RunLimits | None = None,
        depth: int = 2,
        warn: Callable[[str], None] = lambda message: None,
        warm: Warm | None = None,
        version: str = "",
    ) -> None:
        self.target = target
        self.device = device
        self.limits = limits or RunLimits()
        self.depth = depth
        self.warn = warn
        self.hello: protocol.Hello | None = None
        self.restarts = 0
        self._out = out
        out.mkdir(parents=True, exist_ok=True)
        self._own_warm = Warm(target, out / "imports.log") if warm is None and can_fork(target, device) else None
        self._warm = warm or self._own_warm
        self._version = version
        for path in rescue(out):
            warn(f"an earlier run here was killed with this scenario in a worker's hands: `ropecheck replay {path}`")
        self._selector = selectors.DefaultSelector()
        self._again: deque[Ticket[P]] = deque()
        self._done: deque[tuple[P, Reply]] = deque()
        self._last_problem = ""
        self._starting_up = True
        self._seats: list[Seat[P]] = [
            Seat(n, [Slot(out / "in-flight" / f"worker-{n}.{chr(97 + k)}.json") for k in range(depth)])
            for n in range(workers)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ for callers

    def start(self) -> protocol.Hello:
        """Start every worker and wait for their hellos. Raises GaveUp when none comes up."""
        for seat in self._seats:
            self._spawn(seat)
        while any(seat.process is not None and not seat.ready for seat in self._seats):
            self._wait()
        self._starting_up = False
        if self.hello is None or not self._alive():
            raise GaveUp(f"no worker of target {self.target.name} started: {self._last_problem}")
        return self.hello

    @property
    def workers(self) -> int:
        """Workers that are still in use."""
        return len(self._alive())

    def answers(self, plans: Iterable[P]) -> Generator[tuple[P, Reply], None, None]:
        """Run every plan; yield it with its answer (`Doubted` where the device was lost under it), or with why it could
        not run, in the order of completion.

        Plans are pulled as workers get free. Raises GaveUp when no worker is left.
        """
        source = iter(plans)
        more = True
        try:
            while True:
                more = self._fill(source, more)
                while self._done:
                    yield self._done.popleft()
                busy = any(not ticket.abandoned for seat in self._seats for ticket in seat.queue)
                if not more and not busy and not self._again and not any(seat.alone for seat in self._seats):
                    return
                if not self._alive():
                    raise GaveUp(f"no worker of target {self.target.name} is left: {self._last_problem}")
                self._wait()
        finally:
            self._again.clear()
            self._done.clear()
            for seat in self._seats:
                seat.alone.clear()
                for ticket in seat.queue:
                    ticket.abandoned = True

    def close(self) -> None:
        """End all workers; in-flight files stay only if this process dies before."""
        for seat in self._alive():
            if seat.process is not None and seat.ready and not seat.queue:
                seat.process.ask_to_end()
        for seat in self._seats:
            if seat.process is not None:
                self._forget(seat.process)
                seat.process.stop(grace=2.0 if seat.ready and not seat.queue else 0.0)
                seat.process = None
            for slot in seat.slots:
                slot.remove()
            seat.slots.clear()
        if self._own_warm is not None:
            self._own_warm.close()
        with contextlib.suppress(OSError):
            (self._out / "in-flight").rmdir()
        self._selector.close()

    # ------------------------------------------------------------ queues

    def _alive(self) -> list[Seat[P]]:
        return [seat for seat in self._seats if seat.process is not None]

    def _fill(self, source: Iterator[P], more: bool) -> bool:
        """Feed free workers, the emptiest queue first; False once the source is exhausted."""
        for level in range(self.depth):
            for seat in self._seats:
                if not seat.ready or len(seat.queue) > level or (seat.queue and seat.isolated):
                    continue
                seat.isolated = bool(seat.alone) and not seat.queue
                if seat.isolated:
                    self._feed(seat, seat.alone.popleft())
                elif seat.alone:
                    continue
                elif self._again:
                    self._feed(seat, self._again.popleft())
                elif more:
                    plan = next(source, None)
                    more = plan is not None
                    if plan is not None:
                        self._feed(seat, Ticket(plan))
        return more

    def _feed(self, seat: Seat[P], ticket: Ticket[P]) -> None:
        assert seat.process is not None
        seat.slots[seat.turn].write(ticket.plan.scenario)
        seat.turn = (seat.turn + 1) % self.depth
        seat.queue.append(ticket)
        if len(seat.queue) == 1:
            self._due(seat, self._allowed(seat))
        seat.process.send(ticket.plan.job)
        self._watch_writes(seat)

    def _allowed(self, seat: Seat[P]) -> float:
        """Seconds for the running job: a script may have to start its server first, and counts its own CPU seconds."""
        steps = seat.queue[0].plan.job.steps if seat.queue else ()
        scripted = bool(steps) and isinstance(steps[0], protocol.PlayStep)
        return self.limits.scenario * (6.0 if scripted else 1.0)

    def _due(self, seat: Seat[P], seconds: float) -> None:
        """From now on the worker has so long for what it does."""
        assert seat.process is not None
        seat.deadline = time.monotonic() + seconds
        seat.used, seat.spent = seat.process.cpu_seconds, 0.0

    def _works_on(self, seat: Seat[P], seconds: float) -> bool:
        """Whether a worker that is overdue waits for a processor: it has worked, for less than the seconds that it has.
        Then it gets the rest."""
        assert seat.process is not None
        used = seat.process.cpu_seconds
        worked = used - seat.used
        seat.used, seat.spent = used, seat.spent + worked
        if worked < IDLE * seconds or seat.spent >= seconds:
            return False
        seat.deadline = time.monotonic() + seconds
        return True

    # ------------------------------------------------------------ processes

    def _spawn(self, seat: Seat[P]) -> None:
        try:
            # A suspect's kernels run one after the other, so that the failing one is named.
            blocking = {"CUDA_LAUNCH_BLOCKING": "1"} if seat.alone else {}
            target = replace(self.target, env={**self.target.env, **blocking})
            log = self._out / f"worker-{seat.number}.log"
            process = Process(target, self.device, log, self._warm, self._version, self.limits.start)
        except NotForked as error:
            self._give_up(seat, str(error))
            return
        except OSError as error:
            self._give_up(seat, f"cannot start {self.target.argv[0]}: {error.strerror or error}")
            return
        seat.process, seat.ready, seat.watching_writes = process, False, False
        self._due(seat, self.limits.start)
        self._selector.register(process.from_worker, selectors.EVENT_READ, (seat, process, "read"))
        self._selector.register(process.printed.read_end, selectors.EVENT_READ, (seat, process, "print"))
        if process.death >= 0:
            self._selector.register(process.death, selectors.EVENT_READ, (seat, process, "death"))

    def _forget(self, process: Process) -> None:
        for fd in (process.from_worker, process.to_worker, process.death, process.printed.read_end):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(fd)

    def _watch_writes(self, seat: Seat[P]) -> None:
        process = seat.process
        assert process is not None
        if process.writing and not seat.watching_writes:
            self._selector.register(process.to_worker, selectors.EVENT_WRITE, (seat, process, "write"))
        elif seat.watching_writes and not process.writing:
            self._selector.unregister(process.to_worker)
        seat.watching_writes = process.writing

    def _give_up(self, seat: Seat[P], why: str) -> None:
        for ticket in seat.alone:
            if not ticket.audit and not ticket.abandoned:
                self._done.append((ticket.plan, Unrun(stage="run", message=why)))
        seat.alone.clear()
        self._last_problem = f"worker {seat.number}: {why}"
        self.warn(f"{self._last_problem}; this worker is given up")
        seat.process, seat.ready, seat.deadline = None, False, 0.0

    def _replace(self, seat: Seat[P], stage: str, why: str, final: bool = False) -> None:
        """The worker is lost: the running scenario could not run, those behind it go elsewhere, a new one starts."""
        process = seat.process
        assert process is not None
        words = process.last_words()
        why = f"{why}; it printed: {words}" if words else why
        self._forget(process)
        process.stop()
        if seat.queue:
            head = seat.queue.popleft()
            if not head.abandoned:
                self._done.append((head.plan, Unrun(stage=stage, message=why)))
        self._restart(seat, why, final)

    def _restart(self, seat: Seat[P], why: str, final: bool = False) -> None:
        self._again.extend(ticket for ticket in seat.queue if not ticket.abandoned)
        seat.queue.clear()
        if final or self._starting_up:
            self._give_up(seat, why)
        elif seat.strikes >= self.limits.restarts:
            self._give_up(seat, f"{seat.strikes} restarts in a row without a success, the last: {why}")
        else:
            seat.strikes += 1
            self.restarts += 1
            self._spawn(seat)

    # ------------------------------------------------------------ the loop

    def _wait(self) -> None:
        """Block until a worker says something or something is overdue, and deal with it."""
        due = [seat.deadline for seat in self._seats if seat.deadline]
        if not due:
            raise RuntimeError("the pool would wait for ever: no worker has anything to do")
        timeout = max(0.0, min(due) - time.monotonic())
        for key, _ in self._selector.select(timeout):
            seat, process, what = key.data
            if seat.process is process:  # else: replaced while handling this batch of events
                self._handle(seat, process, what)
        now = time.monotonic()
        for seat in self._seats:
            if seat.process is None or not seat.deadline or now < seat.deadline:
                continue
            seconds = self._allowed(seat) if seat.ready else self.limits.start
            if self._works_on(seat, seconds):
                continue
            if seat.ready:
                self._replace(seat, "time limit", f"no answer within {seconds:g} s; the worker was killed")
            else:
                self._replace(seat, "handshake", f"no hello within {seconds:g} s; the worker was killed")

    def _handle(self, seat: Seat[P], process: Process, what: str) -> None:
        if what == "print":
            process.printed.drain()
            if process.printed.ended:
                self._selector.unregister(process.printed.read_end)
            return
        if what == "write":
            process.flush()
            self._watch_writes(seat)
        try:
            if what != "write":
                process.read(all_of_it=what == "death")
            while seat.process is process and (body := process.frame()) is not None:
                self._take(seat, body)
        except protocol.ProtocolError as error:
            stage = "decode" if seat.ready else "handshake"
            self._replace(seat, stage, f"the worker does not speak the protocol: {error}")
            return
        if seat.process is process and (process.ended or what == "death"):
            stage = "run" if seat.ready else "start"
            self._replace(seat, stage, f"the worker {process.how_it_ended()}")

    def _take(self, seat: Seat[P], body: bytes) -> None:
        """One frame came from a worker."""
        if not seat.ready:
            self._take_hello(seat, body)
            return
        if not seat.queue:
            self._replace(seat, "decode", "the worker answered without a job")
            return
        ticket = seat.queue[0]
        try:
            answer = answer_of(body, ticket.plan.job)
        except Unacceptable as error:
            self._replace(seat, "decode", str(error))
            return
        seat.strikes = 0
        seat.queue.popleft()
        if seat.queue:
            self._due(seat, self._allowed(seat))
        else:
            seat.deadline = 0.0
        if poisoned(answer):
            self._broken(seat, ticket, answer)
            return
        if ticket.audit:
            return
        if not ticket.abandoned:
            self._done.append((ticket.plan, self._acquitted(seat, ticket, answer) if seat.isolated else answer))
        seat.recent.append(ticket.plan)

    def _broken(self, seat: Seat[P], ticket: Ticket[P], answer: protocol.JobAnswer) -> None:
        """A kernel failed: the process is of no further use. A scenario that breaks a fresh one is the culprit, and
        this answer its verdict; another is run once more, alone."""
        name = ticket.plan.scenario.name
        if ticket.audit:
            self.warn(f"{name} breaks the device context when it runs alone, after it had passed")
        elif seat.isolated and not ticket.abandoned:
            self._done.append((ticket.plan, answer))
        elif not ticket.abandoned:
            seat.alone.appendleft(ticket)
        process = seat.process
        assert process is not None
        self._forget(process)
        process.stop()
        self._restart(seat, f"{name} broke the device context")

    def _acquitted(self, seat: Seat[P], ticket: Ticket[P], answer: protocol.JobAnswer) -> Doubted:
        """A suspect passes alone: those before it in the broken process are run alone as well."""
        seat.alone.extend(Ticket(plan, audit=True) for plan in seat.recent)
        seat.recent.clear()
        why = "the device context was lost while it ran beside others, and alone it passes: what broke it is not known"
        return Doubted(answer, Unrun(stage="device", message=why))

    def _take_hello(self, seat: Seat[P], body: bytes) -> None:
        try:
            hello = hello_of(body)
        except Unacceptable as error:
            self._replace(seat, "handshake", str(error), final=isinstance(error, WrongProtocol))
            return
        self.hello = self.hello or hello
        seat.ready, seat.deadline = True, 0.0
