"""Faults planted in the specification: a function's own source with a piece of it replaced."""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import linecache
import sys
from typing import Any

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, where: str, old: str, new: str) -> None:
    """Replaces `old` by `new` in the source of the specification's "module:function", wherever that is used."""
    module_name, _, name = where.partition(":")
    module = importlib.import_module(f"ropecheck.spec.{module_name}")
    original = getattr(module, name)
    source = inspect.getsource(original)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {where}"
    first = ast.parse(source).body[0]
    assert isinstance(first, ast.FunctionDef)
    # Without its @rule: an id is stated once.
    lines = source.replace(old, new).splitlines(keepends=True)[first.lineno - 1 :]
    file = f"<planted in {where}>"
    monkeypatch.setitem(linecache.cache, file, (len(lines), None, lines, file))
    space: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile("".join(lines), file, "exec", flags=flags, dont_inherit=True), vars(module), space)
    users = [
        loaded
        for key, loaded in sys.modules.items()
        if key.startswith(("ropecheck.spec.", "ropecheck.conformance.prove."))
    ]
    for using in map(vars, users):
        for bound, value in list(using.items()):
            if value is original:
                monkeypatch.setitem(using, bound, space[name])
