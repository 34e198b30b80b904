"""Qwen2.5-Omni (TMRoPE): audio in a line, video frames in absolute time, and both interleaved in chunks of 2 seconds.

25 positions per second (40 ms each). A video with its audio track is cut into chunks of 2 seconds of actual time; each
chunk holds its video tokens, then its audio tokens. The track's markers belong to the run, because they share
positions: both begin markers (vision, audio) sit at the run's start, the content starts one later, and both end
markers sit at the largest position of the content + 1.

See: arXiv 2503.20215 (TMRoPE, time-interleaving, "position numbering for each modality is initialized by
incrementing the maximum position ID of the preceding modality by one"); the markers: the model's own `get_rope_index`
in transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropecheck.spec.families.declaration import merged_grid, ramp
from ropecheck.spec.families.omni import audio_count, has_track, simple_columns, vision_columns
from ropecheck.spec.history import Column, Run, next_position


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2_5Omni:
    """Declaration of the family."""

    name: str = "qwen2_5_omni"
    source: str = "arXiv 2503.20215 (TMRoPE)"
    axes: int = 3
    merge: int = 2
    positions_per_second: int = 25
    seconds_per_chunk: int = 2
    kinds: tuple[str, ...] = ("image", "video", "audio")
    frames_apart: bool = False
    absolute_time: bool = True

    @staticmethod
    def audio_tokens(features: int) -> int:
        """Tokens of an audio of `features` mel frames: the encoder's convolution, then its pooling."""
        return ((features - 1) // 2 + 1 - 2) // 2 + 1

    def token_count(self, run: Run) -> int:
        if run.kind == "audio":
            return audio_count(run)
        t, h, w = merged_grid(run, self.merge)
        return t * h * w + (run.tokens + 4 if has_track(run) else 0)

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        if not has_track(run):
            return simple_columns(run, start, self.merge, self.positions_per_second)
        content = [column for piece in self.pieces(run, start + 1) for column in piece]
        return marked(start, content, next_position(content))

    def released_columns(self, run: Run, start: int) -> tuple[tuple[Column, ...], int]:
        """A track as the authors' released class places it, and where it goes on: after the piece that came last."""
        pieces = self.pieces(run, start + 1)
        end = next_position(pieces[-1])
        return marked(start, [column for piece in pieces for column in piece], end), end + 1

    def pieces(self, run: Run, start: int) -> list[tuple[Column, ...]]:
        """Chunk after chunk of the same duration: its video columns, then its audio columns; empty ones left out."""
        video = vision_columns(run, start, self.merge, self.positions_per_second)
        audio = ramp(start, run.tokens)
        size = self.positions_per_second * self.seconds_per_chunk
        last = max(video[-1][0], audio[-1][0]) - start
        found: list[tuple[Column, ...]] = []
        for chunk in range(last // size + 1):
            for track in (video, audio):
                piece = tuple(column for column in track if (column[0] - start) // size == chunk)
                if piece:
                    found.append(piece)
        return found


def marked(start: int, content: Sequence[Column], end: int) -> tuple[Column, ...]:
    """Content between its two begin markers, at the start, and its two end markers."""
    return ((start,) * 3, (start,) * 3, *content, (end,) * 3, (end,) * 3)


QWEN2_5_OMNI = Qwen2_5Omni()
