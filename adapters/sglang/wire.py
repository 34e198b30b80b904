"""Between torch tensors and the protocol's bytes.

| spec field | adapter field | engine field |
| --- | --- | --- |
| table [3, P] | Media.table | `MultimodalInputs.mrope_positions`, int64 [3, P], CPU |
| delta | Media.delta | `MultimodalInputs.mrope_position_delta`, int64 [1, 1], CPU |
| positions [T] | TablePair.positions | `ForwardBatch.positions` |
| columns [3, T] | TablePair.mrope | `ForwardBatch.mrope_positions` |

Nothing is faked here.
"""

from __future__ import annotations

from typing import Any

import torch

from ropecheck.adapters.protocol import Tensor

_NAMES: dict[Any, str] = {}


def pack(tensor: Any) -> Tensor | None:
    """A copy of the tensor's values as they are now; None stays None. Any device, any strides."""
    if tensor is None:
        return None
    name = _NAMES.get(tensor.dtype)
    if name is None:
        name = _NAMES.setdefault(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    if not tensor.is_cpu:
        tensor = tensor.cpu()
    return Tensor(name, tuple(tensor.shape), tensor.numpy().tobytes())


def unpack(tensor: Tensor) -> Any:
    """A fresh, writable CPU tensor. dtype: a torch dtype's name."""
    dtype = getattr(torch, tensor.dtype)
    if not tensor.data:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(bytearray(tensor.data), dtype=dtype).view(tensor.shape)


def between_others(numbers: Any) -> Any:
    """The same numbers, with others between them in memory."""
    wide = torch.full((*numbers.shape[:-1], 2 * numbers.shape[-1]), -1, dtype=numbers.dtype, device=numbers.device)
    wide[..., ::2] = numbers
    return wide[..., ::2]
