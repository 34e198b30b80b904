"""The wheel runs in an empty environment: nothing but the wheel itself and the packages that it asks for."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("adapters", "conformance", "reference", "spec", "vectors", "pyproject.toml", "README.md", "LICENSE")

BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel, and finds what it depends on in the running one's packages."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for part in PARTS:
        (source / part).symlink_to(ROOT / part)
    (source / "ropecheck").mkdir()
    for file in (ROOT / "ropecheck").iterdir():
        if file.suffix == ".py":
            (source / "ropecheck" / file.name).write_bytes(file.read_bytes())
        elif file.is_symlink():
            (source / "ropecheck" / file.name).symlink_to(file.readlink())
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", str(source), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *build], check=True, env=BARE)
    venv.create(folder / "env", with_pip=False)
    made = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run(
        [*pip, "--python", str(made), "install", "--no-deps", "--no-index", str(wheel)], check=True, env=BARE
    )
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    return made


def run(python: Path, *words: str) -> str:
    command = [str(python.parent / "ropecheck"), *words]
    done = subprocess.run(command, cwd=python.parents[2], capture_output=True, text=True, env=BARE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_runs(python: Path) -> None:
    assert run(python, "--version").startswith("ropecheck ")
    said = run(python, "run", "--target", "reference", "--phase", "laws")
    assert " 0 failed" in said
    where = [str(python), "-c", "import ropecheck.spec; print(ropecheck.spec.__file__)"]
    told = subprocess.run(where, capture_output=True, text=True, check=True, cwd=python.parent, env=BARE)
    assert Path(told.stdout.strip()).is_relative_to(python.parents[1]), "the wheel, not the checkout"


def test_vectors_and_schemas_are_inside(python: Path) -> None:
    (package,) = python.parents[1].glob("lib/python*/site-packages/ropecheck")
    inside = {path.relative_to(package / "vectors") for path in (package / "vectors").rglob("*") if path.is_file()}
    assert inside == {path.relative_to(ROOT / "vectors") for path in (ROOT / "vectors").rglob("*") if path.is_file()}
    schemas = {path.name for path in (package / "conformance" / "data").glob("*.schema.json")}
    assert schemas == {path.name for path in (ROOT / "conformance" / "data").glob("*.schema.json")}
