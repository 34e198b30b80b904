"""The examples in the specification's own docstrings: the worked table of every mode among them."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

from ropecheck import spec
from ropecheck.spec.modes.declaration import DECLARED

MODULES = [module.name for module in pkgutil.walk_packages(spec.__path__, "ropecheck.spec.")]
FINDER = doctest.DocTestFinder()


def examples(name: str) -> list[doctest.DocTest]:
    """Of the module's functions, and of those that became modes."""
    module = importlib.import_module(name)
    found = [one for one in FINDER.find(module) if one.examples]
    modes = [mode for mode in DECLARED.values() if mode.stated.startswith(f"{name}:") and not mode.composite]
    for mode in modes:
        found += FINDER.find(mode.tokens, mode.name, module, globs=dict(vars(module)))
    return found


@pytest.mark.parametrize("name", MODULES)
def test_an_example_gives_what_it_says(name: str) -> None:
    runner = doctest.DocTestRunner(verbose=False)
    for one in examples(name):
        runner.run(one)
    assert runner.summarize(verbose=False).failed == 0


def test_every_mode_with_rows_of_its_own_has_one() -> None:
    shown = {mode.name for mode in DECLARED.values() if ">>>" in (inspect.getdoc(mode.tokens) or "")}
    assert shown == {mode.name for mode in DECLARED.values() if not mode.composite}
