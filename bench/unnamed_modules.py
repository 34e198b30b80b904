"""Modules that no test imports or names: `python -m bench.unnamed_modules`.

Tests of others run most of them: `make coverage` says which lines.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def modules() -> set[str]:
    """Every module of the package, packages and entry points left out."""
    found = (path for top in ("adapters", "conformance", "reference", "spec") for path in (ROOT / top).rglob("*.py"))
    return {
        ".".join(("ropecheck", *path.relative_to(ROOT).with_suffix("").parts))
        for path in found
        if not path.stem.startswith("__")
    }


def named() -> set[str]:
    """What the tests import, and dotted names in their strings."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = re.match(r"ropecheck(?:\.\w+)*", node.value)
                words = parts.group().split(".") if parts else []
                found |= {".".join(words[:end]) for end in range(2, len(words) + 1)}
    return found


def main() -> None:
    every, told = modules(), named()
    without = sorted(every - told)
    print(*without, sep="\n")
    folders = Counter(".".join(name.split(".")[1:3]) for name in without)
    print(f"\n{len(without)} of {len(every)}:", ", ".join(f"{name} {count}" for name, count in folders.most_common()))


if __name__ == "__main__":
    main()
