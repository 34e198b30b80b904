"""What recording and monitoring cost a server: a toy model, the same load with each, in turns, tokens a second.

    .venv/bin/python -m bench.live_recording [--target T] [--device cpu|cuda] [--via http|engine] [--rounds 3]

A toy's forward is the worst case: milliseconds, nearly all of it overhead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from pathlib import Path

from ropecheck.conformance.cli import targets as provisioned
from ropecheck.conformance.cli.options import target_for
from ropecheck.conformance.live.client import Connection
from ropecheck.conformance.live.media import prompt_of
from ropecheck.conformance.live.scripts import PICTURE, WORDS
from ropecheck.conformance.live.server import LiveServer, Start, toy
from ropecheck.conformance.trace.folder import streams

assert provisioned, "importing it makes provisioned releases known"


def load(link: Connection, clients: int, tokens: int, turn: int) -> float:
    """Output tokens a second of so many clients at once."""

    def ask(number: int) -> None:
        prompt = prompt_of(PICTURE if number % 2 else WORDS, 1000 + number, 14)
        link.generate(f"bench.{turn}.{number}.", prompt, tokens)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients * tokens / (time.perf_counter() - began)


def main() -> None:
    """Start a server per mode, then measure them in turns, so that other work on the machine meets all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="sglang")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--via", default="http")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(".ropecheck/bench-live"))
    given = parser.parse_args()
    target = target_for(given.target, given.device)
    model = toy(target, "qwen2_5_vl", given.out / "toys")
    servers: dict[str, LiveServer] = {}
    try:
        for mode in ("off", "log", "monitor"):
            start = Start(
                target=target,
                device=given.device,
                model=model,
                arguments={"disable_overlap_schedule": False},
                environment={},
                folder=given.out,
                name=mode,
                via=given.via,
                mode=mode,
            )
            servers[mode] = LiveServer(start)
        for server in servers.values():
            server.wait(400)
        speeds: dict[str, list[float]] = {mode: [] for mode in servers}
        for turn in range(given.rounds + 1):
            for mode, server in servers.items():
                speed = load(server.link, given.clients, given.tokens, turn)
                if turn:  # the first warms up
                    speeds[mode].append(speed)
        paths = [path for parts in streams(servers["log"].streams).values() for path in parts]
        print(
            json.dumps(
                {
                    "tokens_per_second": {mode: round(statistics.median(these), 1) for mode, these in speeds.items()},
                    "all": {mode: [round(one, 1) for one in these] for mode, these in speeds.items()},
                    "to_off": {
                        mode: round(statistics.median(these) / statistics.median(speeds["off"]), 4)
                        for mode, these in speeds.items()
                    },
                    "bytes_recorded": sum(path.stat().st_size for path in paths),
                }
            )
        )
    finally:
        for server in servers.values():
            server.stop()


if __name__ == "__main__":
    main()
