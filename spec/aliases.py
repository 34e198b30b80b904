"""Rule ids of the first editions, when every forward mode named its own rules: what each is called today.

Known-failure entries, histories and vectors of those editions stay readable.
"""

from __future__ import annotations

WORDS = {
    "width": "table.width",
    "no_columns": "table.width",
    "index": "table.index",
    "indices": "table.index",
    "depths": "table.index",
    "inside_table": "table.inside_table",
    "past_table": "table.past_table",
    "delta_applies_once": "table.past_table",
    "delta_each_step": "table.past_table",
    "depth_plus_delta": "table.past_table",
    "decode_delta": "table.past_table",
    "text_only": "table.text_only",
    "tail": "padding.tail",
    "forwards": "table.forwards",
}
"""An old id's second word -> today's rule; its first word was the mode."""

MODES = frozenset(
    {
        "extend",
        "split_prefill",
        "decode",
        "mixed",
        "target_verify",
        "ragged_verify",
        "draft_decode",
        "draft_extend_v2",
        "idle",
        "dllm_extend",
    }
)
"""The modes of those editions. Later modes never had ids of their own."""


def todays(id: str) -> tuple[str, str]:
    """(today's rule, the forward mode that an old id named; "" where it named none)."""
    mode, _, word = id.partition(".")
    if mode in MODES and word in WORDS:
        return WORDS[word], mode
    return ("cost.media", "decode") if id == "cost.decode" else (id, "")
