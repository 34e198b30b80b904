"""What a token of an expanded prompt is."""

KINDS = ("text", "image", "video", "audio")
"""By the number that the protocol has for it."""
