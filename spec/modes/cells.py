"""What the mode files are written in: a request's place, and a cell of a forward's two tables."""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.history import Column, Delta, TokenIndex, delta_of, ideal_column
from ropecheck.spec.rules import MROPE, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One request, as far as positions are concerned."""

    columns: tuple[Column, ...]
    """The columns of its history so far (prompt_table of its runs); never empty."""
    tabulated: int
    """P: the first P columns came with a prompt that brought media; later tokens are text, placed by delta."""
    has_media: bool

    @property
    def delta(self) -> Delta:
        return delta_of(self.columns)

    def column(self, index: TokenIndex) -> Column:
        return ideal_column(self.columns, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One column of a forward: what both tables must hold there, and the rules that say so."""

    request: int
    """Row of the batch, from 0; -1 for padding."""
    index: int
    """The 1-D table."""
    column: Column
    """The three-row table."""
    index_rule: str
    column_rule: str


PADDING_VALUE = 0
"""What padded columns hold, on every row."""


@rule(
    "table.present",
    source="public interface: a forward of an M-RoPE model is given a [3, T] table",
    bugs=("sglang #19505", "sglang #12838"),
)
def present(model_is_mrope: bool, runs_a_forward: bool) -> bool:
    """A forward of a model with M-RoPE must be given both tables; the engine must not raise or leave one unset.

    Text-only batches included: the shape that a model or a captured graph receives does not depend on content.
    """
    return model_is_mrope and runs_a_forward


@rule("table.three_rows", source=MROPE, bugs=("vllm #9546", "TensorRT-LLM #15900", "vllm-gaudi #1216"))
def rows(axes: int) -> int:
    """The position table of a forward must have one row per axis of the family (t, h, w), all of equal width.

    The axes are rows, never columns: a token count is the table's last dimension.
    """
    return axes


@rule(
    "table.dtype",
    source="public interface: positions are int64; a diffusion block's 1-D table is int32",
    bugs=("QwenLM/Qwen3-VL #765",),
)
def dtype(mode: str, one_dimensional: bool) -> str:
    """Both tables must be int64, except the 1-D table of dllm_extend, which must be int32."""
    return "int32" if mode == "dllm_extend" and one_dimensional else "int64"


def text_column(index: int, axes: int = 3) -> Column:
    """The column of a text token of a request without media: its index on every row."""
    return (index,) * axes


def shifted(index: int, delta: int, axes: int) -> Column:
    """The column of a text token after all media: index plus delta on every row."""
    return (index + delta,) * axes


def axes_of(place: Place) -> int:
    """Rows of the request's table."""
    return len(place.columns[0])
