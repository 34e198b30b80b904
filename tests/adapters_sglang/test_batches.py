"""Batches over an engine of small fakes: which fields are set to what, which way a forward takes, what is noticed of
inputs that change. What real constructors make of them is test_adapter.py's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import protocol as p
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.sglang import batches, forwards, graph_runners, kernels, padding, requests, speculation
from ropecheck.adapters.sglang.capabilities import Absent
from ropecheck.adapters.sglang.stand_ins import HIDDEN, VOCABULARY
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import pack

pytestmark = pytest.mark.engine


class Engine(SimpleNamespace):
    """A release; fields are what it has."""

    def __init__(self, **changed: Any) -> None:
        found = {
            "ScheduleBatch": lambda reqs: SimpleNamespace(reqs=reqs),
            "SpeculativeAlgorithm": SimpleNamespace(EAGLE="eagle", NONE="none"),
            "CaptureHiddenMode": SimpleNamespace(NULL="null", FULL="full"),
            "batch_is_schedule_batch": True,
            "init_new_takes": (),
            "lacking": (),
        }
        super().__init__(**(found | changed))

    def mode(self, member: str) -> str | None:
        return None if member in self.lacking else f"mode {member}"

    def absent(self, name: str, message: str) -> Exception:
        return Absent(f"{name}: {message}")


def state(requests: int = 0, **changed: Any) -> Any:
    job = JobState(Engine(**changed), p.Job("s", ()))  # type: ignore[arg-type]
    for number in range(requests):
        media = None if number else inputs()
        job.reqs[number] = SimpleNamespace(multimodal_inputs=media, is_retracted=True, fill_ids=None)
    return job


def inputs() -> Any:
    """A request's media."""
    return SimpleNamespace(mrope_positions=torch.zeros(3, 4), mrope_position_delta=torch.zeros(1), mm_items=[1])


def forward(mode: str, *parts: BatchPart, **how: Any) -> p.BuildForward:
    return p.BuildForward(Batch(mode, parts), **how)


def part(*reqs: int, mode: str = "", **fields: Any) -> BatchPart:
    return BatchPart(reqs, fields, mode)


PREFILL = part(0, 1, prefix_len=(0, 2), extend_len=(4, 5))
DECODE = part(0, 1, seq_len=(9, 5))

# ---------------------------------------------------------------- fields of a batch


def test_a_mode_is_run_by_a_member_of_the_engine() -> None:
    job = state(lacking=("IDLE",))
    assert batches.member_of(job, "draft_decode") == "DECODE"
    with pytest.raises(Absent, match=r"ForwardMode\.IDLE: this release"):
        batches.member_of(job, "idle")
    with pytest.raises(Absent, match="no function for the mode odd"):
        batches.member_of(job, "odd")


def test_zeros_are_shared_until_they_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_ZEROS", {})
    one = batches.zeros(3, torch.int64, "cpu")
    assert one.tolist() == [0, 0, 0] and one.dtype == torch.int64 and batches.zeros(3, torch.int64, "cpu") is one
    assert batches.zeros(3, torch.int32, "cpu").dtype == torch.int32
    assert batches.zeros(2, torch.int64, "meta").is_meta and batches.zeros(3, torch.int64, "cpu") is one
    one[0] = 5
    fresh = batches.zeros(3, torch.int64, "cpu")
    assert fresh.tolist() == [0, 0, 0] and batches.zeros(3, torch.int64, "cpu") is fresh
    for count in range(1005):
        batches.zeros(count, torch.int8, "meta")
    assert 0 < len(batches._ZEROS) < 1005


def test_a_pool_has_one_row_that_is_wide_enough() -> None:
    pools = [batches.token_pool(width, "cpu") for width in (1, 4096, 4097, 9000)]
    assert [tuple(pool.req_to_token.shape) for pool in pools] == [(1, 4096), (1, 4096), (1, 8192), (1, 16384)]
    assert pools[0].device == "cpu" and pools[0].req_to_token.dtype == torch.int32 and not pools[0].req_to_token.any()


def test_runners_differ_by_draft_and_by_rows() -> None:
    job = state()
    found = {mode: batches.runner_for(job, mode) for mode in batches.MEMBERS}
    drafts = {mode for mode, runner in found.items() if runner.is_draft_worker}
    assert drafts == {"draft_decode", "draft_extend_v2"}
    assert {mode for mode, runner in found.items() if not runner.model_config.model_is_mrope} == {"dllm_extend"}
    assert found["decode"].spec_algorithm == "eagle" and found["decode"].device == "cpu"
    assert batches.runner_for(job, "decode") is found["decode"]
    assert batches.runner_for(job, "decode", "meta").device == "meta"


def test_a_decode_batch() -> None:
    job = state(2)
    batch = batches.schedule_batch(job, forward("decode", DECODE))
    assert batch.reqs == [job.reqs[0], job.reqs[1]] and batch.forward_mode == "mode DECODE" and batch.device == "cpu"
    for lengths in (batch.seq_lens, batch.seq_lens_cpu):
        assert lengths.tolist() == [9, 5] and lengths.dtype == torch.int64
    assert batch.seq_lens.data_ptr() != batch.seq_lens_cpu.data_ptr()
    assert batch.multimodal_inputs == [job.reqs[0].multimodal_inputs, None] and batch.spec_algorithm == "none"
    assert (batch.model_config.vocab_size, batch.model_config.is_matryoshka) == (VOCABULARY, False)
    assert [len(one) for one in (batch.input_ids, batch.out_cache_loc, batch.req_pool_indices)] == [2, 2, 2]
    assert not hasattr(batch, "seq_lens_sum") and not hasattr(batch, "extend_num_tokens")


def test_lengths_that_lag_are_missing_or_lie_between_others() -> None:
    job = state(2)
    lagging = batches.schedule_batch(job, forward("decode", DECODE, lagging=True))
    assert (lagging.seq_lens.tolist(), lagging.seq_lens_cpu.tolist()) == ([9, 5], [8, 4])
    assert batches.schedule_batch(job, forward("decode", DECODE, host_lengths=False)).seq_lens_cpu is None
    strided = batches.schedule_batch(job, forward("decode", DECODE, strided=True))
    assert strided.seq_lens.tolist() == [9, 5] and not strided.seq_lens.is_contiguous()
    assert strided.seq_lens_cpu.is_contiguous()


def test_strided_lengths_are_kept_from_a_kernel_that_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode on a GPU, in releases with that kernel."""
    asked: list[str] = []
    there = [True]
    monkeypatch.setattr(batches, "find_spec", lambda name: asked.append(name) or there[0])  # type: ignore[func-returns-value]
    job = state(2)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)
    monkeypatch.setattr(batches, "zeros", lambda *_: None)
    strided = forward("decode", DECODE, strided=True)
    with pytest.raises(Absent, match="takes no lengths"):
        batches.schedule_batch(job, strided, device="cuda")
    there[0] = False
    assert not batches.schedule_batch(job, strided, device="cuda").seq_lens.is_contiguous()
    assert asked == [batches.CLAMP] * 2
    verify = forward("target_verify", part(0, 1, seq_len=(5, 6), num_draft_tokens=2), strided=True)
    there[0] = True
    assert not batches.schedule_batch(job, verify, device="cuda").seq_lens.is_contiguous()
    assert batches.schedule_batch(job, forward("decode", DECODE), device="cuda").seq_lens.is_contiguous()


def test_what_older_releases_want_set() -> None:
    batch = batches.schedule_batch(state(2, batch_is_schedule_batch=False), forward("decode", DECODE))
    assert batch.seq_lens_sum == 14
    assert batches.schedule_batch(state(), forward("idle", part())).extend_num_tokens == 0


def test_a_draft_brings_the_slots_of_all_its_steps() -> None:
    job = state(2)
    drafted = part(0, 1, seq_len=(9, 5), num_steps=3, topk=2)
    batch = batches.schedule_batch(job, forward("draft_decode", drafted))
    assert (len(batch.input_ids), len(batch.out_cache_loc)) == (4, 12)
    bare = batches.schedule_batch(job, forward("draft_decode", part(0, seq_len=(9,))))
    assert (len(bare.input_ids), len(bare.out_cache_loc)) == (1, 1)
    other = batches.schedule_batch(job, forward("decode", DECODE), device="meta", member="EXTEND")
    assert other.seq_lens.is_meta and other.forward_mode == "mode EXTEND" and other.seq_lens_cpu.device.type == "cpu"


@pytest.mark.parametrize(
    ("mode", "parts", "how", "count"),
    [
        ("extend", (PREFILL,), {}, 9),
        ("decode", (DECODE,), {}, 2),
        ("decode", (DECODE,), {"positions": (1, 2, 3)}, 3),
        ("idle", (part(),), {}, 0),
        ("target_verify", (part(0, 1, num_draft_tokens=4),), {}, 8),
        ("draft_extend_v2", (part(0, num_draft_tokens=3),), {}, 3),
        ("draft_decode", (part(0, 1),), {}, 2),
        ("draft_decode", (part(0, 1, topk=3),), {}, 6),
        ("ragged_verify", (part(0, 1, parents=((), (0, 1))),), {}, 4),
        ("ragged_verify", (part(0, 1, parents=((), (0, 1))),), {"tier": 8}, 8),
        ("mixed", (PREFILL, part(2, mode="decode", seq_len=(7,))), {}, 10),
    ],
)
def test_how_many_tokens_a_forward_feeds(mode: str, parts: Any, how: Any, count: int) -> None:
    assert batches.token_count(forward(mode, *parts, **how)) == count


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        (("extend_end",), {"extend_end": 7}),
        (("extend_end", "set_extend_range", "set_extend_input_len"), {"extend_end": 7}),
        (("set_extend_range", "set_extend_input_len"), {"range": (2, 7)}),
        (("set_extend_input_len",), {"length": 5}),
        ((), {"extend_input_len": 5}),
    ],
)
def test_a_request_is_told_its_window_as_its_release_keeps_it(has: Any, expected: dict[str, Any]) -> None:
    req = SimpleNamespace()
    known: dict[str, Any] = {
        "extend_end": None,
        "set_extend_range": lambda start, end: setattr(req, "range", (start, end)),
        "set_extend_input_len": lambda length: setattr(req, "length", length),
    }
    for name in has:
        setattr(req, name, known[name])
    batches.set_window(req, 2, 5, 7)
    assert {name: value for name, value in vars(req).items() if name not in known or name in expected} == expected


def test_fill_ids_are_made_anew_in_each_releases_way() -> None:
    did: list[str] = []
    batches.refresh_fill_ids(SimpleNamespace(refresh_fill_ids=lambda: did.append("new")))
    batches.refresh_fill_ids(SimpleNamespace(_refresh_fill_ids=lambda: did.append("older")))
    oldest = SimpleNamespace(origin_input_ids=[1], output_ids=[2, 3])
    batches.refresh_fill_ids(oldest)
    assert did == ["new", "older"] and oldest.fill_ids == [1, 2, 3]


def test_windows_of_a_prefill_and_of_what_decodes_beside_it() -> None:
    job = state(3)
    refreshed: list[Any] = []
    for req in job.reqs.values():
        req.extend_end = req.prefix_len = None
        req.refresh_fill_ids = lambda req=req: refreshed.append(req)
    mixed = forward("mixed", PREFILL, part(2, mode="decode", seq_len=(7,)))
    assert batches.prefill_rows(mixed) == 2
    batch = batches.schedule_batch(job, mixed)
    assert (batch.prefix_lens, batch.extend_lens, batch.extend_num_tokens) == ([0, 2, 6], [4, 5, 1], 10)
    assert batch.extend_logprob_start_lens == [0, 0, 0] and batch.decoding_reqs == [job.reqs[2]]
    assert [req.extend_end for req in batch.reqs] == [4, 7, 7] and [req.prefix_len for req in batch.reqs] == [
        0,
        2,
        None,
    ]
    assert [req.is_retracted for req in batch.reqs] == [False, False, True] and refreshed == [job.reqs[2]]
    assert not hasattr(batches.schedule_batch(job, forward("extend", PREFILL)), "decoding_reqs")
    plain = state(2)
    batches.schedule_batch(plain, forward("extend", PREFILL))
    assert not hasattr(plain.reqs[0], "prefix_len") and plain.reqs[1].extend_input_len == 5


class Dllm(SimpleNamespace):
    def __init__(self, algorithm: str, algorithm_config: Any, block_size: int, mask_id: int, max_running_requests: int):
        super().__init__(block_size=block_size, mask_id=mask_id, max_running_requests=max_running_requests)
        self.given = (algorithm, algorithm_config)


@pytest.mark.parametrize(("offsets", "literal"), [((8, 4), True), ((8, 0), False)])
def test_blocks_of_a_diffusion_model(offsets: tuple[int, int], literal: bool) -> None:
    job = state(2, DllmConfig=Dllm)
    batch = batches.schedule_batch(job, forward("dllm_extend", part(0, 1, block_offset=offsets, block_size=4)))
    assert batch.dllm_config == Dllm("", {}, 4, VOCABULARY, 1)
    assert (batch.prefix_lens, batch.extend_lens, batch.extend_num_tokens) == (list(offsets), [4, 4], 8)
    assert [req.dllm_block_offset for req in batch.reqs] == list(offsets)
    assert [req.dllm_has_literal_mask for req in batch.reqs] == [literal] * 2


# ---------------------------------------------------------------- what the constructor is given, and leaves alone


class Draft(SimpleNamespace):
    def __init__(self, topk_p: Any, topk_index: Any, hidden_states: Any, bonus_tokens: Any, other: Any) -> None:
        super().__init__(topk_p=topk_p, topk_index=topk_index, hidden_states=hidden_states, bonus_tokens=bonus_tokens)
        self.other = other


def test_what_a_draft_starts_from() -> None:
    made = batches.draft_input(state(EagleDraftInput=Draft), forward("draft_decode", part(0, 1, topk=3)), "cpu")
    shapes = {name: tuple(value.shape) for name, value in vars(made).items() if value is not None}
    assert shapes == {"topk_p": (2, 3), "topk_index": (2, 3), "hidden_states": (2, HIDDEN), "bonus_tokens": (2,)}
    assert made.topk_p.dtype == torch.float32 and made.topk_index.dtype == torch.int64 and made.other is None
    bare = batches.draft_input(state(EagleDraftInput=Draft), forward("draft_decode", part(0, 1)), "cpu")
    assert tuple(bare.topk_p.shape) == (2, 1)


@pytest.mark.parametrize(
    ("takes", "extra"),
    [
        ((), {}),
        (("capture_hidden_mode",), {"capture_hidden_mode": "null"}),
        (("return_hidden_states_before_norm",), {"return_hidden_states_before_norm": False}),
    ],
)
def test_a_constructor_gets_what_its_release_takes(takes: Any, extra: dict[str, Any]) -> None:
    made = SimpleNamespace(init_new=lambda *given, **more: (given, more))
    job = state(ForwardBatch=made, init_new_takes=takes)
    assert batches.init_new(job, "batch", "runner") == (("batch", "runner"), extra)
    assert batches.init_new(job, "batch", "runner") and job.meter.forwards == 2
    older = state(ForwardBatch=made, batch_is_schedule_batch=False)
    batch = SimpleNamespace(get_model_worker_batch=lambda: "of a worker")
    assert batches.init_new(older, batch, "runner")[0] == ("of a worker", "runner")


def watched() -> Any:
    """A batch of two requests, one of them with media."""
    return batches.schedule_batch(state(2), forward("decode", DECODE))


CHANGES = {
    "seq_lens": (
        lambda batch: batch.seq_lens.add_(0),
        lambda batch: setattr(batch, "seq_lens", batch.seq_lens.clone()),
    ),
    "seq_lens_cpu": (
        lambda batch: batch.seq_lens_cpu.add_(0),
        lambda batch: setattr(batch, "seq_lens_cpu", batch.seq_lens_cpu.clone()),
        lambda batch: setattr(batch, "seq_lens_cpu", None),
    ),
    "multimodal_inputs": (
        lambda batch: setattr(batch, "multimodal_inputs", [*batch.multimodal_inputs]),
        lambda batch: batch.multimodal_inputs.__setitem__(1, inputs()),
        lambda batch: batch.multimodal_inputs[0].mrope_positions.add_(0),
        lambda batch: batch.multimodal_inputs[0].mrope_position_delta.add_(0),
        lambda batch: setattr(batch.multimodal_inputs[0], "mrope_positions", None),
        lambda batch: setattr(batch.multimodal_inputs[0], "mrope_position_delta", None),
        lambda batch: batch.multimodal_inputs[0].mm_items.append(2),
        lambda batch: setattr(batch.multimodal_inputs[0], "mm_items", [1]),
    ),
    "reqs": (
        lambda batch: setattr(batch, "reqs", [*batch.reqs]),
        lambda batch: batch.reqs.reverse(),
        lambda batch: batch.reqs.pop(),
    ),
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, ways in CHANGES.items() for number in range(len(ways))]
)
def test_a_change_of_an_input_is_seen_by_its_name(name: str, number: int) -> None:
    batch = watched()
    snapshot = batches.Snapshot(batch)
    assert snapshot.changes() == ()
    CHANGES[name][number](batch)
    assert snapshot.changes() == (name,)


def test_lengths_that_are_not_there_do_not_change() -> None:
    batch = batches.schedule_batch(state(2), forward("decode", DECODE, host_lengths=False))
    snapshot = batches.Snapshot(batch)
    assert snapshot.changes() == ()
    batch.seq_lens_cpu = batch.seq_lens
    assert snapshot.changes() == ("seq_lens_cpu",)
    assert batches.media_stamp(None) is None


# ---------------------------------------------------------------- the way that a forward takes


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each way answers with its name; windows that begin are noted."""
    began: list[Any] = []
    for name in ("kernel", "direct", "by_caller"):
        monkeypatch.setattr(forwards, name, lambda _, forward, name=name: name)
    monkeypatch.setattr(forwards, "ROUTES", {"beam_decode": lambda _, forward: "its own"})
    monkeypatch.setattr(requests, "begin_window", lambda _, number, req: began.append(number))
    return began


VERIFY = part(0, seq_len=(5,), num_draft_tokens=2, parents=((0,),))


@pytest.mark.parametrize(
    ("mode", "parts", "path", "way", "begun"),
    [
        ("extend", (PREFILL,), "direct", "direct", [0, 1]),
        ("extend", (PREFILL,), "caller", "direct", [0, 1]),
        ("mixed", (PREFILL, part(2, mode="decode", seq_len=(7,))), "direct", "direct", [0, 1]),
        ("split_prefill", (PREFILL,), "direct", "direct", [0, 1]),
        ("extend", (PREFILL,), "kernel", "kernel", []),
        ("decode", (DECODE,), "caller", "direct", []),
        ("beam_decode", (DECODE,), "direct", "its own", []),
        ("target_verify", (VERIFY,), "direct", "direct", []),
        ("target_verify", (VERIFY,), "caller", "by_caller", []),
        ("ragged_verify", (VERIFY,), "direct", "by_caller", []),
        ("dllm_extend", (part(0, block_offset=(4,), block_size=4),), "direct", "direct", []),
    ],
)
def test_the_way_of_a_forward(mode: str, parts: Any, path: str, way: str, begun: Any, ways: list[Any]) -> None:
    kernels.ran.append("an older forward's")
    found: Any = forwards.run(state(3), forward(mode, *parts, path=path))
    assert found == way and ways == begun and kernels.ran == []


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A constructor whose tables count the batches that it was given; the wider buffer holds both tables once more."""
    given: list[Any] = []

    def init_new(job: Any, batch: Any, runner: Any) -> Any:
        given.append(batch)
        kernels.ran.append("a kernel")
        return SimpleNamespace(positions=torch.tensor([len(given)]), mrope_positions=None, runner=runner)

    monkeypatch.setattr(batches, "init_new", init_new)
    monkeypatch.setattr(forwards, "padded", lambda job, forward, made, runner: job.table("padded", forward, made))
    kernels.ran.clear()
    return given


def labels(answer: p.TablesAnswer) -> dict[str, Any]:
    return {one.label: one.positions for one in answer.tables}


WIDER = p.Padding("graph", 4, 4)
ONE, TWO = (pack(torch.tensor([number])) for number in (1, 2))


def test_a_batch_by_hand_is_given_once_more_for_a_repeat(built: list[Any]) -> None:
    found = forwards.direct(state(2), forward("decode", DECODE, repeat=True, padding=WIDER))
    assert labels(found) == {"": ONE, "padded": ONE, "again": TWO} and built[0] is built[1]
    assert (found.changed, found.ran) == ((), ("a kernel",)) and built[0].spec_info is None
    assert labels(forwards.direct(state(2), forward("decode", DECODE))) == {"": pack(torch.tensor([3]))}


def test_a_batch_of_a_caller_is_a_fresh_one_for_a_repeat(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(job: Any, forward: Any, batch: Any) -> Any:
        batch.seq_lens.add_(0)
        return batches.init_new(job, batch, "runner")

    monkeypatch.setitem(forwards.CALLERS, "target_verify", prepare)
    found = forwards.by_caller(state(1), forward("target_verify", VERIFY, path="caller", repeat=True, padding=WIDER))
    assert labels(found) == {"": ONE, "padded": ONE, "again": TWO} and built[0] is not built[1]
    assert (found.changed, found.ran) == (("seq_lens",), ("a kernel",))


def test_a_draft_is_what_its_loop_is_given(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(job: Any, forward: Any, made: Any, first: str) -> list[p.TablePair]:
        return [p.TablePair(one, ONE, None) for one in (first, "step 1")]

    monkeypatch.setitem(forwards.CALLERS, "draft_decode", lambda job, _, batch: batches.init_new(job, batch, None))
    monkeypatch.setattr(speculation, "draft_loop", loop)
    drafted = part(0, seq_len=(5,), num_steps=2, topk=1)
    found = forwards.by_caller(state(1), forward("draft_decode", drafted, path="caller", repeat=True, padding=WIDER))
    assert [one.label for one in found.tables] == ["", "step 1", "padded", "again"] and found.changed == ()


def test_the_kernel_of_an_extend_alone() -> None:
    given: list[Any] = []

    def compute(prefixes: Any, lengths: Any, total: int) -> Any:
        given.append((prefixes.tolist(), lengths.tolist(), total, prefixes.dtype, prefixes.is_contiguous()))
        return torch.tensor([1]), None

    found = forwards.kernel(state(compute_position_triton=compute), forward("extend", PREFILL))
    assert given == [([0, 2], [4, 5], 9, torch.int32, True)] and labels(found) == {"": ONE}
    assert found.tables[0].mrope is None and found.ran[-1].endswith("compute") and found.changed == ()
    with pytest.raises(Absent, match="compute_position_triton"):
        forwards.kernel(state(compute_position_triton=None), forward("extend", PREFILL))


# ---------------------------------------------------------------- what speculation brings


class Extend(SimpleNamespace):
    def __init__(self, num_tokens_per_req: int) -> None:
        super().__init__(num_tokens_per_req=num_tokens_per_req)


class Verify(SimpleNamespace):
    def __init__(
        self, draft_token: Any, positions: Any, spec_steps: int, topk: int, draft_token_num: int, mask: Any, **more: Any
    ) -> None:
        super().__init__(draft_token=draft_token, positions=positions, spec_steps=spec_steps, mask=mask)
        self.topk, self.draft_token_num = topk, draft_token_num


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("host", [False, True])
def test_a_draft_extend_by_hand_has_windows_on_the_host_or_the_device(older: bool, host: bool) -> None:
    kind = {"EagleDraftInput" if older else "EagleDraftExtendInput": Extend}
    job = state(2, **({"EagleDraftExtendInput": None, "EagleDraftInput": None} | kind))
    asked = forward("draft_extend_v2", part(0, 1, seq_len=(9, 5), num_draft_tokens=3), host_lengths=host)
    batch = batches.schedule_batch(job, asked)
    assert forwards.spec_info(job, asked, batch) == Extend(3) and batch.extend_num_tokens == 6
    if host:
        assert (batch.prefix_lens, batch.extend_lens) == ([9, 5], [3, 3])
    else:
        assert batch.prefix_lens.dtype == batch.extend_lens.dtype == torch.int32
        assert (batch.prefix_lens.tolist(), batch.extend_lens.tolist()) == ([9, 5], [3, 3])


def test_a_draft_extend_without_host_lengths_is_the_newer_releases() -> None:
    job = state(1, batch_is_schedule_batch=False, EagleDraftExtendInput=Extend)
    asked = part(0, seq_len=(9,), num_draft_tokens=3)
    with pytest.raises(Absent, match="host lengths only"):
        forwards.spec_info(job, forward("draft_extend_v2", asked, host_lengths=False), None)
    batch = SimpleNamespace()
    assert forwards.spec_info(job, forward("draft_extend_v2", asked), batch) == Extend(3)


def test_a_verify_and_a_draft_bring_the_jobs_positions() -> None:
    job = state(2, EagleVerifyInput=Verify, EagleDraftInput=Draft)
    batch = SimpleNamespace(reqs=[1, 2], device="cpu", input_ids="ids")
    tree = part(0, 1, seq_len=(9, 5), num_draft_tokens=3, topk=2, parents=((0, 0), (0, 1)))
    asked = forward("target_verify", tree, positions=(9, 10, 10, 5, 6, 7))
    info = forwards.spec_info(job, asked, batch)
    assert (info.spec_steps, info.topk, info.draft_token_num) == (2, 2, 3) and info.draft_token == "ids"
    assert info.positions.tolist() == [9, 10, 10, 5, 6, 7] and info.positions.dtype == torch.int64
    drafted = forward("draft_decode", part(0, 1, seq_len=(9, 5), topk=2), positions=(9, 9, 5, 5))
    made = forwards.spec_info(job, drafted, batch)
    assert made.num_tokens_per_req == 2 and made.positions.tolist() == [9, 9, 5, 5]
    plain = forwards.spec_info(job, forward("draft_decode", part(0, 1, seq_len=(9, 5)), positions=(9, 5)), batch)
    assert plain.num_tokens_per_req == 1
    assert forwards.spec_info(job, forward("decode", DECODE), batch) is None


def test_positions_that_nothing_reads_are_as_many_as_the_tokens() -> None:
    tree = part(0, 1, seq_len=(9, 5), num_draft_tokens=3, parents=((0, 0), (0, 1)))
    assert forwards.with_positions(forward("target_verify", tree)).positions == (0,) * 6
    given = forward("target_verify", tree, positions=(1,))
    assert forwards.with_positions(given) is given
    decode = forward("decode", DECODE)
    assert forwards.with_positions(decode) is decode
    assert forwards.with_positions(forward("draft_decode", part(0, 1, topk=2))).positions == (0,) * 4


# ---------------------------------------------------------------- wider buffers


class Registry:
    """A buffer that notes what it is filled with, and with which sizes."""

    def __init__(self) -> None:
        self.did: list[Any] = []

    def fill_from(self, batch: Any, **sizes: int) -> None:
        self.did.append(sizes)

    def extract_buffer(self, **sizes: Any) -> Any:
        self.did.append(sizes)
        return SimpleNamespace(positions=torch.tensor([1]), mrope_positions=None)


BATCH = SimpleNamespace(batch_size=2, positions=torch.zeros(3))


@pytest.mark.parametrize("sizes", [None, (5, 10)])
def test_a_batch_goes_into_the_jobs_own_buffers(sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, made = Registry(), []

    def build(**given: Any) -> Registry:
        made.append(given)
        return registry

    job = state(build_decode_registry=build)
    job.widest = (6, 12)
    monkeypatch.setattr(graph_runners, "decode", lambda *given: sizes)
    asked = forward("decode", DECODE, padding=p.Padding("graph", 4, 8))
    assert padding.padded(job, asked, BATCH, None) == p.TablePair("padded", ONE, None)
    padding.padded(job, asked, BATCH, None)
    (given,) = made
    assert (given.pop("device"), given.pop("cache_loc_dtype")) == (torch.device("cpu"), torch.int64)
    assert given == {"max_bs": 6, "max_num_token": 12, "seq_len_fill_value": 1, "share_pool": False}
    rows, tokens = sizes or (4, 8)
    filled = {"raw_bs": 2, "padded_bs": 4, "raw_num_tokens": 3, "padded_num_tokens": 8}
    viewed = {"padded_bs": rows, "padded_num_tokens": tokens, "forward_batch_template": BATCH}
    assert registry.did == [viewed] * 2 if sizes else [filled, viewed] * 2
    with pytest.raises(Absent, match="no graph buffer registry"):
        padding.padded(state(build_decode_registry=None), asked, BATCH, None)


def test_each_kind_of_buffer_has_its_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    job = state()
    for name in ("draft", "multi_layer"):
        for key, step in padding.DRAFT_RUNNERS.items():
            if step is getattr(graph_runners, name):
                monkeypatch.setitem(padding.DRAFT_RUNNERS, key, lambda *given, name=name: (name, given[2]))
    monkeypatch.setattr(graph_runners, "prefill", lambda *given: ("prefill", given[2]))

    def of(mode: str, kind: str, batch: Any = BATCH) -> Any:
        return padding.padded(job, forward(mode, DECODE, padding=p.Padding(kind, 4, 8)), batch, "runner")

    assert of("draft_decode", "graph") == ("draft", BATCH) and of("extend", "graph") == ("prefill", BATCH)
    assert of("draft_extend_v2", "multi_layer") == ("multi_layer", BATCH)
    given: list[Any] = []
    ranks = SimpleNamespace(
        positions=torch.tensor([1]), mrope_positions=None, _pad_inputs_to_size=lambda *sizes: given.append(sizes)
    )
    assert of("decode", "dp", ranks) == p.TablePair("padded", ONE, None) and given == [("runner", 8, 4)]
    with pytest.raises(Absent, match="_pad_inputs_to_size"):
        of("decode", "dp")
    with pytest.raises(ValueError, match="'odd' of decode"):
        of("decode", "odd")
