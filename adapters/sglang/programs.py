"""Triton programs over whole numbers, run on numpy: the engine's own text, some forty times as fast as Triton's
interpreter.

A launch of a program that only loads, stores, compares and adds whole numbers is computed here; any other (floats,
calls of further programs, names that are not in `LANGUAGE`) goes to Triton's interpreter. Dtypes are Triton's: loads
have their tensor's, literals int32, sums wrap. Unlike there, an address outside its tensor's memory raises IndexError.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `install()` | launches of `triton.jit` functions |

Faked: Triton's language, for these programs.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

HELD = tuple(f"torch.{name}" for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float32"))
"""What tensors may hold: floats are moved. torch is not imported here: who forks has yet to say how many threads it
may have."""
INT32 = np.iinfo(np.int32)


class Pointer:
    """One address, or an array of them, in a tensor's memory: counted in elements."""

    __slots__ = ("at", "memory")

    def __init__(self, memory: Any, at: Any) -> None:
        """memory: all of the tensor's storage, flat. at: int64."""
        self.memory, self.at = memory, at

    def __add__(self, by: Any) -> Pointer:
        return Pointer(self.memory, self.at + by)

    __radd__ = __add__

    def __sub__(self, by: Any) -> Pointer:
        return Pointer(self.memory, self.at - by)


def value(given: Any) -> Any:
    """A literal or an argument as Triton has it: int32, int64 where it is too large."""
    if type(given) is int:
        return np.int32(given) if INT32.min <= given <= INT32.max else np.int64(given)
    return given


def load(pointer: Pointer, mask: Any = None, other: Any = None) -> Any:
    """What stands there; where the mask is false `other`, or 0."""
    memory, at = pointer.memory, pointer.at
    if mask is None:
        _inside(memory, at)
        return memory[at]
    mask, at = np.broadcast_arrays(mask, at)
    found = np.empty(at.shape, memory.dtype)
    found[...] = 0 if other is None else other
    _inside(memory, at[mask])
    found[mask] = memory[at[mask]]
    return found if at.shape else found[()]


def store(pointer: Pointer, new: Any, mask: Any = None) -> None:
    """Write, where the mask is true."""
    memory, at = pointer.memory, pointer.at
    if mask is not None:
        new, mask, at = np.broadcast_arrays(new, mask, at)
        new, at = new[mask], at[mask]
    _inside(memory, at)
    memory[at] = new


def _inside(memory: Any, at: Any) -> None:
    if isinstance(at, np.ndarray):
        if at.size and (at.min() < 0 or at.max() >= len(memory)):
            raise IndexError(f"addresses {at.min()} .. {at.max()} of a tensor whose memory holds {len(memory)}")
    elif not 0 <= at < len(memory):
        raise IndexError(f"address {at} of a tensor whose memory holds {len(memory)}")


def cast(given: Any, dtype: Any) -> Any:
    """As another dtype."""
    return np.asarray(given).astype(dtype)[()]


def quotient(left: Any, right: Any) -> Any:
    """Triton's //: towards zero."""
    found = left // right
    return found + ((found < 0) & (found * right != left))


def remainder(left: Any, right: Any) -> Any:
    """Triton's %: the sign of the left."""
    return left - quotient(left, right) * right


def widened(given: Any) -> Any:
    """What is reduced is int32 at least."""
    return given.astype(np.int32) if given.dtype.itemsize < 4 else given


def total(given: Any, axis: int | None = None) -> Any:
    """A sum that wraps as its numbers do."""
    wide = widened(given)
    return np.sum(wide, axis=axis, dtype=wide.dtype)


_id = [0, 0, 0]

LANGUAGE = SimpleNamespace(
    program_id=lambda axis: np.int32(_id[axis]),
    arange=lambda start, end: np.arange(start, end, dtype=np.int32),
    load=load,
    store=store,
    cast=cast,
    where=np.where,
    sum=total,
    max=lambda given, axis=None: np.max(widened(given), axis=axis),
    min=lambda given, axis=None: np.min(widened(given), axis=axis),
    maximum=np.maximum,
    minimum=np.minimum,
    cdiv=lambda left, right: (left + right - 1) // right,
    static_range=range,
    range=range,
    debug_barrier=lambda: None,  # one program runs after the other
    constexpr=None,
    int1=np.dtype(np.bool_),
    int32=np.dtype(np.int32),
    int64=np.dtype(np.int64),
)
"""What stands in for `triton.language`."""

_GIVEN = {
    "tl": LANGUAGE,
    "_value": value,
    "_cast": cast,
    "_quotient": quotient,
    "_remainder": remainder,
    "range": range,
}
_DIVISIONS = {ast.FloorDiv: "_quotient", ast.Mod: "_remainder"}
_REFUSED = (ast.Div, ast.Pow, ast.MatMult, ast.LShift, ast.RShift, ast.While, ast.Lambda)


class _Refused(Exception):
    """The program is left to Triton's interpreter."""


class _Rewriter(ast.NodeTransformer):
    """Literals that are assigned become values, divisions and casts become calls. Raises _Refused."""

    def __init__(self, known: set[str]) -> None:
        self._known = known

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _REFUSED) or (isinstance(node, ast.Constant) and isinstance(node.value, float)):
            raise _Refused
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id not in self._known:
            raise _Refused
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        language = isinstance(node.value, ast.Name) and node.value.id == "tl"
        if not (hasattr(LANGUAGE, node.attr) if language else node.attr == "dtype"):
            raise _Refused
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and len(node.args) == 1:
            given = [self.visit(node.func.value), self.visit(node.args[0])]
            return ast.Call(ast.Name("_cast", ast.Load()), given, [])
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        name = _DIVISIONS.get(type(node.op))
        return node if name is None else ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if type(node.op) in _DIVISIONS:
            raise _Refused
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        node.value = ast.Call(ast.Name("_value", ast.Load()), [node.value], [])
        return node


class Program:
    """One of the engine's programs."""

    def __init__(self, function: Any) -> None:
        """Raises _Refused, and OSError where there is no source."""
        parameters = inspect.signature(function).parameters.values()
        self._names = [one.name for one in parameters]
        self._defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
        self._literal = {one.name for one in parameters if "constexpr" in str(one.annotation)}
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        body = tree.body[0]
        if len(tree.body) != 1 or not isinstance(body, ast.FunctionDef):
            raise _Refused
        body.decorator_list, body.args.defaults = [], []
        for one in body.args.args:
            one.annotation = None
        assigned = {one.id for one in ast.walk(body) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        body.body = [_Rewriter({*_GIVEN, *self._names, *assigned}).visit(one) for one in body.body]
        ast.increment_lineno(ast.fix_missing_locations(tree), first - 1)
        space = dict(_GIVEN)
        exec(compile(tree, inspect.getfile(function), "exec"), space)
        self._function: Callable[..., None] = space[body.name]  # type: ignore[assignment]

    def launch(self, grid: tuple[int, ...], args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Run it once for every place of the grid. False: a tensor holds something else than `HELD`."""
        given = self._defaults | dict(zip(self._names, args, strict=False))
        given |= {name: one for name, one in named.items() if name in self._names}
        for name, one in given.items():
            if hasattr(one, "untyped_storage"):
                if str(one.dtype) not in HELD or one.device.type != "cpu":
                    return False
                given[name] = Pointer(_memory(one), np.int64(one.storage_offset()))
            elif isinstance(one, float):
                return False
            elif name not in self._literal:
                given[name] = value(one)
        for place in itertools.product(*(range(int(one)) for one in grid)):
            _id[:] = *place, 0, 0
            self._function(**given)
        return True


def _memory(tensor: Any) -> Any:
    whole = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((whole,), (1,), 0).numpy()


@cache
def program(function: Any) -> Program | None:
    """The program of a function of the engine; None: Triton's interpreter has to run it."""
    try:
        return Program(function)
    except (_Refused, OSError, TypeError, SyntaxError):
        return None


def install() -> None:
    """Once per process, where Triton interprets."""
    try:
        from triton.runtime.interpreter import InterpretedFunction
    except ImportError:
        return
    interpreted = InterpretedFunction.run

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        found = None if warmup or callable(grid) or kernel.pre_run_hooks else program(kernel.fn)
        if found is None or not found.launch(tuple(grid), args, named):
            return interpreted(kernel, *args, grid=grid, warmup=warmup, **named)
        return None

    InterpretedFunction.run = run
