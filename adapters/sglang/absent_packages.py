"""Stand-ins for packages that older releases import without a guard and that need a GPU: `sgl_kernel` (up to
0.5.10), `vllm` (0.5.6 on a CPU), `decord`, `flashinfer` (0.5.16 and 0.5.17 on a GPU).

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `install()` | `import` of the package, any submodule or name of it |

Faked: all of each package asked for. Every name is a class that can be nested and subclassed; calling one raises.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

VARIABLE = "ROPECHECK_STAND_INS"
"""In the worker's environment: packages to stand in for, comma-separated. A worker that misses one starts again with
it here; a target that sets it saves that second start."""

PACKAGES = ("sgl_kernel", "vllm", "decord", "flashinfer")
"""Only these are ever stood in for: no table depends on them."""


EMPTY: dict[str, tuple[str, ...]] = {
    "vllm": ("_custom_ops.rotary_embedding",),
    "soundfile": (),
    "flash_mla": ("fused_norm_rope_attn_rope_cast", "flash_mla_interface.FlashMLASchedMeta"),
}
"""Packages that a whole server imports and never calls, and the names that it takes from them: the plain rotary
embedding an operator where there is no GPU kernel, the transcription route a reader of sound files, a draft's graphs on
a GPU the kernels of models with latent attention."""


def stand_in_empty(*packages: str) -> None:
    """Put empty modules where packages of `EMPTY` are missing."""
    for package in packages:
        if package in sys.modules or importlib.util.find_spec(package) is not None:
            continue
        made = sys.modules[package] = _empty(package)
        for path in EMPTY[package]:
            module, _, name = path.rpartition(".")
            inner = made
            if module:
                inner = vars(made)[module] = sys.modules[f"{package}.{module}"] = _empty(f"{package}.{module}")
            vars(inner)[name] = None


def _empty(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package="." not in name)
    module.__path__ = []
    return module


def wanted() -> list[str]:
    """Packages that the environment asks for."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def missing(error: ImportError) -> str | None:
    """The package whose absence made an import fail, when it may be stood in for and is not yet."""
    name = (error.name or "").split(".")[0]
    return name if name in PACKAGES and name not in wanted() else None


class _Nested(type):
    """Names of names: `sgl_kernel.ops.anything`."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return placeholder(f"{cls.__name__}.{name}")

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{cls.__name__} is a stand-in: the kernel package is not installed")


def placeholder(name: str) -> Any:
    """A class that raises when it is called."""
    return _Nested(name, (), {"ropecheck_stand_in": True})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the packages and everything under them."""

    def __init__(self, packages: list[str]) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        def lookup(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return placeholder(f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = lookup


def install() -> None:
    """Put the stand-ins asked for before any real packages of those names."""
    packages = wanted()
    if packages:
        sys.meta_path.insert(0, _Finder(packages))
    if "sgl_kernel" in packages:
        ignore_fakes("sgl_kernel::")


def stand_in(package: str) -> None:
    """Stand in for one more package from now on: for one that the engine needs in a module of its own only, whose
    import failed as a whole and can be tried again."""
    os.environ[VARIABLE] = ",".join([*wanted(), package])
    sys.meta_path.insert(0, _Finder([package]))


def ignore_fakes(prefix: str) -> None:
    """Engines describe the package's operators to torch's compiler; torch refuses for operators that are not there."""
    library: Any = importlib.import_module("torch.library")
    register = library.register_fake

    def checked(op: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(op, str) and op.startswith(prefix):
            return args[0] if args and callable(args[0]) else lambda function: function
        return register(op, *args, **kwargs)

    library.register_fake = checked
