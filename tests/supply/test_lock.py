"""What is installed: every package by its hash, the transitive ones too, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
LOCKS = REQUIREMENTS / "lock"
LOCKED_FROM = {
    "all.txt": ("torch.txt", "engine.txt", "suite.txt"),
    "suite.txt": ("suite.txt",),
    "no-deps.txt": ("no-deps.txt",),
}

HASH = re.compile(r"sha256:[0-9a-f]{64}")


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """The packages of a lock, each with its hashes."""
    entries = (LOCKS / name).read_text().replace("\\\n", " ").splitlines()
    lines = [line.split(" --hash=") for line in entries if line.strip() and not line.startswith("#")]
    return [(Requirement(first), [one.strip() for one in rest]) for first, *rest in lines]


def here(name: str) -> dict[str, str]:
    """Package -> version, of those that this Python and machine would get."""
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one, _ in locked(name)
        if one.marker is None or one.marker.evaluate()
    }


@pytest.mark.parametrize("name", LOCKED_FROM)
def test_every_package_has_one_version_and_hashes(name: str) -> None:
    for package, hashes in locked(name):
        assert re.fullmatch(r"==[^*,]+", str(package.specifier)), package
        assert hashes and all(HASH.fullmatch(one) for one in hashes), package


@pytest.mark.parametrize("name", LOCKED_FROM)
def test_what_is_asked_for_is_locked_as_it_is(name: str) -> None:
    """After a change of requirements, requirements/lock.sh writes the locks anew."""
    found = here(name)
    for file in LOCKED_FROM[name]:
        for line in (REQUIREMENTS / file).read_text().splitlines():
            if line and not line.startswith("#"):
                package, _, version = line.partition("==")
                assert found.get(canonicalize_name(package)) == version, f"{file}: {line}: run requirements/lock.sh"


def test_what_the_suite_depends_on_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lock in ("all.txt", "suite.txt"):
        found = here(lock)
        for line in project["dependencies"]:
            package = Requirement(line)
            assert package.specifier.contains(found[canonicalize_name(package.name)]), f"{lock}: {line}"


@pytest.mark.parametrize("name", ["all.txt", "suite.txt"])
def test_nothing_that_a_locked_package_needs_is_left_out(name: str) -> None:
    """By the metadata of what is installed: pip is told to look for nothing beyond the lock."""
    found = here(name)
    for package, version in found.items():
        try:
            distribution = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            continue
        if distribution.version != version:
            continue
        for line in distribution.requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in found, f"{package} needs {line}: run requirements/lock.sh"


PYTHON = """#!/bin/sh
# A Python that only writes down what pip is asked for.
case "$1 $2 $3" in
    "-c "*) exec {python} "$@" ;;
    "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip "*) echo "$@" >> {calls}
        case "$*" in *--editable*) cp "$0" "$(dirname "$0")/ropecheck" ;; esac ;;
esac
"""


def test_setup_installs_what_is_locked_and_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=sys.executable, calls=calls))
    python.chmod(0o755)
    environment = os.environ | {"PYTHON": str(python), "VENV": str(tmp_path / "venv")}
    for _ in range(2):
        subprocess.run([REQUIREMENTS / "setup.sh"], env=environment, check=True, capture_output=True)
    first, second = calls.read_text().splitlines()
    assert "--require-hashes" in first and "--no-deps" in first
    assert {Path(word).name for word in first.split() if word.startswith("requirements/lock/")} == {
        "all.txt",
        "no-deps.txt",
    }
    assert "--no-deps" in second and "--no-build-isolation" in second and second.endswith("--editable .")
