"""The rules of the two tables: once, for every forward mode.

A mode says which token indices each row of its batch reads, in order (spec/modes/). Whatever the mode, a token has
one column, that of the ideal position function (spec/history.py): its own index on every row where the request has no
media, the prompt table's column inside that table, index + delta past it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ropecheck.spec.rules import MROPE, Violation, rule
from ropecheck.spec.views import AXES, Built, Filler, Ints, Loop, Row, Tables, Twice

GRAPHS = "public interface: a captured graph reads static buffers of its captured size"
"""Where the padding rules come from."""

PADDING_VALUE = 0
"""What padded columns hold, on every row."""


@rule(
    "table.present",
    of=Tables,
    source="public interface: a forward of an M-RoPE model is given a [3, T] table",
    bugs=("sglang #19505", "sglang #12838"),
)
def present(view: Tables) -> Violation | None:
    """A forward of a model with M-RoPE must be given both tables; the engine must not raise or leave one unset.

    Text-only batches included: the shape that a model or a captured graph receives does not depend on content.
    """
    if view.positions is None:
        return _unset("1d", "the 1-D table is unset")
    if view.rows is None and not view.one_dimensional:
        return _unset("rows", "the three-row table is unset")
    return None


@rule(
    "table.dtype",
    of=Tables,
    source="public interface: positions are int64; a diffusion block's 1-D table is int32",
    when=lambda view: _answered(view),
    bugs=("QwenLM/Qwen3-VL #765",),
)
def dtype(view: Tables) -> Violation | None:
    """Both tables must be int64, except the 1-D table of a mode whose declaration says int32."""
    for axis, tensor, right in (("1d", view.positions, view.index_dtype), ("rows", view.rows, "int64")):
        if tensor is not None and tensor.dtype != right:
            return Violation(
                axis=axis,
                expected=right,
                observed=tensor.dtype,
                shape=f"dtype {tensor.dtype}",
                message=f"dtype {tensor.dtype}, must be {right}",
            )
    return None


@rule(
    "table.three_rows",
    of=Tables,
    source=MROPE,
    when=lambda view: view.rows is not None,
    bugs=("vllm #9546", "TensorRT-LLM #15900", "vllm-gaudi #1216"),
)
def three_rows(view: Tables) -> Violation | None:
    """The position table of a forward must have one row per axis of the family (t, h, w), all of equal width.

    The axes are rows, never columns: a token count is the table's last dimension.
    """
    shape = () if view.rows is None else view.rows.shape
    if len(shape) == 2 and shape[0] == view.axes:
        return None
    found = f"[{', '.join(map(str, shape))}]"
    return Violation(
        axis="rows",
        expected=view.axes,
        observed=found,
        shape="wrong number of rows",
        message=f"shape {found}, not [{view.axes}, T]",
    )


@rule(
    "table.width",
    of=Tables,
    source=MROPE,
    when=lambda view: view.buffer in ("", "tier") and _answered(view),
    bugs=("sglang #28464", "sglang #34152", "sglang #20916", "LlamaFactory #10782", "vllm #48725"),
)
def width(view: Tables) -> Violation | None:
    """Both tables must have exactly one column per token that the batch's rows read, row by row.

    Also where a window passes the end of the prompt table: it is completed, never cut short.
    """
    return _width(view)


@rule(
    "padding.width",
    of=Tables,
    source=GRAPHS,
    when=lambda view: view.buffer not in ("", "tier") and _answered(view),
    bugs=("LlamaFactory #10782",),
)
def padded_width(view: Tables) -> Violation | None:
    """A padded batch must have the padded width in both tables, and three rows."""
    return _width(view)


@rule(
    "table.index",
    of=Row,
    source="definition: a token's index is its place in the sequence",
    when=lambda row: not row.given and not _buffered(row),
    bugs=("sglang #5349", "sglang #20864", "elizaOS/llama.cpp #7", "llama.cpp #28243"),
)
def index(row: Row) -> Violation | None:
    """The 1-D table must hold each token's own index, in the order in which the mode reads them, without delta."""
    return _first(("1d",), (row.tokens,), (row.positions,))


@rule(
    "table.text_only",
    of=Row,
    source=MROPE,
    when=lambda row: row.columns is not None and not row.place.has_media and not _buffered(row),
    bugs=("vllm #18456", "sglang #20864", "sglang #19730"),
)
def text_only(row: Row) -> Violation | None:
    """A token of a request without media must have three equal rows, equal to its index.

    Whatever the other requests of the batch bring.
    """
    columns = row.columns or ()
    return _first(AXES, (row.tokens,) * len(columns), columns)


@rule(
    "table.inside_table",
    of=Row,
    source=MROPE,
    when=lambda row: row.columns is not None and row.place.has_media and bool(row.inside) and not _buffered(row),
    bugs=("sglang #5349", "sglang #1780", "mistral.rs #2301", "vllm #53456"),
)
def inside_table(row: Row) -> Violation | None:
    """A prompt token of a request with media must sit at its own column of the whole prompt's table.

    Cuts and prefix hits before, inside and after a media run change which columns are read, never their values.
    """
    for k in row.inside:
        for axis, seen, table in zip(AXES, row.columns or (), row.place.rows, strict=False):
            if seen[k] != table[row.tokens[k]]:
                return Violation(axis=axis, at=k, expected=table[row.tokens[k]], observed=seen[k])
    return None


@rule(
    "table.past_table",
    of=Row,
    source=MROPE,
    when=lambda row: row.columns is not None and row.place.has_media and bool(row.past) and not _buffered(row),
    bugs=("sglang #39144", "sglang #39145", "sglang #28464", "vllm #10350", "vllm #54498", "mlx-node #33"),
)
def past_table(row: Row) -> Violation | None:
    """A token past the prompt table must sit at its index + its own request's delta, on all three rows.

    A reply, a later text turn, a drafted token, an output prefilled again; also when one window holds both tabulated
    and later tokens, and whatever delta its neighbours in the batch have.
    """
    for k in row.past:
        right = row.tokens[k] + row.place.delta
        for axis, seen in zip(AXES, row.columns or (), strict=False):
            if seen[k] != right:
                return Violation(axis=axis, at=k, expected=right, observed=seen[k])
    return None


@rule(
    "padding.live_columns",
    of=Row,
    source=GRAPHS,
    when=lambda row: _buffered(row),
    bugs=("sglang #13034", "vllm-omni #803", "text-generation-inference #2708"),
)
def live_columns(row: Row) -> Violation | None:
    """Loading a batch into a wider buffer must keep every live column of both tables, on all three rows.

    Also after a larger batch, and for a batch without media after one with.
    """
    right = row.place.columns(row.tokens)
    return _first(("1d", *AXES), (row.tokens, *right), (row.positions, *(row.columns or ())))


@rule(
    "padding.harmless_fill",
    of=Filler,
    source=GRAPHS,
    when=lambda filler: bool(filler.positions) and filler.buffer != "tier",
    bugs=("xllm #885",),
)
def harmless_fill(filler: Filler) -> Violation | None:
    """The columns between the live ones and the padded width must hold 0 on every row: nothing stale, nothing unset."""
    return _zeros(filler)


@rule(
    "padding.tail",
    of=Filler,
    source="public interface: a graph tier pads a packed batch",
    when=lambda filler: bool(filler.positions) and filler.buffer == "tier",
    bugs=("mlxcel #894",),
)
def tail(filler: Filler) -> Violation | None:
    """The tail that pads a packed batch to its tier must follow all live columns and hold 0 in every row.

    A delta added to the tail can make its positions negative.
    """
    return _zeros(filler)


@rule(
    "table.forwards",
    of=Loop,
    source="arXiv 2401.15077 (EAGLE): a draft of n steps runs n - 1 forwards after the tokens that it starts from",
)
def forwards(loop: Loop) -> Violation | None:
    """A mode that runs in a loop must run as many forwards as its declaration says."""
    if loop.ran == loop.must:
        return None
    return Violation(
        axis="forwards",
        expected=loop.must,
        observed=loop.ran,
        shape="too many forwards" if loop.ran > loop.must else "too few forwards",
        message=f"{loop.ran} forwards, must be {loop.must}",
    )


@rule(
    "ownership.batch_is_read_only",
    of=Built,
    source="public interface: the batch constructor says that it must not mutate its input",
    bugs=("transformers #39749",),
)
def batch_is_read_only(built: Built) -> Violation | None:
    """Building a forward must change none of the batch's lengths, requests, media inputs, their tables and deltas.

    The lengths' sum and the repeated-delta cache may be filled in.
    """
    if not built.changed:
        return None
    names = ", ".join(built.changed)
    return Violation(axis="batch", shape=f"changed {names}", message=f"building the forward changed {names}")


@rule(
    "laws.same_step_twice",
    of=Twice,
    source="definition: how a scheduler cuts and orders work must not change what the model reads",
    bugs=("vllm-omni #5684", "transformers #43952"),
)
def same_step_twice(twice: Twice) -> Violation | None:
    """Building the same forward twice must give the same two tables."""
    if twice.first == twice.second:
        return None
    message = "the same batch built twice gave two different tables"
    return Violation(axis="tables", shape="second build differs", message=message)


def _answered(view: Tables) -> bool:
    return view.positions is not None or view.rows is not None


def _buffered(row: Row) -> bool:
    return row.buffer not in ("", "tier")


def _unset(axis: str, message: str) -> Violation:
    return Violation(axis=axis, observed="None", shape="table missing", message=message)


def _width(view: Tables) -> Violation | None:
    for axis, name, tensor in (("1d", "1-D", view.positions), ("t", "three-row", view.rows)):
        if tensor is None:
            continue
        found = tensor.shape[-1] if tensor.shape else 0
        if found != view.tokens or (axis == "1d" and len(tensor.shape) != 1):
            return Violation(
                axis=axis,
                at=min(found, view.tokens),
                expected=view.tokens,
                observed=found,
                shape=_width_shape(view.tokens, found),
                message=f"{found} columns for {view.tokens} tokens ({name} table)",
            )
    return None


def _width_shape(right: int, found: int) -> str:
    if found == 0 < right:
        return "no columns"
    return "too few columns" if found < right else ("too many columns" if found > right else "wrong shape")


def _zeros(filler: Filler) -> Violation | None:
    for axis, seen in zip(("1d", *AXES), (filler.positions, *filler.columns), strict=False):
        for at, value in enumerate(seen):
            if value != PADDING_VALUE:
                return Violation(axis=axis, at=at, expected=PADDING_VALUE, observed=value)
    return None


def _first(axes: Iterable[str], right: Iterable[Ints], seen: Iterable[Ints]) -> Violation | None:
    """The first column, then axis, at which `seen` is not `right`."""
    wrong: Violation | None = None
    for axis, want, got in zip(axes, right, seen, strict=False):
        if want == got:
            continue
        for at, (expected, observed) in enumerate(zip(want, got, strict=True)):
            if expected != observed:
                if wrong is None or wrong.at is None or at < wrong.at:
                    wrong = Violation(axis=axis, at=at, expected=expected, observed=observed)
                break
    return wrong
