"""The base beside the version that is checked: what was kept of the last time, and a pool of its own that runs whatever
else the other one runs."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.run import answers
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.seat import Reply
from ropecheck.conformance.subject import AnyPlan

Planned = AnyPlan
Verdict = Callable[[Planned, Reply], Outcome]


class Base:
    """Runs plans in a thread; `outcome` waits for one. Use as a context manager.

    The pool is used by that thread alone, except that `close` ends its processes.
    """

    def __init__(self, name: str, pool: Pool[Planned], verdict: Verdict, kept: Path | None = None) -> None:
        """kept: the file of its outcomes, read now and written at the end."""
        self.name = name
        self.outcomes: dict[str, Outcome] = {}
        """By scenario id, of everything that has been run."""
        self._file = kept
        self._kept = answers.load(kept) if kept is not None else {}
        self._began = False
        self._pool = pool
        self._verdict = verdict
        self._wanted: deque[Planned] = deque()
        self._asked: set[str] = set()
        self._changed = threading.Condition()
        self._problem = ""
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="base", daemon=True)

    @property
    def known(self) -> bool:
        """Whether its outcomes are there from another time."""
        return bool(self._kept)

    def __enter__(self) -> Self:
        if not self.known:
            self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Let its engine start, if it has not: something will be asked that is not kept."""
        with self._changed:
            if not self._began and not self._ended:
                self._began = True
                self._thread.start()

    def want(self, planned: Planned) -> None:
        """Run this too, if it is not kept; returns at once."""
        id = planned.scenario.id
        with self._changed:
            if id in self._asked:
                return
            self._asked.add(id)
            if id in self._kept:
                self.outcomes[id] = self._kept[id]
                return
            self._wanted.append(planned)
            self._changed.notify_all()
        self.begin()

    def outcome(self, id: str) -> Outcome:
        """The outcome of a scenario that was wanted. Raises GaveUp when the base cannot run."""
        with self._changed:
            # Whoever waits goes before those that nobody has asked for yet.
            waiting = next((one for one in self._wanted if one.scenario.id == id), None)
            if waiting is not None:
                self._wanted.remove(waiting)
                self._wanted.appendleft(waiting)
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
        if self._began:
            self._thread.join(timeout=0.5)
            if self._file is not None:
                answers.save(self._file, {**self.outcomes, **self._kept})
        with contextlib.suppress(Exception):  # the thread may be inside the pool: its processes are ended all the same
            self._pool.close()

    def _serve(self) -> None:
        try:
            self._pool.start()
            while self._more():
                self._run()
        except Exception as error:  # whatever it is, whoever waits must hear of it
            with self._changed:
                self._problem = str(error) or type(error).__name__
                self._changed.notify_all()

    def _more(self) -> bool:
        """Wait for something to do; False: there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._ended)
            return not self._ended

    def _taken(self) -> Iterator[Planned]:
        """One after another, as the worker gets free."""
        while True:
            with self._changed:
                if self._ended or not self._wanted:
                    return
                planned = self._wanted.popleft()
            yield planned

    def _run(self) -> None:
        for planned, answer in self._pool.answers(self._taken()):
            outcome = self._verdict(planned, answer)
            with self._changed:
                self.outcomes[planned.scenario.id] = outcome
                self._changed.notify_all()
                if self._ended:
                    return
