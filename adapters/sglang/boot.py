"""Import the engine quietly and publish the configuration that its code reads.

| spec field | adapter field | engine field |
| --- | --- | --- |
| Job.device | device | `model_runner.device`; "cuda" leaves Triton compiled, "cpu" runs it interpreted |

Faked here: the published `ServerArgs` are the engine's own dummy defaults (`model_path="dummy"`); tensor-parallel rank
0 is forced, because an aborting `create_req` asks for it before it logs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

from ropecheck.adapters.sglang import absent_packages
from ropecheck.adapters.sglang import device as device_module

FAKED = (
    "ServerArgs: the engine's dummy defaults (no model on disk)",
    "parallel context: tp_rank forced to 0 (an aborting create_req reads it)",
    "process groups (releases that ask for them): one process, gloo, through a file",
    "logging: disabled (the engine logs every aborted request)",
)

_KEPT: list[Any] = []
"""Open for the life of the process."""


CORE = (
    "sglang.srt.model_executor.forward_batch_info",
    "sglang.srt.managers.schedule_batch",
    "sglang.srt.managers.io_struct",
    "sglang.srt.speculative.eagle_info",
)
"""Without these there is nothing to drive; the rest is probed."""


def prepare_environment(device: str) -> None:
    """Set what must be set before torch, Triton and SGLang are imported. device: "cpu" or "cuda"."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one worker per core: threads only add waiting
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("SGLANG_RAGGED_VERIFY_MODE", "compact")
    # Of one rank nothing is to be gathered; up to 0.5.18 it is gathered all the same, and no group outlives a fork.
    os.environ.setdefault("SGLANG_SCHEDULER_SKIP_ALL_GATHER", "1")
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def silence() -> None:
    """No log records and no warnings: a pipe nobody reads would fill up and stop the worker."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)


HEAVY = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "torchvision",
    "transformers.modeling_utils",
    "scipy.optimize",
    "openai.types.responses",
    "fastapi",
    "aiohttp",
    "triton.language",
    "IPython",
    "compressed_tensors",
    "gguf",
    "loguru",
    "requests",
    "tiktoken",
    "uvicorn",
    "xgrammar",
    "zmq",
)
"""Packages that take the longest of all that the engine imports."""


def warm() -> None:
    """Import what is none of the engine's own and is the same for every version of it beside these packages."""
    silence()
    gc.disable()  # what imports make stays
    for module in ("torch", *HEAVY):
        with contextlib.suppress(Exception):  # the engine's own import says what is wrong with it
            importlib.import_module(module)
    gc.freeze()


def load(device: str, imported: Callable[[], None] = lambda: None) -> Any:
    """Import torch and SGLang and publish a configuration. Returns the torch module. `imported` is called in between.

    Errors: whatever the imports raise; the runner sees a worker that ended before its Hello.
    """
    silence()
    gc.disable()  # until `settle`
    torch = importlib.import_module("torch")
    if device == "cpu":
        torch.set_num_threads(1)
    elif problem := device_module.problem(torch):
        print(problem, flush=True)  # the runner quotes a dead worker's last words
        raise SystemExit(device_module.EXIT)
    absent_packages.install()
    for module in CORE:
        importlib.import_module(module)
    imported()
    publish_configuration()
    silence()  # imports may have installed their own handlers
    return torch


def settle() -> None:
    """What the imports made stays, and what they left: collections need not walk it again and again."""
    gc.freeze()
    gc.enable()


def publish_configuration() -> None:
    """Publish default server arguments the way this release does; each way is tried by its presence."""
    context_module = optional("sglang.srt.runtime_context")
    context: Any = context_module.get_context() if hasattr(context_module, "get_context") else None
    if hasattr(context, "override_server_args"):
        context.override_server_args().install()
        parallel = context_module.get_parallel()
        if hasattr(parallel, "override"):
            override = parallel.override(tp_rank=0)
            override.__enter__()
            _KEPT.append(override)  # a collected override would restore what it overrode
        return
    server_args: Any = importlib.import_module("sglang.srt.server_args")
    default = default_server_args(server_args.ServerArgs)
    if hasattr(server_args, "set_global_server_args_for_scheduler"):
        server_args.set_global_server_args_for_scheduler(default)
    else:
        server_args._global_server_args = default


def publish_process_groups() -> None:
    """Make this process a group of one, in the releases whose batch constructor asks an initialised group for its
    size. Through a file, without a network."""
    state = optional("sglang.srt.distributed.parallel_state")
    ask = getattr(state, "get_moe_expert_parallel_world_size", None)
    if ask is None:
        return
    try:
        ask()
    except AssertionError:
        meeting = tempfile.NamedTemporaryFile(prefix="ropecheck-")  # noqa: SIM115 - stays as long as the process
        _KEPT.append(meeting)
        state.init_distributed_environment(
            world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=f"file://{meeting.name}"
        )
        state.initialize_model_parallel()
    except Exception:
        return  # this release asks nobody


def default_server_args(cls: Any) -> Any:
    """A ServerArgs with every default filled and no validation run (validation wants a model on disk)."""
    import dataclasses

    args = object.__new__(cls)
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = "dummy"
        object.__setattr__(args, field.name, value)
    return args


def optional(name: str) -> Any:
    """The module, or None when this release has none of that name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def release_standard_input() -> None:
    """Point file descriptor 0 at nothing, so that a child or a debugger cannot eat the parent's input."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - stays open
