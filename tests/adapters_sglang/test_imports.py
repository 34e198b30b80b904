"""What is said when a module of the engine is missing, asks for what is not installed, or fails as it is imported."""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang import absent_packages
from ropecheck.adapters.sglang.imports import CannotImport, NotInstalled, imported

OLD = """
class MRotaryEmbedding:
    def __init__(self, head_size): pass
    def to(self, device): return self
    def forward_native(self, positions, query, key): raise RuntimeError("the base class's")
    def _forward_native(self, positions, query, key): return query + 1, key + 2
"""

MODULES = {
    "__init__": "",
    "good": "MRotaryEmbedding = None",
    "old": OLD,
    "asks": "import no_such_package.part",
    "own": "import fake_engine.gone",
    "stood_in": "from decord import VideoReader",
    "broken": "raise OSError('libcuda.so.1: no such file\\nand more')",
    "renamed": "from json import no_such_name",
}
NO_ROTARY = "this release has no MRotaryEmbedding"
ASKS = "fake_engine.asks cannot be imported here: no_such_package is not installed"
BROKEN = "fake_engine.broken cannot be imported: OSError: libcuda.so.1: no such file"


@pytest.fixture(autouse=True)
def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package fake_engine with these modules, and no stand-ins afterwards."""
    folder = tmp_path / "fake_engine"
    folder.mkdir()
    for name, body in MODULES.items():
        (folder / f"{name}.py").write_text(body + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv(absent_packages.VARIABLE, "")
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("fake_engine", "decord"):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["fake_engine.nothing", "fake_engine.good.part", "no_such_engine.part"])
def test_a_module_that_the_release_lacks_is_none(name: str) -> None:
    assert imported(name) is None


def test_a_module_that_is_there_and_one_that_asks_for_a_stand_in() -> None:
    assert imported("fake_engine.good").MRotaryEmbedding is None
    assert imported("fake_engine.stood_in").VideoReader.ropecheck_stand_in


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(NotInstalled, match=ASKS):
        imported("fake_engine.asks")


def test_a_missing_module_of_the_engines_own_passes_through() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'fake_engine\\.gone'"):
        imported("fake_engine.own")


@pytest.mark.parametrize(("name", "words"), [("broken", BROKEN), ("renamed", "ImportError: cannot import name")])
def test_an_import_that_fails_otherwise_is_one_line(name: str, words: str) -> None:
    with pytest.raises(CannotImport, match=words) as caught:
        imported(f"fake_engine.{name}")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- as answers of the worker

ROTARY = protocol.Rotary(
    table=protocol.Tensor("int64", (3, 0), b""),
    query=protocol.Tensor("float32", (0, 4), b""),
    key=protocol.Tensor("float32", (1, 4), bytes(16)),
    head_size=4,
    rotary_dim=4,
    base=1e4,
    sections=(1, 1, 0),
)
GLM_IMAGE = protocol.PromptTable(family="glm_image", ids=((1,),), kinds=((0,),))


def answered(step: protocol.Step, monkeypatch: pytest.MonkeyPatch, place: str) -> protocol.Result:
    """The worker's answer to the step when the engine keeps what it needs at the place."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from ropecheck.adapters.sglang import jobs, rotary
    from ropecheck.adapters.sglang_families import handler

    monkeypatch.setattr(rotary, "PLACES", ("fake_engine.nothing", f"fake_engine.{place}"))
    monkeypatch.setattr(handler, "PROCESSOR_PLACE", "fake_engine.{}")
    monkeypatch.setattr(handler, "GLM_IMAGE_MODULE", place)
    state: Any = SimpleNamespace(device="cpu", rotaries={}, meter=SimpleNamespace(call=handler.directly))
    return jobs.result(state, step)


@pytest.mark.engine
@pytest.mark.parametrize(("place", "reason"), [("asks", ASKS), ("good", NO_ROTARY), ("gone", NO_ROTARY)])
def test_a_rotation_says_what_is_lacking(place: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(ROTARY, monkeypatch, place) == protocol.NotOffered(reason)


@pytest.mark.engine
def test_the_tensor_version_of_an_old_release_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    result = answered(ROTARY, monkeypatch, "old")
    assert isinstance(result, protocol.Rotated)
    assert struct.unpack("<4f", result.key.data) == (2.0,) * 4


@pytest.mark.engine
@pytest.mark.parametrize(("place", "reason"), [("asks", ASKS), ("gone", "this release has no builder for GLM-Image")])
def test_a_prompt_table_says_what_is_lacking(place: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(GLM_IMAGE, monkeypatch, place) == protocol.NotOffered(reason)


@pytest.mark.engine
def test_an_engine_that_was_told_to_be_built_for_cpus_forgets_it(fake_engine: None) -> None:
    pytest.importorskip("torch")
    from ropecheck.adapters.sglang.rotary import built_for_cpus

    module = imported("fake_engine.good")
    module._is_cpu = False
    cls = type("Embedding", (), {"__module__": module.__name__})
    with pytest.raises(ZeroDivisionError), built_for_cpus(cls):
        assert module._is_cpu
        raise ZeroDivisionError
    assert module._is_cpu is False


@pytest.mark.engine
@pytest.mark.parametrize("step", [ROTARY, GLM_IMAGE])
def test_an_import_that_fails_is_no_failure_of_the_engine(step: protocol.Step, monkeypatch: pytest.MonkeyPatch) -> None:
    result = answered(step, monkeypatch, "broken")
    assert isinstance(result, protocol.Raised)
    assert (result.stage, result.type, result.message) == ("adapter", "CannotImport", BROKEN)
