"""The base beside the version that is checked: a pool of its own that runs whatever the other one runs."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.seat import Reply
from ropecheck.conformance.run.subject import AnyPlan

Planned = AnyPlan
Verdict = Callable[[Planned, Reply], Outcome]


class Base:
    """Runs plans in a thread; `outcome` waits for one. Use as a context manager.

    The pool is used by that thread alone, except that `close` ends its processes.
    """

    def __init__(self, name: str, pool: Pool[Planned], verdict: Verdict) -> None:
        self.name = name
        self.hello: protocol.Hello | None = None
        self.outcomes: dict[str, Outcome] = {}
        """By scenario id, of everything that has been run."""
        self._pool = pool
        self._verdict = verdict
        self._wanted: deque[Planned] = deque()
        self._asked: set[str] = set()
        self._changed = threading.Condition()
        self._problem = ""
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="base", daemon=True)

    def __enter__(self) -> Base:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def want(self, planned: Planned) -> None:
        """Run this too; returns at once."""
        with self._changed:
            if planned.scenario.id not in self._asked:
                self._asked.add(planned.scenario.id)
                self._wanted.append(planned)
                self._changed.notify_all()

    def outcome(self, id: str) -> Outcome:
        """The outcome of a scenario that was wanted. Raises GaveUp when the base cannot run."""
        with self._changed:
            self._changed.wait_for(lambda: id in self.outcomes or self._problem)
            if id in self.outcomes:
                return self.outcomes[id]
        raise GaveUp(f"base {self.name}: {self._problem}")

    def drain(self) -> None:
        """Wait for everything that was wanted. Raises GaveUp when the base cannot run."""
        for id in list(self._asked):
            self.outcome(id)

    def close(self) -> None:
        """End the workers; what was not run stays so."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(timeout=0.5)
        with contextlib.suppress(Exception):  # the thread may be inside the pool: its processes are ended all the same
            self._pool.close()

    def _serve(self) -> None:
        try:
            self.hello = self._pool.start()
            while (batch := self._next()) is not None:
                self._run(batch)
        except Exception as error:  # whatever it is, whoever waits must hear of it
            with self._changed:
                self._problem = str(error) or type(error).__name__
                self._changed.notify_all()

    def _next(self) -> list[Planned] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._ended)
            batch, self._wanted = list(self._wanted), deque()
            return None if self._ended else batch

    def _run(self, batch: Iterable[Planned]) -> None:
        for planned, answer in self._pool.answers(batch):
            outcome = self._verdict(planned, answer)
            with self._changed:
                self.outcomes[planned.scenario.id] = outcome
                self._changed.notify_all()
                if self._ended:
                    return
