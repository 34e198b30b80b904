"""HunYuan-VL (XD-RoPE): four rows: the token's index, and for an image's tokens their column, line and image number.

An image of h x w patches has (h / 2) lines of (w / 2) + 1 tokens (each line ends with a newline token), and one begin
and one end token around them that are placeholders too. Row 0 is always the token's index. On the other three rows
the grid's tokens hold width, height and the number of the image in the prompt, all counted from 0 and *not* from the
block's start; every other token holds its index. Row 0 is never behind the others, so text continues at its index and
delta is 0.

See: HunyuanOCR technical report, arXiv 2511.19575 (XD-RoPE: text, height, width, time subspaces); the
model's own `get_rope_index` in transformers (`hunyuan_vl`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.families.declaration import merged_grid
from ropecheck.spec.history import Column, OutOfDomain, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class HunYuanVL:
    """Declaration of the family. Its columns need the number of the image: see `numbered_columns`."""

    name: str = "hunyuan_vl"
    source: str = "arXiv 2511.19575 (XD-RoPE)"
    axes: int = 4
    merge: int = 2
    kinds: tuple[str, ...] = ("image",)
    frames_apart: bool = False
    absolute_time: bool = False

    def token_count(self, run: Run) -> int:
        h, w = self.lines(run)
        return h * (w + 1) + 2

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        return self.numbered_columns(run, start, 0)

    def numbered_columns(self, run: Run, start: int, ordinal: int) -> tuple[Column, ...]:
        """Columns of the prompt's image number `ordinal`, from 0."""
        h, w = self.lines(run)
        columns: list[Column] = [(start,) * 4]
        index = start + 1
        for row in range(h):
            for col in range(w + 1):
                columns.append((index, col, row, ordinal))
                index += 1
        columns.append((index,) * 4)
        return tuple(columns)

    def lines(self, run: Run) -> tuple[int, int]:
        """Lines of an image and tokens per line before the newline."""
        if run.kind != "image" or run.tokens:
            raise OutOfDomain(f"{self.name} has no media of kind {run.kind!r} with {run.tokens} tokens of its own")
        _, h, w = merged_grid(run, self.merge)
        return h, w


HUNYUAN_VL = HunYuanVL()
