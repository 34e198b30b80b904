"""Statements that speak of positions, in the functions that a CPU can enter: `python -m bench.position_statements
[SERVER ...]` says which of them the chosen scripts execute.

Plays the chosen scripts of each server (all servers without names) on the engine that is installed, one process each.
Prints how many of the statements ran, and those that did not, by function. A compound statement counts by its head.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ropecheck.adapters.play import Play
from ropecheck.adapters.sglang import absent_packages, boot

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(function: ast.AST) -> Iterator[ast.stmt]:
    """Statements of a function that name a position or M-RoPE themselves, not only in a body of theirs."""
    for node in ast.walk(function):
        named_in = isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef)
        if named_in and any(map(speaks, own_nodes(node))):
            yield node


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A statement's nodes, without the statements in its bodies."""
    for name, value in ast.iter_fields(node):
        for part in (value if isinstance(value, list) else [value]) if name not in BODIES else ():
            if isinstance(part, ast.AST):
                yield from ast.walk(part)


def speaks(node: ast.AST) -> bool:
    """Whether a name, attribute or argument says position or mrope."""
    word = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "arg", None)
    return isinstance(word, str) and ("position" in word or "mrope" in word)


def head(node: ast.stmt) -> range:
    """The lines of a statement without its bodies."""
    inner = [part.lineno for name in BODIES for part in getattr(node, name, ()) if hasattr(part, "lineno")]
    return range(node.lineno, min([*inner, (node.end_lineno or node.lineno) + 1]))


def wanted(functions: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, list[range]]]:
    """(module, function) -> its file, and the lines of its statements."""
    found = {}
    for module in {module for module, _ in functions}:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        for name, node in named(ast.parse(Path(spec.origin).read_text("utf-8")), ""):
            if (module, name) in functions:
                found[module, name] = (spec.origin, [head(one) for one in statements(node)])
    return found


def named(node: ast.AST, outer: str) -> Iterator[tuple[str, ast.AST]]:
    """Functions by qualified name."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield from named(inner, f"{outer}{inner.name}.")
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{outer}{inner.name}", inner


def ran(server: str, files: set[str]) -> set[tuple[str, int]]:
    """Lines of these files that a server's scripts execute. A scheduler that dies is followed by a new process."""
    from ropecheck.conformance.scripts.chosen import all_scripts
    from ropecheck.conformance.scripts.plan import play_of

    left = [play_of(script) for script in all_scripts() if script.server == server]
    lines: set[tuple[str, int]] = set()
    while left:
        read, write = os.pipe()
        if not os.fork():
            found: set[tuple[str, int]] = set()
            played = 1
            try:
                played = play(left, files, found)
            finally:
                with os.fdopen(write, "w") as pipe:
                    json.dump((played, sorted(found)), pipe)
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            played, pairs = json.load(pipe)
        os.wait()
        left = left[played:]
        lines |= {(file, line) for file, line in pairs}
    return lines


def play(scripts: list[Play], files: set[str], lines: set[tuple[str, int]]) -> int:
    """Play scripts of one server until its scheduler has died; how many."""
    from ropecheck.adapters.sglang.scheduler import build
    from ropecheck.adapters.sglang.scheduler.player import Player

    os.environ.update(scripts[0].server.environment)
    known: dict[CodeType, bool] = {}

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in known:
            known[code] = code.co_filename in files
        return line if known[code] else None

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    sys.settrace(call)
    player = Player(build.build(scripts[0].server))
    for played, script in enumerate(scripts, 1):
        player.play(script)
        if player.dead:
            return played
    return len(scripts)


def main() -> None:
    """Measure and print."""
    boot.prepare_environment("cpu")
    boot.silence()
    absent_packages.install()
    from ropecheck.adapters.sglang.scheduler import build, entered
    from ropecheck.conformance.run import notices
    from ropecheck.conformance.scripts.servers import servers

    build.load()
    functions = {one for one in entered.found() if not notices.unreachable(entered.told(*one))}
    report(wanted(functions), sys.argv[1:] or list(servers()))


def report(functions: dict[tuple[str, str], tuple[str, list[range]]], names: list[str]) -> None:
    """Play, count, and name what did not run."""
    files = {file for file, _ in functions.values()}
    lines = {pair for name in names for pair in ran(name, files)}
    every = hit = 0
    for (module, name), (file, spans) in sorted(functions.items()):
        missed = [span.start for span in spans if not any((file, line) in lines for line in span)]
        every, hit = every + len(spans), hit + len(spans) - len(missed)
        if missed:
            print(f"{module}:{name}: not lines {', '.join(map(str, missed))} of {len(spans)} statements")
    print(f"{hit} of {every} statements in {len(functions)} functions ({100 * hit / max(1, every):.0f} %)")


if __name__ == "__main__":
    main()
