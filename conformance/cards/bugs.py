"""Public bugs by the short names that rules use, and their addresses."""

import re

OWNERS = {
    "sglang": "sgl-project/sglang",
    "sglang-omni": "sgl-project/sglang-omni",
    "vllm": "vllm-project/vllm",
    "vllm-omni": "vllm-project/vllm-omni",
    "vllm-gaudi": "vllm-project/vllm-gaudi",
    "vllm-ascend": "vllm-project/vllm-ascend",
    "transformers": "huggingface/transformers",
    "text-generation-inference": "huggingface/text-generation-inference",
    "llama.cpp": "ggml-org/llama.cpp",
    "ik_llama.cpp": "ikawrakow/ik_llama.cpp",
    "mlx-vlm": "Blaizzy/mlx-vlm",
    "mlx-node": "mlx-node/mlx-node",
    "mlxcel": "lablup/mlxcel",
    "mistral.rs": "EricLBuehler/mistral.rs",
    "TensorRT-LLM": "NVIDIA/TensorRT-LLM",
    "LightLLM": "ModelTC/LightLLM",
    "LlamaFactory": "hiyouga/LlamaFactory",
    "xllm": "xLLM-AI/xllm",
    "verl": "verl-project/verl",
    "Liger-Kernel": "linkedin/Liger-Kernel",
}
"""Repository as rules call it -> its place on GitHub. A name with a slash is a place already."""

_NAME = re.compile(r"(?P<repository>\S+) #(?P<number>\d+)")


def address(bug: str) -> str:
    """The thread of a bug such as "sglang #28464"; "" for a name of another form or an unknown repository."""
    match = _NAME.fullmatch(bug)
    if match is None:
        return ""
    repository = match["repository"]
    place = repository if "/" in repository else OWNERS.get(repository, "")
    return f"https://github.com/{place}/issues/{match['number']}" if place else ""
