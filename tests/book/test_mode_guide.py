"""The guide to a mode of one's own, done as it says: its code blocks in one file, its first commands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from ropecheck.conformance.book.contents import ROOT


def guide() -> str:
    """The mode's file, as the guide has it."""
    blocks = re.findall(r"(?ms)^ *```python\n(.*?)^ *```", (ROOT / "docs" / "modes.md").read_text("utf-8"))
    assert len(blocks) == 2
    return "\n".join(map(dedent, blocks))


def test_the_guides_mode_runs(tmp_path: Path) -> None:
    (tmp_path / "my_verify.py").write_text(guide())
    replay = ["replay", "any mode: my_verify, later", "--target", "reference", "--mode-file", "my_verify.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "ropecheck", *replay], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 0 failed" in done.stdout


def test_what_the_guides_modes_use_of_the_suite_is_there() -> None:
    """Also what they import when an engine runs them: names, and what they call of the modules that they import."""
    example = (ROOT / "docs" / "examples" / "lookahead.py").read_text("utf-8")
    for text in (guide(), example):
        used = 0
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ropecheck."):
                for alias in node.names:
                    used += _has(f"{node.module}.{alias.name}", tree)
        assert used > 8


def _has(name: str, tree: ast.AST) -> int:
    """How many names were looked up: this one, or those that the file reads of the module that it is."""
    module, _, own = name.rpartition(".")
    file = ROOT / "/".join(name.split(".")[1:])
    if not file.with_suffix(".py").is_file():
        assert own in defined(ROOT / "/".join(module.split(".")[1:])), name
        return 1
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own
    }
    assert read <= defined(file), f"{name}: {read - defined(file)}"
    return len(read)


def defined(module: Path) -> set[str]:
    """Names at the top of a module, read without running it."""
    file = module.with_suffix(".py") if module.with_suffix(".py").is_file() else module / "__init__.py"
    names = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
