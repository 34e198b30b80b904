"""What replaces the parts of SGLang that need a model or a GPU: as little as `ForwardBatch.init_new` and the
speculative preparation read. Every unknown name raises AttributeError, so a new need of a new release shows at once.

| spec field | adapter field | engine field |
| --- | --- | --- |
| the runner's model is M-RoPE | `runner(mrope=)` | `model_runner.model_config.model_is_mrope` |
| Job.device | `runner(device)` | `model_runner.device` |

Faked: the model runner (target and draft), its attention backend, its KV index translator, the token pools, the draft
worker's attributes (its `draft_forward` is the engine's own). Listed one by one in `FAKED`.
"""

from __future__ import annotations

from typing import Any

FAKED = (
    "model_runner: device, flags and config fields read by ForwardBatch.init_new; no model, no weights",
    "model_runner of older releases: server_args, ps, dcp_size, .. as on one GPU without LoRA; attention backend "
    "torch_native on a CPU (the 1-D positions then come from the torch version, as in 0.5.22 and later)",
    "model_runner.kv_index_translator.own_plan().bind(): does nothing (KV slots are not positions)",
    "model_runner.attn_backend.init_forward_metadata(): does nothing; graph sequence fill value 1",
    "draft_runner.forward(): records the tables of that draft forward and returns fixed logits",
    "EagleDraftWorker: created without __init__; attributes set; draft_forward is the engine's own",
    "req_to_token_pool.req_to_token: one row of zeros shared by all requests",
    "token_to_kv_pool_allocator.page_size: 1",
)

VOCABULARY = 512
"""Token ids of the jobs are below this, or are the engine's own pad values."""

HIDDEN = 4
"""Width of hidden states that nothing reads."""


class StandIn:
    """A bag of attributes; any other name raises AttributeError, which the worker reports as its own fault."""

    ropecheck_stand_in = True

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def is_stand_in(thing: object) -> bool:
    """Whether an object belongs to the suite rather than to the engine."""
    return bool(getattr(type(thing), "ropecheck_stand_in", False))


_CALLED = ("Plan.", "Translator.", "AttentionBackend.", "draft_loop.", "ragged_verify.", "no_slots(", "meta_positions(")
"""How Python names the suite's functions that the engine calls."""


def is_wrong_call(error: BaseException) -> bool:
    """Whether the engine called one of the suite's functions with arguments that it does not take."""
    return isinstance(error, TypeError) and str(error).startswith(_CALLED)


class LocationPlan:
    """Stands in for a KV location plan."""

    ropecheck_stand_in = True

    def bind(self, forward_batch: Any, translator: Any, *, cols: Any = None) -> None:
        """Write no locations."""

    def bind_replay(self, forward_batch: Any, translator: Any, *, slots: Any) -> None:
        """The same for a batch that a graph replays."""


class Translator:
    """Stands in for a KV index translator."""

    ropecheck_stand_in = True

    def __init__(self) -> None:
        self._plan = LocationPlan()

    def own_plan(self, forward_batch: Any) -> LocationPlan:
        """A plan that binds nothing."""
        return self._plan

    def rebind_write_loc(self, forward_batch: Any) -> None:
        """The older name of the same step: nothing."""


class AttentionBackend:
    """Stands in for an attention backend."""

    ropecheck_stand_in = True
    verify_mask = None
    max_context_len = 0  # sizes an attention mask that nothing reads

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Nothing to plan."""

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """What padded rows get as their length."""
        return 1

    def get_verify_buffers_to_fill_after_draft(self) -> tuple[None, None]:
        """0.5.16's name for having no mask buffer of its own."""
        return None, None

    get_cpu_graph_seq_len_fill_value = get_cuda_graph_seq_len_fill_value

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Nothing to plan before a graph is replayed."""

    def shared_read_ends(self, forward_mode: Any) -> None:
        """Nobody waits for the end of its reads."""


def runner(device: str, algorithm: Any, *, mrope: bool = True, draft: bool = False) -> Any:
    """A model runner. device: torch device name; mrope: whether its model has three-row positions."""
    # Releases before 0.5.22 choose the 1-D kernel by this name alone; interpreted Triton is a hundred times slower.
    backend = "torch_native" if device == "cpu" else "triton"
    return StandIn(
        device=device,
        is_draft_worker=draft,
        lora_manager=None,
        ngram_embedding_manager=StandIn(enabled=False),
        prefill_attention_backend_str=backend,
        server_args=StandIn(
            attention_backend=backend,
            enable_lora=False,
            enable_lora_overlap_loading=False,
            speculative_use_rejection_sampling=False,
        ),
        use_ngram_embedding=False,
        is_hybrid_swa=False,
        mambaish_config=None,
        ps=StandIn(attn_dcp_size=1),
        dcp_size=1,
        attn_dcp_size=1,
        req_to_token_pool=None,
        token_to_kv_pool=None,
        model_config=StandIn(
            model_is_mrope=mrope,
            requires_mm_token_modalities=False,
            vocab_size=VOCABULARY,
            hf_config=StandIn(architectures=["RopecheckDraft"]),
        ),
        kv_index_translator=Translator(),
        attn_backend=AttentionBackend(),
        spec_algorithm=algorithm,
        decode_cuda_graph_runner=None,
        canary_manager=None,
        device_timer=None,
        hisparse_coordinator=None,
        model_is_mrope=mrope,
    )
