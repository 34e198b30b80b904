"""`MODULES`, which import classes of the engine's scheduler: with classes of a few lines under those names, unless
the engine itself is imported by now."""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

MODULES = (
    "ropecheck.adapters.sglang.scheduler.intake",
    "ropecheck.adapters.sglang.scheduler.network",
    "ropecheck.adapters.sglang.scheduler.player",
)


def message(name: str, *required: str, **fields: Any) -> Any:
    """A class of the engine's messages: fields by keyword."""
    every: Any = [*((one, Any) for one in required), *((one, Any, value) for one, value in fields.items())]
    return msgspec.defstruct(name, every, kw_only=True, dict=True, weakref=True)


@dataclass
class LogitsProcessorOutput:
    next_token_logits: Any
    hidden_states: Any = None
    input_token_logprobs: Any = None


def normalize(params: Any, tokenizer: Any) -> None:
    """As the engine does it: the likeliest token is the first of one."""
    params.is_normalized = True
    if params.temperature == 0.0:
        params.temperature, params.top_k = 1.0, 1


def stand_ins() -> dict[str, dict[str, Any]]:
    """Module -> its names."""
    request = message(
        "TokenizedGenerateReqInput",
        *("input_text", "input_ids", "input_embeds", "mm_inputs", "token_type_ids", "sampling_params"),
        *("return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob", "stream"),
        rid=None,
        session_params=None,
        priority=None,
        **dict.fromkeys(("bootstrap_host", "bootstrap_port", "bootstrap_room", "extra_key")),
    )
    sampling = message(
        "SamplingParams", max_new_tokens=128, stop_token_ids=None, temperature=1.0, top_k=-1, beam_width=None
    )
    sampling.normalize = normalize
    messages = {
        "TokenizedGenerateReqInput": request,
        "SessionParams": message(
            "SessionParams", id=None, rid=None, offset=None, replace=None, drop_previous_output=None
        ),
        "OpenSessionReqInput": message(
            "OpenSessionReqInput", "capacity_of_str_len", session_id=None, streaming=None, timeout=None
        ),
        "CloseSessionReqInput": message("CloseSessionReqInput", "session_id"),
        "AbortReq": message("AbortReq", rid="", abort_all=False, finished_reason=None),
        "FlushCacheReqInput": message("FlushCacheReqInput"),
        "ContinueGenerationReqInput": message("ContinueGenerationReqInput"),
        "PauseGenerationReqInput": message("PauseGenerationReqInput", mode="abort"),
    }
    batches = {
        "Modality": enum.Enum("Modality", "IMAGE VIDEO AUDIO"),
        "MultimodalDataItem": message("MultimodalDataItem", "modality", hash=None, offsets=None, feature=None),
        "MultimodalProcessorOutput": message(
            "MultimodalProcessorOutput",
            "mm_items",
            im_token_id=None,
            video_token_id=None,
            mrope_positions=None,
            mrope_position_delta=None,
        ),
    }
    return {
        "sglang.srt.managers.io_struct": messages,
        "sglang.srt.managers.schedule_batch": batches,
        "sglang.srt.managers.scheduler_components.output_sender": {},
        "sglang.srt.sampling.sampling_params": {"SamplingParams": sampling},
        "sglang.srt.layers.logits_processor": {"LogitsProcessorOutput": LogitsProcessorOutput},
    }


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    """The modules `intake`, `network` and `player`."""
    with pytest.MonkeyPatch.context() as patch:
        if "sglang.srt.managers.io_struct" not in sys.modules:
            for name, names in stand_ins().items():
                parent, _, last = name.rpartition(".")
                for one in (parent, name):
                    if one not in sys.modules:
                        patch.setitem(sys.modules, one, ModuleType(one))
                vars(sys.modules[name]).update(names)
                vars(sys.modules[parent])[last] = sys.modules[name]
            for name in MODULES:
                patch.setitem(sys.modules, name, None)  # so that it is gone afterwards
                del sys.modules[name]
        yield SimpleNamespace(**{name.rpartition(".")[2]: importlib.import_module(name) for name in MODULES})
