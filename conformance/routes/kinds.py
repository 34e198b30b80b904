"""What a token of an expanded prompt is."""

from __future__ import annotations

KINDS = ("text", "image", "video", "audio")
"""By the number that the protocol has for it."""
