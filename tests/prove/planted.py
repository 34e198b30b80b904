"""Faults planted in the specification: a function's own source with a piece of it replaced."""

from __future__ import annotations
import __future__

import ast
import dataclasses
import importlib
import inspect
import linecache
import sys
from typing import Any

import pytest

from ropecheck.spec import rules
from ropecheck.spec.modes.declaration import Mode


def plant(monkeypatch: pytest.MonkeyPatch, where: str, old: str, new: str) -> None:
    """Replaces `old` by `new` in the source of the specification's "module:function", wherever that is used: a mode's
    function in its mode, a rule's in what the judge asks."""
    module_name, _, name = where.partition(":")
    module = importlib.import_module(f"ropecheck.spec.{module_name}")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    original = found.tokens if isinstance(found, Mode) else found
    source = inspect.cleandoc("\n" + inspect.getsource(original))
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {where}"
    first = ast.parse(source).body[0]
    assert isinstance(first, ast.FunctionDef)
    # Without its @rule or @mode: an id is stated once.
    lines = source.replace(old, new).splitlines(keepends=True)[first.lineno - 1 :]
    file = f"<planted in {where}>"
    monkeypatch.setitem(linecache.cache, file, (len(lines), None, lines, file))
    space: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile("".join(lines), file, "exec", flags=flags, dont_inherit=True), vars(module), space)
    planted = space[first.name]
    if isinstance(found, Mode):
        monkeypatch.setitem(found.__dict__, "tokens", planted)
        return
    if "." in name:
        owner = getattr(module, name.split(".")[0])
        monkeypatch.setattr(owner, first.name, planted)
        return
    monkeypatch.setattr(rules, "_ASKED", {})
    for id, rule in rules.all_rules().items():
        if rule.check is original:
            monkeypatch.setitem(rules._RULES, id, dataclasses.replace(rule, check=planted))
    users = ("ropecheck.spec.", "ropecheck.conformance.prove.")
    for using in (vars(loaded) for key, loaded in list(sys.modules.items()) if key.startswith(users)):
        for bound, value in list(using.items()):
            if value is original:
                monkeypatch.setitem(using, bound, planted)
