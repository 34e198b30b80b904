"""Whether the monitor makes anybody wait: its looks under torch's own sync counter, set to raise, beside a control.

    .venv/bin/python -m bench.monitor_waits [--device cpu|cuda] [--looks 4000]

Decodes of 16 requests and prefills of 4 with a picture, the batch changing every hundred looks. On a CPU there is no
counter: the time alone is measured.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ropecheck.adapters.sglang.recorder.monitor import Monitor
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec.families import family
from ropecheck.spec.history import image, text

PROMPT = (text(9), image(1, 8, 8), text(7))
TOKENS = prompt_table(family("qwen2_5_vl"), PROMPT).shape[1]


def batches(device: str) -> tuple[list[Any], list[Any]]:
    """(decodes, prefills), each (mode, batch, positions, rows) as a right engine gives them."""
    kind = family("qwen2_5_vl")
    ahead = delta(prompt_table(kind, PROMPT))
    table = torch.tensor([list(row) for row in prompt_table(kind, PROMPT)])
    decodes, prefills = [], []
    for turn in range(8):
        reqs = [f"r{turn}.{number}" for number in range(16)]
        at = torch.arange(16) + TOKENS + turn
        decodes.append(
            ("decode", SimpleNamespace(rids=reqs), at.to(device), (at + ahead).expand(3, -1).contiguous().to(device))
        )
        batch = SimpleNamespace(rids=reqs[:4], extend_seq_lens_cpu=[TOKENS] * 4, extend_prefix_lens_cpu=[0] * 4)
        prefills.append(("extend", batch, torch.arange(TOKENS).repeat(4).to(device), table.repeat(1, 4).to(device)))
    return decodes, prefills


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--looks", type=int, default=4000)
    given = parser.parse_args()
    kind = family("qwen2_5_vl")
    rows = tuple(tuple(int(one) for one in row) for row in prompt_table(kind, PROMPT))
    place = SimpleNamespace(rows=rows, delta=delta(prompt_table(kind, PROMPT)))
    told: list[str] = []
    decodes, prefills = batches(given.device)
    found: dict[str, Any] = {"device": given.device, "looks": given.looks}
    with tempfile.TemporaryDirectory() as folder:
        monitor = Monitor(lambda _: None, lambda _: place, Path(folder) / "monitor.json", told.append)
        for one in (*decodes, *prefills):
            monitor.look(*one)
        if given.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        try:
            for name, some in (("decode", decodes), ("prefill", prefills)):
                began = time.perf_counter()
                for number in range(given.looks):
                    monitor.look(*some[number // 100 % len(some)])
                found[f"{name}_us"] = round((time.perf_counter() - began) / given.looks * 1e6, 2)
            found["waits"] = 0  # one would have raised
            if given.device == "cuda":
                try:
                    decodes[0][2].sum().item()
                except RuntimeError as error:
                    found["control"] = str(error).splitlines()[0]
        finally:
            if given.device == "cuda":
                torch.cuda.set_sync_debug_mode("default")
        monitor.close()
        found["looked_at"], found["wrong"] = monitor.counts, monitor.wrong
        bad = ("decode", decodes[0][1], decodes[0][2], decodes[0][3] + 1)
        again = Monitor(lambda _: None, lambda _: place, Path(folder) / "monitor2.json", told.append)
        again.look(*bad)
        again.close()
        found["planted_fault_seen"] = again.wrong
    print(json.dumps(found))


if __name__ == "__main__":
    main()
