"""Which tokens each mode reads, a second time: loops written from the modes' own words, no code of spec/modes."""

from __future__ import annotations

from typing import Any

from ropecheck.adapters.batch import BatchPart


def indices(mode: str, part: BatchPart, row: int, step: int = 0) -> list[int]:
    """Token indices that one row reads, in order."""

    def of(name: str) -> Any:
        return part.each(name)[row]

    match mode:
        case "decode":
            return [of("seq_len") - 1]
        case "beam_members":
            return [of("seq_len") - 1] * of("members")
        case "extend" | "split_prefill":
            return list(range(of("prefix_len"), of("prefix_len") + of("extend_len")))
        case "draft_decode":
            return [of("seq_len") + step] * of("topk")
        case "frozen_kv_draft":
            return [of("seq_len") - 1] * of("topk")
        case "draft_extend_v2":
            return [of("seq_len") + i for i in range(of("num_draft_tokens"))]
        case "widened_draft_extend":
            first = of("seq_len") - of("num_front_tokens")
            return list(range(first, of("seq_len") + of("num_draft_tokens")))
        case "dllm_extend":
            return [of("block_offset") + i for i in range(of("block_size"))]
        case "target_verify" | "ragged_verify":
            depths = [0]
            for parent in of("parents"):
                depths.append(depths[parent] + 1)
            return [of("seq_len") + depth for depth in depths]
        case _:
            raise AssertionError(f"no second derivation of {mode}: write one from its declaration's words")
