"""What rules look at: an engine's answer laid beside what the script of the scenario says.

Views hold observed values and the history's own facts, never an engine's word for what is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ropecheck.spec.history import Delta

AXES = ("t", "h", "w", "x")
"""Names of a table's rows."""

Ints = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Place:
    """One request's columns, as far as positions are concerned."""

    rows: tuple[Ints, ...]
    """Its history's table, row by row: int [axes][width]."""
    tabulated: int
    """P: the first P columns came with a prompt that brought media; later tokens are text, placed by delta."""
    delta: Delta
    has_media: bool

    @property
    def gap(self) -> int:
        """By how much the largest coordinate of the tabulated columns passes the last one of the t row."""
        table = [row[: self.tabulated] for row in self.rows]
        return max(map(max, table)) - table[0][-1] if self.tabulated else 0

    def column(self, index: int) -> tuple[int, ...]:
        """The ideal column of token `index`: tabulated inside the history, index + delta after it."""
        if index < len(self.rows[0]):
            return tuple(row[index] for row in self.rows)
        return (index + self.delta,) * len(self.rows)

    def columns(self, tokens: Ints) -> tuple[list[int], ...]:
        """The ideal columns of these tokens, row by row."""
        width = len(self.rows[0])
        return tuple([row[index] if index < width else index + self.delta for index in tokens] for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A tensor as an engine answered it. values: its rows, where it has two dimensions; one row where it has one."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Ints, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """One table of one forward: both tensors, before their values are looked at."""

    mode: str
    tokens: int
    """How many tokens the batch's rows read; where `buffer` is set, the width of the buffer."""
    positions: Seen | None
    """The 1-D table."""
    rows: Seen | None
    """The three-row table."""
    axes: int = 3
    index_dtype: str = "int64"
    one_dimensional: bool = False
    """Only the 1-D table is asked for."""
    buffer: str = ""
    """Which wider buffer it stands in: "graph", "dp", "frozen_kv", "multi_layer", "tier"; "": none."""


@dataclass(kw_only=True)
class Row:
    """One request's columns of a forward. tokens: the indices that the mode reads, in order."""

    mode: str
    place: Place
    tokens: Ints
    positions: Ints
    """Observed: its part of the 1-D table."""
    columns: tuple[Ints, ...] | None
    """Observed: its part of the three rows; None where there are none to look at."""
    given: bool = False
    """The 1-D indices were handed to the engine: comparing them says nothing."""
    buffer: str = ""

    @cached_property
    def inside(self) -> tuple[int, ...]:
        """Which of the tokens have a column in the prompt's table."""
        return tuple(k for k, index in enumerate(self.tokens) if index < self.place.tabulated)

    @cached_property
    def past(self) -> tuple[int, ...]:
        """Which of the tokens lie past it."""
        return tuple(k for k, index in enumerate(self.tokens) if index >= self.place.tabulated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filler:
    """The columns between the live ones and the padded width."""

    mode: str
    buffer: str
    positions: Ints
    columns: tuple[Ints, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """How many forwards a mode's loop ran."""

    mode: str
    must: int
    ran: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A forward's batch, after its tables were built. changed: names of inputs that are not what they were."""

    mode: str
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """The same batch built twice: anything that compares equal when the two tables are."""

    mode: str
    first: object
    second: object


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTurn:
    """A finished turn, as the script made it."""

    prompt: tuple[int, ...]
    """Its whole prompt's tokens, earlier turns included."""
    outputs: tuple[int, ...]
    """Every token that was generated."""
    max_new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedTurn:
    """A turn that has just arrived in a session: what was asked for, and the tokens that the engine took it to be."""

    saved: SavedTurn | None
    """The turn that it continues; None: none."""
    new: tuple[int, ...]
    """Its own tokens."""
    streaming: bool = False
    replace: bool = False
    offset: int = 0
    drop_previous_output: bool = False
    siblings: bool = False
    """Its parent has other children."""
    aborted_sibling: bool = False
    in_flight: bool = False
    """Streaming: another turn is not finished."""
    parent_known: bool = True
    parent_finished: bool = True
    may_refuse: bool = False
    """The engine may take it or refuse it."""
    ids: tuple[int, ...] | None = None
    """Observed: the request's prompt, placeholders raw; None where the engine refused it."""
    refused: bool = False
    """Observed."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldState:
    """What an engine holds for one request, at a moment when the script says what it must be."""

    moment: str
    """"turn": it has just arrived in a session. "scheduled": the scheduler has just considered it. "computed": a
    forward has just prefilled some of it. "later": something else happened."""
    place: Place
    covers: int
    """Columns that its table must have at least."""
    spans: tuple[tuple[int, int], ...]
    """Half-open token ranges of its media, in the whole history."""
    media: tuple[bool, ...]
    """Per token of the prompt, whether it is a placeholder."""
    raw: tuple[int, ...]
    """The prompt's tokens, placeholders raw."""
    outputs: tuple[int, ...]
    """Every token that the script let it generate."""
    retracted: bool
    table: Seen | None
    """Observed, here and below."""
    delta: Seen | None
    delta_cache: Seen | None
    offsets: tuple[tuple[int, int], ...]
    ids: tuple[int, ...]
    """The prompt's tokens, padded."""
    fill_ids: tuple[int, ...] | None
    unpadded_ids: tuple[int, ...] = ()
    """The prompt's tokens, placeholders raw."""
    output_ids: tuple[int, ...] = ()
    prefix_len: int = 0
    """Tokens whose cache entries are there."""
    hit: int | None = None
    """The scheduler has just admitted it with so many tokens in the prefix cache; None: it has not."""
    ids_before: tuple[int, ...] | None = None
    """`ids` at the observation before."""
    parent: Place | None = None
    """The turn that it continues: what a stale table would show."""
    table_before: Seen | None = None
    """The table at the observation before."""
    admitted: bool = True
    """"scheduled": the scheduler took it; False: it was refused once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether a request is aborted, at an observation after its arrival. refused: its turn had to be refused."""

    refused: bool
    aborted: bool
    """Observed."""
    replaced: bool = False
    """A later turn of its session replaced it."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """A request that an operation must not touch, before and after it."""

    parent: bool
    """It is the parent of the turn that arrived."""
    field: str
    was: object
    now: object
    filled: bool = False
    """The field is a cache that building a forward may fill in, and it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What building a forward cost: copies from host to device, and waits for the device where one was there."""

    mode: str
    has_media: bool
    allowed: tuple[int, int]
    """Copies that the mode may make for a text-only batch, and for one with media."""
    extra: int
    """Copies that it may make besides, for lengths that stand on the host."""
    copies: int
    waits: int | None = None
    """None: nothing waits without a device."""
    reads: int | None = None
    """Values of the device that the host read, after which nothing was counted. None: with a device, waits say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Two routes to the same tokens of one request, or one. A reading maps a token's index to its column."""

    law: str
    """The rule that this pair is an instance of."""
    left: Mapping[int, tuple[int, ...]]
    right: Mapping[int, tuple[int, ...]] | None = None
