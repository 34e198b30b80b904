"""A worker of the real engine and its pipe; requests for it, and what its tables must hold by the specification."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ropecheck.adapters import protocol as p
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.history import History, TokenIndex, delta_of, ideal_column, image, prompt_table, run_length, text

ROOT = Path(__file__).parents[2]
LOOKAHEAD, UNO = (ROOT / "docs" / "examples" / f"{name}.py" for name in ("lookahead", "uno"))
"""Files that declare modes, and drive them through the engine's verify."""
PICTURE: History = (text(2), image(1, 4, 6), text(1))
WORDS: History = (text(5),)


class Worker:
    """A worker process and the two ends of its pipe. module: what is run."""

    def __init__(self, module: str = "ropecheck.adapters.sglang.worker", **environment: str) -> None:
        requests_in, requests_out = os.pipe()
        answers_in, answers_out = os.pipe()
        command = [sys.executable, "-m", module]
        command += ["--in-fd", str(requests_in), "--out-fd", str(answers_out)]
        self.process = subprocess.Popen(
            command, pass_fds=(requests_in, answers_out), cwd=ROOT, env=os.environ | environment
        )
        os.close(requests_in)
        os.close(answers_out)
        self.outgoing: BinaryIO = os.fdopen(requests_out, "wb")
        self.incoming: BinaryIO = os.fdopen(answers_in, "rb")
        self.decoder = msgspec.msgpack.Decoder(p.Response)
        hello = self.receive()
        assert isinstance(hello, p.Hello)
        self.hello = hello

    def receive(self) -> p.Response:
        body = p.receive(self.incoming)
        assert body is not None, "the worker ended"
        return self.decoder.decode(body)

    def ask(self, *steps: p.Step, job: str = "test") -> list[p.Result]:
        """The results of one job, the Done ones left out."""
        return [result for result in self.run(p.Job(job, steps)).results if not isinstance(result, p.Done)]

    def run(self, job: p.Job) -> p.JobAnswer:
        """The answer to a job."""
        p.send(self.outgoing, job)
        answer = self.receive()
        assert isinstance(answer, p.JobAnswer)
        return answer

    def close(self) -> int:
        self.outgoing.close()
        code = self.process.wait()
        self.incoming.close()
        return code


def forward(mode: str, reqs: tuple[int, ...], **given: Any) -> p.BuildForward:
    """A forward of rows of one mode: fields of its batch, and of the message."""
    how = {name: given.pop(name) for name in list(given) if name in p.BuildForward.__struct_fields__}
    return p.BuildForward(Batch(mode, (BatchPart(reqs, given),)), **how)


def windows(
    reqs: tuple[int, ...], prefix_len: tuple[int, ...], extend_len: tuple[int, ...], **how: Any
) -> p.BuildForward:
    """A prefill."""
    return forward("extend", reqs, prefix_len=prefix_len, extend_len=extend_len, **how)


def submit(req: int, history: History) -> p.SubmitStep:
    ids, media = prompt(history)
    return p.SubmitStep(req, ids, media)


def prompt(history: History) -> tuple[tuple[int, ...], p.Media | None]:
    """Token ids and media of a history, as a processor would make them."""
    items, start = [], 0
    for run in history:
        stop = start + run_length(QWEN2_VL, run)
        if not run.is_text:
            items.append(p.Item(run.kind, start, stop))
        start = stop
    if not items:
        return tuple(range(1, start + 1)), None
    table = np.array(prompt_table(QWEN2_VL, history), dtype=np.int64).T.copy()
    packed = p.Tensor("int64", table.shape, table.tobytes())
    delta = delta_of(prompt_table(QWEN2_VL, history))
    return tuple(range(1, start + 1)), p.Media(packed, delta, tuple(items))


def columns(history: History, *indices: int) -> list[tuple[int, ...]]:
    table = prompt_table(QWEN2_VL, history)
    return [ideal_column(table, TokenIndex(index)) for index in indices]


def unpacked(table: p.TablePair) -> tuple[list[int], list[tuple[int, ...]]]:
    """(positions, columns) of a reported table."""
    assert table.positions is not None and table.mrope is not None
    positions = np.frombuffer(table.positions.data, table.positions.dtype)
    rows = np.frombuffer(table.mrope.data, table.mrope.dtype).reshape(table.mrope.shape)
    return positions.tolist(), [tuple(column) for column in rows.T.tolist()]


def tables(result: p.Result) -> dict[str, tuple[list[int], list[tuple[int, ...]]]]:
    assert isinstance(result, p.TablesAnswer), result
    assert result.changed == ()
    return {table.label: unpacked(table) for table in result.tables}
