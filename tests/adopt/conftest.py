"""The toy engine of docs/adopt.md, as a reader would copy it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DOC = Path(__file__).parents[2] / "docs" / "adopt.md"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the document's files, and a broken copy of the engine; importable."""
    blocks = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", DOC.read_text(), re.DOTALL))
    assert set(blocks) == {"toy_engine.py", "test_positions.py"}
    for name, code in blocks.items():
        (tmp_path / name).write_text(code)
    right = blocks["toy_engine.py"]
    broken = right.replace("else index + request.delta", "else index")
    assert broken != right
    (tmp_path / "broken_engine.py").write_text(broken)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("toy_engine", "broken_engine"):
        sys.modules.pop(name, None)
