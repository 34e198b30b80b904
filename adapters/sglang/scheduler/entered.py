"""Which of the engine's functions that handle positions a scheduler has entered, found in the engine's own source.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | Played.functions | functions under `FOLDERS` whose text names a table, a delta or positions |

Nothing is faked: a function's code is exchanged for a note and put back at its first call; so is a kernel's launch.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

FOLDERS = (
    "sglang.srt.managers",
    "sglang.srt.batch_overlap",
    "sglang.srt.model_executor",
    "sglang.srt.speculative",
    "sglang.srt.session",
    "sglang.srt.mem_cache",
    "sglang.kernels.ops.speculative",
    "sglang.kernels.ops.attention.position",
)
"""Folders and files of the engine, as modules."""
NAMES = ("positions", "position_ids")
LAZY = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_waiting: list[tuple[str, FunctionType, CodeType]] = []
_fresh: list[str] = []
_left: dict[tuple[str, str], None] = {}
"""What is found and not watched: its module is not imported so far."""


def watch() -> None:
    """Note the first call of every such function whose module is imported by now."""
    for module, name in [one for one in _left if one[0] in sys.modules]:
        del _left[module, name]
        holder, what = thing(module, name)
        if isinstance(what, FunctionType) and not what.__code__.co_flags & LAZY:
            if not what.__code__.co_freevars:
                _watch(told(module, name), what)
            elif isinstance(holder, type):  # a closure's code cannot be exchanged
                _watch_by_name(told(module, name), holder, what)
        elif hasattr(what, "run") and hasattr(what, "fn"):  # a Triton program is launched through its `run`
            _watch_by_name(told(module, name), what, what.run)


def told(module: str, name: str) -> str:
    """A function's name in reports."""
    return f"{module.removeprefix('sglang.').removeprefix('srt.')}:{name}"


@cache
def found() -> tuple[tuple[str, str], ...]:
    """Module and qualified name of every function of the engine whose text speaks of positions, imported or not.
    Reading the sources takes seconds: once, before any fork."""
    package = importlib.util.find_spec("sglang")
    root = Path(next(iter(package.submodule_search_locations or ()))) if package is not None else Path()
    functions = []
    for folder in FOLDERS:
        place = root.joinpath(*folder.split(".")[1:])
        for file in sorted(place.rglob("*.py") if place.is_dir() else place.parent.glob(f"{place.name}*.py")):
            parts = file.relative_to(root.parent).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            functions += [(module, name) for name in _speaking(file)]
    _left.update(dict.fromkeys(functions))
    return tuple(functions)


def fresh() -> tuple[str, ...]:
    """Names of the functions entered since the last time."""
    watch()
    found = tuple(_fresh)
    _fresh.clear()
    return found


def entered(number: int) -> FunctionType:
    """A watched function was called: note it once and put its code back."""
    name, function, code = _waiting[number]
    if function.__code__ is not code:
        function.__code__ = code
        _fresh.append(name)
    return function


def _watch(name: str, function: FunctionType) -> None:
    space: dict[str, Any] = {}
    text = f"def note(*args, **kwargs):\n    return __import__('sys').modules[{__name__!r}].entered({len(_waiting)})"
    exec(compile(f"{text}(*args, **kwargs)", "<watched>", "exec"), space)
    _waiting.append((name, function, function.__code__))
    function.__code__ = space["note"].__code__


def _watch_by_name(name: str, holder: Any, function: Any) -> None:
    """Note the first call of what stands in `holder`, and put it back."""
    own = function.__name__

    def noting(*args: Any, **kwargs: Any) -> Any:
        _fresh.append(name)
        setattr(holder, own, function)
        return function(*args, **kwargs)

    setattr(holder, own, noting)


def thing(module: str, name: str) -> tuple[Any, Any]:
    """What holds the name, and what stands there: a function, a Triton program or something else."""
    holder: Any = None
    found: Any = sys.modules[module]
    for part in name.split("."):
        holder, found = found, vars(found).get(part) if hasattr(found, "__dict__") else None
        found = getattr(found, "__func__", found)
    return holder, inspect.unwrap(found)  # decorated functions are entered through their wrappers, mended ones too


def _speaking(file: Path) -> Iterator[str]:
    """Qualified names of a source file's functions whose text speaks of positions."""
    text = file.read_text("utf-8", "replace")
    words = [word for word in (*NAMES, "mrope") if word in text]
    if words:
        speak = [at for at, line in enumerate(text.splitlines(), start=1) if any(word in line for word in words)]
        yield from _named(ast.parse(text), "", speak)


def _named(node: ast.AST, outer: str, lines: list[int]) -> Iterator[str]:
    """lines: those that may speak; a function without one need not be looked at."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield from _named(inner, f"{outer}{inner.name}.", lines)
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(one.lineno for one in (inner, *inner.decorator_list))
            here = bisect_left(lines, first) < bisect_right(lines, inner.end_lineno or first)
            if here and any(map(_speaks, ast.walk(inner))):
                yield f"{outer}{inner.name}"


def _speaks(node: ast.AST) -> bool:
    word = ""
    if isinstance(node, ast.Attribute):
        word = node.attr
    elif isinstance(node, ast.Name):
        word = node.id
    elif isinstance(node, ast.arg | ast.keyword):
        word = node.arg or ""
    return word in NAMES or "mrope" in word
