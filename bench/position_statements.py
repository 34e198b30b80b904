"""Statements that speak of positions, in the functions that a CPU can enter: `python -m bench.position_statements
[SERVER ...]` says which of them a default run's chosen part executes.

Plays the chosen scripts of each server (all servers without names) on the engine that is installed, one process each,
and asks a worker the chosen scenarios and the routes' cases. Prints how many of the statements ran, and those that did
not, by function. A compound statement counts by its head. What cannot run on a CPU is in position_statements.toml.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import linecache
import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from ropecheck.adapters.sglang import absent_packages, boot, programs
from ropecheck.adapters.sglang.scheduler import entered

Wanted = dict[tuple[str, str], tuple[str, list[range]]]
"""(module, function) -> its file, and the lines of its statements."""
Files = dict[str, set[int]]
"""File -> first lines of statements."""
Line = tuple[str, int]
"""A line of a file, which ran."""

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(function: ast.AST) -> Iterator[ast.stmt]:
    """Statements of a function that name a position or M-RoPE themselves, not only in a body of theirs."""
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) or not isinstance(node, ast.stmt):
            continue
        if any(map(speaks, own_nodes(node))):
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


def wanted(functions: set[tuple[str, str]]) -> Wanted:
    """Where the statements of these functions stand."""
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


def forked(work: Callable[[], Any]) -> Any:
    """What the work comes to in a process of its own, through JSON."""
    read, write = os.pipe()
    if not os.fork():
        with os.fdopen(write, "w") as pipe:
            try:
                json.dump(work(), pipe)
            except Exception:
                traceback.print_exc()
            pipe.flush()
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = json.load(pipe)
    os.wait()
    return found


def asked(files: Files) -> list[Line]:
    """Of these lines, those that the chosen scenarios and the routes' cases execute, in a worker's engine."""
    from ropecheck.adapters.sglang import worker
    from ropecheck.conformance.selftest.engine_score import phases

    serving = worker.loaded("cpu", [])
    boot.publish_process_groups()
    from ropecheck.adapters.sglang import jobs

    lines = note(files)
    every = phases("sglang")
    for one in (*every["chosen"], *every["routes"]):
        jobs.answer(serving.engine, one.job, "cpu")
    return sorted(lines)


def played(server: str, files: Files) -> list[Line]:
    """Of these lines, those that a server's scripts execute. A scheduler that dies is followed by a fork of it as it
    began."""
    from ropecheck.adapters.sglang.scheduler import build
    from ropecheck.adapters.sglang.scheduler.player import Player
    from ropecheck.conformance.scripts.chosen import all_scripts
    from ropecheck.conformance.scripts.plan import play_of

    left = [play_of(script) for script in all_scripts() if script.server == server]
    os.environ.update(left[0].server.environment)
    lines = note(files)
    player = Player(build.build(left[0].server))

    def life() -> tuple[int, list[Line]]:
        for count, script in enumerate(left, 1):
            player.play(script)
            if player.dead:
                return count, sorted(lines)
        return len(left), sorted(lines)

    while left:
        count, found = forked(life)
        left = left[count:]
        lines |= {(file, line) for file, line in found}
    return sorted(lines)


def note(files: Files) -> set[Line]:
    """Which of these lines run from now on: each function gets code that says so in front of each of its statements,
    and Triton programs are traced."""
    lines: set[Line] = set()
    vars(builtins)["ropecheck_ran"] = lambda file, line: lines.add((file, line))
    for module, file in [(one, str(getattr(one, "__file__", None))) for one in list(sys.modules.values())]:
        if file not in files:
            continue
        tree = _Noting(file, files[file]).visit(ast.parse(Path(file).read_text("utf-8")))
        codes = dict(inner(compile(ast.fix_missing_locations(tree), file, "exec")))
        for name in codes:
            function = entered.thing(module.__name__, name)[1] if "<" not in name else None
            if isinstance(function, FunctionType) and function.__code__.co_filename == file:  # no stand-in
                function.__code__ = codes[name]
    launch = programs.Program.launch

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def traced(*args: Any) -> bool:
        sys.settrace(line)
        try:
            return launch(*args)
        finally:
            sys.settrace(None)

    vars(programs)["Program"].launch = traced
    return lines


class _Noting(ast.NodeTransformer):
    """A call in front of each statement that begins at one of these lines."""

    def __init__(self, file: str, lines: set[int]) -> None:
        self._file, self._lines = file, lines

    def visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        if not isinstance(node, ast.stmt) or node.lineno not in self._lines:
            return node
        arguments: list[ast.expr] = [ast.Constant(self._file), ast.Constant(node.lineno)]
        call = ast.Expr(ast.Call(ast.Name("ropecheck_ran", ast.Load()), arguments, []))
        return [ast.copy_location(call, node), node]


def inner(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Functions' code by qualified name."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from inner(one)


def main() -> None:
    """Measure and print."""
    boot.prepare_environment("cpu")
    boot.silence()
    absent_packages.install()
    from ropecheck.adapters.sglang.scheduler import build
    from ropecheck.conformance.run import notices
    from ropecheck.conformance.scripts.servers import servers

    functions = wanted({one for one in entered.found() if not notices.unreachable(entered.told(*one))})
    files: Files = {}
    for file, spans in functions.values():
        files.setdefault(file, set()).update(*spans)
    found = forked(lambda: asked(files))
    build.load()
    for module, _ in functions:
        importlib.import_module(module)
    for name in sys.argv[1:] or servers():
        found += forked(partial(played, name, files))
    report(functions, {(file, line) for file, line in found})


def report(functions: Wanted, lines: set[Line]) -> None:
    """Count, and name what did not run."""
    every = hit = never = 0
    for (module, name), (file, spans) in sorted(functions.items()):
        for span, statement in zip(spans, said(entered.told(module, name), file, spans), strict=True):
            done, why = any((file, line) in lines for line in span), reasons().get(statement)
            every, hit, never = every + 1, hit + done, never + (why is not None)
            if done == (why is not None):
                print(f"{'ran, against its reason' if done else 'did not run'}: line {span.start} of {statement}")
    print(f"{hit} of {every} statements in {len(functions)} functions ran ({100 * hit / max(1, every):.0f} %);")
    print(f"of {every - never} that a CPU can run {100 * hit / max(1, every - never):.0f} %")


def said(function: str, file: str, spans: list[range]) -> list[str]:
    """How statements are named: function and first line, numbered where some begin alike."""
    firsts = [linecache.getline(file, span.start).strip() for span in spans]
    order = sorted(range(len(spans)), key=lambda at: spans[at].start)
    before = {at: sum(firsts[at] == firsts[other] for other in order[: order.index(at)]) for at in order}
    return [f"{function}: {first}" + (f" #{before[at] + 1}" if before[at] else "") for at, first in enumerate(firsts)]


@cache
def reasons() -> dict[str, str]:
    """Statement -> why it does not run on a CPU."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {statement: reason for reason, statements in listed.items() for statement in statements}


if __name__ == "__main__":
    main()
