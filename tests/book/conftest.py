"""The book, built once for all tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ropecheck.conformance.book.build import SiteBuild, build
from ropecheck.conformance.cli.app import app


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SiteBuild]:
    """The folder, and what the build says of it."""
    folder = tmp_path_factory.mktemp("site")
    return folder, build(folder, typer.main.get_command(app))
