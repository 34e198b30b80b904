"""Which of the engine's functions that handle positions a scheduler has entered, found in the engine's own source.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | Played.functions | functions under `FOLDERS` whose text names a table, a delta or positions |

Nothing is faked: a function's code is exchanged for a note and put back at its first call.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

FOLDERS = (
    "sglang.srt.managers.",
    "sglang.srt.model_executor.",
    "sglang.srt.speculative.",
    "sglang.srt.session.",
    "sglang.srt.mem_cache.",
    "sglang.kernels.ops.speculative.",
    "sglang.kernels.ops.attention.position",
)
NAMES = ("positions", "position_ids")

_waiting: list[tuple[str, FunctionType, CodeType]] = []
_fresh: list[str] = []


def watch() -> tuple[str, ...]:
    """Note the first call of every such function from now on; their names."""
    names = []
    for module, name in found():
        function = _function(module, name)
        if function is not None:
            names.append(f"{module.removeprefix('sglang.').removeprefix('srt.')}:{name}")
            _watch(names[-1], function)
    return tuple(names)


@cache
def found() -> tuple[tuple[str, str], ...]:
    """Module and qualified name of every function whose text speaks of positions, in what is imported now. Reading the
    sources takes seconds: once, before any fork."""
    return tuple(
        (module, name)
        for module in sorted(sys.modules)
        if module.startswith(FOLDERS)
        for name in _speaking(getattr(sys.modules[module], "__file__", None))
    )


def fresh() -> tuple[str, ...]:
    """Names of the functions entered since the last time."""
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


def _function(module: str, name: str) -> FunctionType | None:
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
        found = getattr(found, "__func__", found)
    # Closures and generators keep their code; decorated functions are entered through their wrappers.
    found = getattr(found, "__wrapped__", found)
    if isinstance(found, FunctionType) and not found.__code__.co_freevars and not found.__code__.co_flags & 0x2A0:
        return found
    return None


def _speaking(file: str | None) -> Iterator[str]:
    """Qualified names of a source file's functions whose text speaks of positions."""
    if not file or not file.endswith(".py"):
        return
    text = Path(file).read_text("utf-8", "replace")
    if any(word in text for word in (*NAMES, "mrope")):
        yield from _named(ast.parse(text), "")


def _named(node: ast.AST, outer: str) -> Iterator[str]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield from _named(inner, f"{outer}{inner.name}.")
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_speaks, ast.walk(inner))):
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
