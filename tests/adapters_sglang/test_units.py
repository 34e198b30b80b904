"""Small pieces of the adapter, alone: what stands in for a model, how a kernel is watched, a job's sizes, a file's
functions. No engine is started."""

from __future__ import annotations

import contextlib
import itertools
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import family_configs, protocol
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.sglang import coverage as lines
from ropecheck.adapters.sglang import forwards, jobs, kernels, more_modes, outside, stand_ins, trace
from ropecheck.adapters.sglang import state as state_module
from ropecheck.adapters.sglang.capabilities import Absent, LostCapability
from ropecheck.adapters.sglang.compare import Comparator
from ropecheck.adapters.sglang.coverage import Coverage
from ropecheck.adapters.sglang.scheduler import hosts
from ropecheck.adapters.sglang.state import JobState, NeverMade, settled, widest
from ropecheck.adapters.sglang.wire import pack
from ropecheck.adapters.sglang_families import handler as families
from ropecheck.adapters.sglang_routes import routes


def test_a_stand_in_has_nothing_that_it_was_not_given() -> None:
    runner = stand_ins.runner("cpu", None)
    assert runner.model_config.model_is_mrope and runner.server_args.attention_backend == "torch_native"
    with pytest.raises(AttributeError):
        _ = runner.weights
    assert stand_ins.is_stand_in(runner) and not stand_ins.is_stand_in(object())


def test_a_runner_is_one_gpu_without_extras() -> None:
    """What batch constructors read of it, by each release's name."""
    for device, backend in (("cpu", "torch_native"), ("cuda", "triton")):
        runner = stand_ins.runner(device, "eagle", mrope=False, draft=True)
        assert runner.prefill_attention_backend_str == runner.server_args.attention_backend == backend
        assert (runner.device, runner.is_draft_worker, runner.spec_algorithm) == (device, True, "eagle")
        assert runner.model_is_mrope is runner.model_config.model_is_mrope is False
        assert runner.dcp_size == runner.attn_dcp_size == runner.ps.attn_dcp_size == 1
        assert runner.model_config.vocab_size == stand_ins.VOCABULARY
    backend = runner.attn_backend
    assert backend.get_cuda_graph_seq_len_fill_value() == backend.get_cpu_graph_seq_len_fill_value() == 1
    assert backend.get_verify_buffers_to_fill_after_draft() == (None, None)
    assert (backend.verify_mask, backend.max_context_len) == (None, 0)
    translator = runner.kv_index_translator
    plan = translator.own_plan(None)
    assert plan is translator.own_plan(None) and stand_ins.is_stand_in(plan)
    done = (plan.bind(1, 2, cols=3), plan.bind_replay(1, 2, slots=3), translator.rebind_write_loc(1))
    assert done == (None, None, None)


def test_a_wrong_call_of_ours_is_told_from_the_engines() -> None:
    def wrong(call: object) -> BaseException:
        with pytest.raises(TypeError) as raised:
            call()  # type: ignore[operator]
        return raised.value

    translator = stand_ins.Translator()
    assert stand_ins.is_wrong_call(wrong(lambda: translator.own_plan()))  # type: ignore[call-arg]
    assert not stand_ins.is_wrong_call(wrong(lambda: len(5)))  # type: ignore[arg-type]


def test_a_watched_kernel_is_noted_and_skipped_where_it_makes_no_positions() -> None:
    kernels.ran.clear()
    plain = kernels.watched(lambda **given: given, skip_plain=True)
    assert plain(slots=1) is None and kernels.ran == []
    assert plain(positions=2) == {"positions": 2}
    assert [name.endswith("<lambda> (positions)") for name in kernels.ran] == [True]
    kernels.ran.clear()
    assert kernels.OnGpu([1]).is_cuda and not torch.tensor([1]).is_cuda
    start, end = torch.tensor([1, 4]), torch.tensor([3, 5])
    assert kernels.no_slots(start_offset=start, end_offset=end, pool=None).tolist() == [0, 0, 0]


def forward(batch: int = 0, tokens: int = 0) -> protocol.BuildForward:
    padding = protocol.Padding("graph", batch, tokens) if batch else None
    return protocol.BuildForward(batch=Batch("decode", (BatchPart(reqs=(0,), fields={}),)), padding=padding)


def job(*steps: protocol.Step) -> protocol.Job:
    return protocol.Job(id="s", steps=steps)


def test_buffers_are_as_wide_as_the_jobs_widest_load() -> None:
    assert widest(job()) == (1, 1)
    assert widest(job(forward(4, 9), protocol.Cost(forward(2, 30)), forward())) == (4, 30)


def test_a_jobs_state_begins_with_nothing() -> None:
    state = JobState(None, job(forward(4, 9)))  # type: ignore[arg-type]
    assert (state.items, state.compare_ns, state.meter.ns, state.meter.forwards) == (0, 0, 0, 0)
    assert state.meter.probe is state.registry is None and state.widest == (4, 9)
    assert (state.device, state.traced) == ("cpu", False)
    for held in (state.reqs, state.sessions, state.considered, state.running, state.absent, state.graph_runners):
        assert not held


def compared(label: str, expect: tuple[protocol.TablePair, ...]) -> protocol.BuildForward:
    return protocol.BuildForward(batch=Batch("decode", (BatchPart(),)), expect=expect)


def test_tables_are_settled_in_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right ones, wrong ones, those that differ in shape, and those that nobody expects."""
    right = protocol.TablePair("", pack(torch.tensor([1, 2])), pack(torch.tensor([[1, 2]] * 3)))
    monkeypatch.setattr(state_module, "perf_counter_ns", iter(range(100, 900, 7)).__next__)
    state = JobState(None, job())  # type: ignore[arg-type]
    asked = compared("", (right,))

    def table(label: str, *index: int) -> protocol.TablePair:
        rows = torch.tensor([list(index)] * 3)
        return state.table(label, asked, SimpleNamespace(positions=torch.tensor(index), mrope_positions=rows))

    made = table("", 1, 2), table("", 7, 8), table("", 1), table("other", 1, 2)
    assert made[0] == made[1] == protocol.TablePair("", None, None)
    assert made[2].positions == pack(torch.tensor([1])) and made[3].positions == pack(torch.tensor([1, 2]))
    results: list[protocol.Result] = [protocol.Done(), protocol.TablesAnswer(made, ("reqs",))]
    state.settle(results)
    answer = results[1]
    assert isinstance(answer, protocol.TablesAnswer) and answer.changed == ("reqs",) and results[0] == protocol.Done()
    assert answer.tables[0] == protocol.TablePair("", None, None, True)
    assert answer.tables[1].positions == pack(torch.tensor([7, 8])) and answer.tables[2:] == made[2:]
    assert state.compare_ns == 7 * 4, "three are compared, and once all are settled"
    held = results[:]
    state.settle(results)
    assert results == held


def test_where_the_device_is_lost_every_table_that_waits_is(monkeypatch: pytest.MonkeyPatch) -> None:
    right = protocol.TablePair("", pack(torch.tensor([1])), None)
    state = JobState(None, job())  # type: ignore[arg-type]
    empty = state.table("", compared("", (right,)), SimpleNamespace(positions=torch.tensor([1]), mrope_positions=None))
    plain = protocol.TablesAnswer((right,))
    results: list[protocol.Result] = [plain, protocol.TablesAnswer((empty,)), protocol.Done()]
    monkeypatch.setattr(Comparator, "settle", lambda self: 1 / 0)
    state.settle(results)
    assert results[0] is plain and isinstance(results[1], protocol.Raised) and results[2] == protocol.Done()
    assert results[1].type == "ZeroDivisionError"


def test_a_comparator_takes_whole_numbers_of_the_same_shape() -> None:
    one = pack(torch.tensor([1]))
    narrow = pack(torch.tensor([1], dtype=torch.int32))
    comparator = Comparator()
    assert comparator.add(protocol.TablePair("", one, None), torch.tensor([1]), None)
    assert not comparator.add(protocol.TablePair("", None, None), torch.tensor([1]), None)
    assert not comparator.add(protocol.TablePair("", narrow, None), torch.tensor([1], dtype=torch.int32), None)
    assert comparator.add(protocol.TablePair("", one, None), torch.tensor([2]), None)
    good, bad = comparator.settle()
    assert good is None and bad is not None and bad[0].tolist() == [2] and bad[1] is None
    empty = protocol.TablePair("", pack(torch.zeros(0, dtype=torch.int64)), None)
    assert comparator.add(empty, torch.zeros(0, dtype=torch.int64), None) and comparator.settle() == [None]


def test_a_request_that_was_never_made_is_our_fault_and_one_that_cannot_be_is_the_releases() -> None:
    state = JobState(None, job())  # type: ignore[arg-type]
    state.absent[1] = "no sessions"
    with pytest.raises(NeverMade, match="request 0"):
        state.req(0)
    with pytest.raises(Absent, match="no sessions"):
        state.req(1)


def test_tables_are_kept_as_they_were_when_they_were_compared() -> None:
    right = protocol.TablePair("", pack(torch.tensor([1, 2])), pack(torch.tensor([[1, 2]] * 3)))
    index, rows = torch.tensor([1, 2]), torch.tensor([[1, 2]] * 3)
    comparator = Comparator()
    assert comparator.add(right, index, rows)
    assert comparator.add(right, index, rows + 1)
    assert not comparator.add(right, index.int(), rows) and not comparator.add(right, index, None)
    index += 7  # an engine writes into its buffer again
    good, bad = comparator.settle()
    assert good is None and bad is not None
    assert bad[0].tolist() == [1, 2] and bad[1].tolist() == [[2, 3]] * 3
    assert settled(protocol.TablePair("again", None, None), good) == protocol.TablePair("again", None, None, True)
    assert comparator.settle() == []


def test_a_file_drives_the_modes_that_it_declares_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    mode = "class M:\n    def __init__(self, name, stated): self.name, self.stated = name, stated\n"
    file.write_text(f"{mode}mine, theirs = M('mine', __name__ + ':tokens'), M('theirs', 'spec.modes:tokens')\n")
    assert outside.functions(str(file)) == {}
    file.write_text(file.read_text() + "def sglang(state, forward): return 'tables'\n")
    found = outside.functions(str(file))
    assert list(found) == ["mine"] and found["mine"](None, None) == "tables"


def test_files_of_modes_and_the_adapters_own_drive_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "ROUTES", {})
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            "class M: pass\n"
            f"mine = M()\nmine.name, mine.stated = '{name}', __name__ + ':tokens'\n"
            "def sglang(state, forward): pass\n"
        )
    monkeypatch.setenv(outside.VARIABLE, os.pathsep.join(["", str(tmp_path / "one.py"), str(tmp_path / "two.py")]))
    outside.install()
    assert list(forwards.ROUTES) == ["one", "two"]
    more_modes.install()
    assert [forwards.ROUTES[name] for name in ("frozen_kv_draft", "widened_draft_extend", "beam_decode")] == [
        more_modes.frozen_kv_draft,
        more_modes.widened_draft_extend,
        more_modes.beam_decode,
    ]
    monkeypatch.setenv(outside.VARIABLE, str(tmp_path / "three.py"))
    with pytest.raises(OSError, match=r"three\.py"):
        outside.install()


def test_jobs_are_looked_on_while_they_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "WATCHED_JOBS", 2)
    monkeypatch.setattr(jobs, "_JOBS", itertools.count())
    table = job(forward(), protocol.PromptTable("qwen2_vl", ((1,),), ((0,),)))
    assert [jobs.watching(one) for one in (job(), table, job(), job(forward()), table)] == [
        True,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(("value", "waits"), [("1", True), ("0", False), (None, False)])
def test_kernels_run_one_by_one_where_the_driver_is_told(
    value: str | None, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    if value is not None:
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)
    jobs.one_by_one.cache_clear()
    assert jobs.one_by_one() == waits
    jobs.one_by_one.cache_clear()


def test_fields_of_a_configuration_are_nested_by_their_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("transformers.models.qwen2_vl.configuration_qwen2_vl")
    vars(module)["Qwen2VLConfig"] = dict
    package = ModuleType("transformers")
    package.__version__ = "5"  # type: ignore[attr-defined]
    for made_up in (package, module):
        monkeypatch.setitem(sys.modules, made_up.__name__, made_up)
    family_configs._build.cache_clear()
    made = family_configs.build("qwen2_vl", {"image_token_id": 5, "vision_config.spatial_merge_size": 2})
    assert made == {"image_token_id": 5, "vision_config": {"spatial_merge_size": 2}}
    del vars(module)["Qwen2VLConfig"]
    family_configs._build.cache_clear()
    with pytest.raises(family_configs.NoConfiguration, match="transformers 5 has no Qwen2VLConfig"):
        family_configs.build("qwen2_vl", {})
    family_configs._build.cache_clear()


def test_lines_are_told_of_files_that_speak_of_positions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--cover`, on an engine of two files."""
    (tmp_path / "srt").mkdir()
    body = "def run(flag):\n    if flag:\n        return 1\n    return 2\n"
    (tmp_path / "srt" / "rows.py").write_text(f"# mrope\n{body}")
    (tmp_path / "plain.py").write_text(body)
    (tmp_path / "other.py").write_bytes(b"# \xff\n")
    engine = ModuleType("sglang")
    engine.__file__ = str(tmp_path / "__init__.py")
    monkeypatch.setitem(sys.modules, "sglang", engine)
    rows, plain = (runpy.run_path(str(tmp_path / name)) for name in ("srt/rows.py", "plain.py"))
    tracer, coverage = sys.gettrace(), Coverage()
    try:
        coverage.start()
        rows["run"](True)
        plain["run"](True)
        first = coverage.stop()
        assert sys.gettrace() is None
        coverage.start()
        rows["run"](False)
        second = coverage.stop()
    finally:
        sys.settrace(tracer)
    assert (first, second) == ({"srt/rows.py": (3, 4)}, {"srt/rows.py": (3, 5)})
    for asked in ("", "1"):
        monkeypatch.setenv(lines.VARIABLE, asked)
        assert lines.wanted() == bool(asked)


# ---------------------------------------------------------------- a job from nothing to its answer


class Handled:
    """Steps that do what they are told, and what was asked around them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: list[Any] = []
        self.looked: list[str] = []
        monkeypatch.setattr(jobs, "watch", lambda: Looking(self.looked))
        monkeypatch.setattr(jobs, "watching", lambda job: True)
        monkeypatch.setattr(jobs, "one_by_one", lambda: False)
        monkeypatch.setitem(jobs.HANDLERS, protocol.Generate, self.handle)
        monkeypatch.setitem(jobs.HANDLERS, protocol.BuildForward, lambda state, _: self.looked.append("reads"))

    def handle(self, state: Any, step: protocol.Generate) -> protocol.Result | None:
        """By the step's request."""
        self.states.append(state)
        self.looked.append("makes")
        if step.req == 1:
            raise Absent("none here")
        if step.req == 2:
            raise LostCapability("it was there")
        if step.req == 3:
            raise ZeroDivisionError("ours")
        state.meter.forwards += 1
        state.meter.ns += 5
        return protocol.States(()) if step.req == 4 else None


class Looking:
    def __init__(self, looked: list[str]) -> None:
        self._looked = looked

    def __enter__(self) -> None:
        self._looked.append("look")

    def __exit__(self, *_: object) -> None:
        self._looked.append("away")

    def fresh(self) -> tuple[str, ...]:
        return ("a route",)


def steps(*reqs: int) -> tuple[protocol.Step, ...]:
    return tuple(protocol.Generate(req, ()) for req in reqs)


def test_every_step_has_its_result_and_no_step_ends_another(monkeypatch: pytest.MonkeyPatch) -> None:
    handled = Handled(monkeypatch)
    engine: Any = "the engine"
    found = jobs.answer(engine, job(*steps(0, 1, 2, 3, 4)))
    done, absent, lost, raised, states = found.results
    assert (done, states) == (protocol.Done(), protocol.States(()))
    assert absent == protocol.NotOfferedAnswer("none here")
    assert lost == protocol.Raised("engine", "Lost", "it was there", "")
    assert isinstance(raised, protocol.Raised) and (raised.stage, raised.message) == ("adapter", "ours")
    assert (found.id, found.forwards, found.engine_ns, found.routes) == ("s", 2, 10, ("a route",))
    assert found.traced == () and found.compare_ns == 0 and handled.states[0].engine == "the engine"
    handled.looked.clear()
    jobs.answer(engine, job(*steps(0), forward(), *steps(0)))
    assert handled.looked == ["look", "makes", "away", "reads", "look", "makes", "away"]


def test_a_job_for_another_device_is_refused() -> None:
    elsewhere = protocol.Job("s", steps(0, 0), device="cuda")
    found = jobs.answer(None, elsewhere, "cpu")  # type: ignore[arg-type]
    refused = protocol.NotOfferedAnswer("this worker was started for cpu, the job wants cuda")
    assert found == protocol.JobAnswer("s", (refused, refused), 0, 0)


def test_a_kernel_that_fails_fails_in_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    Handled(monkeypatch)
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("waits"))
    engine: Any = None
    assert jobs.answer(engine, protocol.Job("s", steps(0, 0), device="cuda"), "cuda").results == (protocol.Done(),) * 2
    assert jobs.answer(engine, protocol.Job("s", (), device="cuda"), "cuda").results == ()
    assert jobs.answer(engine, job(*steps(0)), "cuda").results == (protocol.Done(),) and waited == ["waits"]
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: 1 / 0)
    first, last = jobs.answer(engine, protocol.Job("s", steps(0, 0), device="cuda"), "cuda").results
    assert first == protocol.Done() and isinstance(last, protocol.Raised) and last.type == "ZeroDivisionError"


def test_tables_are_settled_at_each_step_where_kernels_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Handled(monkeypatch)
    settled_at: list[int] = []
    monkeypatch.setattr(JobState, "settle", lambda self, results: settled_at.append(len(results)))
    engine: Any = None
    jobs.answer(engine, job(*steps(0, 0)))
    monkeypatch.setattr(jobs, "one_by_one", lambda: True)
    jobs.answer(engine, job(*steps(0, 0)))
    assert settled_at == [2, 1, 2, 2]


def test_a_traced_job_tells_what_ran_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    Handled(monkeypatch)

    @contextlib.contextmanager
    def traced() -> Any:
        yield ["sglang/srt/a.py:1 f"]

    monkeypatch.setattr(trace, "functions", traced)
    played = protocol.Played(b"", ran=("sglang/srt/b.py:2 g",))
    monkeypatch.setattr(hosts, "play", lambda step, traced: played if traced else None)
    found = jobs.answer(None, protocol.Job("s", (*steps(0), protocol.PlayStep(b"script")), trace=True))  # type: ignore[arg-type]
    assert found.traced == (("sglang/srt/a.py:1 f",), ("sglang/srt/a.py:1 f", "sglang/srt/b.py:2 g"))
    assert found.results == (protocol.Done(), played)


def test_a_prompt_table_is_its_builders(monkeypatch: pytest.MonkeyPatch) -> None:
    state = JobState(None, job())  # type: ignore[arg-type]
    monkeypatch.setattr(routes, "drive", lambda step, call: ("a route", call))
    monkeypatch.setattr(families, "prompt_table", lambda step, call: ("a builder", call))
    plain = protocol.PromptTable("qwen2_vl", ((1,),), ((0,),))
    for builder, way in (("rope_index", "a builder"), (f"{routes.PREFIX}chat", "a route")):
        found: Any = jobs.prompt_table(state, msgspec.structs.replace(plain, builder=builder))
        assert found == (way, state.meter.call)
