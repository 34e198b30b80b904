"""Which engine functions ran, while somebody asks: every call, so several times slower than without.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | JobAnswer.traced | the engine's own code objects, by file and first line |

Nothing is faked here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from ropecheck.adapters.sglang.meter import engine_frame


@contextmanager
def functions() -> Iterator[list[str]]:
    """Collects "sglang/..py:LINE NAME" of every engine function that is called, in the order of their first calls."""
    found: list[str] = []
    known: dict[CodeType, None] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in known:
            return
        known[code] = None
        path = engine_frame(code.co_filename)
        if path is not None and not code.co_name.startswith("<"):
            found.append(f"{path}:{code.co_firstlineno} {code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(before)
