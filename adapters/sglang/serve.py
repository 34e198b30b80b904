"""Become a server of this SGLang, as its users start one: `python -m ropecheck.adapters.sglang.serve` with a model
folder, a port, a device and, as JSON, more of the server's arguments. Execs the engine's own command line.

| spec field | adapter field | engine field |
| --- | --- | --- |
| server configuration | `--arguments` | options of `sglang.launch_server` |

Faked: packages that the process imports and never calls (`absent_packages`), where they are missing; on a GPU what
`native` says.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from importlib.metadata import version
from typing import Any

from packaging.version import Version

from ropecheck.adapters.sglang.absent_packages import EMPTY, VARIABLE, wanted

EVERYWHERE: dict[str, Any] = {
    "dtype": "float32",
    "context_length": 2048,
    "max_total_tokens": 8192,
    "max_running_requests": 16,
    "chunked_prefill_size": 64,
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "enable_multimodal": True,
    "skip_server_warmup": True,
    "disable_overlap_schedule": True,  # as servers.toml has it: each configuration says what it switches on
    "random_seed": 0,
    "mem_fraction_static": 0.2,
    "log_level": "warning",
    "log_level_http": "warning",
}
"""A toy model in float32: what differs then differs because of positions, not of rounding."""

ON: dict[str, dict[str, Any]] = {
    "cpu": {
        "device": "cpu",
        "attention_backend": "torch_native",
        "mm_attention_backend": "sdpa",
        "disable_cuda_graph": True,
    },
    "cuda": {"device": "cuda", "attention_backend": "triton", "mm_attention_backend": "sdpa", "cuda_graph_max_bs": 8},
}

ENVIRONMENT: dict[str, dict[str, str]] = {
    "cpu": {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"},
    "cuda": {"ROPECHECK_NATIVE": "1"},
}
RENAMED = {"cuda_graph_max_bs": "cuda_graph_max_bs_decode"}
"""Arguments that later releases know by another name: the class from 0.5.14 on, the command line by that alone from
0.5.20 on."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"}


def options(arguments: dict[str, Any]) -> list[str]:
    """The command line of these arguments; False and None are left out."""
    words: list[str] = []
    for name, value in arguments.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def needs_flashinfer() -> bool:
    """Whether this release's sampler imports it on a GPU without asking, and it is missing."""
    return Version(version("sglang")) < Version("0.5.18") and importlib.util.find_spec("flashinfer") is None


def main() -> None:
    """Exec the engine's launcher."""
    parser = argparse.ArgumentParser(description="Serve a toy model.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", choices=tuple(ON), default="cpu")
    parser.add_argument("--arguments", type=json.loads, default={})
    parser.add_argument("--via", choices=("http", "engine"), default="http")
    given = parser.parse_args()
    arguments = EVERYWHERE | ON[given.device] | given.arguments
    arguments |= {"model_path": given.model}
    os.environ.update(ENVIRONMENT[given.device] | OFFLINE)
    os.environ["ROPECHECK_EMPTY"] = ",".join(EMPTY)
    if given.device == "cuda" and needs_flashinfer():
        os.environ[VARIABLE] = ",".join([*wanted(), "flashinfer"])
        os.environ["SGLANG_IS_FLASHINFER_AVAILABLE"] = "false"
    if given.via == "engine":
        del arguments["log_level_http"]
        command = ["-m", "ropecheck.adapters.sglang.engine_server", str(given.port), json.dumps(arguments)]
    else:
        arguments |= {"host": "127.0.0.1", "port": given.port}
        if Version(version("sglang")) >= Version("0.5.20"):
            arguments = {RENAMED.get(name, name): value for name, value in arguments.items()}
        command = ["-m", "sglang.launch_server", *options(arguments)]
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    main()
