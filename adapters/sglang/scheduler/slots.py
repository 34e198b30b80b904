"""Speculation on a CPU: kernels that only move KV slots and tokens, in plain torch; those that make positions stay the
engine's Triton programs (`programs`).

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `PLAIN` | Triton kernels of `sglang.kernels.ops.speculative`, by module and name |

Faked: the kernels in `PLAIN`, the largest of a row (interpreted, 0.2 s a launch), the copying of cache contents, the
corpus that NGRAM drafts from, the names that releases import from the package of binary kernels, and reductions over
the only rank.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ropecheck.adapters.sglang import absent_packages, programs

SPECULATIVE = "sglang.kernels.ops.speculative"
NGRAM = "sglang.srt.speculative.ngram_worker"
TRITON = (
    *(f"{SPECULATIVE}.{name}" for name in ("spec_tree", "reconstruct_tree", "cache_locs")),
    "sglang.srt.speculative.eagle_utils",  # up to 0.5.22
)
"""Modules that choose between compiled kernels and Triton's."""


class PlainKernel:
    """Stands where a Triton kernel stood: `kernel[grid](*arguments)`."""

    ropecheck_stand_in = True

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._function


def slots_out(rows: Any, table: Any, starts: Any, ends: Any, out: Any, *_: Any, **__: Any) -> None:
    """out = table[row, start:end] of every row, packed."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        out[at : at + end - start] = table[row, start:end]
        at += end - start


def slots_in(rows: Any, table: Any, starts: Any, ends: Any, slots: Any, *_: Any, **__: Any) -> None:
    """table[row, start:end] of every row = its part of slots."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = slots[at : at + end - start]
        at += end - start


def accepted_slots(accepted: Any, slots: Any, out: Any, *_: Any, **__: Any) -> None:
    """The slots of accepted nodes (-1: none), packed."""
    nodes = accepted.flatten()
    nodes = nodes[nodes > -1].long()
    out[: len(nodes)] = slots[nodes]


def bonus_tokens(tokens: Any, lens: Any, out: Any, stride: int, *_: Any, **__: Any) -> None:
    """The last accepted token of every row."""
    for row, count in enumerate(lens.tolist()):
        out[row] = tokens.flatten()[stride * row + count - 1]


def verify_greedily(
    predicts: Any,
    accepted: Any,
    counts: Any,
    candidates: Any,
    index: Any,
    children: Any,
    siblings: Any,
    target: Any,
    **_: Any,
) -> None:
    """Walk every tree from its root along the children that hold the target's own next token."""
    flat, places = target.flatten().tolist(), index.tolist()
    first, after, tokens = children.tolist(), siblings.tolist(), candidates.tolist()
    for row in range(len(places)):
        last = places[row][0]
        accepted[row, 0] = last
        node = taken = 0
        for _step in range(1, accepted.shape[1]):
            node = first[row][node]
            while node != -1 and tokens[row][node] != flat[last]:
                node = after[row][node]
            if node == -1:
                break
            predicts[last] = flat[last]
            taken += 1
            last = places[row][node]
            accepted[row, taken] = last
        counts[row] = taken
        predicts[last] = flat[last]


def row_argmax(scores: Any) -> Any:
    """The first of each row's largest."""
    return scores.argmax(dim=-1)


def nothing(*_: Any, **__: Any) -> None:
    """Contents of the cache, which no network reads."""


def draft_backend(factory: Any, *_: Any, **__: Any) -> Any:
    """The attention backend of a draft model: the plain one, which no draft is offered with; nothing attends."""
    native = _module("sglang.srt.layers.attention.torch_native_backend").TorchNativeAttnBackend
    runner = factory.draft_model_runner

    def one() -> Any:
        made = native(runner)
        made.kv_index_translator = getattr(runner, "kv_index_translator", None)
        made.prefill_attention_backend_str = made.decode_attention_backend_str = "torch_native"
        return made

    backend = one()
    backend.attn_backends = [one() for _step in range(max(1, factory.speculative_num_steps))]
    return backend


class Drafter:
    """In place of the n-gram corpus (a compiled extension): drafts of one small tree per request, its form by length.

    A mask row marks a node's ancestors and itself.
    """

    ropecheck_stand_in = True
    TREES = ((0, 1, 2, 3, 4, 5, 6), (0, 0, 1, 2, 3, 4, 5), (0, 0, 0, 1, 1, 2, 2))

    def __init__(self, *_: Any, draft_token_num: int, **__: Any) -> None:
        self.draft_token_num = draft_token_num

    def batch_get(self, req_ids: Any, batch_tokens: Any, total_lens: Any) -> tuple[Any, Any]:
        """int64 [requests * nodes] tokens and bool [requests * nodes * nodes] masks."""
        nodes = self.draft_token_num
        drafts = np.zeros((len(req_ids), nodes), dtype=np.int64)
        masks = np.zeros((len(req_ids), nodes, nodes), dtype=bool)
        for row, (tokens, total) in enumerate(zip(batch_tokens, total_lens, strict=True)):
            drafts[row, 0] = tokens[-1]
            masks[row, 0, 0] = True
            for node, parent in enumerate(self.TREES[total % len(self.TREES)][: nodes - 1], start=1):
                drafts[row, node] = 20 + (total * 3 + node * 11) % 400
                masks[row, node] = masks[row, parent]
                masks[row, node, node] = True
        return drafts.ravel(), masks.ravel()

    def batch_put(self, batch_tokens: Any) -> None:
        """Nothing is learnt."""

    def synchronize(self) -> None:
        """Nothing runs beside."""

    def reset(self) -> None:
        """Nothing is kept."""

    def erase_match_state(self, req_ids: Any) -> None:
        """Nothing is kept."""


PLAIN: tuple[tuple[str, str, Callable[..., None]], ...] = (
    (f"{SPECULATIVE}.cache_locs", "assign_extend_cache_locs", slots_out),
    ("sglang.srt.mem_cache.allocation", "assign_req_to_token_pool", slots_in),
    (f"{SPECULATIVE}.eagle", "fill_accept_out_cache_loc", accepted_slots),
    (f"{SPECULATIVE}.eagle", "fill_bonus_tokens", bonus_tokens),
    (f"{SPECULATIVE}.spec_tree", "verify_tree_greedy_kernel_triton", verify_greedily),
)


def install_on_gpu() -> None:
    """The same on a GPU, where kernels run as they are: the corpus alone, and where the package of binary kernels is a
    stand-in, the Triton programs in place of its trees."""
    if "sgl_kernel" in absent_packages.wanted():
        _prefer_triton()
    _draft_from_trees()


def install() -> None:
    """Once per process, after the engine is imported."""
    without_binaries()
    _prefer_triton()
    for place, kernel, function in PLAIN:
        module = _module(place)
        if hasattr(module, kernel):
            vars(module)[kernel] = PlainKernel(function)
    cache = _module("sglang.kernels.ops.kvcache.cache_move")
    for name in dir(cache):
        if name.startswith("copy_all_layer_kv_cache") and hasattr(getattr(cache, name), "__getitem__"):
            vars(cache)[name] = PlainKernel(nothing)
    _draft_from_trees()
    utils = _module("sglang.srt.speculative.spec_utils")
    if hasattr(utils, "row_argmax"):
        vars(utils)["row_argmax"] = row_argmax
    drafts = _module("sglang.srt.speculative.draft_utils")
    if hasattr(getattr(drafts, "DraftBackendFactory", None), "_create_backend"):
        drafts.DraftBackendFactory._create_backend = draft_backend
    frozen = _module("sglang.srt.speculative.frozen_kv_mtp_worker_v2")
    if hasattr(frozen, "FrozenKVMTPDraftWorker"):
        frozen.FrozenKVMTPDraftWorker._init_triton_draft_attn_backend = draft_backend
    speculate_as_on_gpu()
    plan_as_triton()
    on_the_host()
    programs.install()


def without_binaries() -> None:
    """Names that are imported from the package of binary kernels, where it is absent; nothing calls them."""
    if "sgl_kernel" not in sys.modules and importlib.util.find_spec("sgl_kernel") is None:
        missing = ModuleType("sgl_kernel.speculative")
        vars(missing)["reconstruct_indices_from_tree_mask"] = None
        sys.modules.setdefault("sgl_kernel.speculative", missing)


class _AsOnGpu:
    """Resolved arguments of a server on a CPU, as one on a GPU has them."""

    device = "cuda"

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arguments, name)


def speculate_as_on_gpu() -> None:
    """What a server may be asked for: overlap with speculation, which users have by default, and drafts that a CPU is
    not offered."""
    hook = _module("sglang.srt.arg_groups.speculative_hook")
    if hasattr(hook, "resolving_view"):
        resolving: Callable[..., Any] = hook.resolving_view
        vars(hook)["resolving_view"] = lambda arguments: _AsOnGpu(resolving(arguments))
    choices = getattr(hook, "DRAFT_ATTENTION_BACKEND_CHOICES", [])
    if "torch_native" not in choices:
        choices.append("torch_native")
    model = _module("sglang.srt.models.qwen2_5_vl").Qwen2_5_VLForConditionalGeneration
    if not hasattr(model, "set_dflash_layers_to_capture"):
        model.set_dflash_layers_to_capture = nothing


def plan_as_triton() -> None:
    """The plain attention backend does not say how long a padded row is; Triton's does."""
    folder = "sglang.srt.layers.attention"
    native = getattr(_module(f"{folder}.torch_native_backend"), "TorchNativeAttnBackend", None)
    triton = getattr(_module(f"{folder}.triton_backend"), "TritonAttnBackend", None)
    name = "get_cuda_graph_seq_len_fill_value"
    if name in vars(triton) and name not in vars(native):
        setattr(native, name, vars(triton)[name])


def _prefer_triton() -> None:
    for name in TRITON:
        module = _module(name)
        if hasattr(module, "_is_xpu"):
            vars(module)["_is_xpu"] = True  # the branch that launches Triton programs


def _draft_from_trees() -> None:
    ngram = _module(NGRAM)
    if hasattr(ngram, "NgramCorpus"):
        vars(ngram)["NgramCorpus"] = Drafter


def lacking(arguments: Mapping[str, Any]) -> str:
    """Why this release cannot be started so here; "" when it can."""
    algorithm = arguments.get("speculative_algorithm")
    if algorithm == "NGRAM" and hasattr(_module(NGRAM), "reconstruct_indices_from_tree_mask"):
        return "this release makes the positions of n-gram trees in a compiled kernel alone"
    trees = (f"{SPECULATIVE}.spec_tree", "sglang.srt.speculative.eagle_utils")
    if algorithm and not any(hasattr(_module(name), "sgl_build_tree_kernel_triton") for name in trees):
        return "this release makes the positions of drafted trees in a compiled kernel alone"
    return ""


def on_the_host() -> None:
    """A hierarchical cache, and a decode server, keep tokens' caches in memory that a GPU can reach: plain memory here,
    and copies copy nothing."""
    common = _module("sglang.srt.mem_cache.pool_host.common")
    if hasattr(common, "_cuda_host_register"):
        vars(common)["_cuda_host_register"] = nothing
    for module in [found for name, found in sys.modules.items() if name.startswith("sglang.srt.mem_cache")]:
        if "HICACHE_HOST_MEMORY_RESERVE_BYTES" in vars(module):  # a toy's cache is some megabytes
            vars(module)["HICACHE_HOST_MEMORY_RESERVE_BYTES"] = 0
    torch = _module("torch")
    stream = getattr(torch.cpu, "Stream", None)
    if stream is not None and not hasattr(stream, "synchronize"):
        stream.synchronize = nothing
    torch.Tensor.record_stream = nothing  # there is one
    torch.cuda.synchronize = nothing  # drafts of releases up to 0.5.15 wait for a device without asking for one
    pinned = torch.tensor

    def tensor(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return pinned(*args, **kwargs)

    torch.tensor = tensor
    torch.distributed.all_reduce = nothing  # one rank; the threads that would run it are not in a fork
    for module in [found for name, found in sys.modules.items() if name.startswith("sglang.srt.")]:
        if vars(module).get("device_module") is torch.cuda:
            vars(module)["device_module"] = torch.cpu
    folder = _module("sglang.srt.mem_cache.pool_host")
    files = Path(folder.__file__).parent.glob("*.py") if folder is not None else ()
    pools = [f"{folder.__name__}.{file.stem}" for file in files]
    for module in filter(None, map(_module, [*pools, "sglang.srt.mem_cache.memory_pool_host"])):
        for name in set(re.findall(r"\btransfer_kv_\w+", Path(module.__file__).read_text("utf-8"))):
            if not hasattr(module, name):
                vars(module)[name] = nothing


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
