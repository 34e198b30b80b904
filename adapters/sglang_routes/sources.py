"""Every way to a table that the engine's source has, found by reading it, and which of them ran.

| spec field | adapter field | engine field |
| --- | --- | --- |
| Hello.routes | `listed()` | functions that call a prompt-table builder, or put a table or a delta into a request |
| Answer.routes | `Watch.fresh()` | those of them that were called |

Nothing is faked here: the source is parsed, never imported for this.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOTS = ("managers", "multimodal/processors", "disaggregation", "session", "entrypoints", "rust_server", "grpc")
"""Folders under sglang/srt that requests pass through on their way to the scheduler."""

BUILDERS = ("get_rope_index", "compute_mrope_positions", "mrope_positions_from_offsets", "compute_canvas_positions")
"""A function whose name has one of these is a builder."""

TOOL = 4
"""Of the monitoring tools' numbers one that debuggers, coverage and profilers leave."""

FIELDS = ("mrope_positions", "mrope_position_delta")


def package() -> Path | None:
    """sglang/srt of the installed engine."""
    spec = importlib.util.find_spec("sglang")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) / "srt" if places else None


def listed(root: Path | None = None) -> dict[str, str]:
    """ "file:function" under sglang/srt -> what it does with a table, in words. Empty where there is no source."""
    root = package() if root is None else root
    found: dict[str, str] = {}
    if root is None:
        return found
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text("utf-8", "replace")
            if any(word in text for word in (*BUILDERS, *FIELDS)):
                for name, what in _functions(ast.parse(text)):
                    found[f"{path.relative_to(root)}:{name}"] = what
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(qualified name, what it does) of every function of interest; inner functions count for the outer one."""
    for node in tree.body:
        yield from _inside(node, "")


def _inside(node: ast.stmt, outer: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            yield from _inside(inner, f"{outer}{node.name}.")
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        what = [*dict.fromkeys(word for part in ast.walk(node) for word in _does(part))]
        if what:
            yield f"{outer}{node.name}", ", ".join(what)


def _does(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if any(word in name for word in BUILDERS):
            yield f"calls {name}"
        for keyword in node.keywords:
            if keyword.arg in FIELDS and not _is_none(keyword.value):
                yield f"sets {keyword.arg}"
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr in FIELDS and not _is_none(node.value):
                yield f"sets {target.attr}"
    elif isinstance(node, ast.Dict):
        for key in node.keys:
            if isinstance(key, ast.Constant) and key.value in FIELDS:
                yield f"sets {key.value}"


def _is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


class Watch:
    """Sees which of the listed functions are called while it is on. Use as a context manager.

    From Python 3.12 on each function of the process reports its first call alone (PEP 669). On 3.11 every call is heard
    of, which is a third of the routes' time: a profiler in C counts no faster.
    """

    def __init__(self) -> None:
        root = package() or Path()
        self.places = listed(root)
        self._by_code = {(str(root / name.partition(":")[0]), name.partition(":")[2]): name for name in self.places}
        self._seen: set[str] = set()
        self._told: set[str] = set()

    def __enter__(self) -> Watch:
        if sys.version_info >= (3, 12):
            if sys.monitoring.get_tool(TOOL) is None:  # it stays on: what has reported once costs nothing
                first = sys.monitoring.events.PY_START
                sys.monitoring.use_tool_id(TOOL, "ropecheck")
                sys.monitoring.register_callback(TOOL, first, self._started)
                sys.monitoring.set_events(TOOL, first)
        else:
            sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.version_info < (3, 12):
            sys.setprofile(None)

    def _started(self, code: CodeType, _: int) -> Any:
        name = self._by_code.get((code.co_filename, code.co_qualname))
        if name is not None:
            self._seen.add(name)
        if sys.version_info >= (3, 12):
            return sys.monitoring.DISABLE
        return None

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._started(frame.f_code, 0)

    def fresh(self) -> tuple[str, ...]:
        """What was called since the last time that this was asked, and never before."""
        new = self._seen - self._told
        self._told |= new
        return tuple(sorted(new))
