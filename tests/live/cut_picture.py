"""A vision draft's window that begins inside a picture, through the engine's own functions, in the worker of planted
faults. The draft is given the target's window with its tokens turned left by one (`_draft_extend_for_prefill`).
"""

from __future__ import annotations

from typing import Any

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang.imports import imported

FIRST, TOKENS, END = 60, 16, 85
"""The picture's first token, how many it has, and the prompt's length."""


class Tower:
    """In the vision tower's place: a row of eight numbers for every token."""

    def get_image_feature(self, items: list[Any]) -> Any:
        import torch

        return torch.zeros(TOKENS * len(items), 8)


def answer(job: protocol.Job) -> protocol.JobAnswer:
    """Job "cut:BEGIN" or "turned:BEGIN": the window from there to the end, as the target or the draft has it."""
    turned, _, begin = job.id.partition(":")
    result: protocol.Result = protocol.Done()
    try:
        _embed(int(begin), turned == "turned")
    except IndexError as error:
        result = protocol.Raised("engine", "IndexError", str(error), "")
    return protocol.JobAnswer(job.id, (result,), 0, 0)


def _embed(begin: int, turned: bool) -> None:
    import torch

    batch, routine, held = (
        imported(f"sglang.srt.managers.{name}") for name in ("schedule_batch", "mm_utils", "mm_schedule")
    )
    held.init_mm_embedding_cache(1 << 20)
    item = batch.MultimodalDataItem(modality=batch.Modality.IMAGE, offsets=[(FIRST, FIRST + TOKENS - 1)])
    item.feature = torch.zeros(TOKENS, 4)
    item.set_pad_value()
    ids = torch.ones(END + 1, dtype=torch.int64)
    ids[FIRST : FIRST + TOKENS] = item.pad_value
    window = ids[begin + turned : END + turned].clone()
    inputs = batch.MultimodalInputs(mm_items=[item])
    routine.embed_mm_inputs([inputs], [begin], [END - begin], window, torch.nn.Embedding(512, 8), Tower())
