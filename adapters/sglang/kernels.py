"""Steering the engine's GPU-only choices on a CPU, and knowing which kernels ran.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | BuildForward.path "fused" | `batch.seq_lens.is_cuda` (a Tensor subclass on a CPU) |
| - | TablesAnswer.ran | kernels called by `eagle_worker_common` |

Faked on a CPU only: `spec_tree._is_xpu` is True, so that the tree is built by the engine's Triton kernel (interpreted);
KV slot lookups that return nothing there return zeros; a draft's slot lookup that writes no positions is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ropecheck.adapters.sglang.boot import optional

FAKED = (
    "cpu: spec_tree._is_xpu = True (the engine's Triton tree kernel, interpreted)",
    "cpu: assign_extend_cache_locs_func returns zeros (KV slots; the engine returns None there)",
    "cpu: assign_draft_cache_locs_contiguous_func without positions is skipped (KV slots)",
    "cpu, path fused: seq_lens is a Tensor subclass whose is_cuda is True",
)

COMMON = "sglang.srt.speculative.eagle_worker_common"
TREES = ("sglang.kernels.ops.speculative.spec_tree", "sglang.srt.speculative.eagle_utils")
WATCHED = (
    "build_chain_tree",
    "prepare_draft_extend_layout",
    "prepare_draft_extend_lengths",
    "build_tree_kernel_efficient",
    "assign_draft_cache_locs_contiguous_func",
)

ON_GPU = (
    ("sglang.srt.model_executor.forward_batch_info", "clamp_position"),
    ("sglang.kernels.ops.attention.clamp_position", "clamp_position_cuda"),
    ("sglang.srt.speculative.eagle_utils", "sgl_build_tree_kernel_efficient"),
    ("sglang.kernels.ops.speculative.spec_tree", "sgl_build_tree_kernel_efficient"),
)
"""Compiled and JIT kernels, and what chooses between them; Triton's launches are told by Triton itself."""

ran: list[str] = []
"""Names of kernels called since the caller last cleared it."""


class OnGpu(torch.Tensor):  # type: ignore[misc]
    """A CPU tensor that answers yes when the engine asks whether it is on a GPU."""

    @property
    def is_cuda(self) -> bool:
        """True: this is the whole trick."""
        return True


def install(device: str) -> None:
    """Wrap the engine's kernels once per process. device: "cpu" or "cuda"."""
    common = optional(COMMON)
    for name in WATCHED:
        function = getattr(common, name, None)
        if function is not None:
            setattr(common, name, watched(function, skip_plain=device == "cpu" and name.startswith("assign")))
    if device != "cpu":
        install_on_gpu()
        return
    for name in TREES:
        tree = optional(name)
        if hasattr(tree, "sgl_build_tree_kernel_triton"):
            tree._is_xpu = True
    for module in ("cache_locs", "dspark.dspark_verify_window"):
        holder = optional(f"sglang.kernels.ops.speculative.{module}")
        if hasattr(holder, "assign_extend_cache_locs_func"):
            holder.assign_extend_cache_locs_func = no_slots


def install_on_gpu() -> None:
    """Note the compiled kernels by wrapping them, and every Triton launch by Triton's own hook."""
    for module, name in ON_GPU:
        function = getattr(optional(module), name, None)
        if function is not None:
            setattr(optional(module), name, watched(function, skip_plain=False))
    knobs = getattr(optional("triton"), "knobs", None)
    chain = getattr(getattr(knobs, "runtime", None), "launch_enter_hook", None)
    if chain is not None and hasattr(chain, "add"):
        chain.add(launched)


def launched(metadata: Any) -> None:
    """Triton is about to launch a kernel."""
    ran.append(f"triton {metadata.get()['name']}")


def watched(function: Callable[..., Any], *, skip_plain: bool) -> Callable[..., Any]:
    """The function, noting its name in `ran`. skip_plain: do nothing unless it is asked for positions."""
    # A fused operator is an object, not a function.
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("positions") is not None:
            ran.append(name + " (positions)")
        elif skip_plain:
            return None
        else:
            ran.append(name)
        return function(*args, **kwargs)

    return call


def no_slots(*, start_offset: Any, end_offset: Any, **_: Any) -> Any:
    """KV slots of a window of tokens: zeros, as many as the window has tokens."""
    return torch.zeros(int((end_offset - start_offset).sum()), dtype=torch.int64, device=start_offset.device)


def hollow(cls: type, **attributes: Any) -> Any:
    """An object of an engine class made without its constructor, which would load a model. Attribute by attribute;
    a missing one is the suite's fault and is reported so."""
    empty = type(cls.__name__, (cls,), {"ropecheck_stand_in": True, "__module__": cls.__module__})
    thing: Any = object.__new__(empty)
    for name, value in attributes.items():
        object.__setattr__(thing, name, value)
    return thing


def qualified(function: Callable[..., Any]) -> str:
    """module.name of an engine function."""
    return f"{function.__module__}.{function.__qualname__}"
