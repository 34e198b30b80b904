"""A kernel that writes where it must not. On its own, because Triton reads a kernel's source from its module.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `write_far` | - |

Nothing is faked here.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _write_far(pointer, offset):  # type: ignore[no-untyped-def]  # Triton reads annotations as its own
    tl.store(pointer + offset, 1)


def write_far(tensor: Any) -> None:
    """Write a value a terabyte behind the tensor."""
    _write_far[(1,)](tensor, 1 << 37)
