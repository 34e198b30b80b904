"""From a state and what somebody chose to a whole batch: every field of every row, and the requests' timelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropecheck.reference.requests import Request, State, of, tokens_of
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, RUNNING, TEXT, Field, Mode, Tree, Whole

STATUSES = {
    PREFILLING: ("waiting", "retracted"),
    RUNNING: ("running",),
    TEXT: ("waiting", "running"),
    NOBODY: (),
}
"""What a mode's rows read -> the statuses that a request may have."""


def requests_for(state: State, mode: Mode, reqs: Sequence[int]) -> list[Request]:
    """The rows' requests. Raises OutOfDomain where one is not in a state that the mode reads."""
    if mode.reads == NOBODY:
        if reqs:
            raise OutOfDomain(f"{mode.name} has no rows")
        return []
    if not reqs:
        raise OutOfDomain(f"{mode.name}: a batch without requests")
    found = [of(state, req, *STATUSES[mode.reads]) for req in reqs]
    if mode.reads == TEXT and any(request.has_media for request in found):
        raise OutOfDomain(f"{mode.name} is text only")
    return found


def resolved(mode: Mode, requests: Sequence[Request], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Every field of the mode for these requests. Raises OutOfDomain, naming the field, for a value out of range."""
    unknown = set(chosen) - {field.name for field in mode.fields}
    if unknown:
        raise OutOfDomain(f"{mode.name} carries no {', '.join(sorted(unknown))}")
    out: dict[str, Any] = {}
    for field in mode.fields:
        if field.kind == "prefix_len":
            out[field.name] = _prefixes(requests, chosen.get(field.name))
    for field in mode.fields:
        if field.kind == "extend_len":
            out[field.name] = _extends(mode, requests, out, chosen.get(field.name))
        elif field.kind == "seq_len":
            out[field.name] = tuple(map(tokens_of, requests))
        elif field.kind == "committed_len":
            out[field.name] = tuple(tokens_of(request) - 1 for request in requests)
        elif field.domain is not None:
            out[field.name] = _chosen(mode, field, len(requests), chosen)
    for field in mode.fields:
        _check_tree(mode, field, out)
        _check_multiple(mode, field, out)
    return out


def _prefixes(requests: Sequence[Request], hits: Any) -> tuple[int, ...]:
    """Tokens that need not be computed: those computed so far, or a hit in the prefix cache."""
    hits = (0,) * len(requests) if hits is None else _per_row("prefix_len", hits, len(requests))
    out = []
    for request, hit in zip(requests, hits, strict=True):
        if hit and (request.admitted or request.computed):
            raise OutOfDomain(f"request {request.req}: a prefix hit comes before its first window")
        if hit >= tokens_of(request):
            raise OutOfDomain(f"request {request.req}: a hit leaves at least one of its {tokens_of(request)} tokens")
        out.append(hit or request.computed)
    return tuple(out)


def _extends(mode: Mode, requests: Sequence[Request], out: Mapping[str, Any], wanted: Any) -> tuple[int, ...]:
    prefixes = next(out[field.name] for field in mode.fields if field.kind == "prefix_len")
    wanted = (0,) * len(requests) if wanted is None else _per_row("extend_len", wanted, len(requests))
    extends = []
    for request, prefix, tokens in zip(requests, prefixes, wanted, strict=True):
        left = tokens_of(request) - prefix
        if not 0 < (tokens or left) <= left:
            raise OutOfDomain(f"request {request.req}: window of {tokens or left} tokens, {left} left")
        extends.append(tokens or left)
    return tuple(extends)


def _chosen(mode: Mode, field: Field, rows: int, chosen: Mapping[str, Any]) -> Any:
    domain = field.domain
    if isinstance(domain, Tree):
        trees = _per_row(field.name, chosen.get(field.name, ((),) * rows), rows)
        return tuple(tuple(tree) for tree in trees)
    assert isinstance(domain, Whole)
    value = chosen.get(field.name, (domain.low,) * rows if domain.each else domain.low)
    values = _per_row(field.name, value, rows) if domain.each else (value,)
    for number in values:
        if not isinstance(number, int) or number < domain.low:
            raise OutOfDomain(f"{mode.name}.{field.name}: {number} is below {domain.low}")
    return value


def _per_row(name: str, value: Any, rows: int) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or len(value) != rows:
        raise OutOfDomain(f"{name}: one value per row, {rows} in all")
    return tuple(value)


def _check_tree(mode: Mode, field: Field, out: Mapping[str, Any]) -> None:
    if not isinstance(field.domain, Tree) or not field.domain.nodes:
        return
    nodes = out[field.domain.nodes]
    for tree in out[field.name]:
        if len(tree) + 1 != nodes:
            raise OutOfDomain(
                f"{mode.name}.{field.name}: a tree of {len(tree) + 1} nodes, {field.domain.nodes} {nodes}"
            )


def _check_multiple(mode: Mode, field: Field, out: Mapping[str, Any]) -> None:
    if not isinstance(field.domain, Whole) or not field.domain.multiple_of:
        return
    step = out[field.domain.multiple_of]
    for value in out[field.name] if field.domain.each else (out[field.name],):
        if value % step:
            raise OutOfDomain(f"{mode.name}.{field.name}: {value} is no multiple of {field.domain.multiple_of} {step}")
