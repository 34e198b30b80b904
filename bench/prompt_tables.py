"""Prompt tables: this suite's builder beside SGLang's, transformers' and a plain copy.

`python -m bench.prompt_tables [--repeats N]`: one process, one thread, every contender in turn within each repeat, the
minimum of each. Ratios are to the plain copy of the finished table and to the faster of the two engines.

What is timed: building the whole table of one Qwen2-VL prompt of images, 32 text tokens between. The engines are
given ids, grids and, for transformers, kinds as tensors; `from runs` is given the prompt as runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case, step
from ropecheck.conformance.families.fields import IMAGE, VIDEO
from ropecheck.conformance.families.layout import Segment
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families import FAMILIES

SETTINGS = ((1, 32), (8, 128), (64, 32), (256, 8))
"""(images, side of each grid before the merge)."""

Work = Callable[[], object]


def boot() -> None:
    """Import SGLang as its adapter does, on the CPU, one thread."""
    from ropecheck.adapters.sglang import boot as sglang

    sglang.prepare_environment("cpu")
    sglang.load("cpu").set_num_threads(1)


def minimum(contenders: dict[str, Work], repeats: int, budget: float = 20.0) -> dict[str, float]:
    """Microseconds, the least of several runs each; contenders take turns, so that all see the same machine."""
    best = dict.fromkeys(contenders, float("inf"))
    end = time.perf_counter() + budget
    for _ in range(repeats):
        for name, work in contenders.items():
            fast = best[name] < 2000
            for _ in range(20 if fast else 1):
                start = time.perf_counter_ns()
                work()
                best[name] = min(best[name], (time.perf_counter_ns() - start) / 1000)
        if time.perf_counter() > end:
            break
    return best


def prompt(images: int, side: int) -> Case:
    """Images of side x side patches with 32 text tokens around each, markers included."""
    segments: list[Segment] = []
    for _ in range(images):
        segments += [Segment(kind="text", tokens=30), Segment(kind="image", grid=(1, side, side))]
    return Case("bench", "qwen2_vl", ((*segments, Segment(kind="text", tokens=31)),))


def tables(repeats: int) -> list[tuple[str, dict[str, float]]]:
    """The four settings."""
    import torch

    found = []
    for images, side in SETTINGS:
        case = prompt(images, side)
        laid, asked = case.laid[0], step(case)
        family = FAMILIES["qwen2_vl"]
        ours = prompt_table(family, laid.history)
        whole = torch.from_numpy(ours)
        engines = {"SGLang": sglang_work(asked), "transformers": transformers_work(asked)}
        for name, build in engines.items():
            built: Any = build()
            if not np.array_equal(built[0].reshape(3, -1).numpy(), ours):
                raise SystemExit(f"{name} builds another table: nothing to compare")
        contenders: dict[str, Work] = {
            "copy": whole.clone,
            "from runs": partial(prompt_table, family, laid.history),
            **engines,
        }
        found.append((f"{images} x {side}x{side}, {len(laid.ids)} tokens", minimum(contenders, repeats)))
    return found


def sglang_work(asked: protocol.PromptTable) -> Work:
    """One call of SGLang's builder on tensors made before."""
    import torch
    from sglang.srt.layers.rotary_embedding import MRotaryEmbedding

    arguments = {
        "spatial_merge_size": 2,
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": asked.config["vision_start_token_id"],
        "model_type": "qwen2_vl",
        "input_ids": torch.tensor(asked.ids),
        "image_grid_thw": torch.tensor(asked.image_grids),
    }
    return lambda: MRotaryEmbedding.get_rope_index(**arguments)


def transformers_work(asked: protocol.PromptTable) -> Work:
    """One call of transformers' builder on tensors made before."""
    import torch

    from ropecheck.adapters import family_configs
    from ropecheck.adapters.transformers.builders import ModelStandIn, model_class

    cls = model_class("qwen2_vl")
    model = ModelStandIn(cls, family_configs.build("qwen2_vl", asked.config))
    ids, kinds, grids = torch.tensor(asked.ids), torch.tensor(asked.kinds), torch.tensor(asked.image_grids)
    return lambda: cls.get_rope_index(model, ids, kinds, grids)  # type: ignore[attr-defined]


def show(title: str, rows: Sequence[tuple[str, dict[str, float]]], ours: Sequence[str], others: Sequence[str]) -> None:
    """Microseconds; then, for each of ours, how many times slower the faster of the others is, and its own time in
    copies."""
    names = list(rows[0][1])
    heads = [*names, *(head for name in ours for head in (f"{name}: faster by", f"{name}: copies"))]
    print(f"\n{title}: microseconds (minimum); others / ours; ours / copy")
    for label, best in rows:
        other = min(best[name] for name in others)
        values = [*(best[name] for name in names)]
        for name in ours:
            values += [other / best[name], best[name] / best["copy"]]
        print(f"\n  {label}")
        for head, value in zip(heads, values, strict=True):
            print(f"    {head:28}{value:12.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Builders of prompt tables, side by side.")
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    boot()
    engines = ("SGLang", "transformers")
    show("Prompt tables, Qwen2-VL", tables(options.repeats), ("from runs",), engines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
