"""Scenario files of the first format, in which every forward mode had an operation of its own, as files of this one."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ropecheck.conformance.scenario import words
from ropecheck.conformance.scenario.operations import Build

Raw = Mapping[str, Any]

FORMAT = 2
"""Number of today's format of scenario files."""


def upgraded(raw: Any) -> Any:
    """A scenario as JSON values, its operations in today's format; what is no operation of the first is left alone.

    Raises msgspec.ValidationError for a field that the first format does not have: it would be lost.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("ops"), list):
        return raw
    return raw | {"ops": [_operation(op, f"$.ops[{number}]") for number, op in enumerate(raw["ops"])]}


def _operation(raw: Any, where: str) -> Any:
    if not isinstance(raw, dict):
        return raw
    if raw.get("type") == "cost":
        return raw | {"of": _operation(raw.get("of"), f"{where}.of")}
    make = _FORMS.get(str(raw.get("type")))
    if make is None:
        return raw
    for name in raw:
        if name not in _FIELDS:
            raise msgspec.ValidationError(f"unknown field `{name}` - at `{where}`")
    try:
        return msgspec.to_builtins(make(raw))
    except (KeyError, TypeError, AttributeError):
        return raw  # the decoder says what is wrong with it


def _windows(raw: Raw) -> list[words.Window]:
    return [words.window(one["req"], one.get("tokens", 0), one.get("hit", 0)) for one in raw["windows"]]


def _how(raw: Raw) -> dict[str, Any]:
    """How the engine builds it, in today's words."""
    how: dict[str, Any] = {name: raw[name] for name in ("path", "host_lengths", "kernel") if name in raw}
    if raw.get("pad"):
        how["buffer"] = raw["pad"]
        rows, tokens = raw.get("pad_batch", 0), raw.get("pad_tokens", 0)
        how |= ({"buffer_rows": rows} if rows else {}) | ({"buffer_tokens": tokens} if tokens else {})
    return how


def _trees(raw: Raw) -> list[tuple[int, ...]]:
    return [tuple(tree) for tree in raw["parents"]]


def _verify(raw: Raw) -> Build:
    if raw.get("ragged"):
        return words.ragged_verify(raw["reqs"], _trees(raw), raw.get("ragged_tokens", 0), **_how(raw))
    return words.verify(raw["reqs"], _trees(raw), raw.get("topk", 1), **_how(raw))


def _block(raw: Raw) -> Build:
    size = raw["block_size"]
    return words.block(raw["reqs"], [number * size for number in raw["blocks"]], size)


_FIELDS = {
    *("type", "reqs", "windows", "split", "kernel", "pad", "pad_tokens", "pad_batch", "decodes", "num_steps", "topk"),
    *("path", "host_lengths", "parents", "ragged", "ragged_tokens", "num_draft_tokens", "blocks", "block_size"),
}
"""Every field of those operations."""

_FORMS: Mapping[str, Callable[[Raw], Build]] = {
    "extend": lambda raw: words.extend(_windows(raw), "split_prefill" if raw.get("split") else "extend", **_how(raw)),
    "decode": lambda raw: words.decode(raw["reqs"], **_how(raw)),
    "mixed": lambda raw: words.mixed(_windows(raw), raw["decodes"]),
    "draft": lambda raw: words.draft(raw["reqs"], raw["num_steps"], raw.get("topk", 1), **_how(raw)),
    "verify": _verify,
    "draft_extend": lambda raw: words.draft_extend(raw["reqs"], raw["num_draft_tokens"], **_how(raw)),
    "idle": lambda raw: words.idle(raw.get("pad_batch", 0)),
    "block": _block,
}
"""First format's type -> today's operation."""
