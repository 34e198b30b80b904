"""The rules of the two tables decide by the ideal position function, for every mode, at any index.

A rule is asked of a row with any observed numbers: it must find nothing exactly where they are the right ones.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ropecheck.conformance.prove.laws import DEPTHS, composed, split_prefill_is_extend
from ropecheck.conformance.prove.statement import Size, Theorem, World
from ropecheck.spec import history
from ropecheck.spec.column_rules import PADDING_VALUE
from ropecheck.spec.history import History, text
from ropecheck.spec.views import Filler, Place, Row, Seen, Tables


def _placed(w: World, kinds: tuple[str, ...]) -> tuple[Place, Callable[[Size], Any]]:
    """A request, and the ideal column of each of its tokens."""
    has_media = w.choose("prompt kind", kinds) == "media"
    if not has_media:
        tabulated = w.size("prompt tokens", 1)
        runs: History = (text(tabulated),)
    else:
        run, tabulated = w.media("prompt")
        runs = (run, text(w.size("later text")))
    table = w.table(runs)
    return w.place(runs, tabulated, has_media), lambda index: history.ideal_column(table, index)


def _observed(
    w: World, tokens: Sequence[Size], columns: Sequence[Sequence[Size]]
) -> tuple[tuple[Size, ...], tuple[tuple[Size, ...], ...]]:
    """Anything at all in both tables, where these would be right."""
    return (
        tuple(w.observed(f"1-D {k}", token) for k, token in enumerate(tokens)),
        tuple(
            tuple(w.observed(f"row {axis}, {k}", column[axis]) for k, column in enumerate(columns))
            for axis in range(w.axes)
        ),
    )


def _decided(w: World, rule: str, kinds: tuple[str, ...], where: Callable[[Place, Size], Any], *tokens: Size) -> None:
    place, ideal = _placed(w, kinds)
    for index in tokens:
        w.assume(where(place, index))
    wanted = tuple(map(ideal, tokens))
    positions, columns = _observed(w, tokens, wanted)
    buffer = "graph" if rule.startswith("padding.") else ""
    row = Row(mode="any", place=place, tokens=tokens, positions=positions, columns=columns, buffer=buffer)
    right: Any = (positions, tokens) if rule == "table.index" else (tuple(zip(*columns, strict=True)), wanted)
    if rule == "padding.live_columns":
        right = ((positions, right[0]), (tokens, right[1]))
    w.decides(rule, row, w.equal(*right))


def _rule(rule: str, kinds: tuple[str, ...], where: Callable[[Place, Size], Any]) -> Theorem:
    def of_one_token(w: World) -> None:
        """The rule accepts exactly the ideal column of a token at any index, whatever mode reads it."""
        _decided(w, rule, kinds, where, w.size("index"))

    def of_two_tokens(w: World) -> None:
        """And of any two tokens in a row."""
        _decided(w, rule, kinds, where, w.size("index"), w.size("other index"))

    two = rule not in ONE
    return Theorem(
        rule=rule,
        statements=(*ALSO.get(rule, ()), of_one_token, *((of_two_tokens,) if two else ())),
        limits="rows of one token, and of two" if two else "rows of one token",
    )


def widths(rule: str, buffer: str) -> Callable[[World], None]:
    """The width rule of batches in that buffer."""

    def width(w: World) -> None:
        """Two tables are accepted exactly where both have the width."""
        wanted, one, other = w.size("tokens"), w.size("width of the 1-D table"), w.size("width of the rows")
        positions = Seen(dtype="int64", shape=(one,), values=())
        rows = Seen(dtype="int64", shape=(w.axes, other), values=())
        view = Tables(mode="any", tokens=wanted, positions=positions, rows=rows, axes=w.axes, buffer=buffer)
        w.decides(rule, view, w.equal((one, other), (wanted, wanted)))

    return width


def fills(rule: str, buffer: str) -> Callable[[World], None]:
    """The rule of columns that belong to nobody."""

    def fill(w: World) -> None:
        """Padded columns are accepted exactly where all of them are 0."""
        columns = w.choose("columns", (1, 2))
        positions, rows = _observed(w, (PADDING_VALUE,) * columns, ((PADDING_VALUE,) * w.axes,) * columns)
        filler = Filler(mode="any", buffer=buffer, positions=positions, columns=rows)
        w.decides(rule, filler, w.equal((positions, *rows), ((PADDING_VALUE,) * columns,) * (w.axes + 1)))

    return fill


MEDIA, BOTH = ("media",), ("media", "text")
ONE = ("padding.live_columns", "table.text_only")
ALSO = {"table.index": (*DEPTHS, split_prefill_is_extend, composed)}
FILLED = "one padded column, and two"

THEOREMS = (
    _rule("table.inside_table", MEDIA, lambda place, index: index < place.tabulated),
    _rule("table.past_table", MEDIA, lambda place, index: index >= place.tabulated),
    _rule("table.text_only", ("text",), lambda place, index: index >= 0),
    _rule("table.index", BOTH, lambda place, index: index >= 0),
    _rule("padding.live_columns", BOTH, lambda place, index: index >= 0),
    Theorem(rule="table.width", statements=(widths("table.width", ""),)),
    Theorem(rule="padding.width", statements=(widths("padding.width", "graph"),)),
    Theorem(rule="padding.harmless_fill", statements=(fills("padding.harmless_fill", "graph"),), limits=FILLED),
    Theorem(rule="padding.tail", statements=(fills("padding.tail", "tier"),), limits=FILLED),
)
"""What this file proves."""
