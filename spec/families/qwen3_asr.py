"""Qwen3-ASR: sound and text in one line. Every token's position is its index, on all rows.

See: the model class in transformers (`qwen3_asr`), a text decoder with one row of positions; an engine that keeps three
rows for its backbone holds the index on each.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.families.declaration import ramp
from ropecheck.spec.families.omni import audio_count
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI
from ropecheck.spec.history import Column, OutOfDomain, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3ASR:
    """Declaration of the family."""

    name: str = "qwen3_asr"
    source: str = "https://github.com/huggingface/transformers/blob/main/src/transformers/models/qwen3_asr"
    axes: int = 3
    kinds: tuple[str, ...] = ("audio",)
    frames_apart: bool = False
    absolute_time: bool = False

    @staticmethod
    def audio_tokens(features: int) -> int:
        """As Qwen3-Omni, whose audio encoder it is."""
        return QWEN3_OMNI.audio_tokens(features)

    def token_count(self, run: Run) -> int:
        if run.kind != "audio":
            raise OutOfDomain(f"{self.name} has no media of kind {run.kind!r}")
        return audio_count(run)

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        return ramp(start, self.token_count(run))


QWEN3_ASR = Qwen3ASR()
