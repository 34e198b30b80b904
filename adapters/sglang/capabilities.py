"""What this release of SGLang has: every lookup and probe of the adapter is here. What is used is what was found; the
versions (`RELEASES`) say what must have been found, so that an offer that is lost fails.

| spec field | adapter field | engine field |
| --- | --- | --- |
| Hello.capabilities | `Engine.found` | the place where each name was found ("" = absent) |
| Hello.modes | `Engine.modes` | `ForwardMode` members |
| Hello.covered | `COVERED` | member -> protocol mode |
| Hello.uncovered | `UNCOVERED` | member -> reason |
"""

from __future__ import annotations

import functools
import importlib
import inspect
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ropecheck.adapters.sglang import absent_packages
from ropecheck.adapters.sglang.imports import CannotImport

COVERED = {
    "EXTEND": "extend",
    "DECODE": "decode",
    "MIXED": "mixed",
    "IDLE": "idle",
    "TARGET_VERIFY": "target_verify",
    "DRAFT_EXTEND_V2": "draft_extend_v2",
    "SPLIT_PREFILL": "split_prefill",
    "DLLM_EXTEND": "dllm_extend",
}
"""Draft decode is DECODE with a draft input as spec_info; it has no member of its own."""

UNCOVERED = {
    "PREBUILT": "no forward to judge: the KV cache arrives ready, as a decode server's scripts pass it",
    "DRAFT_EXTEND": "not driven: draft extend of the retired v1 worker",
}

NOT_DRIVEN = {
    "UNO drafts and verifies": "their batches hold no three rows, shown by docs/examples/uno.py",
    "own batches of the frozen-KV MTP and multi-layer EAGLE graphs": "they are loaded with an EAGLE draft's batch",
    "DFLASH and DSPARK graphs; capture and replay": "load steps that are not called, and graphs themselves",
    "BailingMRotaryEmbedding": "a reader of three rows whose sections follow no paper",
    "prefill context parallelism, NPU and CPU graph runners": "other producers and consumers of tables",
}
"""Ways to a table that no member of ForwardMode names -> what they are. A run says that it does not look at them."""

_SRT = "sglang.srt."
_BATCH = _SRT + "managers.schedule_batch:"
_FORWARD = _SRT + "model_executor.forward_batch_info:"
_KERNEL = "sglang.kernels.ops.speculative."
_GRAPHS = _SRT + "speculative.{}_cuda_graph_runner:"

PLACES: dict[str, tuple[str, ...]] = {
    "Req": (_BATCH + "Req",),
    "ScheduleBatch": (_BATCH + "ScheduleBatch",),
    "MultimodalInputs": (_BATCH + "MultimodalInputs",),
    "MultimodalProcessorOutput": (_BATCH + "MultimodalProcessorOutput",),
    "MultimodalDataItem": (_BATCH + "MultimodalDataItem",),
    "Modality": (_BATCH + "Modality",),
    "FINISH_LENGTH": (_BATCH + "FINISH_LENGTH",),
    "FINISH_ABORT": (_BATCH + "FINISH_ABORT",),
    "SamplingParams": (_SRT + "sampling.sampling_params:SamplingParams",),
    "ForwardBatch": (_FORWARD + "ForwardBatch",),
    "ForwardMode": (_FORWARD + "ForwardMode",),
    "CaptureHiddenMode": (_FORWARD + "CaptureHiddenMode",),
    "compute_position_triton": (
        "sglang.kernels.ops.attention.position:compute_position_triton",
        _SRT + "model_executor.triton_ops.position:compute_position_triton",
        _FORWARD + "compute_position_triton",
    ),
    "PaddingPattern": (_SRT + "managers.mm_utils:MultiModalityDataPaddingPatternMultimodalTokens",),
    "Session": (
        _SRT + "session.session_controller:Session",
        _SRT + "managers.session_controller:Session",
    ),
    "SessionController": (
        _SRT + "session.session_controller:SessionController",
        _SRT + "managers.session_controller:SessionController",
    ),
    "SessionParams": (_SRT + "managers.io_struct:SessionParams",),
    "TokenizedGenerateReqInput": (_SRT + "managers.io_struct:TokenizedGenerateReqInput",),
    "RadixCache": (_SRT + "mem_cache.radix_cache:RadixCache",),
    "RadixKey": (_SRT + "mem_cache.radix_cache:RadixKey",),
    "InsertParams": (
        _SRT + "mem_cache.base_prefix_cache:InsertParams",
        _SRT + "mem_cache.radix_cache:InsertParams",
    ),
    "SpeculativeAlgorithm": (_SRT + "speculative.spec_info:SpeculativeAlgorithm",),
    "EagleDraftInput": (_SRT + "speculative.eagle_info:EagleDraftInput",),
    "EagleDraftExtendInput": (_SRT + "speculative.eagle_info:EagleDraftExtendInput",),
    "EagleVerifyInput": (_SRT + "speculative.eagle_info:EagleVerifyInput",),
    "TreeMaskMode": (
        _KERNEL + "spec_tree:TreeMaskMode",
        _SRT + "speculative.eagle_utils:TreeMaskMode",
    ),
    "prepare_for_draft": (
        _SRT + "speculative.eagle_worker_common:prepare_for_draft",
        _SRT + "speculative.base_spec_worker:EagleDraftWorkerBase.prepare_for_draft",
        _SRT + "speculative.eagle_info:EagleDraftInput.prepare_for_v2_draft",
    ),
    "prepare_for_draft_extend": (
        _SRT + "speculative.eagle_worker_common:prepare_for_draft_extend",
        _SRT + "speculative.base_spec_worker:EagleDraftWorkerBase.prepare_for_draft_extend",
        _SRT + "speculative.eagle_info:EagleDraftInput.prepare_for_extend_to_fill_draft_kvcache",
    ),
    "build_eagle_verify_input": (_SRT + "speculative.eagle_worker_common:build_eagle_verify_input",),
    "eagle_prepare_for_verify": (_SRT + "speculative.eagle_utils:eagle_prepare_for_verify",),
    "EagleDraftWorker": (_SRT + "speculative.eagle_worker_v2:EagleDraftWorker",),
    "build_chain_tree": (_KERNEL + "eagle:build_chain_tree",),
    "prepare_draft_extend_layout": (_KERNEL + "eagle:prepare_draft_extend_layout",),
    "assign_draft_cache_locs": (_KERNEL + "cache_locs:assign_draft_cache_locs_contiguous_func",),
    "RaggedVerifyLayout": (_SRT + "speculative.ragged_verify:RaggedVerifyLayout",),
    "BuildRaggedVerifyWindow": (_KERNEL + "dspark.dspark_verify_window:BuildRaggedVerifyWindow",),
    "DFlashVerifyInput": (_SRT + "speculative.dflash_info:DFlashVerifyInput",),
    "TargetVerifyExecutor": (_SRT + "speculative.dspark_components.dspark_verify:TargetVerifyExecutor",),
    "DllmConfig": (_SRT + "dllm.config:DllmConfig",),
    "build_decode_registry": (_SRT + "model_executor.cuda_graph_buffer_registry:build_decode_registry",),
    "build_prefill_registry": (_SRT + "model_executor.cuda_graph_buffer_registry:build_prefill_registry",),
    "PrefillCudaGraphRunner": (_SRT + "model_executor.runner.prefill_cuda_graph_runner:PrefillCudaGraphRunner",),
    "DecodeCudaGraphRunner": (_SRT + "model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner",),
    "EAGLEDraftCudaGraphRunner": (_GRAPHS.format("eagle_draft") + "EAGLEDraftCudaGraphRunner",),
    "EagleDraftInputBuffers": (_GRAPHS.format("eagle_draft") + "EagleDraftInputBuffers",),
    "EAGLEDraftExtendCudaGraphRunner": (_GRAPHS.format("eagle_draft_extend") + "EAGLEDraftExtendCudaGraphRunner",),
    "EagleDraftExtendInputBuffers": (_GRAPHS.format("eagle_draft_extend") + "EagleDraftExtendInputBuffers",),
    "FrozenKVMTPCudaGraphRunner": (_GRAPHS.format("frozen_kv_mtp") + "FrozenKVMTPCudaGraphRunner",),
    "FrozenKVMTPInputBuffers": (_GRAPHS.format("frozen_kv_mtp") + "FrozenKVMTPInputBuffers",),
    "FrozenKVMTPDraftInput": (_SRT + "speculative.frozen_kv_mtp_info:FrozenKVMTPDraftInput",),
    "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner": (
        _GRAPHS.format("multi_layer_eagle_draft_extend") + "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner",
    ),
    "MultiLayerEagleDraftExtendCudaGraphRunner": (
        _GRAPHS.format("multi_layer_eagle_draft_extend") + "MultiLayerEagleDraftExtendCudaGraphRunner",
    ),
    "MultiLayerEagleDraftExtendInputBuffers": (
        _GRAPHS.format("multi_layer_eagle_draft_extend") + "MultiLayerEagleDraftExtendInputBuffers",
    ),
}
"""Name in the adapter -> where releases keep it, newest first."""


RELEASES: dict[str, str] = {
    "ForwardMode.DRAFT_EXTEND": "<0.5.14",
    "ForwardMode.DLLM_EXTEND": ">=0.5.6.post1",
    "MultimodalProcessorOutput": ">=0.5.10",
    "SessionController": ">=0.5.10",
    "InsertParams": ">=0.5.9",
    "EagleDraftExtendInput": ">=0.5.12",
    "build_eagle_verify_input": ">=0.5.16",
    "eagle_prepare_for_verify": ">=0.5.14",
    "build_chain_tree": ">=0.5.22",
    "prepare_draft_extend_layout": ">=0.5.22",
    "assign_draft_cache_locs": ">=0.5.23",
    "RaggedVerifyLayout": ">=0.5.16",
    "BuildRaggedVerifyWindow": ">=0.5.17",
    "DFlashVerifyInput": ">=0.5.11",
    "TargetVerifyExecutor": ">=0.5.16",
    "build_decode_registry": ">=0.5.13",
    "build_prefill_registry": ">=0.5.13",
    "PrefillCudaGraphRunner": ">=0.5.14",
    "DecodeCudaGraphRunner": ">=0.5.14",
    "EagleDraftInputBuffers": ">=0.5.10",
    "EAGLEDraftCudaGraphRunner.execute": ">=0.5.14",
    "EagleDraftExtendInputBuffers": ">=0.5.10",
    "EAGLEDraftExtendCudaGraphRunner.execute": ">=0.5.14",
    "FrozenKVMTPCudaGraphRunner": ">=0.5.12",
    "FrozenKVMTPInputBuffers": ">=0.5.12",
    "FrozenKVMTPDraftInput": ">=0.5.12",
    "FrozenKVMTPCudaGraphRunner.execute": ">=0.5.14",
    "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner": ">=0.5.7",
    "MultiLayerEagleDraftExtendCudaGraphRunner": ">=0.5.7",
    "MultiLayerEagleDraftExtendInputBuffers": ">=0.5.10",
    "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner.prepare": ">=0.5.15",
    "batch_is_schedule_batch": ">=0.5.13",
    "tokens_are_arrays": ">=0.5.13",
    "prefix_len_is_field": ">=0.5.22",
    "fused_draft": ">=0.5.23",
    "delta_cache": ">=0.5.10",
    "mrope_interleaved_glm": ">=0.5.10",
    "streaming_sessions": ">=0.5.10",
    "fused rotary kernel": ">=0.5.15",
    "YaRNScalingMRotaryEmbedding": ">=0.5.9",
    "Ernie4_5_VLRotaryEmbedding": ">=0.5.9",
    "frozen-KV MTP draft": ">=0.5.12",
    "widened draft extend": ">=0.5.16",
    "beam search": ">=0.5.19",
}
"""Capability -> the releases that have it, read off every release from 0.5.6 on; one that is not named is in all of
them. A development version has what the newest release has."""

FLAGS = ("batch_is_schedule_batch", "tokens_are_arrays", "prefix_len_is_field", "fused_draft", "delta_cache")
"""Boolean attributes of `Engine` that `Hello.capabilities` reports."""


class Absent(Exception):
    """This release lacks what the step needs; the message says what."""


class LostCapability(Exception):
    """This version is known to have the capability, and the adapter does not find it: a failure, not a lack."""


class Engine:
    """Everything of SGLang that the adapter touches, found by name.

    `engine.Req` and the like are the engine's own objects, or None where this release has none. `found` says where
    each came from.
    """

    def __init__(self) -> None:
        self.version = str(importlib.import_module("sglang").__version__)
        self.found: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        """Name -> why the module that should hold it cannot be imported."""
        for name, places in PLACES.items():
            setattr(self, name, self._look_up(name, places))
        self.modes: dict[str, int] = {m.name: int(m) for m in self.ForwardMode}
        self.init_new_takes = parameters(self.ForwardBatch.init_new)
        self.create_req_takes = parameters(getattr(self.Session, "create_req", None))
        self.session_takes = parameters(getattr(self.Session, "__init__", None))
        self.req_takes = parameters(self.Req.__init__)
        self.batch_is_schedule_batch = not hasattr(self.ScheduleBatch, "get_model_worker_batch")
        self.tokens_are_arrays = "array" in self.req_takes.get("origin_input_ids", "")
        self.prefix_len_is_field = "prefix_indices" not in self.Req.__init__.__code__.co_names
        self.fused_draft = "positions" in parameters(self.assign_draft_cache_locs)
        self.delta_cache = hasattr(self.MultimodalInputs, "mrope_position_delta_repeated_cache")
        for member in self.modes:
            self.found[f"ForwardMode.{member}"] = "member"
        for flag in FLAGS:
            self.found[flag] = "yes" if getattr(self, flag) else ""
        self.found["streaming_sessions"] = "yes" if "streaming" in self.session_takes else ""
        self.found["init_new"] = ", ".join(self.init_new_takes)
        self.found["create_req"] = ", ".join(self.create_req_takes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _look_up(self, name: str, places: tuple[str, ...]) -> Any:
        for place in places:
            try:
                value = find(place)
            except CannotImport as error:
                self.broken[name] = str(error)
                continue
            if value is not None:
                self.found[name] = place
                return value
        self.found[name] = ""
        return None

    @property
    def lost(self) -> tuple[str, ...]:
        """What this version is known to have and was not found in it, though nothing failed as it was imported."""
        modes = (name for name in RELEASES if name.startswith("ForwardMode."))
        probed = (*PLACES, *FLAGS, "streaming_sessions", *modes)
        return tuple(
            name for name in probed if not self.found.get(name) and name not in self.broken and self.offered(name)
        )

    def offered(self, name: str) -> bool:
        """Whether this version has the capability, by `RELEASES`."""
        return within(self.version, RELEASES.get(name, ""))

    def absent(self, name: str, message: str) -> Exception:
        """What to raise where the capability was not found: Absent where this version has none, else Lost."""
        return (
            LostCapability(f"{message}; sglang {self.version} is known to have it")
            if self.offered(name)
            else Absent(message)
        )

    def mode(self, member: str) -> Any:
        """The ForwardMode member, or None when this release lacks it."""
        return getattr(self.ForwardMode, member, None)

    def tokens(self, ids: Iterable[int]) -> Any:
        """Token ids in the container that this release's requests use: array("q"), or a list up to 0.5.12."""
        return array("q", ids) if self.tokens_are_arrays else list(ids)

    def needs(self, *names: str) -> None:
        """Raises Absent, Lost or CannotImport when one of these names was not found."""
        missing = [name for name in names if not self.found.get(name)]
        for name in missing:
            if name in self.broken:
                raise CannotImport(self.broken[name])
        if missing:
            first = next(filter(self.offered, missing), missing[0])
            raise self.absent(first, f"this release has no {', '.join(missing)}")


def find(place: str) -> Any:
    """The object at "module:name", or None where this release has no such module or name.

    Raises ImportError for a package that may be stood in for, CannotImport for a module that is there and fails.
    """
    module, _, name = place.partition(":")
    try:
        holder, _, method = name.rpartition(".")
        found: Any = importlib.import_module(module)
        if not holder:
            return getattr(found, name, None)
        found = getattr(getattr(found, holder, None), method, None)
        if found is None or holder.endswith("Input"):
            return found  # a method of the input that it prepares: the later functions take that input first
        # A method that uses nothing of its object: the releases after it made a function of it.
        return functools.partial(found, None)
    except ImportError as error:
        if absent_packages.missing(error):
            raise
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            return None
        raise CannotImport(f"{module} cannot be imported: {type(error).__name__}: {first_line(error)}") from error
    except OSError as error:
        raise CannotImport(f"{module} cannot be imported: {type(error).__name__}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Of its message."""
    return (str(error).splitlines() or [""])[0]


def within(version: str, releases: str) -> bool:
    """Whether a version is one of these; what is no version counts as the newest."""
    try:
        known = Version(version)
    except InvalidVersion:
        return not releases.startswith("<")
    return SpecifierSet(releases).contains(known, prereleases=True)


def filled(cls: Any, **known: Any) -> Any:
    """An object of the class; arguments that it does not take are dropped, required ones that we do not know are None.

    Releases rename and move fields that no table depends on ("retrive_index").
    """
    accepted, required = arguments_of(cls)
    arguments = {name: value for name, value in known.items() if name in accepted}
    for name in required:
        arguments.setdefault(name, None)
    return cls(**arguments)


def tokenized(cls: Any, **known: Any) -> Any:
    """A tokenised request as it reaches the scheduler: it asks for no probabilities and no stream unless that is known.
    cls: TokenizedGenerateReqInput."""
    plain = {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0, "stream": False}
    return filled(cls, **(plain | known))


def taken(function: Callable[..., Any], **known: Any) -> dict[str, Any]:
    """The keyword arguments among `known` that this release's function takes."""
    accepted, _ = arguments_of(function)
    return {name: value for name, value in known.items() if name in accepted}


@functools.lru_cache(maxsize=256)
def arguments_of(function: Callable[..., Any]) -> tuple[frozenset[str], tuple[str, ...]]:
    """(names that a function or class takes, those of them that it requires)."""
    taking = inspect.signature(function).parameters
    return frozenset(taking), tuple(n for n, p in taking.items() if p.default is inspect.Parameter.empty)


def parameters(function: Callable[..., Any] | None) -> dict[str, str]:
    """Parameter name -> annotation as text; empty for None."""
    if function is None:
        return {}
    signature = inspect.signature(function)
    return {p.name: str(p.annotation) for p in signature.parameters.values() if p.name != "self"}
