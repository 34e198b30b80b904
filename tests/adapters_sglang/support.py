"""A worker of the real engine, and its pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from adapters import protocol as p

ROOT = Path(__file__).parents[2]


class Worker:
    """A worker process and the two ends of its pipe."""

    def __init__(self, **environment: str) -> None:
        requests_in, requests_out = os.pipe()
        answers_in, answers_out = os.pipe()
        command = [sys.executable, "-m", "adapters.sglang.worker"]
        command += ["--in-fd", str(requests_in), "--out-fd", str(answers_out)]
        self.process = subprocess.Popen(command, pass_fds=(requests_in, answers_out), cwd=ROOT,
                                        env=os.environ | environment)
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

    def ask(self, *steps: p.Step) -> list[p.Result]:
        """The results of one job, the Done ones left out."""
        return [result for result in self.run(p.Job("test", steps)).results if not isinstance(result, p.Done)]

    def run(self, job: p.Job) -> p.Answer:
        """The answer to a job."""
        p.send(self.outgoing, job)
        answer = self.receive()
        assert isinstance(answer, p.Answer)
        return answer

    def close(self) -> int:
        self.outgoing.close()
        code = self.process.wait(timeout=20)
        self.incoming.close()
        return code
