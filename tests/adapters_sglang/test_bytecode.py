"""Compiled modules of checkouts are found again by what their source is."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropecheck.adapters.sglang import bytecode


@pytest.fixture(autouse=True)
def put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv(bytecode.VARIABLE, str(tmp_path / "kept"))
    yield
    for name in ("kept_toy", "kept_other"):
        sys.modules.pop(name, None)


def value(folder: Path, source: str) -> int:
    """Of the module `kept_toy` with this source there."""
    folder.mkdir(exist_ok=True)
    (folder / "kept_toy.py").write_text(source)
    sys.modules.pop("kept_toy", None)
    bytecode.keep(str(folder))
    sys.path.insert(0, str(folder))
    found = importlib.import_module("kept_toy")
    assert found.__file__ == found.where() == str(folder / "kept_toy.py")
    return int(found.VALUE)


def test_another_checkout_finds_what_is_alike_and_compiles_what_differs(tmp_path: Path) -> None:
    source = "VALUE = {}\ndef where():\n    return where.__code__.co_filename\n"
    assert value(tmp_path / "base", source.format(1)) == 1
    (kept,) = (tmp_path / "kept").rglob("*.pyc")
    digest = hashlib.sha256(source.format(1).encode()).hexdigest()
    assert kept.parent.name + kept.name.partition(".")[0] == digest and kept.parent.parent == tmp_path / "kept"
    assert sys.dont_write_bytecode, "as Python was told for other modules"
    written = kept.stat().st_mtime_ns
    assert value(tmp_path / "edited", source.format(2)) == 2
    assert value(tmp_path / "worktree", source.format(1)) == 1
    assert len(list((tmp_path / "kept").rglob("*.pyc"))) == 2
    assert kept.stat().st_mtime_ns == written
    assert not list(tmp_path.rglob("__pycache__"))


def test_an_edit_of_equal_length_in_the_same_moment_is_seen(tmp_path: Path) -> None:
    source = "VALUE = {}\ndef where():\n    return where.__code__.co_filename\n"
    assert [value(tmp_path / "checkout", source.format(number)) for number in (1, 2, 1)] == [1, 2, 1]


def test_modules_from_elsewhere_are_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept_other.py").write_text("")
    hooks = [*sys.path_hooks]
    bytecode.keep(str(tmp_path / "checkout"))
    assert sys.path_hooks[1:] == hooks
    sys.path.insert(0, str(tmp_path / "other"))
    assert not isinstance(importlib.import_module("kept_other").__loader__, bytecode.Loader)
    assert not (tmp_path / "kept").exists()


def test_nothing_is_kept_without_a_folder_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(bytecode.VARIABLE)
    hooks = [*sys.path_hooks]
    bytecode.keep(str(tmp_path))
    assert sys.path_hooks == hooks


def test_a_folder_that_cannot_be_written_to_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("a file")
    assert value(tmp_path / "base", "VALUE = 1\ndef where():\n    return where.__code__.co_filename\n") == 1
