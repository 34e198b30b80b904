"""What planted edits do to a value on its way: what goes through a narrow type, a clamp, or a loop that ends too early.

| spec field | adapter field | engine field |
| --- | --- | --- |
| fault | Plant.edit | the value of an assignment, of a return, or what a loop goes over |

Numbers that the edit does not reach stay as they are, so that a small value shows nothing. Nothing is faked here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any


def _torch() -> Any:
    """Imported where an edit runs: what counts places needs none."""
    return importlib.import_module("torch")


def _through(dtype: str) -> Callable[[Any], Any]:
    return lambda tensor: tensor.to(getattr(_torch(), dtype)).to(tensor.dtype)


def _ninth(tensor: Any) -> Any:
    """The ninth entry is the eighth again."""
    if tensor.ndim != 1 or tensor.shape[0] < 9:
        return tensor
    tensor = tensor.clone()
    tensor[8] = tensor[7]
    return tensor


VALUES: dict[str, Callable[[Any], Any]] = {
    "through int16": _through("int16"),
    "through float16": _through("float16"),
    "through float32": _through("float32"),
    "clamp at 4095": lambda tensor: tensor.clamp(max=4095),
    "clamp at 32767": lambda tensor: tensor.clamp(max=32767),
    "above 0 lost": lambda tensor: tensor.clamp(max=0),
    "ninth as eighth": _ninth,
}
"""Kind of edit -> what becomes of a tensor of numbers, or of a list of whole ones."""


def value(kind: str, found: Any) -> Any:
    """The value with the edit; what holds no numbers as it is."""
    torch = _torch()
    if isinstance(found, torch.Tensor):
        cut = found.is_floating_point() and kind == "through int16"  # it would lose fractions, which no small value has
        return found if cut or found.dtype == torch.bool else VALUES[kind](found)
    if type(found) is int:
        return int(VALUES[kind](torch.tensor([found]))[0])
    if isinstance(found, list) and found and all(type(one) is int for one in found):
        return VALUES[kind](torch.tensor(found)).tolist()
    if isinstance(found, list | tuple) and any(isinstance(one, torch.Tensor) for one in found):
        return type(found)(value(kind, one) for one in found)
    return found


def first(several: Iterable[Any]) -> list[Any]:
    """The first alone."""
    return list(several)[:1]
