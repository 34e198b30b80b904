"""One worker started by hand: does it say hello, and does one small scenario come out right?

Used after a target is added. The scenario is written here in full rather than generated, so that a
target can be checked without the rest of the suite: an image request beside a text request, prefilled and decoded.
"""

from array import array
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.protocol import (
    BuildForward,
    Hello,
    Item,
    Job,
    JobAnswer,
    Media,
    SubmitStep,
    TablesAnswer,
    Tensor,
)
from ropecheck.conformance.run.ask import NoAnswer, StartedWorker
from ropecheck.conformance.targets.registry import Target

HELLO_SECONDS = 240.0
"""An engine's imports take 10 s to a minute, and minutes on a machine that does other work."""

JOB_SECONDS = 60.0

ROWS = ((0, 1, 2, 2, 2, 2, 4, 5), (0, 1, 2, 2, 3, 3, 4, 5), (0, 1, 2, 3, 2, 3, 4, 5))
TEXT = (0, 1, 2, 3)


class SmokeResult(msgspec.Struct, frozen=True):
    """What came of it: the worker's hello (None when it never came) and what is wrong ("" when nothing is)."""

    hello: Hello | None
    problem: str


def job() -> Job:
    """The scenario: two requests of 8 (an image of 2 x 2) and 4 tokens, EXTEND and then DECODE."""
    table = array("q", [position for row in ROWS for position in row])
    media = Media(Tensor("int64", (3, 8), table.tobytes()), -2, (Item("image", 2, 6),))
    return Job(
        "smoke",
        (
            SubmitStep(0, (11, 12, 501, 501, 501, 501, 13, 14), media),
            SubmitStep(1, (21, 22, 23, 24)),
            _forward("extend", prefix_len=(0, 0), extend_len=(8, 4)),
            protocol.Generate(0, (31,)),
            protocol.Generate(1, (32,)),
            _forward("decode", seq_len=(9, 5)),
        ),
    )


def _forward(mode: str, **fields: tuple[int, ...]) -> BuildForward:
    return BuildForward(Batch(mode, (BatchPart((0, 1), dict(fields)),)))


EXPECTED = {2: tuple(row + TEXT for row in ROWS), 5: ((6, 4),) * 3}
"""Step -> the three rows. Decode continues at 6 after the image (9 tokens, delta -2) and at 4 after the text."""


def check(target: Target, log: Path, device: str = "cpu") -> SmokeResult:
    """Start the target's worker, read its hello and run the scenario; the worker is stopped again."""
    hello = None
    try:
        with StartedWorker(target, device, log, HELLO_SECONDS, JOB_SECONDS) as worker:
            hello = worker.hello
            asked = msgspec.structs.replace(job(), device=device)
            return SmokeResult(hello, judge(worker.answered(asked)))
    except NoAnswer as error:
        return SmokeResult(hello, f"{'no hello' if hello is None else 'the scenario got no answer'}: {error}")


def judge(answer: JobAnswer) -> str:
    """What is wrong with the answer to the scenario; "" when nothing is."""
    for step, rows in EXPECTED.items():
        result = answer.results[step]
        if isinstance(result, protocol.Raised):
            return f"step {step} raised {result.type}: {result.message} ({result.where})"
        if not isinstance(result, TablesAnswer):
            return f"step {step}: {result}"
        found = _rows(result.tables[0].mrope)
        if found != rows:
            return f"step {step}: rows {found}, expected {rows}"
    return ""


def _rows(tensor: Tensor | None) -> tuple[tuple[int, ...], ...] | None:
    if tensor is None or len(tensor.shape) != 2:
        return None
    values = array("q" if tensor.dtype == "int64" else "i", tensor.data)
    width = tensor.shape[1]
    return tuple(tuple(values[row * width : (row + 1) * width]) for row in range(tensor.shape[0]))
