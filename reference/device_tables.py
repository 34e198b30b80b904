"""Prompt tables in torch, on any device. Nothing else of the reference imports torch."""

from __future__ import annotations

import torch

from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families.declaration import ROUNDING, GridFamily, MediaFamily, frame_times
from ropecheck.spec.history import History, run_length


def prompt_table_torch(family: MediaFamily, history: History, device: str | torch.device = "cpu") -> torch.Tensor:
    """int64 [axes, P] on `device`: built there from one small copy of the runs, where the family's blocks are grids;
    built on the host and copied where they are not (HunYuan-VL, an omni family, a run that was cut short).

    Raises OutOfDomain where the specification does.
    """
    if torch.device(device).type == "cpu" or not grids_only(family, history):
        return torch.from_numpy(prompt_table(family, history)).to(device)
    return table_on_device(family, history, torch.device(device))


def grids_only(family: MediaFamily, history: History) -> bool:
    """Whether every media run is a plain block of a family of grids."""
    return isinstance(family, GridFamily) and all(run.kept is None for run in history)


def table_on_device(family: MediaFamily, history: History, device: torch.device) -> torch.Tensor:
    """int64 [3, P] on `device`. One host-to-device copy: per run its start, offset, frame and line sizes, and rate."""
    if not isinstance(family, GridFamily):
        raise TypeError(f"{family.name} is not a family of grids")
    rows: list[tuple[int, int, int, int]] = []
    rates: list[tuple[float, float]] = []
    lengths: list[int] = []
    start = offset = 0
    for run in history:
        tokens = run_length(family, run)
        if run.is_text:
            rows.append((start, offset, 1, 0))
            rates.append((1.0, 1.0))
            extent = tokens
        else:
            t, h, w = family.merged(run)
            rows.append((start, offset, h * w, w))
            timed = run.kind == "video" and family.tokens_per_second is not None
            rates.append((run.seconds_per_grid, float(family.tokens_per_second or 1)) if timed else (1.0, 1.0))
            extent = max(frame_times(run, t, family.tokens_per_second)[-1] + 1, h, w)
        lengths.append(tokens)
        start += extent
        offset += tokens
    packed = (
        torch.tensor([(*row, *rate, n) for row, rate, n in zip(rows, rates, lengths, strict=True)], dtype=torch.float64)
        .reshape(-1, 7)
        .to(device)
    )
    numbers = packed[:, (0, 1, 2, 3, 6)].to(torch.int64)
    which = torch.repeat_interleave(numbers[:, 4], output_size=offset)
    first, at, frame, line, _ = numbers[which].unbind(1)
    seconds, rate = packed[which][:, 4:6].unbind(1)
    place = torch.arange(offset, device=device) - at
    text = line == 0
    time = torch.floor((place // frame).to(torch.float64) * seconds * rate + ROUNDING).to(torch.int64)
    inside = place % frame
    width = torch.clamp(line, min=1)
    table = torch.stack((time, torch.where(text, place, inside // width), torch.where(text, place, inside % width)))
    return table + first
