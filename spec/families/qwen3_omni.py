"""Qwen3-Omni (TM-RoPE): as Qwen2.5-Omni, but audio and video tokens are interleaved one by one, by their time.

13 positions per second in the released checkpoints (80 ms each). Of a video's and its track's next tokens the one of
the smaller temporal id comes first, the video's at a tie. The markers around are ordinary text.

Positions are whole numbers here. The model's authors take k * seconds * positions_per_second without rounding, so an
interval such as 0.5 s (6.5 positions) puts a frame, and all text after it, between whole positions: no int64 table
says that, and the input is refused rather than rounded.

See: arXiv 2509.17765 (TM-RoPE); the order within a track: the model's own `get_rope_index` in transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.families.declaration import ROUNDING, frame_times, merged_grid, ramp
from ropecheck.spec.families.omni import audio_count, has_track, simple_columns, vision_columns
from ropecheck.spec.history import Column, OutOfDomain, Run, next_position


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Omni:
    """Declaration of the family."""

    name: str = "qwen3_omni"
    source: str = "arXiv 2509.17765 (TM-RoPE)"
    axes: int = 3
    merge: int = 2
    positions_per_second: int = 13
    kinds: tuple[str, ...] = ("image", "video", "audio")
    frames_apart: bool = False
    absolute_time: bool = True

    @staticmethod
    def audio_tokens(features: int) -> int:
        """Tokens of an audio of `features` mel frames: 13 per full 100, three halvings of what is left."""
        left = features % 100
        for _ in range(3):
            left = (left - 1) // 2 + 1
        return left + features // 100 * 13

    def token_count(self, run: Run) -> int:
        if run.kind == "audio":
            return audio_count(run)
        t, h, w = merged_grid(run, self.merge)
        return t * h * w + (run.tokens if has_track(run) else 0)

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        self.check_whole(run)
        if not has_track(run):
            return simple_columns(run, start, self.merge, self.positions_per_second)
        video = vision_columns(run, start, self.merge, self.positions_per_second)
        return by_time(video, ramp(start, run.tokens))[0]

    def released_columns(self, run: Run, start: int) -> tuple[tuple[Column, ...], int]:
        """A track as the authors' released class places it, and where it goes on: after the rest of the longer one."""
        self.check_whole(run)
        video = vision_columns(run, start, self.merge, self.positions_per_second)
        columns, rest = by_time(video, ramp(start, run.tokens))
        return columns, next_position(columns[-rest:])

    def check_whole(self, run: Run) -> None:
        """Raises OutOfDomain when a frame would fall between two positions."""
        if run.kind != "video" or run.grid is None:
            return
        frame_times(run, run.grid[0], self.positions_per_second)
        for frame in range(run.grid[0]):
            time = frame * run.seconds_per_grid * self.positions_per_second
            if abs(time - round(time)) > ROUNDING:
                raise OutOfDomain(f"frame {frame} at {time} positions: {self.name} does not round")


def by_time(video: tuple[Column, ...], audio: tuple[Column, ...]) -> tuple[tuple[Column, ...], int]:
    """Both in one line by temporal id, video first at a tie; and how many at the end are the longer one's rest."""
    columns: list[Column] = []
    v = a = 0
    while v < len(video) and a < len(audio):
        if video[v][0] <= audio[a][0]:
            columns.append(video[v])
            v += 1
        else:
            columns.append(audio[a])
            a += 1
    rest = (*video[v:], *audio[a:])
    return (*columns, *rest), len(rest)


QWEN3_OMNI = Qwen3Omni()
