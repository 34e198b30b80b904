"""One worker, one question at a time: for checks that are not scenarios. The pool is for everything else."""

from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.run.client import Process
from ropecheck.conformance.run.seat import Unacceptable, answer_of, hello_of, poisoned
from ropecheck.conformance.targets.registry import Target


class NoAnswer(Exception):
    """The worker did not start, or did not answer; one line."""


class StartedWorker:
    """A started worker. Use as a context manager; `ran` gathers the kernels that its answers named.

    Raises NoAnswer when it does not come up.
    """

    def __init__(self, target: Target, device: str, log: Path, start: float = 240.0, patience: float = 120.0) -> None:
        self.device, self.patience = device, patience
        self.ran: set[str] = set()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._again = partial(Process, target, device, log)
        self._start = start
        self.hello = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def ask(self, job: protocol.Job) -> tuple[protocol.Result, ...]:
        """The results of a job, one a step. As `answered`."""
        return self.answered(job).results

    def answered(self, job: protocol.Job) -> protocol.JobAnswer:
        """The answer to a job. A worker that dies, breaks its device or answers anything else is replaced.
        Raises NoAnswer for that job."""
        self._process.send(job)
        body = self._next(self.patience)
        if body is None:
            why = f"the worker {self._process.how_it_ended()}: {self._process.last_words(1)}"
            self._process.stop()
            self._begin()
            raise NoAnswer(why)
        try:
            answer = answer_of(body, job)
        except Unacceptable as error:
            self._process.stop()
            self._begin()
            raise NoAnswer(str(error)) from error
        for result in answer.results:
            if isinstance(result, protocol.TablesAnswer | protocol.Counted | protocol.Rotated):
                self.ran.update(result.ran)
        if poisoned(answer):
            self._process.stop()
            self._begin()
        return answer

    def _next(self, seconds: float) -> bytes | None:
        """The next frame; what is none is as good as no answer. Raises NoAnswer."""
        try:
            return self._process.next_frame(seconds)
        except protocol.ProtocolError as error:
            self._process.stop()
            raise NoAnswer(f"the worker does not speak the protocol: {error}") from error

    def plant(self, message: protocol.Plant) -> protocol.Planted:
        """Edit the engine in the worker, or take the edit back. Raises NoAnswer."""
        self._process.send(message)
        body = self._next(self.patience)
        if body is None:
            raise NoAnswer(f"the worker {self._process.how_it_ended()}: {self._process.last_words(1)}")
        return msgspec.msgpack.decode(body, type=protocol.Planted)

    def _begin(self) -> protocol.Hello:
        try:
            self._process = self._again()
        except OSError as error:
            raise NoAnswer(f"cannot start the worker: {error.strerror}") from error
        body = self._next(self._start)
        if body is None:
            why = f"the worker {self._process.how_it_ended()}: {self._process.last_words(1)}"
            self._process.stop()
            raise NoAnswer(why)
        try:
            return hello_of(body)
        except Unacceptable as error:
            self._process.stop()
            raise NoAnswer(str(error)) from error
