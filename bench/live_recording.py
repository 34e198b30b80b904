"""What recording and monitoring cost a server: one of a toy model, the same load again and again, with each in turn.

    .venv/bin/python -m bench.live_recording [--target T] [--device cpu|cuda] [--via http|engine] [--rounds 100]
        [--seconds 300] [--kinds off,control,monitor]

A toy's forward is the worst case: a millisecond or two, nearly all of it overhead. One process is measured, because
two of the same kind differ by more than a recorder costs; the scheduler takes the time itself (`bench.switch`), from a
wave's first forward to its last. The kinds follow each other in every order. "control" is
"off" under another name: what two equal kinds differ by.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from bench.switch.recorders import APART, FILE, VARIABLE
from ropecheck import record
from ropecheck.conformance.cli import targets as provisioned
from ropecheck.conformance.cli.options import target_for
from ropecheck.conformance.live.client import Connection
from ropecheck.conformance.live.media import prompt_of
from ropecheck.conformance.live.scripts import PICTURE, WORDS
from ropecheck.conformance.live.server import LiveServer, Start, toy

assert provisioned, "importing it makes provisioned releases known"

KINDS = ("off", "control", "log", "monitor")
QUIET = 0.3
"""Seconds after a recorded wave, whose last events are still written, before the next."""
SITE = Path(__file__).parent / "switch"


def load(link: Connection, kind: str, wave: str, clients: int, tokens: int) -> None:
    """A wave: so many clients at once."""

    def ask(number: int) -> None:
        prompt = prompt_of(PICTURE if number % 2 else WORDS, 1000 + number, 14)
        link.generate(f"bench.{kind}.{wave}.{number}.", prompt, tokens)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def compared(waves: list[dict[str, Any]], kind: str, what: str) -> tuple[float, float, float]:
    """A kind's `what` in parts of that of "off" in the same round: median, and 95 % of resamplings of the rounds."""
    found = {(wave["kind"], wave["wave"]): wave[what] for wave in waves}
    rounds = {wave["wave"] for wave in waves}
    ratios = [found[kind, one] / found["off", one] for one in rounds]
    draw = random.Random(0)
    again = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return round(statistics.median(ratios), 4), round(again[50], 4), round(again[1949], 4)


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="sglang")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--via", default="http")
    parser.add_argument("--rounds", type=int, default=100, help="at most so many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after so many")
    parser.add_argument("--kinds", default="off,log,monitor", help=f"off and others of {', '.join(KINDS)}")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(".ropecheck/bench-live"))
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if "off" not in kinds or not set(kinds) <= set(KINDS):
        parser.error(f"--kinds {given.kinds}: off and others of {', '.join(KINDS)}")
    orders = tuple(itertools.permutations(kinds))
    target = target_for(given.target, given.device)
    folder = (given.out / "server.trace").resolve()
    path = record.environment(folder, path=dict(target.env).get("PYTHONPATH", ""))["PYTHONPATH"]
    start = Start(
        target=target,
        device=given.device,
        model=toy(target, "qwen2_5_vl", given.out / "toys"),
        arguments={"disable_overlap_schedule": False},
        environment={"PYTHONPATH": os.pathsep.join([path, str(SITE.resolve())]), VARIABLE: str(folder)},
        folder=given.out,
        name="server",
        via=given.via,
        mode="off",
    )
    (folder / FILE).unlink(missing_ok=True)
    if len(cores := sorted(os.sched_getaffinity(0))) >= APART:
        os.sched_setaffinity(0, cores[: -APART // 2])  # the scheduler has the others
    server = LiveServer(start)
    server.link.logprobs = False
    try:
        server.wait(400)
        began = time.monotonic()
        for turn in range(-3, given.rounds):  # the first ones warm up
            if time.monotonic() - began > given.seconds:
                break
            for kind in orders[turn % len(orders)]:
                load(server.link, kind, str(turn), given.clients, given.tokens)
                if kind == "log":
                    time.sleep(QUIET)
        for kind in kinds:
            load(server.link, kind, "sync", given.clients, given.tokens)
    finally:
        server.stop()
    lines = [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]
    waves = [wave for wave in lines if wave["wave"].isdigit()]
    print(
        json.dumps(
            {
                kind: {
                    "tokens_per_second": round(
                        given.clients
                        * given.tokens
                        / statistics.median(w["seconds"] for w in waves if w["kind"] == kind)
                    ),
                    "step_us": round(statistics.median(w["step_us"] for w in waves if w["kind"] == kind), 1),
                    "seconds_to_off": compared(waves, kind, "seconds"),
                    "step_to_off": compared(waves, kind, "step_us"),
                    "forwards": sum(w["steps"] for w in waves if w["kind"] == kind),
                    "waits_in_a_wave": [w["syncs"] for w in lines if (w["kind"], w["wave"]) == (kind, "sync")],
                }
                for kind in kinds
            }
            | {"rounds": len({wave["wave"] for wave in waves}), "clients": given.clients, "tokens": given.tokens}
        )
    )


if __name__ == "__main__":
    main()
