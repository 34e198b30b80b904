"""The committed vectors, a small copy to break, and the right answers to it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.vectors.types import folders

COMMITTED = Path(__file__).parents[2] / "vectors"

Json = dict[str, Any]


def only(folder: str, wanted: Callable[[Json], bool] = lambda vector: True) -> Path:
    """The first committed vector of a folder that is wanted."""
    for path in sorted((COMMITTED / folder).glob("*.json")):
        if wanted(json.loads(path.read_text())):
            return path
    raise LookupError(folder)


def answer_to(vector: Json) -> list[Json]:
    """The right answer."""
    return [
        {key: value for key, value in table.items() if key not in ("free", "optional_from")}
        for table in vector["expected"]
    ]


@pytest.fixture
def some(tmp_path: Path) -> Path:
    """A folder with the first three vectors of every kind."""
    for folder in folders():
        (tmp_path / "some" / folder).mkdir(parents=True)
        for path in sorted((COMMITTED / folder).glob("*.json"))[:3]:
            shutil.copy(path, tmp_path / "some" / folder)
    return tmp_path / "some"


class Graded:
    """Answers to one committed vector or to several, graded through the command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "answers.json"
        self.capsys = capsys

    def __call__(self, where: Path, answers: object, *options: str) -> tuple[int, str]:
        """Exit code, and all that was printed."""
        text = answers if isinstance(answers, str) else json.dumps(answers)
        self.file.write_text(text)
        code = cli.execute(["vectors", "check", str(where), "--against", str(self.file), *options])
        captured = self.capsys.readouterr()
        return code, captured.out + captured.err


@pytest.fixture
def graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Graded:
    return Graded(tmp_path, capsys)
