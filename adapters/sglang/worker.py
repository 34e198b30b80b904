"""The worker process: `python -m ropecheck.adapters.sglang.worker --in-fd N --out-fd M [--device cpu|cuda]`.

Speaks `ropecheck.adapters.protocol` over the two inherited file descriptors and nothing over standard output. Ends at a
Shutdown, and when its parent closes the pipe.

With `--fork-fd N` it serves nothing itself, but forks such processes on request (`ropecheck.adapters.forking`). Note:
the folder to import the engine from, "" for where Python finds it, and, on a line of its own, what tells versions of
it apart; descriptors: in, out, standard output.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | Hello | `sglang.__version__`, `ForwardMode` |
| operation | Job.steps | see `requests` and `forwards` |

Faked: see `Hello.faked`, which lists what every module of this folder stands in for.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

from ropecheck.adapters import forking, protocol
from ropecheck.adapters.sglang import absent_packages, boot, bytecode
from ropecheck.adapters.sglang.scheduler import hosts


def main(arguments: list[str] | None = None) -> int:
    """Serve jobs until the pipe closes. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="ropecheck.adapters.sglang.worker")
    parser.add_argument("--in-fd", type=int)
    parser.add_argument("--out-fd", type=int)
    parser.add_argument("--fork-fd", type=int)
    parser.add_argument("--engine-fd", type=int)  # of a fork that had to start over
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(arguments)
    boot.prepare_environment(options.device)
    boot.release_standard_input()
    if options.fork_fd is not None:
        fork_engines(socket.socket(fileno=options.fork_fd))
        return 0
    if options.engine_fd is not None:
        fork_workers(socket.socket(fileno=options.engine_fd), options.device)
        return 0
    again = ["--in-fd", str(options.in_fd), "--out-fd", str(options.out_fd), "--device", options.device]
    talk(options.in_fd, options.out_fd, loaded(options.device, again, options.in_fd, options.out_fd))
    return 0


# ---------------------------------------------------------------- one import for many workers


ENGINES = 2
"""Versions of the engine kept at once: of those that a person edits, the older ones are of no use."""


def fork_engines(requests: socket.socket) -> None:
    """Import what every version of the engine needs, then fork one process for each version that is asked for. On a
    CPU alone: a device's context does not outlive a fork."""
    boot.warm()
    engines: dict[bytes, socket.socket] = {}

    def route(note: bytes, descriptors: list[int]) -> socket.socket:
        if note not in engines:
            if len(engines) >= ENGINES:
                engines.pop(next(iter(engines))).close()
            output = descriptors[-1]
            _, engines[note] = forking.start(functools.partial(fork_version, note, output), (output,))
        return engines[note]

    def never(note: bytes, descriptors: list[int]) -> None:
        raise AssertionError("every request is an engine's")

    forking.serve(requests, never, route)


def fork_version(note: bytes, output: int, requests: socket.socket) -> None:
    """The engine in the folder that the note names first. What it prints goes to the first worker's output."""
    forking.printing(output)
    if folder := note.decode().partition("\n")[0]:
        bytecode.keep(folder)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    fork_workers(requests, "cpu")


def fork_workers(requests: socket.socket, device: str) -> None:
    """Import the engine, then fork a worker for every request."""
    serving = loaded(device, ["--engine-fd", str(requests.fileno()), "--device", device], requests.fileno())

    def worker(note: bytes, descriptors: list[int]) -> None:
        incoming, outgoing, output = descriptors
        os.setsid()  # a group of its own: what it starts ends with it
        forking.printing(output)
        talk(incoming, outgoing, serving)

    forking.serve(requests, worker, keep=hosts.descriptors())


# ---------------------------------------------------------------- one worker


class Serving(msgspec.Struct, frozen=True):
    """An imported engine, ready to answer jobs; its forks share it."""

    engine: Any
    device: str
    cover: Any
    """Notes lines, where the runner asked for it."""
    hello: protocol.Hello


def loaded(device: str, again: list[str], *descriptors: int) -> Serving:
    """Import the engine and find what it has. Raises ImportError. again, descriptors: how this process starts over
    where it lacks a package that may be stood in for."""
    try:
        # A scheduler publishes a configuration of its own and runs unpatched code: forked before ours is published.
        boot.load(device, functools.partial(hosts.fork, device))
        capabilities = importlib.import_module("ropecheck.adapters.sglang.capabilities")
        engine = capabilities.Engine()
    except ImportError as error:
        package = absent_packages.missing(error)
        if package is None:
            raise
        start_again(package, again, *descriptors)
    from ropecheck.adapters.sglang import coverage, faults, jobs, kernels, mends, more_modes, outside

    kernels.install(device)
    more_modes.install()
    outside.install()
    planted = (*faults.install(engine), *mends.install())
    cover = coverage.Coverage() if coverage.wanted() else None
    serving = Serving(engine, device, cover, hello(engine, device, (*jobs.FAKED, *planted)))
    boot.settle()
    return serving


def start_again(package: str, arguments: list[str], *descriptors: int) -> NoReturn:
    """Start this process over with a stand-in for the package: half of the engine is imported already, and its
    registrations cannot be taken back."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    os.environ[absent_packages.VARIABLE] = ",".join([*absent_packages.wanted(), package])
    os.execv(sys.executable, [sys.executable, "-m", "ropecheck.adapters.sglang.worker", *arguments])


def talk(incoming: int, outgoing: int, serving: Serving) -> None:
    """Serve over these descriptors."""
    boot.publish_process_groups()  # they do not outlive a fork
    with open(incoming, "rb") as jobs, open(outgoing, "wb") as answers:
        serve(jobs, answers, serving)


def serve(incoming: BinaryIO, outgoing: BinaryIO, serving: Serving) -> None:
    """Say hello, then answer jobs one by one. Returns at a Shutdown or at the end of the stream."""
    from ropecheck.adapters.sglang import jobs

    cover = serving.cover
    protocol.send(outgoing, msgspec.structs.replace(serving.hello, pid=os.getpid()))
    decoder = msgspec.msgpack.Decoder(protocol.Request)
    while True:
        try:
            body = protocol.receive(incoming)
        except protocol.ProtocolError:
            return  # the parent died inside a frame
        if body is None:
            return
        request = decoder.decode(body)
        if isinstance(request, protocol.Shutdown):
            return
        try:
            if isinstance(request, protocol.Plant):
                protocol.send(outgoing, planting(request))
                continue
            if cover is not None:
                cover.start()
            answer = jobs.answer(serving.engine, request, serving.device)
            if cover is not None:
                answer = msgspec.structs.replace(answer, covered=cover.stop())
            protocol.send(outgoing, answer)
        except BrokenPipeError:
            return


def planting(request: protocol.Plant) -> protocol.Planted:
    """Make, count or take back an edit of the engine."""
    from ropecheck.adapters.sglang import plant
    from ropecheck.adapters.sglang_routes import models

    models.engine_processor.cache_clear()  # they keep tables of an engine that was another one
    try:
        if request.count:
            return protocol.Planted(counts=plant.count(request.module, request.function))
        if not request.function:
            plant.restore()
            return protocol.Planted()
        return protocol.Planted(plant.plant(request.module, request.function, request.edit, request.nth))
    except Exception as error:
        plant.restore()
        return protocol.Planted(problem=f"{type(error).__name__}: {error}")


def hello(engine: Any, device: str, faked: tuple[str, ...]) -> protocol.Hello:
    """The first frame: who is here and what it can do."""
    import sglang
    import torch

    from ropecheck.adapters.sglang.capabilities import COVERED, NOT_DRIVEN, UNCOVERED
    from ropecheck.adapters.sglang.jobs import watch

    return protocol.Hello(
        protocol=protocol.PROTOCOL,
        target="sglang",
        version=version_of(sglang),
        device=device if device == "cpu" else torch.cuda.get_device_name(0),
        torch=str(torch.__version__),
        python=platform.python_version(),
        pid=os.getpid(),
        modes=dict(engine.modes),
        covered={member: mode for member, mode in COVERED.items() if member in engine.modes},
        uncovered={member: why for member, why in UNCOVERED.items() if member in engine.modes},
        not_driven=NOT_DRIVEN,
        capabilities=dict(engine.found),
        lost=engine.lost,
        faked=faked,
        routes=watch().places,
    )


def version_of(package: Any) -> str:
    """The engine's version. "unknown" for a source tree without a version file of its own: there the engine answers
    with the version of whatever is installed beside it."""
    folder = Path(package.__file__).parent
    stated = folder / "version.py"  # up to 0.5.8 with the number in it, later with ways to find one
    own = (folder / "_version.py").is_file() or (stated.is_file() and "import" not in stated.read_text("utf-8"))
    try:
        installed = Path(str(metadata.distribution("sglang").locate_file("sglang")))
    except metadata.PackageNotFoundError:
        installed = folder
    if own or installed.resolve() == folder.resolve():
        return str(package.__version__)
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
