"""Loads of graph runners, speculative preparation and modes of their own, over an engine of small fakes: what each
of the engine's functions is given. What real ones make of it is test_graph_runners.py's and test_adapter.py's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import protocol as p
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.sglang import batches, forwards, graph_runners, kernels, more_modes, speculation
from ropecheck.adapters.sglang.capabilities import Absent
from ropecheck.adapters.sglang.stand_ins import HIDDEN, VOCABULARY, is_stand_in
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import pack

pytestmark = pytest.mark.engine


class Engine(SimpleNamespace):
    """A release; fields are what it has."""

    def __init__(self, **changed: Any) -> None:
        found = {
            "ScheduleBatch": lambda reqs: SimpleNamespace(reqs=reqs, prepare_for_idle=lambda: None),
            "SpeculativeAlgorithm": SimpleNamespace(EAGLE="eagle", NONE="none"),
            "CaptureHiddenMode": SimpleNamespace(NULL="null", FULL="full"),
            "TreeMaskMode": SimpleNamespace(QLEN_ONLY="tree", FULL_MASK="whole"),
            "batch_is_schedule_batch": True,
            "init_new_takes": (),
            "found": {},
        }
        super().__init__(**(found | changed))
        self.needed: list[str] = []

    def mode(self, member: str) -> str:
        return f"mode {member}"

    def needs(self, *names: str) -> None:
        self.needed += names

    def absent(self, name: str, message: str) -> Exception:
        return Absent(f"{name}: {message}")


def state(widest: tuple[int, int] = (4, 8), **changed: Any) -> Any:
    """A job with two requests."""
    job = JobState(Engine(**changed), p.Job("s", ()))  # type: ignore[arg-type]
    job.widest = widest
    for number in (0, 1):
        job.reqs[number] = SimpleNamespace(multimodal_inputs=None)
    return job


def forward(
    mode: str, *reqs: int, batch: int = 0, tokens: int = 0, kind: str = "graph", **fields: Any
) -> p.BuildForward:
    how = {name: fields.pop(name) for name in list(fields) if name in p.BuildForward.__struct_fields__}
    padding = p.Padding(kind, batch, tokens) if batch else None
    return p.BuildForward(Batch(mode, (BatchPart(reqs or (0, 1), fields),)), padding=padding, **how)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    kernels.ran.clear()


class Buffers(SimpleNamespace):
    """Of a runner: as much of what is given as tables need, and lengths."""

    def __init__(self, positions: Any, mrope_positions: Any, seq_lens: Any, **more: Any) -> None:
        super().__init__(positions=positions, mrope_positions=mrope_positions, seq_lens=seq_lens)


EVERY = [
    "input_ids",
    "req_pool_indices",
    "out_cache_loc",
    "positions",
    "mrope_positions",
    "seq_lens",
    "seq_lens_cpu",
    "extend_seq_lens",
    "extend_start_loc",
    "topk_p",
    "topk_index",
    "hidden_states",
    "bonus_tokens",
    "num_correct_drafts",
    "num_accept_tokens",
    "select_index",
    "next_token_logits_buffer",
]


def buffers(name: str) -> Any:
    """A class of buffers of this name that takes everything."""
    text = f"def __init__(self, {', '.join(EVERY)}):\n    self.__dict__.update(locals())"
    space: dict[str, Any] = {}
    exec(text, space)
    return type(name, (), {"__init__": space["__init__"]})


def described(tensor: Any) -> tuple[Any, ...]:
    """(shape, dtype, the number that it is full of)."""
    (value,) = set(tensor.flatten().tolist())
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), value


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("EagleDraftInputBuffers", {}),
        ("EagleDraftExtendInputBuffers", {"hidden_states": ((8, HIDDEN), "float32", 0)}),
        (
            "FrozenKVMTPInputBuffers",
            {
                "req_pool_indices": ((8,), "int64", 0),
                "seq_lens": ((8,), "int64", 1),
                "seq_lens_cpu": ((8,), "int64", 1),
            },
        ),
        (
            "MultiLayerEagleDraftExtendInputBuffers",
            {
                "hidden_states": ((8, HIDDEN), "float32", 0),
                "seq_lens": ((4,), "int32", 1),
                "seq_lens_cpu": ((4,), "int32", 1),
            },
        ),
    ],
)
def test_static_buffers_are_as_their_runners_make_them(name: str, changed: dict[str, Any]) -> None:
    """Of four rows, two tokens wide, three steps."""
    made = graph_runners.static_buffers(state(), buffers(name), 2, 3)
    plain = {
        "input_ids": ((8,), "int64", 0),
        "req_pool_indices": ((4,), "int64", 0),
        "out_cache_loc": ((24,), "int64", 0),
        "positions": ((8,), "int64", 0),
        "mrope_positions": ((3, 8), "int64", 0),
        "seq_lens": ((4,), "int64", 1),
        "seq_lens_cpu": ((4,), "int64", 1),
        "extend_seq_lens": ((4,), "int32", 2),
        "extend_start_loc": ((4,), "int32", 0),
        "topk_p": ((4, 2), "float32", 0),
        "topk_index": ((4, 2), "int64", 0),
        "hidden_states": ((4, HIDDEN), "float32", 0),
        "bonus_tokens": ((4,), "int64", 0),
        "num_correct_drafts": ((4,), "int32", 2),
        "num_accept_tokens": ((4,), "int32", 2),
        "select_index": ((4,), "int64", 0),
        "next_token_logits_buffer": ((4, 1), "float32", 0),
    }
    assert {one: described(getattr(made, one)) for one in EVERY} == plain | changed


def test_what_every_runner_reads() -> None:
    job = state()
    found = graph_runners.common(job, forward("draft_decode", topk=2, num_steps=3), 2)
    assert (found["topk"], found["captured_req_width"], found["num_tokens_per_bs"], found["max_bs"]) == (2, 2, 2, 4)
    assert (found["seq_len_fill_value"], found["num_front_tokens"], found["extend_seq_lens_cpu"]) == (1, 0, [2] * 4)
    assert (found["device"], found["forward_mode"]) == ("cpu", "mode DECODE")
    assert found["model_runner"] is batches.runner_for(job, "draft_decode")
    assert found["_postprocess_output_to_raw_bs"]("out", 3) == "out"
    assert found["attn_backend"] is found["draft_attn_backend"] is found["draft_extend_attn_backend"]
    assert found["device_module"].Event().record() is None and found["deepep_adapter"].replay() is None
    assert found["frozen_kv_mtp_worker"]._init_frozen_kv_metadata_replay_cuda_graph(1, 2) is None
    assert not found["require_mlp_tp_gather"] and not found["require_gathered_buffer"]
    plain = graph_runners.common(job, forward("draft_extend_v2", num_draft_tokens=2), 2)
    assert plain["topk"] == 1 and plain["forward_mode"] == "mode DRAFT_EXTEND_V2"


class Runner:
    """A runner whose step writes into its buffers and replays the graph of its one size."""

    def execute(self, batch: Any, select_index: Any = None) -> None:
        self.given = batch, select_index
        buffers: Any = self.buffers  # type: ignore[attr-defined]
        buffers.positions[: len(batch.seq_lens)] = batch.seq_lens
        batch.spec_info.kept = True
        answer: Any = self._replay_graph(SimpleNamespace(size=self.capture_bs[0]), batch)  # type: ignore[attr-defined]
        assert answer.next_token_logits.shape == answer.hidden_states.shape == (1, 1)


class Idle:
    """A runner that replays nothing."""

    def execute(self, batch: Any) -> None:
        pass


def loaded(*lengths: int) -> Any:
    """A prepared batch."""
    tensor = torch.tensor(lengths)
    return SimpleNamespace(
        seq_lens=tensor,
        seq_lens_cpu=None,
        req_pool_indices=tensor * 0,
        spec_info=SimpleNamespace(),
        batch_size=len(lengths),
    )


def shown(pair: p.TablePair) -> tuple[list[int], int]:
    """(positions, columns of the rows) of a table."""
    assert pair.label == "padded" and pair.positions is not None and pair.mrope is not None
    return torch.frombuffer(bytearray(pair.positions.data), dtype=torch.int64).tolist(), pair.mrope.shape[1]


def test_a_drafts_graph_reads_its_captured_size() -> None:
    job = state(EAGLEDraftCudaGraphRunner=Runner, EagleDraftInputBuffers=Buffers)
    asked = forward("draft_decode", topk=2, num_steps=3, seq_len=(9, 5), batch=3, tokens=6)
    batch = loaded(9, 5)
    assert shown(graph_runners.draft(job, asked, batch)) == ([9, 5, 0, 0, 0, 0], 6)
    assert vars(batch.spec_info) == {}, "the caller's own"
    (key,) = job.graph_runners
    runner = job.graph_runners[key]
    assert key == ("EAGLEDraftCudaGraphRunner", 2, 3) and is_stand_in(runner) and runner.speculative_num_steps == 3
    assert job.engine.needed == ["EAGLEDraftCudaGraphRunner", "EagleDraftInputBuffers"]
    assert kernels.ran == [kernels.qualified(Runner.execute)]
    smaller = forward("draft_decode", topk=2, num_steps=3, seq_len=(9, 5), batch=2, tokens=4)
    assert shown(graph_runners.draft(job, smaller, loaded(7)))[0] == [7, 5, 0, 0], "what the last one left"
    assert job.graph_runners[key] is runner and runner.capture_bs == [2]
    graph_runners.draft(job, forward("draft_decode", seq_len=(9, 5), batch=2, tokens=2), loaded(7))
    assert list(job.graph_runners)[1:] == [("EAGLEDraftCudaGraphRunner", 1, 1)]


def test_a_runner_without_such_a_step_is_not_offered() -> None:
    asked = forward("draft_decode", topk=1, num_steps=2, seq_len=(9, 5), batch=2, tokens=2)
    job = state(EAGLEDraftCudaGraphRunner=Idle, EagleDraftInputBuffers=Buffers)
    with pytest.raises(RuntimeError, match="Idle loaded a batch and replayed no graph"):
        graph_runners.draft(job, asked, loaded(9, 5))
    with pytest.raises(Absent, match=r"EAGLEDraftCudaGraphRunner\.execute: this release"):
        graph_runners.draft(state(EAGLEDraftCudaGraphRunner=int, EagleDraftInputBuffers=Buffers), asked, loaded(9))


def test_the_suites_own_work_inside_a_load_is_not_the_engines_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100, 130))
    monkeypatch.setattr(graph_runners, "perf_counter_ns", lambda: next(times))
    job = state(EAGLEDraftCudaGraphRunner=Runner, EagleDraftInputBuffers=Buffers)
    job.meter.call = lambda function, *given: function(*given)
    graph_runners.draft(job, forward("draft_decode", seq_len=(9, 5), batch=2, tokens=2), loaded(9, 5))
    assert job.meter.ns == -30


def test_a_frozen_drafts_rows_are_repeated_for_each_branch() -> None:
    job = state(
        FrozenKVMTPCudaGraphRunner=Runner,
        FrozenKVMTPInputBuffers=Buffers,
        FrozenKVMTPDraftInput=lambda topk_p, topk_index, hidden_states, bonus_tokens: SimpleNamespace(
            shapes=[tuple(one.shape) for one in (topk_p, topk_index, hidden_states, bonus_tokens)]
        ),
    )
    asked = forward("draft_decode", topk=2, num_steps=3, seq_len=(9, 5), batch=3, tokens=6)
    batch = loaded(9, 5)
    assert shown(graph_runners.frozen_kv(job, asked, batch))[0] == [9, 9, 5, 5, 0, 0]
    given, _ = job.graph_runners["FrozenKVMTPCudaGraphRunner", 2, 3].given
    assert (given.batch_size, given.seq_lens_sum, given.seq_lens_cpu) == (4, 28, None)
    assert given.seq_lens.tolist() == [9, 9, 5, 5] and given.req_pool_indices.tolist() == [0] * 4
    assert given.spec_info.shapes == [(2, 2), (2, 2), (2, HIDDEN), (2,)] and batch.seq_lens.tolist() == [9, 5]
    plain = forward("draft_decode", seq_len=(9, 5), batch=2, tokens=2)
    assert shown(graph_runners.frozen_kv(job, plain, loaded(9, 5)))[0] == [9, 5]


def test_a_draft_extends_graph_is_told_which_rows_go_on() -> None:
    job = state(EAGLEDraftExtendCudaGraphRunner=Runner, EagleDraftExtendInputBuffers=Buffers)
    asked = forward("draft_extend_v2", seq_len=(9, 5), num_draft_tokens=2, num_steps=3, batch=3, tokens=6)
    assert shown(graph_runners.draft_extend(job, asked, loaded(9, 5))) == ([9, 5, 0, 0, 0, 0], 6)
    ((key, runner),) = job.graph_runners.items()
    assert key == ("EAGLEDraftExtendCudaGraphRunner", 2, 3) and runner.given[1].tolist() == [0, 0]


def test_multi_layer_buffers_are_filled_by_one_step() -> None:
    class Layers:
        def prepare(self, batch: Any) -> None:
            self.given, self.bs = batch, 3

    layer = SimpleNamespace(_pad_to_bucket="pads")
    job = state(
        MultiLayerEagleMultiStepDraftExtendCudaGraphRunner=Layers,
        MultiLayerEagleDraftExtendInputBuffers=Buffers,
        MultiLayerEagleDraftExtendCudaGraphRunner=layer,
    )
    asked = forward("draft_extend_v2", seq_len=(9, 5), num_draft_tokens=2, batch=3, tokens=6, kind="multi_layer")
    batch = loaded(9, 5)
    assert shown(graph_runners.multi_layer(job, asked, batch)) == ([0] * 6, 6)
    (runner,) = job.graph_runners.values()
    info = runner.given.spec_info
    assert info.num_correct_drafts is info.num_accept_tokens and described(info.num_accept_tokens) == ((2,), "int32", 0)
    assert described(info.hidden_states) == ((4, HIDDEN), "float32", 0) and runner.runners[0]._pad_to_bucket == "pads"
    assert vars(batch.spec_info) == {}


# ---------------------------------------------------------------- decode, verify and prefill


class Registry:
    """Buffers by name."""

    def __init__(self) -> None:
        self.filled: list[Any] = []

    def get_slot(self, name: str) -> Any:
        return SimpleNamespace(buffer=f"buffer of {name}")

    def fill_from(self, batch: Any, **sizes: int) -> None:
        self.filled.append(sizes)

    def extract_buffer(self, **sizes: Any) -> Any:
        self.filled.append(sizes)
        return SimpleNamespace(positions=torch.tensor([1]), mrope_positions=None)


class Decoder:
    def load_batch(self, batch: Any) -> None:
        self.given = batch
        self._replay_graph_key = SimpleNamespace(size=self.capture_bs[0] + 1)  # type: ignore[attr-defined]


def test_a_decode_says_which_graph_it_would_replay() -> None:
    registry = Registry()
    job = state(DecodeCudaGraphRunner=Decoder)
    batch = loaded(9, 5)
    batch.forward_mode = "mode TARGET_VERIFY"
    verify = forward("target_verify", num_draft_tokens=2, batch=3, tokens=6)
    assert graph_runners.decode(job, verify, batch, registry) == (4, 8)
    (runner,) = job.graph_runners.values()
    assert (runner.capture_bs, runner.capture_forward_mode) == ([3], "mode TARGET_VERIFY") and runner.given is not batch
    assert runner.buffers.seq_lens == "buffer of seq_lens" and runner.buffers.custom_mask is None
    assert runner.buffer_registry is registry and runner.capture_hidden_mode == "full" and not runner.is_dllm
    assert runner.recapture_if_needed(1, two=2) is None and list(job.graph_runners) == [("Decoder", 2, 0)]
    assert graph_runners.decode(job, verify, batch, registry) and len(job.graph_runners) == 1
    assert graph_runners.decode(job, forward("decode", batch=3, tokens=3), batch, registry) == (4, 4)
    assert len(job.graph_runners) == 2 and kernels.ran == [kernels.qualified(Decoder.load_batch)] * 3
    assert graph_runners.decode(state(DecodeCudaGraphRunner=None), verify, batch, registry) is None


ONE = p.TablePair("padded", pack(torch.tensor([1])), None)
EXTEND = forward("extend", prefix_len=(0, 0), extend_len=(2, 1), batch=2, tokens=6)


def prefilling(cls: Any, made: list[Any]) -> Any:
    """A job of a release with this runner."""

    def build(device: Any, max_bs: int, max_num_token: int, is_multimodal: bool, share_pool: bool) -> Registry:
        made.append((device, max_bs, max_num_token, is_multimodal, share_pool))
        return Registry()

    return state(build_prefill_registry=build, PrefillCudaGraphRunner=cls)


def test_a_prefill_of_older_releases_fills_its_registry_alone() -> None:
    made: list[Any] = []
    job = prefilling(None, made)
    batch = SimpleNamespace(batch_size=2, positions=torch.zeros(3))
    assert graph_runners.prefill(job, EXTEND, batch) == graph_runners.prefill(job, EXTEND, batch) == ONE
    assert made == [(torch.device("cpu"), 4, 8, True, False)] and job.engine.needed[0] == "build_prefill_registry"
    runner = job.graph_runners["prefill", 0, 0]
    filled = {"raw_bs": 2, "padded_bs": 2, "raw_num_tokens": 3, "padded_num_tokens": 6}
    viewed = {"padded_bs": 2, "padded_num_tokens": 6, "forward_batch_template": batch}
    assert runner.buffer_registry.filled == [filled, viewed] * 2 and runner.capture_num_tokens == [6]


@pytest.mark.parametrize("events", [False, True])
def test_a_prefills_own_step_says_what_it_replays(events: bool) -> None:
    class Prefill:
        def load_batch(self, batch: Any) -> Any:
            assert self.capture_num_tokens == [6]  # type: ignore[attr-defined]
            self.given = batch
            loaded = SimpleNamespace(positions=torch.tensor([1]), mrope_positions=None)
            return (loaded, "events") if events else loaded

    job = prefilling(Prefill, [])
    batch = SimpleNamespace(kv_loc_plan="a plan", spec_info=None)
    assert graph_runners.prefill(job, EXTEND, batch) == ONE and batch.kv_loc_plan == "a plan"
    given = job.graph_runners["prefill", 0, 0].given
    assert is_stand_in(given.kv_loc_plan) and kernels.ran == [kernels.qualified(Prefill.load_batch)]


# ---------------------------------------------------------------- speculation


def test_a_batch_before_it_is_prepared() -> None:
    """Pools are wide enough for what is drafted; on the fused path its lengths say that they are on a GPU."""
    job = state()
    plain = speculation.prepared_batch(job, forward("target_verify", seq_len=(9, 4093), num_draft_tokens=2))
    assert plain.forward_mode == "mode DECODE" and not plain.seq_lens.is_cuda and plain.token_to_kv_pool_allocator
    assert tuple(plain.req_to_token_pool.req_to_token.shape) == (1, 4096)  # 4093 + 2 + 1 * (0 + 1)
    wider = forward("draft_decode", seq_len=(9, 4090), num_steps=2, topk=2, path="fused")
    fused = speculation.prepared_batch(job, wider)
    assert fused.seq_lens.is_cuda and fused.seq_lens.tolist() == [9, 4090]
    assert tuple(fused.req_to_token_pool.req_to_token.shape) == (1, 4096)  # 4090 + 2 * (2 + 1)
    longer = forward("draft_decode", seq_len=(9, 4091), num_steps=2, topk=2, path="caller")
    assert tuple(speculation.prepared_batch(job, longer).req_to_token_pool.req_to_token.shape) == (1, 8192)
    job.engine.ScheduleBatch = lambda reqs: SimpleNamespace(prepare_for_idle=lambda: did.append("prepared"))
    did: list[str] = []
    idle = speculation.prepared_batch(job, p.BuildForward(Batch("idle", (BatchPart(),)), path="caller"))
    assert did == ["prepared"] and not hasattr(idle, "req_to_token_pool") and idle.forward_mode == "mode IDLE"


def test_functions_that_are_about_to_run_are_noted() -> None:
    job = state(found={"prepare_for_draft": "a.b:c", "EagleDraftWorker": "d:E"})
    speculation.require(job, "prepare_for_draft", "EagleDraftWorker")
    assert kernels.ran == ["a.b.c"] and job.engine.needed == ["prepare_for_draft", "EagleDraftWorker"]


class Worker:
    """A draft worker whose loop forwards as often as it has steps."""

    def draft_forward(self, batch: Any) -> None:
        self.draft_runner: Any
        assert self._topk1_parents_prealloc.shape[0] >= batch.rows  # type: ignore[attr-defined]
        assert self._topk1_parents_prealloc.shape[1] == self.speculative_num_steps  # type: ignore[attr-defined]
        assert self._topk1_score_indices_prealloc.shape == self._topk1_parents_prealloc.shape  # type: ignore[attr-defined]
        for step in range(self.speculative_num_steps - 1):  # type: ignore[attr-defined]
            tables = SimpleNamespace(positions=torch.tensor([step, step]), mrope_positions=None)
            output, graph = self.draft_runner.forward(tables, "more", other=1)
            assert not graph and output.hidden_states.shape == (2, HIDDEN)
            assert output.next_token_logits.shape == (2, VOCABULARY)
            assert output.next_token_logits[1].argmax() == VOCABULARY - 1


def test_each_forward_of_a_draft_loop_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(0, 1000, 10))
    monkeypatch.setattr(speculation, "perf_counter_ns", lambda: next(times))
    job = state(EagleDraftWorker=Worker, found={"EagleDraftWorker": "a:Worker"})
    job.meter.call = lambda function, *given: function(*given)
    asked = forward("draft_decode", *([0] * 70), seq_len=(9,) * 70, num_steps=4, topk=1)
    tables = speculation.draft_loop(job, asked, SimpleNamespace(rows=70), "again")
    seen = [(one.label, one.positions) for one in tables]
    assert seen == [
        ("again", pack(torch.tensor([0, 0]))),
        ("step 1", pack(torch.tensor([1, 1]))),
        ("step 2", pack(torch.tensor([2, 2]))),
    ]
    assert kernels.ran == ["a.Worker.draft_forward"] and job.meter.ns == -30
    assert not hasattr(batches.runner_for(job, "draft_decode"), "forward")


@pytest.mark.parametrize(("topk", "kept"), [(1, 4), (2, 3), (4, 5)])
def test_what_a_draft_worker_reads(topk: int, kept: int) -> None:
    """A chain keeps every token, a tree the best; of a chain the parents are each the one before."""
    made = speculation.draft_worker(Worker, topk, 3, "cpu", "runner")
    assert (made.topk, made.speculative_num_steps, made.speculative_num_draft_tokens) == (topk, 3, kept)
    assert made._topk1_parents_prealloc[0].tolist() == [-1, 0, 1] and made._topk1_score_indices_prealloc[
        5
    ].tolist() == [0, 1, 2]
    assert made._topk1_parents_prealloc.shape == made._topk1_score_indices_prealloc.shape
    assert len(made.draft_attn_backend.attn_backends) == 3 and made.draft_runner == "runner" and is_stand_in(made)
    assert made.hot_token_id is None and not made.server_args.enable_nan_detection


class Draft(SimpleNamespace):
    def __init__(self, bonus_tokens: Any, hidden_states: Any = None, num_tokens_per_req: int = 0) -> None:
        super().__init__(bonus_tokens=bonus_tokens, hidden_states=hidden_states, num_tokens=num_tokens_per_req)


def test_a_draft_is_prepared_by_the_engine() -> None:
    given: list[Any] = []
    job = state(prepare_for_draft=lambda *asked: given.append(asked) or ("made", None), EagleDraftInput=Draft)  # type: ignore[func-returns-value]
    job.engine.found = {"prepare_for_draft": "a:b", "EagleDraftWorker": "c"}
    batch = SimpleNamespace(req_to_token_pool="pool")
    assert speculation.draft_decode(job, forward("draft_decode", num_steps=3), batch) == "made"
    ((info, pool, worker, none, runner, topk, steps),) = given
    assert info is batch.spec_info and (pool, worker, none, topk, steps) == ("pool", batch, None, 1, 3)
    assert runner.is_draft_worker and job.meter.forwards == 1 and kernels.ran == ["a.b"]
    assert job.engine.needed == ["prepare_for_draft", "EagleDraftWorker"]


@pytest.mark.parametrize(
    ("device", "path", "mask"), [("cpu", "caller", "tree"), ("meta", "caller", "whole"), ("meta", "fused", "tree")]
)
def test_a_verify_is_built_and_prepared(device: str, path: str, mask: str) -> None:
    built: list[Any] = []
    prepared: list[Any] = []

    def build(*given: Any, **named: Any) -> str:
        built.append((given, named))
        return "verify input"

    def prepare(*given: Any) -> Any:
        prepared.append(given)
        return "made", None

    job = state(build_eagle_verify_input=build, eagle_prepare_for_verify=prepare, EagleDraftInput=Draft)
    job.engine.found = {"build_eagle_verify_input": "a:b", "eagle_prepare_for_verify": "c:d"}
    job.device = device
    pool = SimpleNamespace(req_to_token=torch.zeros(1, 50))
    batch = SimpleNamespace(req_to_token_pool=pool)
    trees = forward("target_verify", num_draft_tokens=3, topk=2, parents=((0, 0), (0, 1)), path=path)
    assert speculation.target_verify(job, trees, batch) == "made"
    (((first, draft, parents, chosen, tokens, none), named),) = built
    worker = named.pop("target_worker")
    assert first is batch and none is None and tuple(draft.bonus_tokens.shape) == (2,) and tuple(tokens.shape) == (2, 2)
    assert named == {
        "topk": 2,
        "num_steps": 2,
        "num_draft_tokens": 3,
        "tree_mask_mode": mask,
        "device": device,
    }
    if device == "cpu":
        assert parents.tolist() == [[-1, 0, 1]] * 2 and chosen.tolist() == [[0, 1], [0, 2]]
    assert prepared == [("verify input", pool, batch, worker)] and batch.spec_info == "verify input"
    assert worker.model_runner.attn_backend.max_context_len == 50 and job.meter.forwards == 1
    assert kernels.ran == ["a.b", "c.d"] and job.engine.needed[2:] == ["TreeMaskMode"]
    worker.model_runner.attn_backend.max_context_len = 0
    alone = forward("target_verify", num_draft_tokens=1, parents=((), ()), path=path)
    speculation.target_verify(job, alone, batch)
    assert built[1][1]["num_steps"] == 1 and built[1][1]["topk"] == 1


def test_a_draft_extend_is_prepared_by_the_engine() -> None:
    given: list[Any] = []

    def prepare(
        info: Any, batch: Any, tokens: Any, width: int, runner: Any, none: Any, return_hidden_states_before_norm: bool
    ) -> str:
        given.append((info, batch, described(tokens), width, none, return_hidden_states_before_norm))
        return "made"

    job = state(prepare_for_draft_extend=prepare, EagleDraftExtendInput=None, EagleDraftInput=Draft)
    job.engine.found = {"prepare_for_draft_extend": "a:b"}
    asked = forward("draft_extend_v2", num_draft_tokens=3)
    assert speculation.draft_extend(job, asked, "batch") == "made"
    ((info, *rest),) = given
    assert rest == ["batch", ((6,), "int64", 0), 3, None, False] and job.meter.forwards == 1
    assert described(info.hidden_states) == ((6, HIDDEN), "float32", 0) and info.num_tokens == 3
    assert kernels.ran == ["a.b"] and job.engine.needed == ["prepare_for_draft_extend"]
    job.engine.batch_is_schedule_batch = False
    with pytest.raises(Absent, match="host lengths only"):
        speculation.draft_extend(job, forward("draft_extend_v2", num_draft_tokens=3, host_lengths=False), "batch")
    batch = SimpleNamespace(get_model_worker_batch=lambda: "a worker's")
    speculation.draft_extend(job, asked, batch)
    assert given[1][1] == "a worker's"


def test_a_packed_verify_goes_through_its_executor() -> None:
    built: list[Any] = []
    windows: list[Any] = []

    class Executor:
        def _run_ragged(self, batch: Any, layout: Any, ragged_window: Any, kv_loc_plan: Any) -> None:
            assert (layout, ragged_window, kv_loc_plan) == ("layout", "window", None)
            assert self.verify_num_draft_tokens == 3 and not self._target_is_dsv41  # type: ignore[attr-defined]
            worker: Any = self.target_worker  # type: ignore[attr-defined]
            answer = worker.forward_batch_generation(forward_batch="packed", more=1)
            assert answer.logits_output is None and not answer.can_run_cuda_graph

    def layout(**given: Any) -> str:
        built.append(given)
        return "layout"

    def execute(**given: Any) -> str:
        windows.append(given)
        return "window"

    job = state(
        RaggedVerifyLayout=SimpleNamespace(from_verify_lens=layout),
        BuildRaggedVerifyWindow=SimpleNamespace(execute=execute),
        TargetVerifyExecutor=Executor,
    )
    job.engine.found = {}
    batch = SimpleNamespace(req_to_token_pool="pool")
    asked = forward("ragged_verify", parents=((), (0, 1)), tier=8)
    assert speculation.ragged_verify(job, asked, batch) == "packed"
    assert built == [{"verify_lens_cpu": [1, 3], "device": "cpu", "grid": [8]}]
    (window,) = windows
    runner = window.pop("model_runner")
    assert described(window.pop("draft_block_ids")) == described(window.pop("draft_tokens")) == ((2, 3), "int64", 0)
    assert window == {"batch": batch, "layout": "layout", "bs": 2, "device": "cpu", "verify_num_draft_tokens": 3}
    assert runner.req_to_token_pool == "pool" and job.meter.forwards == 1
    assert len(job.engine.needed) == 4
    runner.req_to_token_pool = None
    assert [name.rpartition(".")[2] for name in kernels.ran] == ["execute", "_run_ragged"]


def test_an_idle_batch_goes_to_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "init_new", lambda job, batch, runner: (batch, runner.is_draft_worker))
    assert speculation.idle(state(), forward("idle"), "batch") == ("batch", False)


# ---------------------------------------------------------------- modes of their own


def test_what_is_built_once_more_for_a_repeat() -> None:
    built: list[int] = []

    def build() -> tuple[Any, Any]:
        built.append(1)
        changes: tuple[str, ...] = () if len(built) == 1 else ("reqs",)
        tables = SimpleNamespace(positions=torch.tensor([len(built)]), mrope_positions=None)
        return tables, SimpleNamespace(changes=lambda: changes)

    kernels.ran += ["a", "b", "a"]
    once = more_modes.answered(state(), forward("decode", seq_len=(9, 5)), build)
    assert ([one.label for one in once.tables], once.changed, once.ran) == ([""], (), ("a", "b"))
    built.clear()
    twice = more_modes.answered(state(), forward("decode", seq_len=(9, 5), repeat=True), build)
    assert [one.label for one in twice.tables] == ["", "again"] and twice.changed == ("reqs",)
    assert twice.tables[1].positions == pack(torch.tensor([2]))


def test_members_of_a_beam_group_and_requests_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert more_modes.group(0, "cpu") is None
    made = more_modes.group(3, "cpu")
    assert made.num_member_rows == 3 and described(made.member_rows) == described(made.member_rows_cpu) == (
        (3,),
        "int64",
        0,
    )
    assert made.retired is False
    seen: list[Any] = []

    def append(batch: Any) -> None:
        seen.append((batch, [getattr(req.beam_group, "num_member_rows", None) for req in batch.reqs]))
        batch.seq_lens = torch.cat([batch.seq_lens, batch.seq_lens])

    def init_new(job: Any, batch: Any, runner: Any) -> Any:
        return SimpleNamespace(positions=batch.seq_lens, mrope_positions=None)

    monkeypatch.setattr(more_modes, "module", lambda name: SimpleNamespace(append_beam_tail=append))
    monkeypatch.setattr(batches, "init_new", init_new)
    job = state()
    leaders, members = BatchPart((0, 1), {"seq_len": (9, 5)}, "leaders"), BatchPart((1,), {"members": (2,)}, "members")
    asked = p.BuildForward(Batch("beam_decode", (leaders, members)))
    found = more_modes.beam_decode(job, asked)
    ((batch, groups),) = seen
    assert groups == [None, 2] and [req.beam_group for req in batch.reqs] == [None, None]
    assert batch.forward_mode == "mode DECODE" and batch.beam_tail is None
    assert described(batch.req_pool_indices_cpu) == ((2,), "int64", 0) and batch.orig_seq_lens.tolist() == [9, 5]
    assert len(batch.input_ids) == len(batch.out_cache_loc) == 4 and found.changed == ()
    assert found.tables[0].positions == pack(torch.tensor([9, 5, 9, 5]))
    monkeypatch.setattr(more_modes, "module", lambda name: SimpleNamespace())
    with pytest.raises(Absent, match="beam search: this release has no beam search"):
        more_modes.beam_decode(job, asked)


def test_a_frozen_draft_is_built_as_its_worker_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    tools = SimpleNamespace(
        position_for_batch=lambda batch: batch.seq_lens,
        set_frozen_kv_positions=lambda made, topk: did.append(("positions", made, topk)),
        expand_for_topk_draft=lambda made, topk: did.append(("rows", made, topk)),
    )
    info = SimpleNamespace(
        FrozenKVMTPDraftInput=lambda num_tokens_per_req, num_tokens_for_logprob_per_req: SimpleNamespace(
            widths=(num_tokens_per_req, num_tokens_for_logprob_per_req)
        )
    )
    known = {"frozen_kv_mtp_utils": tools, "frozen_kv_mtp_info": info}
    monkeypatch.setattr(more_modes, "module", lambda name: known[name.rpartition(".")[2]])
    made = SimpleNamespace(positions=torch.tensor([1]), mrope_positions=None)
    batch: list[Any] = []

    def init_new(job: Any, given: Any, runner: Any) -> Any:
        batch.append((given, runner.is_draft_worker))
        return made

    monkeypatch.setattr(batches, "init_new", init_new)
    more_modes.frozen_kv_draft(state(), forward("frozen_kv_draft", seq_len=(9, 5), topk=2))
    ((given, draft),) = batch
    assert draft and given.forward_mode == "mode DECODE" and given.spec_info.widths == (2, 2)
    assert given.spec_info.positions.tolist() == [9, 5] and did == [("positions", made, 2), ("rows", made, 2)]
    more_modes.frozen_kv_draft(state(), forward("frozen_kv_draft", seq_len=(9, 5)))
    assert batch[1][0].spec_info.widths == (1, 1)
    del tools.position_for_batch
    with pytest.raises(Absent, match="frozen-KV MTP draft"):
        more_modes.frozen_kv_draft(state(), forward("frozen_kv_draft", seq_len=(9, 5)))
    known |= {"frozen_kv_mtp_utils": SimpleNamespace(position_for_batch=1), "frozen_kv_mtp_info": SimpleNamespace()}
    with pytest.raises(Absent, match="frozen-KV MTP draft"):
        more_modes.frozen_kv_draft(state(), forward("frozen_kv_draft", seq_len=(9, 5)))


def test_a_widened_draft_extend_is_built_by_both_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    widened: list[Any] = []
    prepared: list[Any] = []

    def widen(lengths: Any, rows: Any, table: Any, valid: Any, nodes: int, front: int, zero: int) -> Any:
        widened.append((lengths.tolist(), described(valid), nodes, front, zero))
        return "slots", "positions"

    def prepare(info: Any, batch: Any, tokens: Any, nodes: int, runner: Any, none: Any, **named: Any) -> Any:
        prepared.append((described(info[0]), info[1:], described(tokens), nodes, runner.is_draft_worker, named))
        return SimpleNamespace(positions=torch.tensor([1]), mrope_positions=None)

    name = "compute_widened_draft_extend_locs_positions"
    monkeypatch.setattr(more_modes, "module", lambda _: SimpleNamespace(**{name: widen}))
    job = state(
        prepare_for_draft_extend=prepare,
        EagleDraftExtendInput=lambda hidden_states, num_tokens_per_req, num_front_tokens: (
            hidden_states,
            num_tokens_per_req,
            num_front_tokens,
        ),
    )
    job.engine.found = {"prepare_for_draft_extend": "a:b"}
    asked = forward("widened_draft_extend", seq_len=(9, 5), num_draft_tokens=3, num_front_tokens=2)
    more_modes.widened_draft_extend(job, asked)
    assert widened == [([9, 5], ((2,), "int32", 2), 3, 2, 0)] and job.meter.forwards == 1 and kernels.ran == ["a.b"]
    assert prepared == [
        (
            ((6, HIDDEN), "float32", 0),
            (5, 2),
            ((6,), "int64", 0),
            3,
            True,
            {
                "return_hidden_states_before_norm": False,
                "widened_out_cache_loc": "slots",
                "widened_positions": "positions",
            },
        )
    ]
    job.engine.EagleDraftExtendInput = None
    with pytest.raises(Absent, match="widened draft extend"):
        more_modes.widened_draft_extend(job, asked)
    monkeypatch.setattr(more_modes, "module", lambda _: SimpleNamespace())
    with pytest.raises(Absent, match="widened draft extend"):
        more_modes.widened_draft_extend(job, asked)


def test_a_module_that_the_release_lacks_has_no_names() -> None:
    assert is_stand_in(more_modes.module("no_such_engine.part")) and more_modes.module("json").loads
    assert forwards.CALLERS["idle"] is speculation.idle
