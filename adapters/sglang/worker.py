"""The worker process: `python -m ropecheck.adapters.sglang.worker --in-fd N --out-fd M [--device cpu|cuda]`.

Speaks `ropecheck.adapters.protocol` over the two inherited file descriptors and nothing over standard output. Ends at a
Shutdown, and when its parent closes the pipe.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | Hello | `sglang.__version__`, `ForwardMode` |
| operation | Job.steps | see `requests` and `forwards` |

Faked: see `Hello.faked`, which lists what every module of this folder stands in for.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang import absent_packages, boot
from ropecheck.adapters.sglang.scheduler import hosts


def main(arguments: list[str] | None = None) -> int:
    """Serve jobs until the pipe closes. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="ropecheck.adapters.sglang.worker")
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(arguments)
    boot.prepare_environment(options.device)
    boot.release_standard_input()
    with open(options.in_fd, "rb") as incoming, open(options.out_fd, "wb") as outgoing:  # noqa: PTH123
        try:
            engine = load(options.device)
        except ImportError as error:
            package = absent_packages.missing(error)
            if package is None:
                raise
            start_again(package, options.in_fd, options.out_fd)
        serve(incoming, outgoing, engine, options.device)
    return 0


def load(device: str) -> Any:
    """Import the engine and find what it has. Raises ImportError."""
    # A scheduler publishes a configuration of its own and runs unpatched code: its processes are forked before ours.
    boot.load(device, hosts.fork if device == "cpu" else lambda: None)
    capabilities = importlib.import_module("ropecheck.adapters.sglang.capabilities")
    return capabilities.Engine()


def start_again(package: str, *descriptors: int) -> NoReturn:
    """Start this process over with a stand-in for the package: half of the engine is imported already, and its
    registrations cannot be taken back."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    os.environ[absent_packages.VARIABLE] = ",".join([*absent_packages.wanted(), package])
    os.execv(sys.executable, [sys.executable, "-m", "ropecheck.adapters.sglang.worker", *sys.argv[1:]])


def serve(incoming: BinaryIO, outgoing: BinaryIO, engine: Any, device: str) -> None:
    """Say hello, then answer jobs one by one. Returns at a Shutdown or at the end of the stream."""
    from ropecheck.adapters.sglang import coverage, faults, jobs, kernels, mends, more_modes, outside

    kernels.install(device)
    more_modes.install()
    outside.install()
    planted = (*faults.install(engine), *mends.install())
    cover = coverage.Coverage() if coverage.wanted() else None
    gc.collect()
    gc.freeze()  # what the imports made stays: collections need not walk it again and again
    protocol.send(outgoing, hello(engine, device, (*jobs.FAKED, *planted)))
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
            answer = jobs.answer(engine, request, device)
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
