"""Count, on a GPU, what building one forward copies between host and device and how often it waits for the device.

| spec field | adapter field | engine field |
| --- | --- | --- |
| copies | Counted.copies, .to_host | copies that the profiler saw inside the engine's functions |
| synchronisations | Counted.syncs | warnings of `torch.cuda.set_sync_debug_mode` there |
| - | Counted.lines, .sync_lines | the engine line of each |

The forward is built three times from fresh batches: to compile its kernels, to count, and to name the lines of the
copies, which the profiler does not know. A cached repeated delta is dropped before each, so that every build is a
first one. Only engine functions are measured (`Meter.call`); what the adapter itself prepares is not.

Nothing is faked here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ropecheck.adapters.protocol import BuildForward, Counted
from ropecheck.adapters.sglang import batches, forwards, kernels, speculation
from ropecheck.adapters.sglang.meter import engine_line, passed_on
from ropecheck.adapters.sglang.state import JobState

Call = Callable[[], Any]


def measured(state: JobState, forward: BuildForward) -> Counted:
    """The counts of one forward. Raises what the engine raises, and Absent."""
    build(state, forward)()
    torch.cuda.synchronize()
    kernels.ran.clear()
    counter, finder = _Counter(), _Finder()
    for probe in (counter, finder):
        call = build(state, forward)
        torch.cuda.synchronize()
        state.meter.probe = probe
        try:
            call()
        finally:
            state.meter.probe = None
            torch.cuda.synchronize()
    return Counted(
        copies=counter.to_device,
        lines=tuple(finder.to_device),
        to_host=counter.to_host,
        to_host_lines=tuple(finder.to_host),
        syncs=len(counter.sync_lines),
        sync_lines=tuple(counter.sync_lines),
        method="cuda",
        ran=tuple(dict.fromkeys(kernels.ran)),
    )


def build(state: JobState, forward: BuildForward) -> Call:
    """A fresh batch, ready to be given to the engine's constructor or preparing function."""
    for number in forward.reqs:
        inputs = state.req(number).multimodal_inputs
        if getattr(inputs, "mrope_position_delta_repeated_cache", None) is not None:
            inputs.mrope_position_delta_repeated_cache = None
    if forward.path != "direct" and forward.mode in forwards.CALLERS:
        batch = speculation.prepared_batch(state, forward)
        return lambda: forwards.CALLERS[forward.mode](state, forward, batch)
    batch = batches.schedule_batch(state, forward)
    batch.spec_info = forwards.spec_info(state, forwards.with_positions(forward), batch)
    return lambda: batches.init_new(state, batch, batches.runner_for(state, forward.mode))


class _Counter:
    """Runs engine functions under the profiler, with every synchronisation reported."""

    def __init__(self) -> None:
        self.to_device = 0
        self.to_host = 0
        self.sync_lines: list[str] = []

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile, warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self.note
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = function(*args, **kwargs)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
        for event in profile.events():
            self.to_device += event.name.startswith("Memcpy HtoD")
            self.to_host += event.name.startswith("Memcpy DtoH")
        return result

    def note(self, message: Any, *_: Any, **__: Any) -> None:
        """Python's hook for warnings: which engine line waits."""
        if "called a synchronizing" in str(message):
            self.sync_lines.append(engine_line())


class _Finder:
    """Runs engine functions and names the lines that copy between host and device."""

    def __init__(self) -> None:
        self.to_device: list[str] = []
        self.to_host: list[str] = []

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with _Functions(self), _Operations(self):
            return function(*args, **kwargs)


class _Operations(TorchDispatchMode):  # type: ignore[misc]
    """Notes operations between host and device tensors that copy."""

    def __init__(self, finder: _Finder) -> None:
        super().__init__()
        self.finder = finder

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = passed_on(function, args, kwargs)
        name = function._schema.name.rpartition("::")[2]
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if name == "_local_scalar_dense" and inputs[0].is_cuda:
            self.finder.to_host.append(engine_line())
        elif name in ("_to_copy", "copy_", "index", "index_put_", "index_select"):
            source = inputs[-1]  # copy_ reads its second argument and writes its first
            if not source.is_cuda and any(x.is_cuda for x in outputs):
                self.finder.to_device.append(engine_line())
            elif source.is_cuda and any(not x.is_cuda for x in outputs):
                self.finder.to_host.append(engine_line())
        return result


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Notes `torch.tensor` and `torch.as_tensor` of host data onto the device, which the dispatcher does not show."""

    def __init__(self, finder: _Finder) -> None:
        super().__init__()
        self.finder = finder

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and str(kwargs.get("device", "")).startswith("cuda"):
            source = args[0] if args else kwargs.get("data")
            if not isinstance(source, torch.Tensor):
                before = len(self.finder.to_device)
                result = passed_on(function, args, kwargs)
                if len(self.finder.to_device) == before:
                    self.finder.to_device.append(engine_line())
                return result
        return passed_on(function, args, kwargs)
