"""Count the host-to-device operations of one batch construction, without a device.

| spec field | adapter field | engine field |
| --- | --- | --- |
| copies | Counted.copies | operations with host inputs and outputs on `device="meta"` |
| - | Counted.lines | the engine line that made each |

The batch and the runner live on torch's meta device; a dispatch mode sees every operation that takes a CPU tensor and
gives a meta tensor, a function mode sees `torch.tensor(list, device=...)`, which the dispatcher does not show.
A meta tensor has no values: an engine that reads one on the host raises there, which is counted as a read. Other
synchronisations and pinned memory are not seen.

Faked: `compute_position` (a Triton launch on a GPU; its CPU version reads lengths, which a meta tensor has not).
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ropecheck.adapters.protocol import Cost, Counted
from ropecheck.adapters.sglang import batches, cuda_cost, forwards
from ropecheck.adapters.sglang.meter import engine_line, passed_on, raised
from ropecheck.adapters.sglang.state import JobState

FAKED = ("cost only: forward_batch_info.compute_position returns empty meta tensors (a kernel launch, no copy)",)

_COPIES = ("_to_copy", "copy_")


def cost(state: JobState, step: Cost) -> Counted:
    """Run the step's batch constructor on the meta device and count; on a GPU count there. Raises Absent."""
    forward = step.forward
    batches.member_of(state, forward.mode)
    if state.device != "cpu":
        return cuda_cost.measured(state, forward)
    batch = batches.schedule_batch(state, forward, device="meta")
    batch.spec_info = forwards.spec_info(state, forwards.with_positions(forward), batch)
    runner = batches.runner_for(state, forward.mode, device="meta")
    module: Any = sys.modules[state.engine.ForwardBatch.__module__]
    original = module.compute_position
    lines: list[str] = []
    module.compute_position = meta_positions
    try:
        with _Functions(lines), _Operations(lines):
            batches.init_new(state, batch, runner)
    except RuntimeError as error:
        if "meta tensors" not in str(error):
            raise
        # The engine asked for a value that only the device has: what it would have copied after that is not seen.
        return Counted(len(lines), tuple(lines), to_host=1, to_host_lines=(raised(error).where,))
    finally:
        module.compute_position = original
    return Counted(len(lines), tuple(lines))


def meta_positions(backend: str, prefix_lens: Any, extend_lens: Any, total: int) -> tuple[Any, Any]:
    """Stands in for the 1-D position kernel."""
    positions = torch.empty(total, dtype=torch.int64, device="meta")
    return positions, torch.empty(extend_lens.shape[0], dtype=torch.int32, device="meta")


class _Operations(TorchDispatchMode):  # type: ignore[misc]
    """Notes operations that take a host tensor and give a device tensor."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = passed_on(function, args, kwargs)
        copying = function._schema.name.rpartition("::")[2] in _COPIES
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        # A zero-dimensional host tensor in arithmetic travels as a kernel argument, not as a copy.
        host = any(x.device.type == "cpu" and (copying or x.dim() > 0) for x in inputs)
        if host and any(isinstance(x, torch.Tensor) and x.is_meta for x in tree_leaves(result)):
            self.lines.append(engine_line())
        return result


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Notes `torch.tensor` and `torch.as_tensor` of host data onto the device."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and "device" in kwargs:
            source = args[0] if args else kwargs.get("data")
            if str(kwargs["device"]).startswith("meta") and not isinstance(source, torch.Tensor):
                self.lines.append(engine_line())
        return passed_on(function, args, kwargs)
