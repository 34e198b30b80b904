"""What a scenario that somebody wrote may say, before anybody works out what follows from it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ropecheck.conformance.scenario.dimensions import ITEMS, LENGTHS
from ropecheck.conformance.scenario.operations import Scenario, Submit, Turn
from ropecheck.reference.rotary import LAYOUTS, METHODS
from ropecheck.spec.families import family
from ropecheck.spec.history import OutOfDomain, Run

LARGEST = 1 << 20
"""No number of a scenario is larger: tokens, lengths, requests."""

WIDEST = 4096
"""No batch, tree or draft is wider."""

CHOICES = {
    "path": ("", "direct", "caller", "fused"),
    "layout": tuple(LAYOUTS),
    "method": METHODS,
    "items": tuple(ITEMS),
    "lengths": LENGTHS,
}
"""Words that a field may hold."""
COUNTS = ("buffer_rows", "buffer_tokens", "refusals")
AT_LEAST_ONE = ("refusals",)
KINDS = ("text", "image", "video", "audio")


def refuse_nonsense(scenario: Scenario) -> None:
    """Raises OutOfDomain, naming operation and field."""
    if family(scenario.family).axes != 3:
        raise OutOfDomain(f"family: {scenario.family} has {family(scenario.family).axes} rows; forwards have three")
    total = 0
    for number, op in enumerate(scenario.ops):
        where = f"ops[{number}]"
        for field, value in _numbers(where, msgspec.to_builtins(op)):
            _number(field, value)
        for name, known in CHOICES.items():
            chosen: str = getattr(op, name, known[0])
            if chosen not in known:
                raise OutOfDomain(f"{where}.{name}: {chosen!r} is none of {', '.join(map(repr, known))}")
        if isinstance(op, Submit | Turn):
            for index, run in enumerate(op.prompt):
                total += _run(f"{where}.prompt[{index}]", run)
            for index, run in enumerate(getattr(op, "ahead", ())):
                total += _run(f"{where}.ahead[{index}]", run)
    if total > LARGEST:
        raise OutOfDomain(f"ops: {total} tokens and patches in all; at most {LARGEST}")


def _numbers(where: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(f"{where}.{name}", inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _numbers(f"{where}[{index}]", inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield where, value


def _number(field: str, value: int) -> None:
    name = field.rsplit(".", 1)[-1]
    largest = WIDEST if name in COUNTS or ".fields." in field else LARGEST
    least = 1 if name in AT_LEAST_ONE else 0
    if not least <= value <= largest:
        raise OutOfDomain(f"{field}: {value} is not in {least} .. {largest}")


def _run(where: str, run: Run) -> int:
    """Tokens or patches of one run."""
    if run.kind not in KINDS:
        raise OutOfDomain(f"{where}.kind: {run.kind!r} is none of {', '.join(KINDS)}")
    if run.kept is not None:
        raise OutOfDomain(f"{where}.kept: a prompt holds whole runs; only an offset cuts one")
    if run.seconds_per_grid < 0:
        raise OutOfDomain(f"{where}.seconds_per_grid: {run.seconds_per_grid} is negative")
    if run.is_text:
        if run.grid is not None or run.tokens < 1:
            raise OutOfDomain(f"{where}: text has at least one token and no grid")
        return run.tokens
    if run.grid is None:
        return run.tokens
    patches = run.grid[0] * run.grid[1] * run.grid[2]
    if patches > LARGEST:
        raise OutOfDomain(f"{where}.grid: {patches} patches; at most {LARGEST}")
    return patches
