"""Watch the engine once it is imported: until then a process has nothing of it, and nothing of the recorder.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `install()` | the import of `sglang.srt.managers.scheduler` |

Nothing is faked here.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

TRIGGER = "sglang.srt.managers.scheduler"
"""Every process that builds forwards for clients imports it."""


def install(then: Callable[[ModuleType], None], trigger: str = TRIGGER) -> None:
    """Call `then` with the module right after it is imported; at once if it is there already."""
    if (module := sys.modules.get(trigger)) is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(then, trigger))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, then: Callable[[ModuleType], None], trigger: str) -> None:
        self._then, self._trigger = then, trigger

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._trigger:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then(module)

        loader.exec_module = exec_module
        return spec
