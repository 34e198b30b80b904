"""The guide to a mode of one's own, done as it says: its code blocks in one file, its first commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from ropecheck.conformance.book.contents import ROOT


def test_the_guides_mode_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"(?ms)^ *```python\n(.*?)^ *```", (ROOT / "docs" / "modes.md").read_text("utf-8"))
    assert len(blocks) == 2
    (tmp_path / "my_verify.py").write_text("\n".join(map(dedent, blocks)))
    replay = ["replay", "any mode: my_verify, later", "--target", "reference", "--mode-file", "my_verify.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "ropecheck", *replay], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 0 failed" in done.stdout
