"""What a vector file holds. The structs are the schema (`ropecheck.conformance.book.formats` writes it).

A vector's id is the hash of its *input*, so that a new expected value, name or note never changes the id.
"""

import hashlib
from typing import Annotated, Literal

import msgspec

from ropecheck.adapters.batch import Batch
from ropecheck.spec.modes import all_modes

SCHEMA: Literal["ropecheck.vector/2"] = "ropecheck.vector/2"
"""Raised when a field changes its meaning or a reader of the older schema would misread a file."""


FREE = -1
"""Stands in a table where any value will do; no position is negative."""

LARGEST = 1 << 20
"""No count is larger, and no run has more patches."""

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Rows = tuple[tuple[int, ...], ...]
"""One tuple per axis (t, h, w, ..), all of equal width."""
Spans = tuple[tuple[Count, Count], ...]
"""Half-open ranges."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A misspelt field is an error; a field that holds its default is left out."""


# ---------------------------------------------------------------- what a request brings


class VectorRun(Strict, frozen=True):
    """Consecutive tokens of one kind."""

    kind: Literal["text", "image", "video", "audio"]
    tokens: Count = 0
    """Text and audio: how many. Image and video: 0, the family counts them from the grid."""
    grid: tuple[Count, Count, Count] | None = None
    """Image and video: (t, h, w) patches before the family's spatial merge."""
    seconds_per_grid: float | None = None
    """Video: seconds between two temporal grid steps; none: 1."""
    kept: Count | None = None
    """Only the first `kept` tokens are left (a session's offset cut the run)."""


class VectorRequest(Strict, frozen=True):
    """A request as an engine holds it before a forward."""

    runs: tuple[VectorRun, ...]
    """Its whole prompt; in a session, with all earlier turns and replies."""
    table: Rows
    """[axes][P]: the columns of the whole prompt."""
    delta: int
    """max(table) + 1 - P; 0 without media."""
    tabulated: Count
    """An engine need not hold more than this many leading columns: later ones are text, at index + delta."""


class Load(Strict, frozen=True):
    """A batch that is put into a wider buffer. The batch's `reqs` number `requests`."""

    requests: tuple[VectorRequest, ...]
    batch: Batch
    padded_tokens: Count


# ---------------------------------------------------------------- session events


class OpenEvent(Strict, frozen=True, tag_field="do", tag="open"):
    """A session is opened."""

    session: Count
    streaming: bool = False


class TurnEvent(Strict, frozen=True, tag_field="do", tag="turn"):
    """A request arrives in a session with its own runs, and the table and delta of those runs alone."""

    session: Count
    request: Count
    runs: tuple[VectorRun, ...]
    table: Rows
    """[axes][tokens of this turn], from position 0."""
    delta: int
    parent: Count | None = None
    """The request that it appends to; none in a streaming session, which appends to its last finished turn."""
    replace: bool = False
    offset: Count = 0
    drop_previous_output: bool = False
    max_new_tokens: Count | None = None
    """None: no limit."""


class ReplyEvent(Strict, frozen=True, tag_field="do", tag="reply"):
    """The request's model emits so many more tokens, perhaps past its max_new_tokens."""

    request: Count
    tokens: Count


class FinishEvent(Strict, frozen=True, tag_field="do", tag="finish"):
    """The request ends normally."""

    request: Count


class AbortEvent(Strict, frozen=True, tag_field="do", tag="abort"):
    """The request is aborted."""

    request: Count


class RetractEvent(Strict, frozen=True, tag_field="do", tag="retract"):
    """The scheduler takes the request's memory back and prefills it again; its history stays."""

    request: Count


Event = OpenEvent | TurnEvent | ReplyEvent | FinishEvent | AbortEvent | RetractEvent


class Retraction(Strict, frozen=True):
    """One retraction."""

    outputs: Count
    """Tokens that the request had emitted by then."""
    refusals: Count = 0
    """Times that the scheduler then considered the request and refused it."""


# ---------------------------------------------------------------- inputs


class ForwardInput(Strict, frozen=True, tag_field="kind", tag="forward"):
    """The batch of one forward. Its `reqs` number `requests`; its fields are those of its mode's declaration."""

    family: str
    requests: tuple[VectorRequest, ...]
    batch: Batch
    tier: Count = 0
    """Above 0: the packed batch is padded to so many columns."""


class PaddingInput(Strict, frozen=True, tag_field="kind", tag="padding"):
    """Batches loaded one after another into one buffer; the last one is looked at."""

    family: str
    buffer: str
    """One of the mode's buffers. "dp": padded to another rank's size. Others ("graph") are static and keep what an
    earlier load left."""
    capacity: Count
    """Columns of the buffer."""
    earlier: tuple[Load, ...]
    load: Load


class SessionInput(Strict, frozen=True, tag_field="kind", tag="session"):
    """What happens to sessions, in order."""

    family: str
    events: tuple[Event, ...]


class RetractionInput(Strict, frozen=True, tag_field="kind", tag="retraction"):
    """A request that is retracted, once or more."""

    family: str
    request: VectorRequest
    retractions: tuple[Retraction, ...]


class PromptTableInput(Strict, frozen=True, tag_field="kind", tag="prompt_table"):
    """A prompt whose table a model family's builder must make."""

    family: str
    runs: tuple[VectorRun, ...]


Input = ForwardInput | PaddingInput | SessionInput | RetractionInput | PromptTableInput


# ---------------------------------------------------------------- expected values and answers


class Answer(Strict, frozen=True):
    """One table of an engine's answer. Fields that the vector's expected table has must be there."""

    label: str
    """"" for a forward, "step 1".. for later ones of a loop, "padded", "turn N" (N: the request), "retraction N"."""
    positions: tuple[int, ...] | None = None
    """The 1-D table."""
    rows: Rows | None = None
    """The three-row table, one list per axis."""
    tokens: Count | None = None
    """Tokens of the request's whole history."""
    delta: int | None = None
    media_spans: Spans | None = None
    """Half-open token ranges of the media items in the whole history, in order."""
    refused: bool | None = None


class ExpectedTable(Answer, frozen=True):
    """What must be answered."""

    free: Spans = ()
    """Half-open ranges of columns that may hold anything; -1 stands there."""
    optional_from: Count | None = None
    """A table that ends at this column or later is wide enough; what it holds must be right."""


class Declined(Strict, frozen=True):
    """An answer of an engine that lacks what the vector needs."""

    not_offered: str
    """The reason."""


class Provenance(Strict, frozen=True):
    """Where a vector came from, for people."""

    scenario: str
    scenario_id: str
    operation: Count
    """Index into the scenario's operations; 0 for a prompt table's case."""
    spec: str
    """Hash of the specification that the vector was first derived from."""
    reason: str
    """Why the scenario exists."""
    rules: tuple[str, ...]
    """What the vector checks."""
    bugs: tuple[str, ...]
    """Public bugs that broke these rules."""


class Vector(Strict, frozen=True):
    """One vector."""

    schema: Literal["ropecheck.vector/2"]
    id: str
    input: Input
    expected: tuple[ExpectedTable, ...]
    provenance: Provenance


def id_of(value: Input) -> str:
    """16 hex digits of the SHA-256 of the input as JSON with sorted keys and no white space."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def folder_of(value: Input) -> str:
    """The folder that a vector belongs to: its forward mode, or the kind of its input."""
    return value.batch.mode if isinstance(value, ForwardInput) else str(value.__struct_config__.tag)


def folders() -> tuple[str, ...]:
    """Every folder: one per declared forward mode, then one per other kind of input."""
    return (*all_modes(), "padding", "session", "retraction", "prompt_table")
