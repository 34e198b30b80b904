"""Whether the device asked for can be used, and one clear line when it cannot.

| spec field | adapter field | engine field |
| --- | --- | --- |
| Job.device | device | torch's CUDA runtime |

Nothing is faked here.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

EXIT = 3
"""Exit status of a worker whose device cannot be used."""

OUT_OF_MEMORY = "out of GPU memory"


def problem(torch: Any) -> str:
    """Why CUDA cannot be used with this torch, in one line; "" when it can. Touches the device: a context is made."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    try:
        torch.cuda.init()
        torch.zeros(1, device="cuda").add_(1).item()
    except Exception as error:
        return explain(str(error), str(torch.version.cuda))
    return ""


def explain(message: str, cuda: str = "") -> str:
    """One line for what torch said when CUDA could not be used."""
    first = message.strip().splitlines()[0] if message.strip() else "no reason given"
    if "too old" in message:
        found = re.search(r"version (\d+)", message)
        version = f" (it offers CUDA {int(found[1]) // 1000}.{int(found[1]) % 1000 // 10})" if found else ""
        return f"the NVIDIA driver is too old{version} for this torch, which wants CUDA {cuda or '?'}: update it"
    if "out of memory" in message.lower():
        return f"{OUT_OF_MEMORY}: something else holds it ({first})"
    if "no NVIDIA driver" in message or "no CUDA-capable device" in message or "No CUDA GPUs" in message:
        return "no NVIDIA GPU can be seen: " + first
    return f"CUDA cannot be used: {first}"


def describe(torch: Any) -> dict[str, str]:
    """What reports say of the device: name, memory, driver, CUDA and torch versions."""
    found = torch.cuda.get_device_properties(0)
    return {
        "name": str(found.name),
        "memory": f"{found.total_memory / (1 << 30):.0f} GiB",
        "capability": f"{found.major}.{found.minor}",
        "driver": driver(torch),
        "cuda": str(torch.version.cuda),
        "torch": str(torch.__version__),
    }


def driver(torch: Any) -> str:
    """The NVIDIA driver's version, as its own library or the kernel module tells it; "" when neither does."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except Exception:
        return ""
