"""Modes that are declared outside the repository: the file that declares one also says how to drive the engine.

The file holds a function `sglang(state, forward) -> Tables` beside the declaration; it serves every mode that the file
declares. The functions of `batches` and `forwards` are there to be used.

| spec field | adapter field | engine field |
| --- | --- | --- |
| mode | BuildForward.batch.mode | whatever the function calls |

Nothing is faked here.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from typing import Any

from ropecheck.adapters.sglang import forwards

VARIABLE = "ROPECHECK_MODE_FILES"
"""In the worker's environment: the files, separated as on a path."""


def install() -> None:
    """Let the files' functions drive their modes. Raises OSError or whatever a file raises."""
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        forwards.ROUTES.update(functions(path))


def functions(path: str) -> dict[str, Callable[..., Any]]:
    """Mode -> the file's function for this engine; empty where the file has none, so that its modes are not offered."""
    space = runpy.run_path(path)
    drive = space.get("sglang")
    if drive is None:
        return {}
    declared = [one for one in space.values() if str(getattr(one, "stated", "")).startswith(f"{space['__name__']}:")]
    return {str(mode.name): drive for mode in declared}
