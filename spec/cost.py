"""What building a forward may cost: copies from host to device, each of which can stall the stream.

A mode's declaration says how many copies it may make (`copies`, `host_copies`); the rules say what that means.
"""

from __future__ import annotations

from ropecheck.spec.rules import Violation, rule
from ropecheck.spec.views import Copies

HOT = "public threads: each avoidable copy stalls decoding (sglang #20864, #9460, #14956)"
"""Why the budget exists."""


@rule(
    "cost.text_only",
    of=Copies,
    source=HOT,
    when=lambda cost: not cost.has_media and not cost.extra and not cost.reads,
    bugs=("sglang #20864", "sglang #9460", "sglang #11046"),
)
def text_only(cost: Copies) -> Violation | None:
    """A forward of a text-only batch must make no host-to-device copy for its positions.

    Decodes and speculative forwards alike, whose lengths are on the device already.
    """
    return _copies(cost, cost.allowed[0])


@rule(
    "cost.media",
    of=Copies,
    source=HOT,
    when=lambda cost: cost.has_media and not cost.extra and not cost.reads,
    bugs=("sglang #11046", "sglang #9460"),
)
def media(cost: Copies) -> Violation | None:
    """A forward of a batch with media must make at most one host-to-device copy, all deltas together.

    However many requests have media.
    """
    return _copies(cost, cost.allowed[1])


@rule(
    "cost.device_values",
    of=Copies,
    source=HOT,
    when=lambda cost: cost.reads is not None,
    bugs=("sglang #14956",),
)
def device_values(cost: Copies) -> Violation | None:
    """Building a forward must not read a value of the device on the host.

    The host would wait until the device has come so far. What the lengths are is known on the host already, or stays on
    the device. On a device the waits are counted instead.
    """
    if not cost.reads:
        return None
    return Violation(
        axis="reads",
        expected=0,
        observed=cost.reads,
        shape="reads the device",
        message="reads a value of the device on the host",
    )


@rule("cost.host_lengths", of=Copies, source=HOT, when=lambda cost: bool(cost.extra) and not cost.reads)
def host_lengths(cost: Copies) -> Violation | None:
    """A forward whose lengths stand on the host may make two more copies, for its lengths, and must make no others."""
    return _copies(cost, cost.allowed[cost.has_media] + cost.extra)


@rule(
    "cost.synchronisations",
    of=Copies,
    source=HOT,
    when=lambda cost: cost.waits is not None,
    bugs=("sglang #20864",),
    devices=("cuda",),
)
def synchronisations(cost: Copies) -> Violation | None:
    """Building a speculative forward or a decode must not wait for the device for a text-only batch, and must wait at
    most once with media.

    Seen on a device only; without one nothing waits.
    """
    most, waits = 1 if cost.has_media else 0, cost.waits or 0
    if waits <= most:
        return None
    return Violation(
        axis="waits",
        expected=most,
        observed=waits,
        shape="too many waits",
        message=f"waits {waits} times for the device, at most {most}",
    )


def _copies(cost: Copies, most: int) -> Violation | None:
    if cost.copies <= most:
        return None
    return Violation(
        axis="copies",
        expected=most,
        observed=cost.copies,
        shape="too many copies",
        message=f"{cost.copies} host-to-device copies, at most {most}",
    )
