"""What a forward mode is, its declaration says: no code outside the declarations and the engines' adapters asks for its
name. Allowed beside them: an engine's bugs (`known`), planted faults (`selftest`), proven laws (`prove`), each of one
mode's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import DECLARED
from tests.conformance.support import ROOT

FOLDERS = ("conformance", "reference", "spec")
ALLOWED = ("spec/modes/", "conformance/known/", "conformance/selftest/", "conformance/prove/laws.py")


def asked_by_name(tree: ast.AST, names: frozenset[str]) -> Iterator[int]:
    """Lines on which something that is called a mode is compared, or matched, with a mode's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(map(_mode, sides)) and names & set().union(*map(_words, sides)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = node.func.attr in ("startswith", "endswith") and _mode(node.func.value)
            if named and names & set().union(*map(_words, node.args)):
                yield node.lineno
        elif isinstance(node, ast.MatchClass):
            for field, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
                if field == "mode" and names & _words(pattern):
                    yield node.lineno
        elif isinstance(node, ast.Match) and _mode(node.subject):
            yield from (case.pattern.lineno for case in node.cases if names & _words(case.pattern))


def _mode(node: ast.AST) -> bool:
    """x.mode, mode, mode.name, .. and what is done to them, such as row["mode"]."""
    named = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    named |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | _words(node)
    return "mode" in named


def _words(node: ast.AST) -> set[str]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def test_no_mode_is_asked_for_by_its_name() -> None:
    mode_of("extend")  # all are declared
    found = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if not name.startswith(ALLOWED):
                tree = ast.parse(file.read_text("utf-8"))
                found += [f"{name}:{line}" for line in asked_by_name(tree, frozenset(DECLARED))]
    assert found == []


def test_each_way_to_ask_is_seen() -> None:
    names = frozenset({"extend", "decode"})
    for text in (
        'x = event.mode == "extend"',
        'x = event.mode in ("extend", "mixed")',
        'x = "decode" != mode.name',
        'x = row["mode"] not in ("decode",)',
        'x = view.mode.endswith("extend")',
        'match event:\n    case Forward(mode="extend" | "mixed"):\n        pass',
        'match mode.name:\n    case "decode":\n        pass',
    ):
        assert list(asked_by_name(ast.parse(text), names)), text
    for text in ('x = stage == "decode"', 'forward("decode", reqs)', "x = event.mode == other.mode"):
        assert not list(asked_by_name(ast.parse(text), names)), text
