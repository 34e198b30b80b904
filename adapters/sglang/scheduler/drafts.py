"""Toy draft models: the smallest configuration of each kind that the engine's own classes take.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | play.ServerConfig.draft | `ServerArgs.speculative_draft_model_path` |

Faked: `EagleLayer`, one layer of a draft that has several, is the engine's one-layer EAGLE head under another name.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from typing import Any

from ropecheck.adapters.toys.make import draft_config

WORKERS = {
    "eagle_layers": "multi_layer_eagle_worker_v2",
    "frozen_kv": "frozen_kv_mtp_worker_v2",
    "dflash": "dflash_worker_v2",
    "dspark": "dspark_components",
    "dspark_table": "dspark_components",
}
"""Drafts that need a worker of their own: name -> its module in the engine."""


def lacking(name: str, device: str) -> str:
    """Why a server with this draft cannot be started; "" when it can."""
    worker = WORKERS.get(name)
    if worker is None:
        return ""
    if importlib.util.find_spec(f"sglang.srt.speculative.{worker}") is None:
        return f"this release has no {worker}"
    if importlib.util.find_spec("sglang.srt.speculative.spec_sampling_mask") is None:  # from 0.5.22 on
        return f"the toy draft of {worker} has been tried from 0.5.22 on"
    return "" if device == "cpu" else f"the toy draft of {worker} has been tried on a CPU alone"


def config(name: str, target: dict[str, Any]) -> dict[str, Any]:
    """A draft's configuration, as wide as the target's. Raises KeyError for a name that is none."""
    text = {key: target[key] for key in target if not key.startswith(("vision", "image", "video", "arch"))}
    match name:
        case "standalone":
            return target
        case "eagle_layers" | "frozen_kv":
            return draft_config("eagle", text) | {"architectures": [_registered(name)]}
        case _:
            return draft_config(name.removesuffix("_table"), text)


def files(name: str) -> dict[str, str]:
    """Files that a server is started with beside the draft, by argument."""
    if name != "dspark_table":
        return {}
    table = {"sample_batch_tokens": [1, 7], "sample_steps_per_sec": [8.0, 1.0], "max_batch_tokens": 64}
    return {"speculative_dspark_sps_table_path": json.dumps(table)}


def _registered(name: str) -> str:
    """The architecture of a toy head, which the engine finds as it finds those of packages outside of it."""
    registry: Any = importlib.import_module("sglang.srt.models.registry").ModelRegistry
    head: Any = importlib.import_module("sglang.srt.models.llama_eagle").LlamaForCausalLMEagle

    class EagleLayer(head):  # type: ignore[misc]
        def __init__(self, draft_model_idx: int | None = None, **given: Any) -> None:
            super().__init__(**given)

    class FrozenKVHead(head):  # type: ignore[misc]
        backbone_hidden_size = property(lambda self: self.config.hidden_size)

        def build_frozen_kv_mtp_context(self, target_model: Any, target_token_to_kv_pool: Any) -> Any:
            info: Any = importlib.import_module("sglang.srt.speculative.frozen_kv_mtp_info")
            return info.FrozenKVMTPContext(target_token_to_kv_pool, {0: 0})

        def bind_frozen_kv_context(self, ctx: Any) -> None:
            """Nothing attends."""

    made: type[Any] = {"eagle_layers": EagleLayer, "frozen_kv": FrozenKVHead}[name]
    registry.models[made.__name__] = made
    return made.__name__
