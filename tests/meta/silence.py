"""What is observed is compared: an answer's values, changed one at a time, and which changes nobody notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan

Make = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One value of an answer that can be made another. field: "RequestState.ids"; path: where,
    "results[4].states[0].ids[2]"; step: index of the job's step that it answers."""

    field: str
    path: str
    step: int
    make: Callable[[], protocol.JobAnswer]


def changes(answer: protocol.JobAnswer) -> Iterator[Change]:
    """Every value of every result, one at a time."""
    for number, result in enumerate(answer.results):
        for field, path, other in _others(result, type(result).__name__):
            yield Change(field, f"results[{number}]{path}", number, partial(_answered, answer, number, other))


def noticed(plan: Plan, change: Change) -> bool:
    """Whether the judge says anything: a failure, or that the answer cannot be used."""
    try:
        outcome = judge(plan, change.make())
    except protocol.ProtocolError:
        return True
    return bool(outcome.failures or outcome.unrun)


def _answered(answer: protocol.JobAnswer, number: int, other: Make) -> protocol.JobAnswer:
    results = (*answer.results[:number], other(), *answer.results[number + 1 :])
    return msgspec.structs.replace(answer, results=results)


def _others(value: Any, field: str) -> Iterator[tuple[str, str, Make]]:
    """(field, path, how to make the same value with one thing in it changed)."""
    match value:
        case protocol.Tensor():
            for what, other in _tensors(value):
                yield f"{field}:{what}", f":{what}", other
        case msgspec.Struct():
            hints = get_type_hints(type(value))
            for name in value.__struct_fields__:
                if type(None) in get_args(hints[name]) and getattr(value, name) is not None:
                    known = f"{type(value).__name__}.{name}:none"
                    yield known, f".{name}:none", partial(_with_field, value, name, partial(_just, None))
                for known, path, other in _others(getattr(value, name), f"{type(value).__name__}.{name}"):
                    yield known, f".{name}{path}", partial(_with_field, value, name, other)
        case tuple():
            for at, inner in enumerate(value):
                for known, path, other in _others(inner, field):
                    yield known, f"[{at}]{path}", partial(_with_element, value, at, other)
            if value:
                yield f"{field}:shorter", ":shorter", partial(_just, value[:-1])
                yield f"{field}:longer", ":longer", partial(_just, (*value, value[-1]))
        case bool():
            yield field, "", partial(_just, not value)
        case int():
            yield field, "", partial(_just, value + 1)
        case str():
            yield field, "", partial(_just, f"{value} else")
        case None:
            yield f"{field}:there", ":there", partial(_something, field)


def _just(value: Any) -> Any:
    return value


def _with_field(value: msgspec.Struct, name: str, other: Make) -> Any:
    return msgspec.structs.replace(value, **{name: other()})


def _with_element(value: tuple[Any, ...], at: int, other: Make) -> Any:
    return (*value[:at], other(), *value[at + 1 :])


def _something(field: str) -> Any:
    """A value where there was none."""
    return (1,) if field.endswith("ids") else _tensor(np.array([[77]], dtype=np.int64))


def _tensors(tensor: protocol.Tensor) -> Iterator[tuple[str, Make]]:
    array = np.frombuffer(tensor.data, tensor.dtype).reshape(tensor.shape)
    for at in range(array.size):
        yield "value", partial(_moved, array, at)
    wider = {"int32": "int64", "int64": "int32", "float32": "float64"}[tensor.dtype]
    yield "dtype", lambda: _tensor(array.astype(wider))
    if array.shape[-1]:
        yield "narrower", lambda: _tensor(array[..., :-1])
    more = np.zeros((*array.shape[:-1], 1), array.dtype)
    yield "wider", lambda: _tensor(np.concatenate([array, more], axis=-1))
    yield "another rank", lambda: _tensor(array[None])


def _moved(array: npt.NDArray[Any], at: int) -> protocol.Tensor:
    other = array.copy()
    other.flat[at] += 1
    return _tensor(other)


def _tensor(array: npt.NDArray[Any]) -> protocol.Tensor:
    return protocol.Tensor(array.dtype.name, tuple(array.shape), np.ascontiguousarray(array).tobytes())
