"""The pool's parts without a process loop: limits, queue places, and what makes an answer acceptable."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Unrun
from ropecheck.conformance.run.client import Process
from ropecheck.conformance.run.inflight import Slot
from ropecheck.conformance.subject import Subject


class Planned(Protocol):
    """What the pool needs of a plan."""

    @property
    def scenario(self) -> Subject: ...

    @property
    def job(self) -> protocol.Job: ...


P = TypeVar("P", bound=Planned)


@dataclass(slots=True, kw_only=True, frozen=True)
class RunLimits:
    """Seconds and counts that keep a run from hanging."""

    scenario: float = 20.0
    """Seconds for one scenario: of the processor, while the machine gives the worker too little of it."""
    start: float = 180.0
    """Seconds from the start of a worker to its hello; importing an engine takes long on a cold disk."""
    restarts: int = 5
    """Restarts of one worker in a row without a success."""


@dataclass(slots=True)
class Ticket(Generic[P]):
    """A scenario in a worker's queue."""

    plan: P
    abandoned: bool = False
    """Nobody waits for the answer any more."""
    audit: bool = False
    """It has its answer; it is run again only to see whether it breaks the device."""


@dataclass(slots=True)
class Seat(Generic[P]):
    """A place for a worker; its process changes with restarts."""

    number: int
    slots: list[Slot]
    process: Process | None = None
    ready: bool = False
    queue: deque[Ticket[P]] = field(default_factory=deque)
    deadline: float = 0.0
    """Monotonic seconds by which the hello or the head's answer must be here; 0: nothing is due."""
    used: float = 0.0
    """Processor seconds of the process when `deadline` was last set."""
    spent: float = 0.0
    """Processor seconds for what is due, up to then."""
    strikes: int = 0
    """Restarts since the last success."""
    turn: int = 0
    """Which in-flight file is next."""
    watching_writes: bool = False
    alone: deque[Ticket[P]] = field(default_factory=deque)
    """Suspects of a broken device context: each runs with nothing before or behind it."""
    isolated: bool = False
    """The running ticket is such a suspect."""
    recent: deque[P] = field(default_factory=lambda: deque(maxlen=3))
    """What this process answered last."""


@dataclass(frozen=True, slots=True)
class Doubted:
    """What a scenario answered alone, after the device context had been lost beside others. What lost it is not known,
    so that the answer counts, and the loss as well."""

    answer: protocol.JobAnswer
    why: Unrun


Reply = protocol.JobAnswer | Doubted | Unrun
"""What a pool gives for a plan."""


class Unacceptable(Exception):
    """A frame came that is not what was due; the message says what is wrong with it."""


_answers = msgspec.msgpack.Decoder(protocol.JobAnswer)
_hellos = msgspec.msgpack.Decoder(protocol.Hello)


class _Number(msgspec.Struct, tag="hello"):
    """What every protocol version's hello has."""

    protocol: int


def hello_of(body: bytes) -> protocol.Hello:
    """The first frame of a worker. Raises Unacceptable; `WrongProtocol` when restarting cannot help."""
    try:
        number = msgspec.msgpack.decode(body, type=_Number).protocol
        if number != protocol.PROTOCOL:
            raise WrongProtocol(f"the worker speaks protocol {number}, this suite {protocol.PROTOCOL}")
        return _hellos.decode(body)
    except msgspec.MsgspecError as error:
        raise Unacceptable(f"the worker's first frame is no hello: {error}") from error


class WrongProtocol(Unacceptable):
    """The worker is of another protocol version."""


def answer_of(body: bytes, job: protocol.Job) -> protocol.JobAnswer:
    """The answer to `job`. Raises Unacceptable for a wrong type, a wrong id or number of results, and for a
    table that is called right although nothing was sent to compare it with."""
    try:
        answer = _answers.decode(body)
    except msgspec.MsgspecError as error:
        raise Unacceptable(f"the answer has the wrong shape: {error}") from error
    if answer.id != job.id:
        raise Unacceptable(f"answer for job {answer.id!r} instead of {job.id!r}")
    if len(answer.results) != len(job.steps):
        raise Unacceptable(f"{len(answer.results)} results for {len(job.steps)} steps")
    for step, result in zip(job.steps, answer.results, strict=True):
        judged = isinstance(result, protocol.TablesAnswer) and any(table.matched for table in result.tables)
        if judged and not (isinstance(step, protocol.BuildForward) and step.expect):
            raise Unacceptable("it says that a table is right which it was not given the means to compare")
    return answer


def poisoned(answer: protocol.JobAnswer) -> bool:
    """After an asynchronous CUDA error every later call of the process fails: it must be replaced."""
    for result in answer.results:
        if isinstance(result, protocol.Raised) and (
            result.type == "AcceleratorError" or any(word in result.message for word in protocol.BROKEN)
        ):
            return True
    return False
