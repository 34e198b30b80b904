"""Which functions of an engine speak of positions, and which of them were entered: in a package of a few lines that has
the engine's folders."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters.sglang.scheduler import entered

MANAGER = '''
"""Speaks of positions here, which is no function."""
import functools


def plain(positions):
    return positions + 1


def silent(tokens):
    return tokens  # and its positions stay where they are


def by_keyword(call):
    return call(position_ids=3)


def by_attribute(batch):
    return batch.mrope_delta_of_all


def by_name():
    return positions_of  # another word


def local():
    positions = 5
    return positions


def noted(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner


@noted
def decorated(positions):
    return positions * 2


def lazy(positions):
    yield positions


async def later(positions):
    return positions


def make(factor):
    def closed(positions):
        return positions * factor
    return closed


class Base:
    def read(self, positions):
        return positions


class Reader(Base):
    class Inner:
        def mrope(self, positions):
            return positions

    def read(self, positions):
        return super().read(positions) + 1

    @staticmethod
    def fixed(positions):
        return positions

    @classmethod
    def of(cls, positions):
        return cls.__name__, positions

    def quiet(self):
        def positions():
            pass
        return 1


closed = make(3)
'''
KERNEL = "def kernel(positions):\n    return positions\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package's folder; nothing of it is imported."""
    folder = tmp_path / "sglang"
    for name, text in {
        "srt/managers/toy_manager.py": MANAGER,
        "srt/managers/inner/__init__.py": KERNEL,
        "srt/speculative/toy_quiet.py": "def quiet(tokens):\n    return tokens\n",
        "srt/layers/toy_elsewhere.py": KERNEL,
        "kernels/ops/attention/position.py": KERNEL,
        "kernels/ops/attention/position_more.py": KERNEL.replace("kernel", "more"),
        "kernels/ops/attention/other.py": KERNEL,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[str(folder)])
    )
    for name, empty in (("_left", {}), ("_waiting", []), ("_fresh", [])):
        monkeypatch.setattr(entered, name, empty)
    entered.found.cache_clear()
    for name in ("srt.managers.inner", "kernels.ops.attention.position"):
        monkeypatch.delitem(sys.modules, f"sglang.{name}", raising=False)
    yield folder
    entered.found.cache_clear()


@pytest.fixture
def imported(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a module of the package."""

    def load(name: str) -> ModuleType:
        made = ModuleType(name)
        path = root.joinpath(*name.split(".")[1:]).with_suffix(".py")
        exec(compile(path.read_text(), str(path), "exec"), vars(made))
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return load


TOY = "sglang.srt.managers.toy_manager"


def test_every_function_whose_text_speaks_of_positions_is_found(root: Path) -> None:
    assert entered.found() == (
        ("sglang.srt.managers.inner", "kernel"),
        *(
            (TOY, name)
            for name in (
                *("plain", "by_keyword", "by_attribute", "local", "decorated", "lazy", "later", "make"),
                *("Base.read", "Reader.Inner.mrope", "Reader.read", "Reader.fixed", "Reader.of"),
            )
        ),
        ("sglang.kernels.ops.attention.position", "kernel"),
        ("sglang.kernels.ops.attention.position_more", "more"),
    )
    assert entered.found() is entered.found(), "the sources are read once"


def test_without_the_engine_nothing_is_found(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert entered.found() == ()


def test_a_decorator_that_speaks_makes_its_function_speak(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("@wrap(positions=1)\n@also\ndef one():\n    pass\n\n\ndef two():\n    pass\n")
    assert list(entered._speaking(file)) == ["one"]
    file.write_text("def two():\n    pass\n")
    assert list(entered._speaking(file)) == []


def test_reports_leave_out_what_all_names_begin_with() -> None:
    assert entered.told("sglang.srt.managers.x", "A.b") == "managers.x:A.b"
    assert entered.told("sglang.kernels.ops.x", "b") == "kernels.ops.x:b"


def test_the_first_call_of_each_function_is_noted_and_nothing_else_changes(imported: Callable[[str], Any]) -> None:
    toy = imported(TOY)
    entered.found()
    codes = {name: getattr(toy, name).__code__ for name in ("plain", "local", "silent")}
    assert entered.fresh() == ()
    reader = toy.Reader()
    assert (toy.plain(1), toy.plain(positions=4), toy.local(), toy.silent(9)) == (2, 5, 5, 9)
    assert entered.fresh() == ("managers.toy_manager:plain", "managers.toy_manager:local")
    assert entered.fresh() == ()
    assert {name: getattr(toy, name).__code__ for name in codes} == codes
    assert (toy.decorated(4), reader.read(1), toy.Reader.fixed(7), toy.Reader.of(8)) == (8, 2, 7, ("Reader", 8))
    told = ("decorated", "Reader.read", "Base.read", "Reader.fixed", "Reader.of")
    assert entered.fresh() == tuple(f"managers.toy_manager:{name}" for name in told)
    assert (reader.read(2), toy.decorated(5)) == (3, 10)
    assert entered.fresh() == ()


def test_what_runs_later_or_closes_over_values_is_left_alone(imported: Callable[[str], Any]) -> None:
    toy = imported(TOY)
    entered.found()
    entered.watch()
    with ThreadPoolExecutor(1) as thread:  # this one may have a browser's loop, from an earlier test
        later = thread.submit(asyncio.run, toy.later(4)).result()
    assert (list(toy.lazy(3)), later, toy.closed(5)) == ([3], 4, 15)
    assert entered.fresh() == ()
    assert toy.make(2)(3) == 6
    assert entered.fresh() == ("managers.toy_manager:make",)


def test_a_module_that_comes_later_is_watched_from_then_on(imported: Callable[[str], Any]) -> None:
    entered.found()
    assert entered.fresh() == ()
    toy = imported("sglang.kernels.ops.attention.position")
    toy.kernel(1)
    assert entered.fresh() == (), "it was not watched yet"
    toy.kernel(2)
    assert entered.fresh() == ("kernels.ops.attention.position:kernel",)


def test_a_program_is_noted_at_its_launch(imported: Callable[[str], Any]) -> None:
    """A Triton program is launched through `run`; its function is never called."""
    toy = imported("sglang.kernels.ops.attention.position")
    launches: list[int] = []

    class Program:
        fn = staticmethod(toy.kernel)

        def run(self, grid: int, *, more: int = 0) -> str:
            launches.append(grid + more)
            return "launched"

    toy.kernel = Program()
    entered.found()
    entered.watch()
    assert toy.kernel.run(3, more=4) == toy.kernel.run(5) == "launched"
    assert launches == [7, 5] and entered.fresh() == ("kernels.ops.attention.position:kernel",)


def test_a_name_that_is_gone_by_now_is_nothing(imported: Callable[[str], Any]) -> None:
    toy = imported(TOY)
    del toy.plain, toy.Base
    toy.local = 5
    entered.found()
    entered.watch()
    assert entered.thing(TOY, "plain") == (toy, None)
    assert entered.thing(TOY, "Base.read") == (None, None)
    assert entered.thing(TOY, "Reader.fixed") == (toy.Reader, toy.Reader.fixed)
