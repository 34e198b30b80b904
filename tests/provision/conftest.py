"""A package index of tiny wheels on disk, and a project folder of its own for every test."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ropecheck.conformance.targets import pip_overlay, provisioned


def write_wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> Path:
    """A wheel of one module that knows its version."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index: two engine releases, of which the older needs packages of its own."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder, "sglang", "0.0.9", ("transformers==0.4.1", "torch==99", "aiohttp"))
    write_wheel(folder, "sglang", "0.1.0", ("torch==99", "transformers>=0"))
    write_wheel(folder, "transformers", "0.4.1", ("tokenizers<=0.0.3,>=0.0.2", "huggingface-hub<0.0.2; extra == 'x'"))
    for version in ("0.0.1", "0.0.2", "0.0.4"):
        write_wheel(folder, "tokenizers", version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `.ropecheck`, and a common environment that holds torch and a newer transformers."""
    folder = tmp_path / "project" / ".ropecheck"
    monkeypatch.setattr(provisioned, "home", lambda: folder)
    known = {"torch": "2.14.1", "transformers": "5.19.0", "tokenizers": "0.23.2"}
    real = pip_overlay.installed

    def installed(name: str, path: list[str] | None = None) -> str | None:
        return known.get(name) if path is None else real(name, path)

    monkeypatch.setattr(pip_overlay, "installed", installed)
    return folder


@pytest.fixture
def said() -> list[str]:
    """What `say` was told."""
    return []


def leftovers(home: Path) -> list[str]:
    """Staging folders that a finished or failed `add` should not leave."""
    return [path.name for path in home.glob("targets/.staging/*")]
