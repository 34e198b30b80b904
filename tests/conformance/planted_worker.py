"""A worker that misbehaves on demand: the first argument says how its hello goes, each job's steps how its answers go.

A step is an `Observe` whose only request is the number of a misbehaviour.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from ropecheck.adapters import forking, protocol

OK, KILLED, SEGFAULT, HANG, PRINTS, GARBAGE, WRONG_TYPE, SHORT, WRONG_ID, FAIL_A, FAIL_B, NOT_OFFERED = range(12)
EXITS_AFTER, CHILD_KEEPS_PIPE, CUDA_ERROR, TWICE, SLOW, SUITE_BUG, LARGE, CUDA_ONCE = range(12, 20)
CUDA_AT_FIRST, FLOOD, COLOURS, CHILD_HANGS, SPINS, SHARES, FAILS_LATER = range(20, 27)


broken: list[str] = []
"""The job that lost the device context: all later ones of this process fail."""


def hello(how: str) -> protocol.Hello:
    return protocol.Hello(
        protocol=protocol.PROTOCOL + (how == "wrong-protocol"),
        target="planted",
        version="1.5.0",
        device="cpu",
        torch="none",
        python="3",
        pid=os.getpid(),
        modes={"EXTEND": 1, "SPLIT": 2, "BRAND_NEW": 9} if how == "unknown-mode" else {"EXTEND": 1, "SPLIT": 2},
        covered={"EXTEND": "extend"},
        uncovered={"SPLIT": "nobody asked"},
        capabilities={},
        lost=("prepare_for_draft",) if how == "lost" else (),
    )


def result(code: int, job: str) -> protocol.Result:
    match code:
        case 9:
            return protocol.Raised("engine", "Wrong", "A", "engine/file.py:1 f")
        case 10:
            return protocol.Raised("engine", "Wrong", "B", "engine/file.py:2 g")
        case 11:
            return protocol.NotOfferedAnswer("too old")
        case 14:
            return protocol.Raised("engine", "RuntimeError", "CUDA error: an illegal memory access", "x")
        case 18:
            return protocol.Raised("engine", "Large", "x" * (3 << 20), "x")
        case 19 if not (flag := Path(os.environ["PLANTED_FLAG"])).exists():
            flag.touch()
            return protocol.Raised("engine", "AcceleratorError", "an earlier kernel failed", "x")
        case 20 if broken or not (flag := Path(os.environ["PLANTED_FLAG"] + job)).exists():
            if not broken:
                flag.touch()
                broken.append(job)
            return protocol.Raised("engine", "AcceleratorError", "an earlier kernel failed", "x")
        case 26 if Path(os.environ["PLANTED_FLAG"]).exists():
            return protocol.Raised("engine", "Wrong", "A", "engine/file.py:1 f")
        case 26:
            Path(os.environ["PLANTED_FLAG"]).touch()
            return protocol.Done()
        case _:
            return protocol.Done()


def misbehave(code: int, out: int) -> None:
    match code:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            print("about to touch null", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        case 3:
            time.sleep(3600)
        case 4:
            print("engines print to standard output", flush=True)
        case 5:
            os.write(out, b"Traceback (most recent call last): this is no frame")
            time.sleep(3600)
        case 13:
            subprocess.Popen(["sleep", "3600"], pass_fds=[out])
            os.kill(os.getpid(), signal.SIGKILL)
        case 16:
            time.sleep(0.3)
        case 21:
            for n in range(40_000):
                print(f"line {n} of an engine that does not stop printing, {'x' * 60}")
            print("the last line", flush=True)
        case 22:
            print("\x1b[31mred\x1b]0;a title\x07\x9b2J", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case 23:
            child = subprocess.Popen(["sleep", "3600"], pass_fds=[out])
            Path(os.environ["PLANTED_FLAG"]).write_text(f"{os.getpid()} {child.pid}")
            time.sleep(3600)
        case 24:
            while True:
                pass
        case 25:  # a machine that gives it half of a processor
            end = time.monotonic() + 3.5
            while time.monotonic() < end:
                burst = time.thread_time() + 0.02
                while time.thread_time() < burst:
                    pass
                time.sleep(0.03)


def main() -> None:
    how, arguments = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    if "--fork-fd" not in arguments:
        work(how, int(arguments["--in-fd"]), int(arguments["--out-fd"]))
        return
    if how == "import-fails":
        sys.exit("no module named engine")

    def forked(_: bytes, descriptors: list[int]) -> None:
        incoming, outgoing, output = descriptors
        os.setsid()
        forking.printing(output)
        work(how, incoming, outgoing)

    forking.serve(socket.socket(fileno=int(arguments["--fork-fd"])), forked)


def work(how: str, incoming: int, out: int) -> None:
    jobs = os.fdopen(incoming, "rb")
    answers = os.fdopen(out, "wb")
    if how == "silent":
        time.sleep(3600)
    if how == "exits":
        sys.exit("no module named engine")
    if how == "garbage-hello":
        os.write(out, b"\x03\x00\x00\x00abc")
    if how == "once":
        flag = Path(os.environ["PLANTED_FLAG"])
        if flag.exists():
            sys.exit("starts only once")
        flag.touch()
    protocol.send(answers, hello(how))
    while (body := protocol.receive(jobs)) is not None:
        job = msgspec.msgpack.decode(body, type=protocol.Job | protocol.Shutdown)
        if isinstance(job, protocol.Shutdown):
            return
        codes = [step.reqs[0] for step in job.steps if isinstance(step, protocol.Observe)]
        for code in codes:
            misbehave(code, out)
        answer = protocol.JobAnswer(
            job.id, tuple(result(code, job.id) for code in codes), engine_ns=1000, forwards=len(codes)
        )
        if WRONG_ID in codes:
            answer = protocol.JobAnswer("another", answer.results, 1, 1)
        if SHORT in codes:
            answer = protocol.JobAnswer(job.id, answer.results[:-1], 1, 1)
        if WRONG_TYPE in codes:
            fields = {"type": "answer", "id": job.id, "results": "none", "engine_ns": 1, "forwards": 1}
            raw = msgspec.msgpack.encode(fields)
            os.write(out, len(raw).to_bytes(4, "little") + raw)
            continue
        protocol.send(answers, answer)
        if TWICE in codes:
            protocol.send(answers, answer)
        if EXITS_AFTER in codes:
            sys.exit(7)


if __name__ == "__main__":
    main()
