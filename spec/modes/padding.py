"""Padding: a captured graph, or the other data-parallel ranks, want a wider batch than there is.

live columns 0 .. raw-1     as without padding
columns raw .. padded-1     0 on every row
beyond                      unspecified
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes.cells import PADDING_VALUE, Cell, text_column
from ropecheck.spec.rules import rule

GRAPHS = "public interface: a captured graph reads static buffers of its captured size"
"""Where the padding rules come from."""


@rule(
    "padding.live_columns", source=GRAPHS, bugs=("sglang #13034", "vllm-omni #803", "text-generation-inference #2708")
)
def live(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Loading a batch into a wider buffer must keep every live column of both tables, on all three rows.

    Also after a larger batch, and for a batch without media after one with.
    """
    return cells


@rule("padding.harmless_fill", source=GRAPHS, bugs=("xllm #885",))
def fill(rule_id: str, count: int, axes: int) -> tuple[Cell, ...]:
    """The columns between the live ones and the padded width must hold 0 on every row: nothing stale, nothing unset."""
    if count < 0:
        raise OutOfDomain(f"padded width is {-count} short of the live columns")
    cell = Cell(
        request=-1,
        index=PADDING_VALUE,
        column=text_column(PADDING_VALUE, axes),
        index_rule=rule_id,
        column_rule=rule_id,
    )
    return (cell,) * count


@rule("padding.width", source=GRAPHS, bugs=("LlamaFactory #10782",))
def width(padded_tokens: int) -> int:
    """A padded batch must have the padded width in both tables, and three rows."""
    return padded_tokens


def forward(cells: Sequence[Cell], padded_tokens: int, axes: int) -> tuple[Cell, ...]:
    """The cells of the padded batch."""
    return (*live(cells), *fill("padding.harmless_fill", padded_tokens - len(cells), axes))
