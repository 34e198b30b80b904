"""On a GPU, the engine's own torch versions in place of kernels that take no float32, which a toy model needs: norms,
activations, the 1-D rotary embedding of draft models. The three-row embedding's kernel stays.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `install()` | `forward_cuda` of the classes of `MODULES` |

Faked: those kernels; the fused GEMM of 0.5.23, which is Blackwell's and wants `cutlass` to say that it is not for other
GPUs.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

from ropecheck.adapters.sglang.recorder import hook

MODULES = (
    "sglang.srt.layers.layernorm",
    "sglang.srt.layers.activation",
    "sglang.srt.layers.rotary_embedding.base",
)
DUAL_GEMM = "sglang.srt.layers.dual_gemm"


def install() -> None:
    """Once per process, before the engine is imported."""
    for name in MODULES:
        hook.install(in_torch, name)
    without_dual_gemm()


def in_torch(module: ModuleType) -> None:
    """Every class of the module that has both ways takes torch's."""
    for cls in vars(module).values():
        if isinstance(cls, type) and {"forward_cuda", "forward_native"} <= set(vars(cls)):
            cls.forward_cuda = vars(cls)["forward_native"]  # type: ignore[attr-defined]


def without_dual_gemm() -> None:
    """No layer asks whether it could use the fused GEMM, where the package that it is written in is missing."""
    if importlib.util.find_spec("cutlass") is None:
        hook.install(_never, DUAL_GEMM)


def _never(module: ModuleType) -> None:
    module.DualGemm._select_mode = lambda *_: None
