"""What the adapter does on a GPU, with small fakes of what is there: devices, kernels, counts, planted faults. That it
works on a real one is seen by `python -m ropecheck.conformance.device.score` (docs/cuda.md)."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters import protocol  # noqa: E402 - torch first
from ropecheck.adapters.batch import Batch, BatchPart  # noqa: E402
from ropecheck.adapters.sglang import (  # noqa: E402
    batches,
    cuda_cost,
    device,
    faults,
    faults_kernel,
    forwards,
    kernels,
    native,
    speculation,
    stand_ins,
)
from ropecheck.adapters.sglang.meter import Meter  # noqa: E402
from ropecheck.adapters.sglang.recorder import hook  # noqa: E402

pytestmark = pytest.mark.engine


def on_gpu(*values: int) -> Any:
    """A host tensor that says that it is on a GPU."""
    return torch.tensor(values).as_subclass(kernels.OnGpu)


def engine_function(source: str, **names: Any) -> Callable[..., Any]:
    """A function whose file is the engine's."""
    made: Callable[..., Any] = eval(compile(source, "/somewhere/sglang/srt/engine.py", "eval"), names)
    return made


HERE = "sglang/srt/engine.py:1 <lambda>"

# ---------------------------------------------------------------- the device


def cuda(**cuda: Any) -> Any:
    """A torch that is built for CUDA 13.0."""
    version = SimpleNamespace(cuda="13.0")
    return SimpleNamespace(__version__="2.11", version=version, cuda=SimpleNamespace(**cuda), zeros=torch.zeros)


def test_a_device_that_works_has_no_problem_and_another_says_its_own() -> None:
    asked: list[str] = []

    def zeros(count: int, device: str) -> Any:
        asked.append(device)
        return torch.zeros(count)

    def too_old() -> None:
        raise RuntimeError("the driver is too old (found version 12040)")

    working, broken = cuda(init=lambda: asked.append("init")), cuda(init=too_old)
    working.zeros = zeros
    assert device.problem(working) == "" and asked == ["init", "cuda"]
    assert "it offers CUDA 12.4" in device.problem(broken) and "wants CUDA 13.0" in device.problem(broken)
    assert device.explain("") == "CUDA cannot be used: no reason given"
    assert (
        device.explain("it is too old") == "the NVIDIA driver is too old for this torch, which wants CUDA ?: update it"
    )


@pytest.mark.parametrize(("said", "version"), [(b"580.65", "580.65"), ("580.65", "580.65"), (None, "")])
def test_a_device_is_described(said: bytes | str | None, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("pynvml")
    started: list[str] = []
    if said is not None:
        vars(library).update(nvmlInit=lambda: started.append("init"), nvmlSystemGetDriverVersion=lambda: said)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = SimpleNamespace(name="H200", total_memory=139 << 30, major=9, minor=0)
    assert device.describe(cuda(get_device_properties=lambda number: [found][number])) == {
        "name": "H200",
        "memory": "139 GiB",
        "capability": "9.0",
        "driver": version,
        "cuda": "13.0",
        "torch": "2.11",
    }
    assert started == (["init"] if version else [])


# ---------------------------------------------------------------- kernels


def modules(monkeypatch: pytest.MonkeyPatch, owner: Any, **known: Any) -> dict[str, Any]:
    """The engine has these modules, by the last part of their names, and no others."""
    monkeypatch.setattr(owner, "optional", lambda name: known.get(name.rpartition(".")[2]))
    return known


def test_compiled_kernels_and_tritons_launches_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.ran.clear()
    hook: set[Callable[[Any], None]] = set()
    one = SimpleNamespace(clamp_position=engine_function("lambda lengths: lengths - 1"))
    other = SimpleNamespace(assign_draft_cache_locs_contiguous_func=engine_function("lambda *, positions=None: 'ran'"))
    compiled = SimpleNamespace(clamp_position_cuda=lambda: "compiled")
    triton = SimpleNamespace(knobs=SimpleNamespace(runtime=SimpleNamespace(launch_enter_hook=hook)))
    modules(
        monkeypatch, kernels, forward_batch_info=one, clamp_position=compiled, eagle_worker_common=other, triton=triton
    )
    kernels.install("cuda")
    assert one.clamp_position(3) == 2 and other.assign_draft_cache_locs_contiguous_func() == "ran"
    assert compiled.clamp_position_cuda() == "compiled"
    (launched,) = hook
    launched(SimpleNamespace(get=lambda: {"name": "position_kernel"}))
    assert [name.rpartition(".")[2] for name in kernels.ran] == [*["<lambda>"] * 3, "triton position_kernel"]
    triton.knobs.runtime.launch_enter_hook = None  # a Triton before it had such hooks
    kernels.install("cuda")
    kernels.ran.clear()


def test_on_a_cpu_the_engines_choices_are_steered(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SimpleNamespace(sgl_build_tree_kernel_triton=1, _is_xpu=False)
    plain = SimpleNamespace(_is_xpu=False)
    slots = SimpleNamespace(assign_extend_cache_locs_func=None)
    other = SimpleNamespace(
        assign_draft_cache_locs_contiguous_func=lambda **given: given, build_chain_tree=lambda: "a tree", no_kernel=5
    )
    known = modules(
        monkeypatch,
        kernels,
        spec_tree=tree,
        eagle_utils=plain,
        cache_locs=slots,
        dspark_verify_window=None,
        eagle_worker_common=other,
    )
    kernels.install("cpu")
    assert tree._is_xpu and not plain._is_xpu and known["dspark_verify_window"] is None
    assert slots.assign_extend_cache_locs_func is kernels.no_slots
    assert other.assign_draft_cache_locs_contiguous_func() is None and other.build_chain_tree() == "a tree"


def test_an_object_without_its_constructor_is_one_of_the_suites() -> None:
    class Runner:
        def __init__(self) -> None:
            raise AssertionError("a model would be loaded")

        def both(self) -> tuple[Any, Any]:
            return self.left, self.right  # type: ignore[attr-defined]

    made = kernels.hollow(Runner, left=1, right=2)
    assert made.both() == (1, 2) and isinstance(made, Runner) and type(made).__module__ == __name__
    assert type(made).__name__ == "Runner" and stand_ins.is_stand_in(made)
    assert kernels.qualified(Runner.both).endswith("test_gpu_parts." + Runner.both.__qualname__)


# ---------------------------------------------------------------- torch's versions of kernels


def test_classes_that_have_both_ways_take_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Both:
        def forward_cuda(self) -> str:
            return "cuda"

        def forward_native(self) -> str:
            return "torch"

    class Inherits(Both):
        def forward_cuda(self) -> str:
            return "its own"

    module = ModuleType("layernorm")
    vars(module).update(Both=Both, Inherits=Inherits, number=3)
    hooked: list[tuple[Callable[[Any], None], str]] = []
    monkeypatch.setattr(hook, "install", lambda then, trigger: hooked.append((then, trigger)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cutlass" else name)
    native.install()
    assert [name for _, name in hooked] == [*native.MODULES, native.DUAL_GEMM]
    for then, _ in hooked[:-1]:
        then(module)
    assert Both().forward_cuda() == "torch" and Inherits().forward_cuda() == "its own"
    gemm = SimpleNamespace(DualGemm=type("DualGemm", (), {"_select_mode": lambda self: "a mode"}))
    hooked[-1][0](gemm)
    assert gemm.DualGemm()._select_mode() is None
    hooked.clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "cutlass" else None)
    native.without_dual_gemm()
    assert hooked == []


# ---------------------------------------------------------------- counts


class Operation:
    """An operation of torch's by its name, and what it gives."""

    def __init__(self, name: str, gives: Any) -> None:
        self._schema, self._gives = SimpleNamespace(name=f"aten::{name}"), gives

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._gives


HOST, DEVICE = torch.zeros(2), on_gpu(0, 0)


@pytest.mark.parametrize(
    ("name", "given", "gives", "to_device", "to_host"),
    [
        ("_to_copy", (HOST,), DEVICE, 1, 0),
        ("_to_copy", (DEVICE,), HOST, 0, 1),
        ("_to_copy", (DEVICE,), DEVICE, 0, 0),
        ("_to_copy", (HOST,), HOST, 0, 0),
        ("copy_", (DEVICE, HOST), DEVICE, 1, 0),
        ("copy_", (HOST, DEVICE), HOST, 0, 1),
        ("copy_", (DEVICE, DEVICE), DEVICE, 0, 0),
        ("index", (DEVICE, [HOST]), DEVICE, 1, 0),
        ("index_select", (HOST, 0, DEVICE), HOST, 0, 1),
        ("add", (DEVICE, HOST), DEVICE, 0, 0),
        ("_local_scalar_dense", (DEVICE,), 5, 0, 1),
        ("_local_scalar_dense", (HOST,), 5, 0, 0),
    ],
)
def test_operations_between_host_and_device_are_found(
    name: str, given: Any, gives: Any, to_device: int, to_host: int
) -> None:
    finder = cuda_cost._Finder()
    seen = cuda_cost._Operations(finder)
    dispatch = inspect.unwrap(type(seen).__torch_dispatch__)  # torch's wrapper would import its compiler
    call = engine_function("lambda: dispatch(seen, operation, (), given)", dispatch=dispatch, seen=seen, given=given)
    call.__globals__["operation"] = Operation(name, gives)
    assert call() is gives
    assert (finder.to_device, finder.to_host) == ([HERE] * to_device, [HERE] * to_host)


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        (([1, 2],), {"device": "cuda"}, 1),
        ((), {"data": [1, 2], "device": "cuda:0"}, 1),
        ((HOST,), {"device": "cuda"}, 0),
        (([1, 2],), {"device": "cpu"}, 0),
        (([1, 2],), {}, 0),
    ],
)
def test_lists_that_go_to_the_device_are_found(
    args: Any, kwargs: Any, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_cost, "passed_on", lambda function, args, kwargs: (function, args, kwargs))
    finder = cuda_cost._Finder()
    seen = cuda_cost._Functions(finder)
    call = engine_function("lambda: hook(torch.tensor, (), args, kwargs)", hook=seen.__torch_function__, torch=torch)
    call.__globals__.update(args=args, kwargs=kwargs)
    assert call() == (torch.tensor, args, kwargs)
    assert finder.to_device == [HERE] * found and finder.to_host == []


def test_a_list_whose_copy_the_dispatcher_showed_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = cuda_cost._Finder()
    monkeypatch.setattr(cuda_cost, "passed_on", lambda *_: finder.to_device.append("shown"))
    cuda_cost._Functions(finder).__torch_function__(torch.as_tensor, (), ([1],), {"device": "cuda"})
    assert finder.to_device == ["shown"]


def quiet_device(monkeypatch: pytest.MonkeyPatch, *events: str) -> list[str]:
    """A torch whose profiler sees these events. What was asked of the device comes back."""
    asked: list[str] = []
    profile = SimpleNamespace(events=lambda: [SimpleNamespace(name=name) for name in events])
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: nullcontext(profile))
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", asked.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: asked.append("synchronize"))
    return asked


def test_a_counter_adds_up_what_the_profiler_saw_and_who_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = quiet_device(monkeypatch, "Memcpy HtoD (Pageable)", "Memcpy HtoD", "Memcpy DtoH (Pinned)", "aten::add")
    counter = cuda_cost._Counter()

    def waits(warn: Callable[[str], None]) -> Callable[..., Any]:
        waits = "warn('called a synchronizing CUDA operation')"
        source = f"lambda a, *, b: [{waits}, warn('something else'), {waits}, a + b][-1]"
        return engine_function(source, warn=warn)

    assert counter(waits(warnings.warn), (1,), {"b": 2}) == 3
    assert (counter.to_device, counter.to_host, counter.sync_lines) == (2, 1, [HERE, HERE])
    assert asked == ["warn", "default", "synchronize"]
    with pytest.raises(ZeroDivisionError):
        counter(engine_function("lambda: 1 / 0"), (), {})
    assert asked[3:] == ["warn", "default"]


FORWARD = protocol.BuildForward(Batch("target_verify", (BatchPart((0, 1), {}),)), path="caller")


def test_a_forward_is_built_thrice_and_counted_in_the_engine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = quiet_device(monkeypatch, "Memcpy HtoD")
    built: list[Any] = []
    state: Any = SimpleNamespace(meter=Meter())

    def build(_: Any, forward: Any) -> Callable[[], Any]:
        built.append(forward)
        kernels.ran.append("while it is prepared")

        def call() -> None:
            kernels.ran.append("a kernel")
            state.meter.call(engine_function("lambda: torch.zeros(1)", torch=torch))

        return call

    monkeypatch.setattr(cuda_cost, "build", build)
    for watched in ("_Functions", "_Operations"):
        monkeypatch.setattr(cuda_cost, watched, lambda finder: nullcontext())
    counted = cuda_cost.measured(state, FORWARD)
    assert built == [FORWARD] * 3 and state.meter.probe is None and asked.count("synchronize") == 6
    assert counted == protocol.Counted(1, (), method="cuda", ran=("while it is prepared", "a kernel"))
    kernels.ran.clear()


def test_what_is_built_for_a_count_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the caller, or by hand; a delta that is kept is forgotten before."""
    media = SimpleNamespace(mrope_position_delta_repeated_cache=5)
    older = SimpleNamespace()
    reqs = [SimpleNamespace(multimodal_inputs=media), SimpleNamespace(multimodal_inputs=older)]
    state: Any = SimpleNamespace(req=reqs.__getitem__)
    monkeypatch.setattr(speculation, "prepared_batch", lambda *_: "prepared")
    monkeypatch.setattr(batches, "schedule_batch", lambda *_: SimpleNamespace())
    monkeypatch.setattr(batches, "runner_for", lambda _, mode: f"runner for {mode}")
    monkeypatch.setattr(batches, "init_new", lambda _, batch, runner: (batch.spec_info, runner))
    monkeypatch.setattr(batches, "token_count", lambda _: 4)
    monkeypatch.setattr(forwards, "spec_info", lambda _, forward, batch: forward.positions)
    monkeypatch.setitem(forwards.CALLERS, "target_verify", lambda _, forward, batch: (forward, batch))
    assert cuda_cost.build(state, FORWARD)() == (FORWARD, "prepared")
    assert media.mrope_position_delta_repeated_cache is None and vars(older) == {}
    direct = protocol.BuildForward(FORWARD.batch)
    assert cuda_cost.build(state, direct)() == ((0,) * 4, "runner for target_verify")
    decode = protocol.BuildForward(Batch("decode", (BatchPart((0,), {}),)), path="caller")
    assert cuda_cost.build(state, decode)() == ((), "runner for decode")


# ---------------------------------------------------------------- planted faults


class Engine:
    """As much of an engine as faults wrap: a batch constructor that gives what it is given."""

    def __init__(self) -> None:
        self.ForwardBatch: Any = type("ForwardBatch", (), {"init_new": staticmethod(lambda batch, *_, **__: batch)})
        self.DecodeCudaGraphRunner: Any = type("Runner", (), {"_capture_graph_size": lambda self, *, rows: rows})

    def mode(self, member: str) -> str:
        return member


def batch(mode: str, rows: Any = None, lengths: int = 2) -> Any:
    return SimpleNamespace(
        forward_mode=mode, mrope_positions=rows, positions=torch.zeros(4), seq_lens=torch.ones(lengths)
    )


def rows() -> Any:
    return torch.tensor([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("name", "mode", "after"),
    [
        ("wrong_row", "EXTEND", [[1, 2], [3, 4], [3, 4]]),
        ("one_column_short", "TARGET_VERIFY", [[1], [3], [5]]),
        ("hidden_copy", "TARGET_VERIFY", [[1, 2], [3, 4], [5, 6]]),
        ("hidden_wait", "DECODE", [[1, 2], [3, 4], [5, 6]]),
    ],
)
def test_a_fault_of_a_mode_changes_that_mode_alone(
    name: str, mode: str, after: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faults.VARIABLE, name)
    engine: Any = Engine()
    (told,) = faults.install(engine)
    assert told.startswith(f"PLANTED FAULT {name}: ")
    build = engine.ForwardBatch.init_new
    lists: list[Any] = []
    read: list[Any] = []
    table, held = rows(), rows()

    def listed(given: Any, **_: Any) -> Any:
        lists.append(given)
        return torch.zeros(1, dtype=torch.int64)

    monkeypatch.setattr(torch, "tensor", listed)
    monkeypatch.setattr(torch.Tensor, "item", lambda self: read.append(self))
    assert build(batch(mode, table), "runner", extra=1).mrope_positions.tolist() == after
    assert (lists, len(read)) == ([[0]] if name == "hidden_copy" else [], name == "hidden_wait")
    assert build(batch(mode)).mrope_positions is None
    assert build(batch("IDLE", held)).mrope_positions is held
    assert held.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_fault_of_the_stride_fills_a_buffer_that_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(*args: Any, mrope: Any = None, **kwargs: Any) -> Any:
        """Writes packed rows, whatever the stride."""
        if mrope is not None:
            flat = torch.as_strided(mrope, (mrope.numel(),), (1,))
            flat[:] = torch.arange(mrope.numel())
        return args, kwargs

    common = SimpleNamespace(assign_draft_cache_locs_contiguous_func=kernel)
    modules(monkeypatch, faults, eagle_worker_common=common)
    faults.wrong_stride(Engine())  # type: ignore[arg-type]
    call = common.assign_draft_cache_locs_contiguous_func
    assert call(1, two=2) == ((1,), {"two": 2})
    table = torch.zeros((3, 2), dtype=torch.int64)
    assert call(1, mrope=table, two=2) == ((1,), {"two": 2})
    assert table.tolist() == [[0, 1], [5, 0], [0, 0]]


def test_faults_of_a_fused_draft_extend(monkeypatch: pytest.MonkeyPatch) -> None:
    def layout(seq_lens: Any, rows: Any = None) -> Any:
        return seq_lens.tolist(), "lengths", ("info", rows)

    common = SimpleNamespace(prepare_draft_extend_layout=layout)
    modules(monkeypatch, faults, eagle_worker_common=common)
    faults.transposed_layout(Engine())  # type: ignore[arg-type]
    lengths = torch.tensor([9, 8, 7, 6])[::2]
    assert common.prepare_draft_extend_layout(lengths) == ([9, 7], "lengths", ("info", None))
    _, _, (_, turned) = common.prepare_draft_extend_layout(lengths, rows())
    assert turned.tolist() == [[1, 3], [5, 2], [4, 6]]
    common.prepare_draft_extend_layout = layout
    faults.ignored_stride(Engine())  # type: ignore[arg-type]
    assert common.prepare_draft_extend_layout(lengths, rows=3) == ([9, 8], "lengths", ("info", 3))


def test_faults_of_a_graphs_size_and_of_the_decode_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = Engine()
    faults.other_graph(engine)
    assert engine.DecodeCudaGraphRunner()._capture_graph_size(rows=4) == 5
    module = SimpleNamespace(clamp_position=lambda lengths: lengths - 1)
    modules(monkeypatch, faults, test_gpu_parts=module)
    faults.no_clamp(engine)
    assert module.clamp_position(9) == 9


def test_a_fault_that_writes_far_away_strikes_few(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(faults_kernel, "write_far", written.append)
    engine: Any = Engine()
    faults.out_of_bounds(engine)
    built = [engine.ForwardBatch.init_new(batch("DRAFT_EXTEND_V2", rows(), lengths)) for lengths in (3, 4)]
    assert len(written) == 1 and written[0] is built[1].positions


def test_the_far_write_is_one_of_a_terabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = []
    program = getattr(faults_kernel._write_far, "fn", None)
    assert program is not None
    monkeypatch.setattr(faults_kernel, "tl", SimpleNamespace(store=lambda place, value: stored.append((place, value))))
    launched: list[Any] = []
    kernel = SimpleNamespace(__getitem__=None)
    monkeypatch.setattr(faults_kernel, "_write_far", {(1,): lambda *given: launched.append(given)})
    faults_kernel.write_far(kernel)
    ((tensor, offset),) = launched
    assert tensor is kernel and offset * 8 >= 1 << 40
    program(5, 7)
    assert stored == [(12, 1)]


def test_no_fault_is_planted_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    engine: Any = Engine()
    before = vars(engine.ForwardBatch)["init_new"]
    assert faults.install(engine) == () and vars(engine.ForwardBatch)["init_new"] is before
    monkeypatch.setenv(faults.VARIABLE, "no such fault")
    with pytest.raises(KeyError):
        faults.install(engine)
