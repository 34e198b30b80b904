"""What a right scheduler and a right server show, and slips that are planted in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from ropecheck.adapters import events
from ropecheck.adapters.events import Arrived, Died, Event, Forward, Output, PromptRun, Rest, TraceHeader
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.live.client import Completion, SentRequest
from ropecheck.conformance.live.verdict import compare
from ropecheck.conformance.scripts import script
from ropecheck.conformance.trace.check import Checked, check_lines
from ropecheck.spec.history import text

ROWS = ((0, 1, 1, 1, 1, 3), (0, 1, 1, 2, 2, 3), (0, 1, 2, 1, 2, 3))
"""Of one word, a picture of 2 x 2 tokens and one word; delta -2."""

ARRIVE = Arrived("a", (PromptRun("text", 1), PromptRun("image", grid=(1, 4, 4)), PromptRun("text", 1)), 2)
PREFILL = Forward(
    mode="extend",
    reqs=("a",),
    tokens=(6,),
    positions=tuple(range(6)),
    rows=ROWS,
    answers=((50,),),
    seq_lens=(6,),
    prefix_lens=(0,),
)
DECODE = Forward(
    mode="decode",
    reqs=("a",),
    tokens=(1,),
    positions=(6,),
    rows=((4,), (4,), (4,)),
    answers=((51,),),
    seq_lens=(7,),
)
FIRST, LAST = Output("a", (50,)), Output("a", (51,), "length")

RIGHT: tuple[Event, ...] = (ARRIVE, PREFILL, FIRST, DECODE, LAST, Rest())
"""A prompt, two tokens, and rest."""


def checked(stream: tuple[Event, ...]) -> Checked:
    """What the judge says of the stream."""
    return check_lines([events.line(event) for event in (TraceHeader(events.VERSION, "qwen2_vl"), *stream)])


def said(stream: tuple[Event, ...]) -> Sequence[Failure]:
    """What is wrong with the stream."""
    return checked(stream).failures


def replayed(*tokens: int) -> Sequence[Failure]:
    """What is wrong with an answer of these tokens, where the same history asked afresh is answered 50, 51."""
    arrival = script.Arrive(0, (text(1),), 2)
    found = compare(SentRequest("a", arrival, None, Completion(tokens)), Completion((50, 51)))
    return () if found is None else (found,)


@dataclass(frozen=True, slots=True)
class StreamSlip:
    """Something wrong that is shown, beside what is right."""

    name: str
    says: str
    rule: str
    """Has to name it."""
    wrong: Callable[[], Sequence[Failure]]
    right: Callable[[], Sequence[Failure]]
    like: str = "slip"


def _stream(name: str, says: str, rule: str, *stream: Event) -> StreamSlip:
    return StreamSlip(f"schedule: {name}", says, f"schedule.{rule}", partial(said, stream), partial(said, RIGHT))


def _half(start: int) -> Forward:
    """Tokens start .. 5 as a window."""
    columns = tuple(row[start:] for row in ROWS)
    return replace(PREFILL, tokens=(6 - start,), positions=tuple(range(start, 6)), rows=columns, prefix_lens=(start,))


CUT = replace(PREFILL, tokens=(3,), positions=(0, 1, 2), rows=tuple(row[:3] for row in ROWS), seq_lens=(3,))
STRAY, LONG = replace(DECODE, reqs=("b",)), replace(DECODE, seq_lens=(8,))

SLIPS = (
    _stream("tokens are skipped", "the second window starts late", "window", ARRIVE, CUT, _half(4)),
    _stream("a reply before its prompt", "half is computed", "newest", ARRIVE, CUT, DECODE),
    _stream("a row of nobody", "a request that never arrived", "members", ARRIVE, PREFILL, STRAY),
    _stream("a length too large", "as if a token were there", "counts", ARRIVE, PREFILL, FIRST, LONG, LAST, Rest()),
    _stream("another token", "no model answered it", "reply", ARRIVE, PREFILL, Output("a", (9,)), DECODE, LAST, Rest()),
    _stream("a request never ends", "nothing runs any more", "at_rest", *RIGHT[:-2], Rest()),
    _stream("the loop ends", "it raises", "survives", *RIGHT[:-1], Died("KeyError", "'a'")),
    StreamSlip(
        "live: another answer",
        "a token that a fresh request is not answered",
        "live.same_answer",
        partial(replayed, 50, 52),
        partial(replayed, 50, 51),
    ),
)
"""One for each rule on a scheduler's steps, and on a server's answers."""
