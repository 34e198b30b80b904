"""What a vector file holds. The structs are the schema; data/vector.schema.json is written from them:

    python -m ropecheck.conformance.vectors.types > conformance/data/vector.schema.json

A vector's id is the hash of its *input*, so that a new expected value, name or note never changes the id.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from ropecheck.conformance.vectors.inputs import (
    Abort,
    Batch,
    Count,
    Counts,
    Decode,
    DllmExtend,
    DraftDecode,
    DraftExtendV2,
    Event,
    Extend,
    Finish,
    ForwardInput,
    Idle,
    Input,
    Load,
    Mixed,
    Open,
    PaddingInput,
    PromptTableInput,
    RaggedVerify,
    Reply,
    Request,
    Retract,
    Retraction,
    RetractionInput,
    Rows,
    Run,
    SessionInput,
    SplitPrefill,
    Strict,
    TargetVerify,
    Turn,
)

__all__ = [
    "FACTS",
    "FOLDERS",
    "FREE",
    "SCHEMA",
    "SCHEMA_FILE",
    "Abort",
    "Answer",
    "Batch",
    "Count",
    "Counts",
    "Declined",
    "Decode",
    "DllmExtend",
    "DraftDecode",
    "DraftExtendV2",
    "Event",
    "Extend",
    "Finish",
    "ForwardInput",
    "Idle",
    "Input",
    "Load",
    "Mixed",
    "Open",
    "PaddingInput",
    "PromptTableInput",
    "Provenance",
    "RaggedVerify",
    "Reply",
    "Request",
    "Retract",
    "Retraction",
    "RetractionInput",
    "Rows",
    "Run",
    "SessionInput",
    "SplitPrefill",
    "Table",
    "TargetVerify",
    "Turn",
    "Vector",
    "folder_of",
    "id_of",
    "schema",
    "with_facts",
]

SCHEMA: Literal["ropecheck.vector/1"] = "ropecheck.vector/1"
"""Raised when a field changes its meaning or a reader of the older schema would misread a file."""

SCHEMA_FILE = Path(__file__).parent.parent / "data" / "vector.schema.json"

FREE = -1
"""Stands in a table where any value will do; no position is negative."""


class Answer(Strict, frozen=True):
    """One table of an engine's answer. Fields that the vector's expected table has must be there."""

    label: str
    """"" for a forward, "step 1".. for later draft forwards, "padded", "turn N" (N: the request), "retraction N"."""
    positions: tuple[int, ...] | None = None
    """The 1-D table."""
    rows: Rows | None = None
    """The three-row table, one list per axis."""
    tokens: Count | None = None
    """Tokens of the request's whole history."""
    delta: int | None = None
    media_spans: tuple[tuple[Count, Count], ...] | None = None
    """Half-open token ranges of the media items in the whole history, in order."""
    refused: bool | None = None


class Table(Answer, frozen=True):
    """What must be answered."""

    free: tuple[tuple[Count, Count], ...] = ()
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

    schema: Literal["ropecheck.vector/1"]
    id: str
    input: Input
    expected: tuple[Table, ...]
    provenance: Provenance


FACTS = ("tokens", "delta", "media_spans", "refused")
"""Fields of an answer beside its table."""


def with_facts(table: Table, facts: Mapping[str, object]) -> Table:
    """The table with these values beside it. Raises TypeError for a field that is no fact."""
    unknown = set(facts) - set(FACTS)
    if unknown:
        raise TypeError(f"no facts: {sorted(unknown)}")
    return msgspec.structs.replace(table, **facts)


def id_of(value: Input) -> str:
    """16 hex digits of the SHA-256 of the input as JSON with sorted keys and no white space."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def folder_of(value: Input) -> str:
    """The folder that a vector belongs to: its forward mode, or the kind of its input."""
    tagged = value.batch if isinstance(value, ForwardInput) else value
    return str(tagged.__struct_config__.tag)


FOLDERS = (
    "extend",
    "split_prefill",
    "mixed",
    "decode",
    "draft_decode",
    "target_verify",
    "ragged_verify",
    "draft_extend_v2",
    "dllm_extend",
    "idle",
    "padding",
    "session",
    "retraction",
    "prompt_table",
)


def schema() -> bytes:
    """The JSON schema of a vector file."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Vector)), indent=2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(schema())
