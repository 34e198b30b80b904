"""A mutation test of the suite by its own tests: `python -m tests.meta.mutation FOLDER.. --tests TEST..`.

The edits are those of `score --engine` (adapters/sglang/plant.py): a sign, a bound, a number, a condition, a lost line,
in memory. One process collects the tests; each edit is made in a fork of it, which runs those that enter the edited
function until one fails. So an edit costs a fraction of a second where other tools start a Python, and functions that
decorators have registered are edited as well. Not edited: what runs at import alone, and what other processes run.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ropecheck.adapters.sglang import plant

ROOT = Path(__file__).parents[2]
KINDS = ("sign", "bound", "number", "call", "condition", "lost line")
LIMIT = 60
"""Seconds of processor time for the tests of one edit; one that never ends is noticed."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one function."""

    module: str
    function: str
    kind: str
    nth: int


def functions(folders: list[str]) -> Iterator[tuple[str, str, str]]:
    """(module, qualified name, file) of every function and method in the folders' files."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = "ropecheck." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
            body = ast.parse(path.read_text("utf-8")).body
            inner = [(f"{one.name}.", one.body) for one in body if isinstance(one, ast.ClassDef)]
            for prefix, block in (("", body), *inner):
                for one in block:
                    if isinstance(one, ast.FunctionDef):
                        yield module, prefix + one.name, str(path.resolve())


def drawn(module: str, function: str, most: int, seed: int) -> list[Edit]:
    """So many edits of a function, of different kinds where it has them."""
    counts = plant.count(module, function)
    offered = [Edit(module, function, kind, nth) for kind in KINDS for nth in range(counts.get(kind, 0))]
    source = random.Random(f"{module} {function} {seed}")
    source.shuffle(offered)
    first = [one for number, one in enumerate(offered) if one.kind not in {two.kind for two in offered[:number]}]
    return list(dict.fromkeys([*first, *offered]))[:most]


def in_a_fork(work: Callable[[], Any], limit: float = 0) -> Any:
    """What the work comes to, in a process of its own; None when that process ends without a word. limit: seconds of
    processor time, 0 for no limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else None


def forget() -> None:
    """Empty what was kept while tests were collected: an edit must have its say."""
    for one in gc.get_objects():
        if hasattr(type(one), "cache_clear") and str(getattr(one, "__module__", "")).startswith(("ropecheck", "tests")):
            one.cache_clear()


class Mutation:
    """A pytest plugin: in place of running the tests once."""

    def __init__(self, folders: list[str], most: int, seed: int, limit: int | None) -> None:
        self._found = list(functions(folders))
        self._most, self._seed, self._limit = most, seed, limit
        self.lines: list[str] = []
        self.counts = {"noticed": 0, "unnoticed": 0, "never entered": 0}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Which test enters which function; then the edits."""
        entered = self._entered(session.items)
        edits = []
        for module, function, file in self._found:
            for one in drawn(module, function, self._most, self._seed):
                edits.append((one, entered.get(f"{file} {function}", [])))
        random.Random(self._seed).shuffle(edits)
        for one, tests in edits[: self._limit]:
            self._try(one, [session.items[number] for number in tests])
        return True

    def _entered(self, items: list[pytest.Item]) -> dict[str, list[int]]:
        """ "file function" -> numbers of the tests that enter it, the quickest first. Raises for a test that fails."""
        wanted = {f"{file} {function}" for _, function, file in self._found}

        def watched() -> list[tuple[int, float, list[str]]]:
            forget()
            return [(number, *_watched(item, _next(items, number), wanted)) for number, item in enumerate(items)]

        found = in_a_fork(watched)
        failed = [items[number].nodeid for number, _, names in found or () if names == ["failed"]]
        if found is None or failed:
            raise pytest.UsageError(
                f"before anything is edited the tests must pass: {', '.join(failed) or 'they ended'}"
            )
        entered: dict[str, list[int]] = {}
        for number, _, names in sorted(found, key=lambda one: one[1]):
            for name in names:
                entered.setdefault(name, []).append(number)
        return entered

    def _try(self, edit: Edit, items: list[pytest.Item]) -> None:
        where = f"{edit.module.removeprefix('ropecheck.')}:{edit.function}: {edit.kind} {edit.nth}"

        def caught() -> list[str]:
            forget()
            line = plant.plant(edit.module, edit.function, edit.kind, edit.nth)
            for number, item in enumerate(items):
                if _failed(item, _next(items, number)):
                    return [line, item.nodeid]
            return [line, ""]

        said = in_a_fork(caught, LIMIT) if items else ["", ""]
        state = "never entered" if not items else "noticed" if said is None or said[1] else "unnoticed"
        self.counts[state] += 1
        if state != "noticed":
            self.lines.append(f"{state:13} {where} ({said[0] if said else ''})")
            print(f"\n{self.lines[-1]}", file=sys.__stderr__, flush=True)


def _next(items: list[pytest.Item], number: int) -> pytest.Item | None:
    return items[number + 1] if number + 1 < len(items) else None


def _failed(item: pytest.Item, following: pytest.Item | None) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _watched(item: pytest.Item, following: pytest.Item | None, wanted: set[str]) -> tuple[float, list[str]]:
    """A test's seconds, and the wanted functions that it enters."""
    names: dict[CodeType, str] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in names:
            names[code] = f"{os.path.realpath(code.co_filename)} {code.co_qualname}"

    started = time.process_time()
    sys.setprofile(called)
    try:
        failed = _failed(item, following)
    finally:
        sys.setprofile(None)
    return time.process_time() - started, ["failed"] if failed else sorted(wanted & set(names.values()))


def main() -> int:
    """1 when less than the wanted share of the edits was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", help="what is edited")
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--per-function", type=int, default=1)
    parser.add_argument("--most", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=90.0, help="per cent")
    given, more = parser.parse_known_args()
    mutation = Mutation(given.folders, given.per_function, given.seed, given.most)
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", *more, *given.tests]
    code = pytest.main(arguments, plugins=[mutation])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(code)
    total = sum(mutation.counts.values())
    share = 100 * mutation.counts["noticed"] / total if total else 0.0
    print(f"{' '.join(given.folders)}: {mutation.counts}, {share:.0f} % of {total} noticed")
    return int(share < given.least)


if __name__ == "__main__":
    sys.exit(main())
