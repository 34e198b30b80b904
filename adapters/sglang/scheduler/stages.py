"""A pipeline of stages in one process: the rank is the first of them and the last, and what it sends to the next stage
comes back to it.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | play.ServerConfig.arguments["pp_size"] | `ServerArgs.pp_size`, `Scheduler.event_loop_pp` |

Faked: process groups have one rank whatever the arguments say, so that it holds every layer and the draft; `Ring`, in
place of the messages between stages.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any


class Ring:
    """A stage's group whose next stage is the stage itself."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._sent: deque[dict[str, Any]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def send_tensor_dict(self, tensor_dict: dict[str, Any], **_: Any) -> list[Any]:
        """Nothing is left to wait for."""
        self._sent.append(dict(tensor_dict))
        return []

    def recv_tensor_dict(self, **_: Any) -> dict[str, Any]:
        """What was sent first."""
        return self._sent.popleft()


def lacking(arguments: Mapping[str, Any]) -> str:
    """Why this release cannot be started so here; "" when it can."""
    if arguments.get("pp_size", 1) == 1:
        return ""
    module, _, name = ONE_STAGE[0]
    try:
        found = hasattr(importlib.import_module(module), name)
    except ImportError:
        found = False
    return "" if found else "stages of a pipeline in one process are tried from 0.5.23 on"


def alone() -> None:
    """Before a scheduler of a pipeline is built: its process groups have one rank, its models every layer, and it has
    the draft, which the last stage has."""
    for module, owner, name in ONE_STAGE:
        found: Any = importlib.import_module(module)
        holder = getattr(found, owner) if owner else found
        setattr(holder, name, _of_one_stage(getattr(holder, name)))


ONE_STAGE = (
    ("sglang.srt.distributed.bootstrap", "", "init_parallel_runtime"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner", "initialize"),
    ("sglang.srt.managers.scheduler", "Scheduler", "maybe_init_draft_worker"),
)
"""Functions that divide a model among the stages: module, class, name."""


def _of_one_stage(makes: Callable[..., Any]) -> Callable[..., Any]:
    context: Any = importlib.import_module("sglang.srt.runtime_context")

    def made(*args: Any, **given: Any) -> Any:
        with context.get_parallel().override(pp_size=1):
            return makes(*args, **given)

    return made
