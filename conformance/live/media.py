"""Prompts as a client sends them: token ids with one placeholder per picture, and the pictures as PNG files."""

import base64
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ropecheck.conformance.scripts.plan import FIRST_TEXT, TEXTS
from ropecheck.spec.history import History, OutOfDomain

VISION_START, VISION_END, IMAGE_PAD = 504, 505, 506
"""Special tokens of the toy tokenizer (`ropecheck.adapters.toys.words`)."""


@dataclass(frozen=True, slots=True)
class ClientPrompt:
    """What a client sends, or a whole history of it."""

    ids: tuple[int, ...] = ()
    pictures: tuple[str, ...] = ()
    """Data URIs, in the order of their placeholders."""

    def then(self, other: "ClientPrompt") -> "ClientPrompt":
        """This one, the other after it."""
        return ClientPrompt(self.ids + other.ids, self.pictures + other.pictures)


def prompt_of(history: History, content: int, patch: int) -> ClientPrompt:
    """The prompt of a script's request. patch: pixels of one patch's side. Raises OutOfDomain for media that are no
    pictures: a server reads clips through a decoder that a bare host lacks."""
    ids: list[int] = []
    pictures: list[str] = []
    for number, run in enumerate(history):
        if run.is_text:
            place = len(ids)
            ids += (FIRST_TEXT + (content * 131 + (place + k) * 17) % TEXTS for k in range(run.tokens))
            continue
        if run.kind != "image" or run.grid is None:
            raise OutOfDomain(f"a live client sends text and pictures, no {run.kind}")
        ids += [VISION_START, IMAGE_PAD, VISION_END]  # a picture without its marks is none to the engine's processor
        pictures.append(picture(run.grid[1] * patch, run.grid[2] * patch, content * 7 + number))
    return ClientPrompt(tuple(ids), tuple(pictures))


@cache
def picture(height: int, width: int, seed: int) -> str:
    """A PNG of random pixels in RGB, as a data URI."""
    pixels = random.Random(seed * 10007 + height * 101 + width)
    rows = b"".join(b"\0" + pixels.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b"".join(_chunks((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")))
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def _chunks(*parts: tuple[bytes, bytes]) -> Iterator[bytes]:
    for name, body in parts:
        yield struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
