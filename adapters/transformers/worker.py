"""The worker process: `python -m ropecheck.adapters.transformers.worker --in-fd N --out-fd M [--device cpu|cuda]`.

Speaks `adapters.protocol` over the two inherited file descriptors. It offers one step, `PromptTable`; every other
step is answered with NotOffered. Ends at a Shutdown, and when its parent closes the pipe. With `--fork-fd N` it forks
such processes on request (`adapters.forking`): descriptors in, out, standard output.

Faked: see `builders.FAKED`.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

from ropecheck.adapters import forking, protocol


def main(arguments: list[str] | None = None) -> int:
    """Serve jobs until the pipe closes. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="ropecheck.adapters.transformers.worker")
    parser.add_argument("--in-fd", type=int)
    parser.add_argument("--out-fd", type=int)
    parser.add_argument("--fork-fd", type=int)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    said = hello(options.device)
    if options.fork_fd is not None:
        with socket.socket(fileno=options.fork_fd) as requests:
            forking.serve(requests, lambda _, given: worker(given, options.device, said))
    else:
        talk(options.in_fd, options.out_fd, options.device, said)
    return 0


def worker(given: list[int], device: str, said: protocol.Hello) -> None:
    """A forked one."""
    incoming, outgoing, output = given
    os.setsid()
    forking.printing(output)
    talk(incoming, outgoing, device, msgspec.structs.replace(said, pid=os.getpid()))


def talk(jobs: int, answers: int, device: str, said: protocol.Hello) -> None:
    """Serve over these descriptors."""
    with open(jobs, "rb") as incoming, open(answers, "wb") as outgoing:
        serve(incoming, outgoing, device, said)


def serve(incoming: BinaryIO, outgoing: BinaryIO, device: str, said: protocol.Hello) -> None:
    """Say hello, then answer jobs one by one. Returns at a Shutdown or at the end of the stream."""
    protocol.send(outgoing, said)
    decoder = msgspec.msgpack.Decoder(protocol.Request)
    while True:
        try:
            body = protocol.receive(incoming)
        except protocol.ProtocolError:
            return
        if body is None:
            return
        request = decoder.decode(body)
        if isinstance(request, protocol.Shutdown):
            return
        try:
            if isinstance(request, protocol.Plant):
                protocol.send(outgoing, protocol.Planted(problem="this adapter plants nothing"))
                continue
            protocol.send(outgoing, answer(request, device))
        except BrokenPipeError:
            return


def hello(device: str) -> protocol.Hello:
    """The first frame: who is here and which families it can build."""
    import torch
    import transformers

    from ropecheck.adapters.transformers.builders import FAKED, found

    torch.set_num_threads(1)
    return protocol.Hello(
        protocol=protocol.PROTOCOL,
        target="transformers",
        version=str(transformers.__version__),
        device=device if device == "cpu" else torch.cuda.get_device_name(0),
        torch=str(torch.__version__),
        python=platform.python_version(),
        pid=os.getpid(),
        modes={},
        covered={},
        uncovered={},
        capabilities={f"prompt_table.{family}": name for family, name in found().items()},
        faked=FAKED,
    )


def answer(job: protocol.Job, device: str) -> protocol.JobAnswer:
    """One result per step; an exception ends its step and no other."""
    from ropecheck.adapters import family_configs
    from ropecheck.adapters.transformers import builders

    results: list[protocol.Result] = []
    spent = 0

    def call(function: Callable[..., Any], **kwargs: Any) -> Any:
        nonlocal spent
        before = time.perf_counter_ns()
        try:
            return function(**kwargs)
        finally:
            spent += time.perf_counter_ns() - before

    for step in job.steps:
        if not isinstance(step, protocol.PromptTable):
            results.append(protocol.NotOfferedAnswer("transformers builds prompt tables only"))
            continue
        try:
            results.append(builders.prompt_table(step, device, call))
        except family_configs.NoConfiguration as lacking:
            results.append(protocol.NotOfferedAnswer(str(lacking)))
        except Exception as error:
            results.append(raised(error))
    return protocol.JobAnswer(job.id, tuple(results), spent, 0)


def raised(error: Exception) -> protocol.Raised:
    """The exception, with its innermost frame inside transformers (stage "engine") or none (stage "adapter")."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/transformers/models/" in f.filename]
    message = str(error).splitlines()[0] if str(error) else ""
    from ropecheck.adapters.transformers.builders import ModelStandIn

    lacking = isinstance(error, AttributeError) and isinstance(error.obj, ModelStandIn)
    if not frames or lacking:
        return protocol.Raised("adapter", type(error).__name__, message, "")
    last = frames[-1]
    where = f"transformers/models/{last.filename.split('/transformers/models/')[-1]}:{last.lineno} {last.name}"
    return protocol.Raised("engine", type(error).__name__, message, where)


if __name__ == "__main__":
    sys.exit(main())
