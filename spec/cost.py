"""What building a forward may cost: copies from host to device, each of which can stall the stream."""

from __future__ import annotations

from ropecheck.spec.rules import rule

HOT = "public threads: each avoidable copy stalls decoding (sglang #20864, #9460, #14956)"
"""Why the budget exists."""


@rule("cost.text_only", source=HOT, bugs=("sglang #20864", "sglang #9460", "sglang #11046"))
def text_only(mode: str) -> int:
    """A speculative forward of a text-only batch must make no host-to-device copy for its positions.

    target_verify, draft decode, and draft_extend_v2 without host lengths.
    """
    del mode
    return 0


@rule("cost.media", source=HOT, bugs=("sglang #11046",))
def media(mode: str) -> int:
    """A speculative forward of a batch with media must make at most one host-to-device copy, all deltas together."""
    del mode
    return 1


@rule("cost.host_lengths", source=HOT)
def host_lengths(has_media: bool) -> int:
    """A draft_extend_v2 with host lengths may make two more copies, for its lengths, and must make no others."""
    return 2 + (media("draft_extend_v2") if has_media else text_only("draft_extend_v2"))


@rule("cost.decode", source=HOT, bugs=("sglang #11046", "sglang #9460"))
def decode(has_media: bool) -> int:
    """A decode must make no copy for a text-only batch, and at most one with media, however many requests have some."""
    return 1 if has_media else 0


@rule("cost.synchronisations", source=HOT, bugs=("sglang #20864",), devices=("cuda",))
def synchronisations(has_media: bool) -> int:
    """Building a speculative forward or a decode must not wait for the device for a text-only batch, and must wait at
    most once with media.

    Seen on a device only; without one nothing waits.
    """
    return 1 if has_media else 0
