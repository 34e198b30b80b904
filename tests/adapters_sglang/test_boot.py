"""Before an engine is there: the environment, the configuration that is published, packages that are stood in for."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters.sglang import absent_packages, boot, device

# ---------------------------------------------------------------- the environment, and what stays quiet


def environment(device: str, monkeypatch: pytest.MonkeyPatch, **before: str) -> dict[str, str]:
    monkeypatch.setattr(os, "environ", dict(before))
    boot.prepare_environment(device)
    return dict(os.environ)


def test_the_environment_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = environment("cpu", monkeypatch), environment("cuda", monkeypatch)
    on_cpu = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    assert cpu == cuda | on_cpu and not set(on_cpu) & set(cuda)
    assert (cpu["OMP_NUM_THREADS"], cpu["TORCHDYNAMO_DISABLE"]) == ("1", "1")
    assert (cpu["TOKENIZERS_PARALLELISM"], cpu["SGLANG_RAGGED_VERIFY_MODE"]) == ("false", "compact")
    assert cpu["SGLANG_SCHEDULER_SKIP_ALL_GATHER"] == "1"
    asked = environment("cpu", monkeypatch, OMP_NUM_THREADS="4", TORCHDYNAMO_DISABLE="0", TRITON_INTERPRET="0")
    assert (asked["OMP_NUM_THREADS"], asked["TORCHDYNAMO_DISABLE"], asked["TRITON_INTERPRET"]) == ("4", "1", "1")


@pytest.fixture
def loud() -> Iterator[None]:
    """Logging and the collector as they were, afterwards."""
    disabled, collecting = logging.root.manager.disable, gc.isenabled()
    with warnings.catch_warnings():
        yield
    logging.disable(disabled)
    (gc.enable if collecting else gc.disable)()
    gc.unfreeze()


def imports(monkeypatch: pytest.MonkeyPatch, *missing: str, **there: Any) -> list[str]:
    """The names that are imported; those of `missing` cannot be, those of `there` are these."""
    asked: list[str] = []

    def fake(name: str) -> Any:
        asked.append(name)
        if name in missing:
            raise ImportError(name)
        return there.get(name.rpartition(".")[2], SimpleNamespace())

    monkeypatch.setattr(importlib, "import_module", fake)
    return asked


def test_what_every_version_needs_is_imported_once_and_quietly(monkeypatch: pytest.MonkeyPatch, loud: None) -> None:
    logging.disable(logging.NOTSET)
    gc.enable()
    gc.unfreeze()
    asked = imports(monkeypatch, "torchvision")
    boot.warm()
    assert asked == ["torch", *boot.HEAVY] and not gc.isenabled() and gc.get_freeze_count() > 0
    assert logging.root.manager.disable == logging.CRITICAL
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        boot.silence()
        warnings.warn("a warning", stacklevel=1)
    assert seen == []
    gc.unfreeze()
    boot.settle()
    assert gc.isenabled() and gc.get_freeze_count() > 0


def test_an_engine_is_loaded_core_first_and_then_configured(monkeypatch: pytest.MonkeyPatch, loud: None) -> None:
    threads: list[int] = []
    torch = SimpleNamespace(set_num_threads=threads.append)
    asked = imports(monkeypatch, torch=torch)
    monkeypatch.setattr(absent_packages, "install", lambda: asked.append("stand-ins"))
    monkeypatch.setattr(boot, "publish_configuration", lambda: asked.append("configuration"))
    monkeypatch.setattr(boot, "silence", lambda: asked.append("silence"))
    assert boot.load("cpu", lambda: asked.append("imported")) is torch
    assert asked == ["silence", "torch", "stand-ins", *boot.CORE, "imported", "configuration", "silence"]
    assert not gc.isenabled() and threads == [1]
    monkeypatch.setattr(device, "problem", lambda torch: "")
    assert boot.load("cuda") is torch and threads == [1]


def test_a_device_that_cannot_be_used_ends_the_process_with_one_line(
    monkeypatch: pytest.MonkeyPatch, loud: None, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = imports(monkeypatch)
    monkeypatch.setattr(device, "problem", lambda torch: "no NVIDIA GPU can be seen")
    with pytest.raises(SystemExit) as ended:
        boot.load("cuda")
    assert ended.value.code == device.EXIT == 3 and asked == ["torch"]
    assert capsys.readouterr().out == "no NVIDIA GPU can be seen\n"


def test_standard_input_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[int, int]] = []
    closed: list[int] = []
    monkeypatch.setattr(os, "dup2", lambda one, other: moved.append((one, other)))
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    close = os.close

    def note(number: int) -> None:
        closed.append(number)
        close(number)

    monkeypatch.setattr(os, "close", note)
    monkeypatch.setattr("builtins.open", lambda number, closefd: (number, closefd))
    boot.release_standard_input()
    ((null, target),) = moved
    assert target == 0 and closed == [null] and sys.stdin == (0, False)


# ---------------------------------------------------------------- the configuration


class Args:
    """Fields with a default, a factory, and neither."""

    model_path: str
    page_size: int = 1
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])

    def __post_init__(self) -> None:
        raise AssertionError("it wants a model on disk")


ServerArgs = dataclasses.dataclass(frozen=True)(Args)


def test_default_arguments_are_not_validated() -> None:
    made = boot.default_server_args(ServerArgs)
    assert dataclasses.asdict(made) == {"model_path": "dummy", "page_size": 1, "names": ["a"]}


class Context:
    """What a release publishes its configuration in."""

    def __init__(self, ranks: bool) -> None:
        self.done: list[Any] = []
        if ranks:
            self.override = self._override
        self.get_context = self.get_parallel = lambda: self

    def override_server_args(self) -> Any:
        return SimpleNamespace(install=lambda: self.done.append("arguments"))

    def _override(self, tp_rank: int) -> Any:
        return SimpleNamespace(__enter__=None) if tp_rank else Entered(self.done)


class Entered:
    def __init__(self, done: list[Any]) -> None:
        self._done = done

    def __enter__(self) -> None:
        self._done.append(self)

    def __exit__(self, *_: object) -> None:
        raise AssertionError("it stays")


@pytest.mark.parametrize("ranks", [False, True])
def test_a_configuration_goes_where_this_release_has_a_context(ranks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(ranks)
    monkeypatch.setattr(boot, "optional", lambda name: context)
    monkeypatch.setattr(boot, "_KEPT", [])
    asked = imports(monkeypatch)
    boot.publish_configuration()
    assert context.done[0] == "arguments" and context.done[1:] == boot._KEPT and len(boot._KEPT) == ranks
    assert asked == []


@pytest.mark.parametrize("context", [None, SimpleNamespace(get_context=lambda: None)])
@pytest.mark.parametrize("setter", [False, True])
def test_a_configuration_of_an_older_release_is_a_global(
    context: Any, setter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    module = SimpleNamespace(ServerArgs=ServerArgs)
    if setter:
        module.set_global_server_args_for_scheduler = held.append
    monkeypatch.setattr(boot, "optional", lambda name: context)
    imports(monkeypatch, server_args=module)
    boot.publish_configuration()
    found = [*held, *([module._global_server_args] if hasattr(module, "_global_server_args") else [])]
    assert found == [boot.default_server_args(ServerArgs)]
    assert bool(held) == setter


def asks(state: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(boot, "optional", lambda name: state)
    monkeypatch.setattr(boot, "_KEPT", [])
    boot.publish_process_groups()
    return boot._KEPT


def test_a_group_of_one_is_made_only_where_the_release_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def refuses() -> int:
        raise AssertionError("no group is initialised")

    def differs() -> int:
        raise ValueError

    state = SimpleNamespace(
        get_moe_expert_parallel_world_size=refuses,
        init_distributed_environment=lambda **given: made.append(given),
        initialize_model_parallel=lambda: made.append("parallel"),
    )
    (meeting,) = asks(state, monkeypatch)
    assert made[1:] == ["parallel"]
    method = made[0].pop("distributed_init_method")
    assert made[0] == {"world_size": 1, "rank": 0, "local_rank": 0, "backend": "gloo"}
    assert method == f"file://{meeting.name}" and Path(meeting.name).exists()
    made.clear()
    for quiet in (None, SimpleNamespace(), state):
        state.get_moe_expert_parallel_world_size = (lambda: 1) if quiet is state else differs
        assert asks(quiet, monkeypatch) == made == []
    state.get_moe_expert_parallel_world_size = differs
    assert asks(state, monkeypatch) == made == []


def test_a_module_that_is_not_there_is_none() -> None:
    assert boot.optional("no_such_engine.part") is None and boot.optional("json") is sys.modules["json"]


# ---------------------------------------------------------------- packages that are stood in for


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None of the packages is there; what finds modules, and the modules, are as they were afterwards."""

    def theirs() -> list[str]:
        return [
            name for name in sys.modules if name.split(".")[0] in (*absent_packages.PACKAGES, *absent_packages.EMPTY)
        ]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setenv(absent_packages.VARIABLE, "")
    for name in theirs():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in theirs():
        del sys.modules[name]


def test_packages_that_are_asked_for_have_every_name(monkeypatch: pytest.MonkeyPatch, paths: None) -> None:
    monkeypatch.setattr(absent_packages, "ignore_fakes", lambda prefix: None)
    absent_packages.install()
    assert absent_packages.wanted() == [] and not isinstance(sys.meta_path[0], absent_packages._Finder)
    monkeypatch.setenv(absent_packages.VARIABLE, "decord,,vllm")
    assert absent_packages.wanted() == ["decord", "vllm"]
    absent_packages.install()
    part: Any = importlib.import_module("vllm.deep.part")
    assert importlib.import_module("decord").VideoReader.ropecheck_stand_in
    base = part.Kernel
    assert base.ropecheck_stand_in and base.__name__ == "vllm.deep.part.Kernel"
    assert part.Kernel.inner.__name__ == "vllm.deep.part.Kernel.inner"
    assert issubclass(type("Mine", (base,), {}), base)
    with pytest.raises(RuntimeError, match=r"vllm\.deep\.part\.Kernel is a stand-in"):
        part.Kernel(1, two=2)
    for owner in (part, part.Kernel):
        with pytest.raises(AttributeError):
            _ = owner.__no_such_thing__
    assert importlib.util.find_spec("no_such_package_at_all") is None


def test_a_package_more_is_stood_in_for_from_now_on(paths: None) -> None:
    absent = ModuleNotFoundError("x", name="vllm.part")
    assert absent_packages.missing(absent) == "vllm"
    absent_packages.stand_in("decord")
    absent_packages.stand_in("vllm")
    assert os.environ[absent_packages.VARIABLE] == "decord,vllm"
    finders: list[Any] = sys.meta_path[:2]
    assert [one.packages for one in finders] == [["vllm"], ["decord"]]
    assert importlib.import_module("vllm").ropecheck.ropecheck_stand_in
    assert absent_packages.missing(absent) is None, "once is enough"
    assert absent_packages.missing(ImportError("y", name="json")) is None
    assert absent_packages.missing(ImportError("z")) is None


@pytest.mark.parametrize("asked", [False, True])
def test_operators_of_a_package_that_is_not_there_are_not_described(
    asked: bool, monkeypatch: pytest.MonkeyPatch, paths: None
) -> None:
    described: list[tuple[Any, ...]] = []

    def register(op: Any, *args: Any, **kwargs: Any) -> None:
        described.append((op, args, kwargs))

    library = SimpleNamespace(register_fake=register)
    imports(monkeypatch, library=library)
    monkeypatch.setenv(absent_packages.VARIABLE, "sgl_kernel" if asked else "decord")
    absent_packages.install()
    for one in ("sgl_kernel::norm", "other::norm", 5):
        library.register_fake(one, "function", lib=2)
    assert [op for op, args, kwargs in described if (args, kwargs) == (("function",), {"lib": 2})] == (
        ["other::norm", 5] if asked else ["sgl_kernel::norm", "other::norm", 5]
    )
    if asked:
        described.clear()
        assert library.register_fake("sgl_kernel::norm", register) is register
        assert library.register_fake("sgl_kernel::norm")(register) is register
        assert library.register_fake("sgl_kernel::norm", 5)(register) is register and described == []


def test_packages_that_are_never_called_are_empty(monkeypatch: pytest.MonkeyPatch, paths: None) -> None:
    held = ModuleType("soundfile")
    monkeypatch.setitem(sys.modules, "soundfile", held)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent_packages.EMPTY else find(name))
    absent_packages.stand_in_empty("vllm", "soundfile", "flash_mla")
    assert sys.modules["soundfile"] is held
    operators: Any = importlib.import_module("vllm._custom_ops")
    assert operators.rotary_embedding is None and sys.modules["vllm"]._custom_ops is operators
    kernels: Any = importlib.import_module("flash_mla")
    assert kernels.fused_norm_rope_attn_rope_cast is None
    assert kernels.flash_mla_interface.FlashMLASchedMeta is None
    for name, package in (("vllm", True), ("vllm._custom_ops", False)):
        spec = sys.modules[name].__spec__
        assert spec is not None and spec.name == name
        assert (spec.submodule_search_locations is not None) == package and list(sys.modules[name].__path__) == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    del sys.modules["vllm"]
    absent_packages.stand_in_empty("vllm")
    assert "vllm" not in sys.modules, "one that is installed stays"
