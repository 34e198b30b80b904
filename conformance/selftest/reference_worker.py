"""The reference target's process: `python -m ropecheck.conformance.selftest.reference_worker --in-fd N --out-fd M`."""

import argparse
import os
import platform
from collections.abc import Callable

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance import modes
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.spec.modes import all_modes


def hello(target: str) -> protocol.Hello:
    """Who this is."""
    modes = {mode.upper(): number for number, mode in enumerate(all_modes(), start=1)}
    return protocol.Hello(
        protocol=protocol.PROTOCOL,
        target=target,
        version="0",
        device="cpu",
        torch="",
        pid=os.getpid(),
        python=platform.python_version(),
        modes=modes,
        covered={mode.upper(): mode for mode in all_modes()},
        uncovered={},
        capabilities={},
    )


def serve(in_fd: int, out_fd: int, make: Callable[[], ReferenceEngine], target: str = "reference") -> None:
    """Answer jobs until the runner closes the pipe."""
    decoder = msgspec.msgpack.Decoder(protocol.Request)
    with open(in_fd, "rb") as source, open(out_fd, "wb") as sink:
        protocol.send(sink, hello(target))
        while (body := protocol.receive(source)) is not None:
            request = decoder.decode(body)
            if isinstance(request, protocol.Shutdown):
                return
            if isinstance(request, protocol.Plant):
                protocol.send(sink, protocol.Planted(problem="this adapter plants nothing"))
                continue
            protocol.send(sink, answer(request, make()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mutant", default="", help="plant this fault (selftest/mutants)")
    arguments = parser.parse_args()
    modes.install(())
    make: Callable[[], ReferenceEngine] = ReferenceEngine
    if arguments.mutant:
        from ropecheck.conformance.selftest.mutants import all_mutants

        make = all_mutants()[arguments.mutant].make
    serve(arguments.in_fd, arguments.out_fd, make)


if __name__ == "__main__":
    main()
