"""Start a Scheduler: a toy checkpoint, the server's arguments, the engine's own constructor.

| spec field | adapter field | engine field |
| --- | --- | --- |
| server configuration | play.ServerConfig.arguments | `ServerArgs` |
| engine switches | play.ServerConfig.environment | `os.environ`, read by `sglang.srt.environ` |

Faked: the checkpoint is a configuration alone (`load_format="dummy"`), without a tokenizer.
"""

from __future__ import annotations

import importlib
import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

from ropecheck.adapters.play import ServerConfig
from ropecheck.adapters.sglang import absent_packages, boot, native
from ropecheck.adapters.sglang.scheduler import drafts, slots, stages

VOCABULARY = 512
STOP = 2
HIDDEN = 64
PLACEHOLDERS = {"image": 505, "video": 506}
"""Placeholder tokens of the toy model."""

_MODEL: dict[str, Any] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": STOP,
    "image_token_id": PLACEHOLDERS["image"],
    "video_token_id": PLACEHOLDERS["video"],
    "vision_start_token_id": 507,
    "vision_end_token_id": 508,
    "vision_token_id": 509,
    "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]},
    "vision_config": {
        "model_type": "qwen2_5_vl",
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "spatial_patch_size": 14,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [0],
        "tokens_per_second": 2,
        "in_channels": 3,
        "in_chans": 3,
    },
}

# Those that a release does not have are left out.
_ARGUMENTS: dict[str, Any] = {
    "load_format": "dummy",
    "dtype": "float32",
    "skip_tokenizer_init": True,
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.2,
    "grammar_backend": "none",
    "max_total_tokens": 4000,
    "context_length": 2048,
    "enable_multimodal": True,
    "mm_attention_backend": "sdpa",
    "skip_server_warmup": True,
    "chunked_prefill_size": 32,
    "enable_mixed_chunk": False,
    "disable_overlap_schedule": True,
    "enable_streaming_session": True,
    "random_seed": 0,
}

_ON = {"cpu": {"attention_backend": "torch_native"}, "cuda": {"attention_backend": "triton"}}

MODULES = (
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.scheduler_components.output_sender",  # from 0.5.13 on: outputs are taken there
    "sglang.srt.models.registry",
    "sglang.srt.models.qwen2_5_vl",
    "sglang.srt.model_executor.runner.eager_runner",
    "transformers.models.auto.processing_auto",
    "sglang.srt.speculative.multi_layer_eagle_worker_v2",
    "sglang.srt.speculative.frozen_kv_mtp_worker_v2",
    "sglang.srt.speculative.dflash_worker_v2",
    "sglang.srt.speculative.dspark_components.dspark_worker_v2",
)
"""Imported before any fork, so that a dozen servers cost one import."""


def load(device: str = "cpu") -> None:
    """Import all that a scheduler needs. Raises ImportError naming what the release lacks."""
    absent_packages.stand_in_empty("vllm")
    native.without_dual_gemm()
    for name in MODULES[:2]:
        importlib.import_module(name)
    for name in MODULES[2:]:
        try:
            importlib.import_module(name)
        except ImportError:  # only saves time
            continue
    if device == "cpu":
        slots.install()
    else:
        slots.install_on_gpu()


def checkpoint(model: dict[str, Any]) -> str:
    """A folder that the engine takes for a checkpoint."""
    folder = Path(tempfile.mkdtemp(prefix="ropecheck-model-"))
    (folder / "config.json").write_text(json.dumps(model))
    return str(folder)


class NoSuchArgument(Exception):
    """This release has no such argument; the message names it."""


def build(server: ServerConfig, device: str = "cpu") -> Any:
    """The engine's scheduler, started. Raises NotOffered, or whatever the engine's constructors raise."""
    arguments_module: Any = importlib.import_module("sglang.srt.server_args")
    context: Any = boot.optional("sglang.srt.runtime_context")
    scheduler: Any = importlib.import_module("sglang.srt.managers.scheduler")
    known = set(inspect.signature(arguments_module.ServerArgs).parameters)
    if missing := sorted(set(server.arguments) - known):
        raise NoSuchArgument(f"this release's server has no argument {missing[0]}")
    problem = slots.lacking(server.arguments) if device == "cpu" else ""
    if problem := problem or drafts.lacking(server.draft, device) or stages.lacking(server.arguments):
        raise NoSuchArgument(problem)
    refresh(scheduler)
    ours = _ARGUMENTS | {"device": device} | _ON[device]
    given = {name: value for name, value in ours.items() if name in known} | server.arguments
    if server.draft:
        folder = given["speculative_draft_model_path"] = checkpoint(drafts.config(server.draft, _MODEL))
        given["speculative_draft_load_format"] = "dummy"
        for argument, text in drafts.files(server.draft).items():
            given[argument] = f"{folder}/{argument}"
            Path(given[argument]).write_text(text)
    arguments = arguments_module.ServerArgs(model_path=checkpoint(_MODEL), **given)
    ports = arguments_module.PortArgs.init_new(arguments)
    if not hasattr(context, "SpawnRanks"):  # up to 0.5.20 ranks are the constructor's arguments
        if hasattr(context, "publish"):  # up to 0.5.16 the constructor does it
            context.publish(arguments, role="scheduler")
        ranks = [
            name for name in inspect.signature(scheduler.Scheduler).parameters if name.endswith(("_rank", "gpu_id"))
        ]
        return scheduler.Scheduler(arguments, ports, **{name: None if name == "dp_rank" else 0 for name in ranks})
    rank = context.spawn_world_rank(arguments, tp_rank=0, pp_rank=0)
    context.publish(arguments, role="scheduler", ranks=context.SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=0))
    if server.arguments.get("enable_two_batch_overlap"):  # the scheduler asks for it where its model has experts
        scheduler.initialize_moe_config()
    if server.arguments.get("pp_size", 1) == 1:
        return scheduler.Scheduler(arguments, ports)
    stages.alone()
    made = scheduler.Scheduler(arguments, ports)
    made.pp_group = stages.Ring(made.pp_group)
    return made


def refresh(scheduler: Any) -> None:
    """Switches that the engine read from the environment when it was imported, read again."""
    environ: Any = importlib.import_module("sglang.srt.environ")
    for name in ("TEST_RETRACT", "TEST_RETRACT_INTERVAL", "TEST_RETRACT_NO_PREFILL_BS"):
        if hasattr(scheduler, name):
            setattr(scheduler, name, getattr(environ.envs, f"SGLANG_{name}").get())
