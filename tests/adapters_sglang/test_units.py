"""Small pieces of the adapter, alone: what stands in for a model, how a kernel is watched, a job's sizes, a file's
functions. No engine is started."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import family_configs, protocol
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.sglang import kernels, outside, stand_ins
from ropecheck.adapters.sglang.capabilities import Absent
from ropecheck.adapters.sglang.compare import Comparator
from ropecheck.adapters.sglang.coverage import Coverage
from ropecheck.adapters.sglang.state import JobState, NeverMade, settled, widest
from ropecheck.adapters.sglang.wire import pack


def test_a_stand_in_has_nothing_that_it_was_not_given() -> None:
    runner = stand_ins.runner("cpu", None)
    assert runner.model_config.model_is_mrope and runner.server_args.attention_backend == "torch_native"
    with pytest.raises(AttributeError):
        _ = runner.weights
    assert stand_ins.is_stand_in(runner) and not stand_ins.is_stand_in(object())


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
        coverage.start()
        rows["run"](False)
        second = coverage.stop()
    finally:
        sys.settrace(tracer)
    assert (first, second) == ({"srt/rows.py": (3, 4)}, {"srt/rows.py": (3, 5)})
