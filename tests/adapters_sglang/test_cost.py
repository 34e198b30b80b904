"""Counting without a device: what each operation counts as, and the step around it over small fakes."""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import protocol as p
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.sglang import batches, cost, cuda_cost, forwards

pytestmark = pytest.mark.engine

HOST, DEVICE, NUMBER = torch.zeros(2), torch.zeros(2, device="meta"), torch.tensor(5)


class Operation:
    """An operation of torch's by its name, and what it gives."""

    def __init__(self, name: str, gives: Any) -> None:
        self._schema, self._gives = SimpleNamespace(name=f"aten::{name}"), gives

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._gives


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "gives", "count"),
    [
        ("_to_copy", (HOST,), None, DEVICE, 1),
        ("_to_copy", (NUMBER,), None, DEVICE, 1),
        ("_to_copy", (DEVICE,), None, HOST, 0),
        ("copy_", (DEVICE, NUMBER), {}, DEVICE, 1),
        ("add", (DEVICE, NUMBER), {}, DEVICE, 0),
        ("add", (DEVICE, DEVICE), {}, DEVICE, 0),
        ("index", (DEVICE, [HOST]), {}, DEVICE, 1),
        ("cat", (), {"tensors": [DEVICE, HOST]}, (5, DEVICE), 1),
        ("add", (HOST, HOST), {}, HOST, 0),
    ],
)
def test_a_host_tensor_that_becomes_a_devices_is_a_copy(
    name: str, args: Any, kwargs: Any, gives: Any, count: int
) -> None:
    """A number without dimensions travels as an argument, unless it is what is copied."""
    lines: list[str] = []
    seen = cost._Operations(lines)
    dispatch = inspect.unwrap(type(seen).__torch_dispatch__)  # torch's wrapper would import its compiler
    assert dispatch(seen, Operation(name, gives), (), args, kwargs) is gives
    assert len(lines) == count


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "count"),
    [
        (torch.tensor, ([1],), {"device": "meta"}, 1),
        (torch.as_tensor, (), {"data": [1], "device": "meta:0"}, 1),
        (torch.as_tensor, (HOST,), {"device": "meta"}, 0),
        (torch.tensor, ([1],), {"device": "cpu"}, 0),
        (torch.tensor, ([1],), None, 0),
        (torch.zeros, (1,), {"device": "meta"}, 0),
    ],
)
def test_a_list_that_goes_to_the_device_is_a_copy(function: Any, args: Any, kwargs: Any, count: int) -> None:
    lines: list[str] = []
    seen = cost._Functions(lines)
    made = seen.__torch_function__(function, (), args, kwargs)
    assert isinstance(made, torch.Tensor) and len(lines) == count


def test_the_kernel_of_positions_has_no_values() -> None:
    positions, starts = cost.meta_positions("", None, torch.zeros(3), 7)
    assert positions.is_meta and starts.is_meta and (positions.shape, starts.shape) == ((7,), (3,))
    assert (positions.dtype, starts.dtype) == (torch.int64, torch.int32)


# ---------------------------------------------------------------- the step

STEP = p.Cost(p.BuildForward(Batch("decode", (BatchPart((0,), {"seq_len": (5,)}),))))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The engine's module of the batch constructor."""
    made: Any = ModuleType("cost_engine")
    made.compute_position = "the engine's"
    monkeypatch.setitem(sys.modules, "cost_engine", made)
    for name in ("_Functions", "_Operations"):
        monkeypatch.setattr(cost, name, lambda lines: nullcontext(lines.append("a line")))
    monkeypatch.setattr(batches, "member_of", lambda state, mode: "DECODE")
    monkeypatch.setattr(batches, "schedule_batch", lambda state, forward, device: SimpleNamespace(device=device))
    monkeypatch.setattr(batches, "runner_for", lambda state, mode, device: f"{mode} on {device}")
    monkeypatch.setattr(forwards, "spec_info", lambda state, forward, batch: "speculation")
    return made


def state(device: str = "cpu") -> Any:
    constructor = type("ForwardBatch", (), {"__module__": "cost_engine"})
    return SimpleNamespace(device=device, engine=SimpleNamespace(ForwardBatch=constructor))


def test_a_batch_is_built_on_the_meta_device_without_the_kernel(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def init_new(state: Any, batch: Any, runner: Any) -> None:
        seen.append((batch.device, batch.spec_info, runner, module.compute_position))

    monkeypatch.setattr(batches, "init_new", init_new)
    assert cost.cost(state(), STEP) == p.Counted(2, ("a line", "a line"))
    assert seen == [("meta", "speculation", "decode on meta", cost.meta_positions)]
    assert module.compute_position == "the engine's"


def test_a_value_that_is_read_ends_the_count(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(*_: Any) -> None:
        torch.zeros(1, device="meta").item()

    monkeypatch.setattr(batches, "init_new", reads)
    assert cost.cost(state(), STEP) == p.Counted(2, ("a line",) * 2, to_host=1, to_host_lines=("",))
    assert module.compute_position == "the engine's"

    def fails(*_: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(batches, "init_new", fails)
    with pytest.raises(RuntimeError, match="something else"):
        cost.cost(state(), STEP)
    assert module.compute_position == "the engine's"


def test_on_a_gpu_it_is_counted_there(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_cost, "measured", lambda state, forward: (state.device, forward))
    found: Any = cost.cost(state("cuda"), STEP)
    assert found == ("cuda", STEP.forward)
