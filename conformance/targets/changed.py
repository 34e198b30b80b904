"""Which functions a change touches: the lines that git names, in the functions that hold them."""

import ast
import re
import subprocess
from collections.abc import Iterable

from ropecheck.conformance.targets.checkout import Checkout

_FILE = re.compile(r"^\+\+\+ b/(?P<path>.*)$")
_HUNK = re.compile(r"^@@ -\S+ \+(?P<start>\d+)(?:,(?P<count>\d+))? @@")

Function = tuple[str, str]
"""File from the package on, and qualified name; the file alone stands for its own level."""

EVERYWHERE = ""
"""Stands for a file's own level: whatever imports it may behave otherwise."""


def changed_functions(checkout: Checkout, base: str) -> frozenset[Function]:
    """Every function that differs from commit `base`."""
    done = subprocess.run(
        ["git", "-C", str(checkout.root), "diff", "-U0", "--relative", base, "--", "sglang"],
        capture_output=True,
        check=False,
    )
    found: set[Function] = set()
    for path, lines in _lines(done.stdout.decode("utf-8", "replace").splitlines()).items():
        if not path.endswith(".py"):
            continue
        try:
            source = (checkout.root / path).read_text("utf-8")
            spans = _spans(ast.parse(source))
        except (OSError, UnicodeDecodeError, SyntaxError):
            found.add((path, EVERYWHERE))
            continue
        for line in lines:
            inside = [(stop - start, name) for name, start, stop in spans if start <= line <= stop]
            found.add((path, min(inside)[1] if inside else EVERYWHERE))
    return frozenset(found)


def _lines(diff: Iterable[str]) -> dict[str, list[int]]:
    """File -> lines of its new text that a hunk adds, or beside which it takes some away."""
    found: dict[str, list[int]] = {}
    path = ""
    for line in diff:
        if match := _FILE.match(line):
            path = match["path"]
        elif (match := _HUNK.match(line)) and path:
            start, count = int(match["start"]), int(match["count"] or 1)
            found.setdefault(path, []).extend(range(start, start + max(count, 1)))
    return found


def _spans(tree: ast.AST, prefix: str = "") -> list[tuple[str, int, int]]:
    """(qualified name, first line, last line) of every function, as Python names code objects."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + node.name
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.append((name, first, node.end_lineno or node.lineno))
            found += _spans(node, f"{name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            found += _spans(node, f"{prefix}{node.name}.")
        else:
            found += _spans(node, prefix)
    return found


def function_of(place: str) -> Function:
    """Of "file.py:LINE name", as workers say what ran."""
    where, _, name = place.partition(" ")
    return where.rpartition(":")[0], name


def touches(ran: Iterable[Function], changed: frozenset[Function]) -> bool:
    """Whether one of the functions that ran is a changed one."""
    return any((file, name) in changed or (file, EVERYWHERE) in changed for file, name in ran)
