"""From a picture's pixels to its grid of patches: what a family's processor makes of the size that a client sends.

Both sides become whole tokens, each as near to the picture's own as it gets. A picture outside the limits is scaled
first, its sides by one factor: down to the largest sides that stay within, or up to the smallest that reach.

See: Qwen-VL's `smart_resize` (qwen-vl-utils, and every family's image processor in transformers); MiniCPM-V's slices:
arXiv 2408.01800 section 3.1, and the model's own image processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, log

from ropecheck.spec.history import OutOfDomain

Size = tuple[int, int]
"""(height, width)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """One processor's settings, in pixels."""

    side: int
    """Of a token: patch times merge."""
    smallest: int
    largest: int
    """Height times width, over `frames` frames."""
    frames: int = 1


def tokens(limits: Limits, size: Size) -> Size:
    """Rows and columns of tokens of a picture of so many pixels.

    >>> tokens(Limits(28, 28 * 28, 512 * 512), (60, 90)), tokens(Limits(28, 28 * 28, 512 * 512), (480, 640))
    ((2, 3), (15, 21))
    """
    height, width = size
    if min(size) < limits.side / (1 if limits.frames > 1 else 2):  # GLM's code scales what has a side below one token
        raise OutOfDomain(f"a picture of {height} x {width} pixels is too small")
    rows, cols = (nearest(length, limits.side) for length in size)
    area = limits.frames * rows * cols * limits.side**2
    pixels = limits.frames * limits.side**2
    if area > limits.largest:
        return max(1, isqrt(height * limits.largest // (width * pixels))), max(
            1, isqrt(width * limits.largest // (height * pixels))
        )
    if area < limits.smallest:
        return reaching(height * limits.smallest, width * pixels), reaching(width * limits.smallest, height * pixels)
    return rows, cols


def nearest(length: int, side: int) -> int:
    """Whole tokens nearest to a length. Half of one is nobody's definition: refused."""
    whole, rest = divmod(length, side)
    if 2 * rest == side:
        raise OutOfDomain(f"{length} pixels are half way between {whole} and {whole + 1} tokens of {side}")
    return whole + (2 * rest > side)


def reaching(numerator: int, denominator: int) -> int:
    """The smallest whole number whose square is at least the fraction."""
    least = isqrt(numerator // denominator)
    return least if least * least * denominator >= numerator else least + 1


SCALE = 448
"""MiniCPM-V: a crop has about SCALE x SCALE pixels."""
MOST = 9
"""Slices."""


@dataclass(frozen=True, slots=True)
class Crops:
    """A picture's crops in tokens."""

    thumbnail: Size
    grid: Size = (0, 0)
    """Rows and columns of slices; 0: none."""
    slice: Size = (0, 0)


def crops(size: Size, side: int) -> Crops:
    """MiniCPM-V's thumbnail and slices of a picture; side: pixels of a token.

    >>> crops((448, 448), 56), crops((896, 560), 56)
    (Crops(thumbnail=(8, 8), grid=(0, 0), slice=(0, 0)), Crops(thumbnail=(10, 6), grid=(2, 1), slice=(7, 9)))
    """
    height, width = size
    wanted = min(-(-height * width // SCALE**2), MOST)
    thumbnail = scaled(size, side)
    if wanted <= 1:
        return Crops(thumbnail)
    rows, cols = slicing(size, wanted)
    cell = nearest_of(height, rows) // rows, nearest_of(width, cols) // cols
    return Crops(thumbnail, (rows, cols), scaled(cell, side))


def slicing(size: Size, wanted: int) -> Size:
    """Rows and columns of about `wanted` slices whose shape is nearest to the picture's; of two, that of more rows."""
    height, width = size
    best: tuple[float, int, int] = (float("inf"), 0, 0)
    for count in (wanted - 1, wanted, wanted + 1):
        if not 1 < count <= MOST:
            continue
        for rows in range(1, count + 1):
            if count % rows == 0:
                error = abs(log(width / height) - log(count // rows / rows))
                if error < best[0] or (error == best[0] and rows > best[1]):
                    best = (error, rows, count // rows)
    return best[1], best[2]


def scaled(size: Size, side: int) -> Size:
    """Tokens of a crop that is brought to SCALE x SCALE pixels, its shape kept."""
    height, width = size
    high = int(SCALE / (width / height) ** 0.5)
    wide = int(high * (width / height))
    return max(1, round(high / side)), max(1, round(wide / side))


def nearest_of(length: int, parts: int) -> int:
    """The multiple of `parts` nearest to a length."""
    return max(parts, round(length / parts) * parts)
