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
from ropecheck.adapters.sglang.capabilities import FLAGS, PLACES, RELEASES, Absent, Engine, LostCapability, find, within
from ropecheck.adapters.sglang.imports import CannotImport, imported

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
    with pytest.raises(CannotImport, match=ASKS):
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
    state: Any = SimpleNamespace(
        device="cpu", rotaries={}, meter=SimpleNamespace(call=handler.directly), engine=engine("0.5.23")
    )
    return jobs.result(state, step)


@pytest.mark.engine
@pytest.mark.parametrize("place", ["good", "gone"])
def test_an_embedding_that_every_release_has_is_lost_where_it_is_not_found(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answered(ROTARY, monkeypatch, place) == protocol.Raised(
        "engine", "Lost", f"{NO_ROTARY}; sglang 0.5.23 is known to have it", ""
    )


@pytest.mark.engine
def test_the_tensor_version_of_an_old_release_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    result = answered(ROTARY, monkeypatch, "old")
    assert isinstance(result, protocol.Rotated)
    assert struct.unpack("<4f", result.key.data) == (2.0,) * 4


@pytest.mark.engine
def test_a_prompt_table_says_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answered(GLM_IMAGE, monkeypatch, "gone")
    assert found == protocol.NotOfferedAnswer("this release has no builder for GLM-Image")


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
@pytest.mark.parametrize(("place", "message"), [("broken", BROKEN), ("asks", ASKS)])
def test_an_import_that_fails_is_neither_a_failure_nor_a_lack(
    step: protocol.Step, place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = answered(step, monkeypatch, place)
    assert isinstance(result, protocol.Raised)
    assert (result.stage, result.type, result.message) == ("adapter", "CannotImport", message)


# ---------------------------------------------------------------- what a release is known to have


def engine(version: str, lacking: str = "", broken: str = "") -> Engine:
    """The probed engine of a release, of which all was found but one name."""
    made = Engine.__new__(Engine)
    made.version = version
    every = (*PLACES, *FLAGS, *RELEASES, "streaming_sessions")
    made.found = {name: "" if name in (lacking, broken) else "there" for name in every}
    made.broken = {broken: "libcuda.so.1: no such file"} if broken else {}
    return made


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("0.5.21", Absent),
        ("0.5.22", LostCapability),
        ("0.5.24.dev40+g12", LostCapability),
        ("unknown", LostCapability),
        ("0.5.22rc1", Absent),
    ],
)
def test_what_is_not_found_is_lost_where_the_version_is_known_to_have_it(version: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="this release has no build_chain_tree"):
        engine(version, "build_chain_tree").needs("Req", "build_chain_tree")
    assert engine(version, "build_chain_tree").lost == (("build_chain_tree",) if kind is LostCapability else ())


def test_what_is_in_every_release_is_never_absent() -> None:
    for version in ("0.5.6", "0.5.23"):
        with pytest.raises(LostCapability):
            engine(version, "prepare_for_draft").needs("prepare_for_draft")


def test_what_cannot_be_imported_is_neither_absent_nor_lost() -> None:
    made = engine("0.5.23", broken="build_chain_tree")
    with pytest.raises(CannotImport, match="libcuda"):
        made.needs("build_chain_tree")
    assert made.lost == ()
    made.found["Session"] = ""
    with pytest.raises(CannotImport, match="libcuda"):
        made.needs("Session", "build_chain_tree")
    made.broken.clear()
    with pytest.raises(LostCapability, match=r"no Session, build_chain_tree; sglang 0\.5\.23"):
        made.needs("Session", "Req", "build_chain_tree")
    with pytest.raises(LostCapability, match=r"no build_chain_tree, Session"):
        older = engine("0.5.6", lacking="build_chain_tree")
        older.found["Session"] = ""
        older.needs("build_chain_tree", "Session")


def test_what_is_there_is_needed_without_complaint() -> None:
    engine("0.5.23").needs(*PLACES)
    assert engine("0.5.23").lost == ()
    assert engine("0.5.13", "ForwardMode.DRAFT_EXTEND").lost == ("ForwardMode.DRAFT_EXTEND",)
    assert engine("0.5.14", "ForwardMode.DRAFT_EXTEND").lost == ()
    assert not within("unknown", "<0.5.14"), "what is no version is as the newest"


def test_a_place_is_absent_or_broken() -> None:
    assert find("fake_engine.good:nothing") is None
    assert find("fake_engine.nothing:name") is None
    for name, words in (("broken", "OSError"), ("renamed", "ImportError"), ("asks", "no_such_package")):
        with pytest.raises(CannotImport, match=words):
            find(f"fake_engine.{name}:name")
