"""A mutation test of the suite by its own tests: `python -m tests.meta.mutation FOLDER.. --tests TEST..`.

The edits are those of `score --engine` (adapters/sglang/plant.py): a sign, a bound, a number, a name, a condition, a
lost line, a loop that ends after the first, in memory. One process collects the tests; each edit is made in a fork of
it, which runs those that run the edited line, the quickest files first, until one fails. So an edit costs a fraction of
a second where other tools start a Python, and functions that decorators have registered are edited as well. Workers
and schedulers that tests start are forked from that process too, so that an adapter's edits reach them. Not edited:
what runs at import alone, words of errors, what changes no bytecode. An edit that is no fault stands in argued/,
with a reason.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import copy
import gc
import importlib
import json
import logging
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from ropecheck.adapters.sglang import absent_packages, boot, native, plant
from ropecheck.adapters.sglang.scheduler import build, host
from ropecheck.conformance.judge.ask import Settled
from tests.adapters_sglang import support

ROOT = Path(__file__).parents[2]
ARGUED = Path(__file__).parent / "argued"
"""Files of edits that are no faults, one for each group; text: the edited line's."""
KINDS = ("sign", "bound", "number", "call", "condition", "another name", "first alone", "lost line")
STATES = ("noticed", "argued", "unnoticed", "never run")
AT_IMPORT = "at import"
"""The state of an edit in what runs while modules are imported and never again: it is not made, and does not count."""
APART = {"adapters/sglang/recorder/site/sitecustomize.py", "adapters/sglang/mends.py"}
"""What would start a recorder where it is imported; what ends known bugs, each proved by a run that needs no entry."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one function. text: its line's."""

    module: str
    function: str
    kind: str
    nth: int
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.module.removeprefix('ropecheck.')}:{self.function}: {self.kind} {self.nth}: {self.text}"


def functions(folders: list[str]) -> Iterator[tuple[str, str, str]]:
    """(module, qualified name, file) of every function and method in the folders' files."""
    for folder in folders:
        path = ROOT / folder
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if str(file.relative_to(ROOT)) in APART:
                continue
            module = ".".join(("ropecheck", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
            body = ast.parse(file.read_text("utf-8")).body
            inner = [(f"{one.name}.", one.body) for one in body if isinstance(one, ast.ClassDef)]
            for prefix, block in (("", body), *inner):
                for one in block:
                    if isinstance(one, ast.FunctionDef):
                        yield module, prefix + one.name, str(file.resolve())


def edits_of(module: str, function: str, file: str, order: random.Random) -> Iterator[Edit]:
    """Every edit of a function that changes what runs, other than words of errors: shuffled, one of each kind first."""
    text = Path(file).read_text("utf-8")
    node = plant.function_in(ast.parse(text), function)
    spoken = [range(one.lineno, (one.end_lineno or 0) + 1) for one in ast.walk(node) if isinstance(one, ast.Raise)]
    counted: Counter[str] = Counter()
    offered = []
    for kind, _, where in plant.places(node):
        line = int(where.removeprefix("line "))
        if kind in KINDS and not any(line in lines for lines in spoken):
            offered.append((kind, counted[kind], line))
        counted[kind] += 1
    order.shuffle(offered)
    had: Counter[str] = Counter()
    turns = []
    for one in offered:
        turns.append((had[one[0]], one))
        had[one[0]] += 1
    for _, (kind, nth, line) in sorted(turns, key=lambda turn: turn[0]):
        if _code(node) != _code(node, kind, nth):
            yield Edit(module, function, kind, nth, line, text.splitlines()[line - 1].strip())


def _code(function: ast.AST, kind: str = "", nth: int = 0) -> CodeType:
    """What a function compiles to, its decorators and defaults apart."""
    changed: Any = copy.deepcopy(function)
    if kind:
        [one for one in plant.places(changed) if one[0] == kind][nth][1]()
    whole = compile(ast.fix_missing_locations(ast.Module([changed], [])), "", "exec")
    return next(one for one in whole.co_consts if isinstance(one, CodeType) and one.co_name == changed.name)


def becomes(edit: Edit) -> str:
    """The edited line, to argue about: a line has several numbers, and which is the n-th is not seen in it."""
    function: Any = plant.function_in(plant.tree_of(importlib.import_module(edit.module)), edit.function)
    before = ast.unparse(function).splitlines()
    [one for one in plant.places(function) if one[0] == edit.kind][edit.nth][1]()
    after = ast.unparse(function).splitlines()
    return next((new.strip() for old, new in zip(before, after, strict=False) if old != new), "")


def drawn(folders: list[str], per_function: int, seed: int) -> Iterator[Edit]:
    """So many edits of each function; the functions in any order."""
    found = list(functions(folders))
    random.Random(seed).shuffle(found)
    for module, function, file in found:
        order = random.Random(f"{module} {function} {seed}")
        yield from islice(edits_of(module, function, file, order), per_function)


def argued() -> dict[tuple[str, str, str, int, str], str]:
    """(module, function, kind, number, line's text) -> why the edit is no fault."""
    read = [one for path in sorted(ARGUED.glob("*.toml")) for one in tomllib.loads(path.read_text("utf-8"))["argued"]]
    return {(one["module"], one["function"], one["kind"], one["nth"], one["text"]): one["reason"] for one in read}


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What the work comes to, in a process of its own; None when that process ends without a word."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        try:
            os.write(writing, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it has started and left behind
    os.waitpid(child, 0)
    return json.loads(said) if said else None


class Forked:
    """In place of `subprocess.Popen` of a Python module: a fork of this process, which has imported what it needs."""

    def __init__(
        self, command: list[str], pass_fds: tuple[int, ...], env: dict[str, str] | None = None, **_: Any
    ) -> None:
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._be(command[2:], pass_fds, env or {})

    def _be(self, command: list[str], kept: tuple[int, ...], env: dict[str, str]) -> NoReturn:
        code = 1
        try:
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.environ.update(env)
            edges = [2, *sorted(kept), 1 << 12]
            for low, high in pairwise(edges):
                os.closerange(low + 1, high)
            sys.argv = command
            code = importlib.import_module(command[0]).main()
        finally:
            os._exit(code)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def poll(self) -> int | None:
        """The same once somebody has waited for it."""
        return self._code

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)


IMPORTING = """
import importlib, json, sys
entered = set()
sys.setprofile(lambda frame, event, _: entered.add((frame.f_globals.get("__name__"), frame.f_code.co_qualname)))
for name in sys.argv[1:]:
    importlib.import_module(name)
sys.setprofile(None)
print(json.dumps(sorted(one for one in entered if one[0] in sys.argv)))
"""


def entered_at_import(modules: list[str]) -> set[tuple[str, str]]:
    """(module, function) of what is entered while these modules are imported, in a Python of its own."""
    command = [sys.executable, "-c", IMPORTING, *modules]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {(module, function) for module, function in json.loads(said)}


def prepare() -> None:
    """Import the engine, so that forked workers and schedulers need not; nothing is published, nothing patched."""
    boot.prepare_environment("cpu")
    boot.warm()
    importlib.import_module("torch").set_num_threads(1)
    absent_packages.install()
    absent_packages.stand_in_empty("vllm")
    native.without_dual_gemm()
    for module in (*boot.CORE, *build.MODULES):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    importlib.import_module("ropecheck.adapters.sglang.capabilities").Engine()
    boot.settle()
    logging.disable(logging.NOTSET)


def forget() -> None:
    """Empty what was kept while tests were collected: an edit must have its say."""
    for one in gc.get_objects():
        if hasattr(type(one), "cache_clear") and str(getattr(one, "__module__", "")).startswith(("ropecheck", "tests")):
            one.cache_clear()


def settled() -> list[Settled]:
    """What judges keep of right answers, so as not to ask again."""
    return [one for one in gc.get_objects() if isinstance(one, Settled)]


class Seen:
    """Which edits' statements ran, in this process and in those that are forked from it: each has a call before it."""

    def __init__(self, edits: list[Edit]) -> None:
        self._bytes = mmap.mmap(-1, max(1, len(edits)))
        vars(builtins)[PROBE] = lambda number: self._bytes.__setitem__(number, 1)
        within: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for number, one in enumerate(edits):
            within.setdefault((one.module, one.function), []).append((number, one.line))
        for (module, function), places in within.items():
            owner = importlib.import_module(module)
            tree = plant.tree_of(owner)
            for number, line in places:
                block, at = _statement(plant.function_in(tree, function), line)
                block.insert(at, ast.parse(f"{PROBE}({number})").body[0])
            code = compile(ast.fix_missing_locations(tree), owner.__file__ or module, "exec")
            plant._target(owner, function).__code__ = plant._code_in(code, function)

    def take(self) -> list[int]:
        """The numbers of those that ran since the last call."""
        found = [number for number, one in enumerate(self._bytes[:]) if one]
        self._bytes[:] = bytes(len(self._bytes))
        return found


PROBE = "__ropecheck_ran__"


def _statement(function: ast.AST, line: int) -> tuple[list[ast.stmt], int]:
    """The block and the place in it of the innermost statement around a line."""
    found: tuple[list[ast.stmt], int] = ([], 0)
    for node in ast.walk(function):  # from the outside in
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                inside = [at for at, one in enumerate(block) if one.lineno <= line <= one.end_lineno]
                found = (block, inside[0]) if inside else found
    return found


class Mutation:
    """A pytest plugin: in place of running the tests once. budget: seconds of tests for one edit."""

    def __init__(self, edits: list[Edit], modules: list[str], budget: float) -> None:
        self.edits, self._modules, self._budget = edits, modules, budget
        self.counts = dict.fromkeys((*STATES, AT_IMPORT), 0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Which test runs which line; then the edits."""
        for starter in (support, host):
            forked = SimpleNamespace(Popen=Forked, TimeoutExpired=subprocess.TimeoutExpired)
            setattr(starter, "subprocess", forked)  # noqa: B010 - it is a module
        tests = self._tests(session.items)
        early = set() if all(tests) or not self._modules else entered_at_import(self._modules)
        reasons = argued()
        for number, one in enumerate(self.edits):
            state, said = self._try(one, [(session.items[at], seconds) for at, seconds in tests[number]])
            reason = reasons.get((one.module, one.function, one.kind, one.nth, one.text))
            if reason and state == "noticed":
                said += ": but it is argued to be no fault"
            elif reason:
                state = "argued"
            elif state == "never run" and (one.module, one.function) in early:
                state = AT_IMPORT
            self.counts[state] += 1
            edited = "" if state == "noticed" else f": now {becomes(one)}"
            print(f"{state:10} {one}{edited} ({said})", file=sys.__stderr__, flush=True)
        return True

    def _tests(self, items: list[pytest.Item]) -> list[list[tuple[int, float]]]:
        """Per edit: (number, seconds) of the tests that run its line, the quickest files first. Raises for a test that
        fails while nothing is edited."""

        def watched() -> list[tuple[float, list[int], bool]]:
            forget()
            seen, kept = Seen(self.edits), settled()
            found = []
            for number, item in enumerate(items):
                for one in kept:
                    one.__init__()  # type: ignore[misc]  # what a test before it was answered is judged again
                started = time.perf_counter()
                failed = _failed(item, _next(items, number))
                found.append((time.perf_counter() - started, seen.take(), failed))
            return found

        found = in_a_fork(watched)
        for seconds, number in sorted(((one[0], number) for number, one in enumerate(found or ())), reverse=True)[:5]:
            print(f"{seconds:6.1f} s {items[number].nodeid}", file=sys.__stderr__, flush=True)
        failed = [items[number].nodeid for number, one in enumerate(found or ()) if one[2]]
        if found is None or failed:
            raise pytest.UsageError(
                f"before anything is edited the tests must pass: {', '.join(failed) or 'they ended'}"
            )
        whole: dict[str, float] = defaultdict(float)
        for number, (seconds, _, _) in enumerate(found):
            whole[str(items[number].path)] += seconds
        order = sorted(range(len(items)), key=lambda at: (whole[str(items[at].path)], found[at][0]))
        return [[(at, found[at][0]) for at in order if number in found[at][1]] for number in range(len(self.edits))]

    def _try(self, edit: Edit, tests: list[tuple[pytest.Item, float]]) -> tuple[str, str]:
        if not tests:
            return "never run", ""

        def caught() -> str:
            forget()
            try:
                plant.plant(edit.module, edit.function, edit.kind, edit.nth)
            except LookupError as error:
                return f"!{error}"
            plant._HELD.clear()  # what tests plant and take back is not this
            started = time.perf_counter()
            for number, (item, seconds) in enumerate(tests):
                signal.setitimer(signal.ITIMER_PROF, 20 + 5 * seconds)  # one that never ends is noticed
                signal.setitimer(signal.ITIMER_REAL, 30 + 10 * seconds)  # and one that waits for ever
                if _failed(item, tests[number + 1][0] if number + 1 < len(tests) else None):
                    return f"+{item.nodeid}"
                if time.perf_counter() - started > self._budget:
                    return f"-{number + 1} of {len(tests)} tests, the last {item.nodeid}"
            return f"-{len(tests)} tests, such as {tests[0][0].nodeid}"

        said = in_a_fork(caught)
        if said is not None and said[0] == "!":
            raise pytest.UsageError(f"{edit} cannot be made: {said[1:]}")
        return (
            ("noticed", "a test ended the process")
            if said is None
            else (
                "noticed" if said[0] == "+" else "unnoticed",
                said[1:],
            )
        )


def _next(items: list[pytest.Item], number: int) -> pytest.Item | None:
    return items[number + 1] if number + 1 < len(items) else None


def _failed(item: pytest.Item, following: pytest.Item | None) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def main() -> int:
    """1 when less than the wanted share of the edits was noticed or argued."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", help="what is edited")
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--per-function", type=int, default=1)
    parser.add_argument("--most", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a pattern that the edits tried have")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of tests for one edit")
    parser.add_argument("--least", type=float, default=90.0, help="per cent")
    given, more = parser.parse_known_args()
    engine = any(one.startswith("adapters/sglang") for one in given.folders)
    if engine:
        prepare()
    edits = list(islice(drawn(given.folders, given.per_function, given.seed), given.most))
    modules = [] if engine else sorted({module for module, _, _ in functions(given.folders)})  # an engine takes minutes
    mutation = Mutation([one for one in edits if re.search(given.only, str(one))], modules, given.budget)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-x", *more, *given.tests], plugins=[mutation])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(code)
    total = len(mutation.edits) - mutation.counts[AT_IMPORT]
    settled = mutation.counts["noticed"] + mutation.counts["argued"]
    counts = ", ".join(f"{number} {state}" for state, number in mutation.counts.items())
    share = 100 * settled / max(1, total)
    print(f"{' '.join(given.folders)}, seed {given.seed}: {total} edits: {counts}; {share:.0f} % settled")
    return int(100 * settled < given.least * total)


if __name__ == "__main__":
    sys.exit(main())
