"""Steps of a real scheduler a second of processor time, recorded and judged, and the judge's share."""

from __future__ import annotations

import gc
import os
import sys
import time

from ropecheck.adapters import events
from ropecheck.adapters.sglang import absent_packages, boot
from ropecheck.conformance.scripts.chosen import all_scripts
from ropecheck.conformance.scripts.plan import play_of
from ropecheck.conformance.scripts.servers import server
from ropecheck.conformance.trace.check import check_lines


def measure(name: str) -> str:
    """One server plays the chosen scripts that it survives, twice: the first time it warms up."""
    from ropecheck.adapters.sglang.scheduler import build
    from ropecheck.adapters.sglang.scheduler.player import Player

    os.environ.update(server(name).environment)
    player = Player(build.build(server(name)))
    gc.collect()
    gc.freeze()  # as a run's players have it: a collection then goes over what scripts made
    steps, playing, judging = 0, 0.0, 0.0
    receive = player.recv_requests

    def counted(local_reqs: object = None) -> list[object]:
        nonlocal steps
        steps += 1
        return receive()

    vars(player)["recv_requests"] = counted
    safe = []
    for script in all_scripts():
        plain = script.server == name and not any(word in script.name for word in ("at once", "everything", "beams"))
        if plain and b'"died"' not in player.play(play_of(script)):
            safe.append(script)
    steps = 0
    for script in safe:
        planned = play_of(script)
        start = time.process_time()
        trace = player.play(planned)
        between = time.process_time()
        check_lines(events.lines(trace), script.name, "scheduler.")
        playing += between - start
        judging += time.process_time() - between
    whole = playing + judging
    return f"{name}: {len(safe)} scripts, {steps} steps, {steps / whole:.0f} a second, judge {judging / whole:.1%}"


def main() -> None:
    """A process each for the servers that the command line names."""
    from ropecheck.adapters.sglang.scheduler import build

    boot.prepare_environment("cpu")
    boot.silence()
    absent_packages.install()
    build.load()
    for name in sys.argv[1:] or ["plain", "mixed", "overlap", "ngram", "eagle", "eagle_tree"]:
        if os.fork() == 0:
            print(measure(name), flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
