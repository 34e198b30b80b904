"""A scenario: a script of operations over several requests, as a user's requests and a scheduler's choices make them.

Operations say what happens, in the domain's own terms; every number that follows from them (prefix_len, seq_len,
positions) is the lifecycle's to work out. A scenario is frozen, serialises to JSON, and its id is the hash of its
content, so that renaming it breaks nothing.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.protocol import Abort, Finish, Open, Retract
from ropecheck.spec.history import Run

__all__ = ["Abort", "Batch", "BatchPart", "Finish", "Open", "Retract"]

UNLIMITED = 1 << 20


class Submit(msgspec.Struct, frozen=True, tag="submit", omit_defaults=True):
    """A plain request arrives."""

    req: int
    prompt: tuple[Run, ...]
    max_new_tokens: int = UNLIMITED
    ahead: tuple[Run, ...] = ()
    """Runs that it will write, whose columns came with the prompt (GLM-Image)."""
    items: str = ""
    """How its processor hands its media over. "": an item each, in order; "joined": all of a kind in one item;
    "reversed": the last one first; "equal": of equal pixels, which have one hash; "view": its table is every second
    column of a wider one in memory."""


class Turn(msgspec.Struct, frozen=True, tag="turn", omit_defaults=True):
    """A request arrives in a session. `parent`: the request that it appends to, by the public `rid` parameter."""

    session: int
    req: int
    prompt: tuple[Run, ...]
    parent: int | None = None
    replace: bool = False
    offset: int = 0
    drop_previous_output: bool = False
    max_new_tokens: int = UNLIMITED
    items: str = ""
    """As in Submit."""
    bos: bool = False
    """Its client's tokenizer has put a start of sequence before it: no part of a history that goes on."""


class Build(msgspec.Struct, frozen=True, tag="forward", omit_defaults=True):
    """One forward of any mode: its batch is built and its tables are read.

    `batch` holds the chosen fields; those that a request's state says are left out. Of a prefilling row extend_len 0,
    or none, is all that is left; a prefix_len, on the first window after arrival or retraction, is a prefix-cache hit.
    Afterwards a request whose prompt is complete emits its first token, and one that decodes its next.
    """

    batch: Batch
    path: str = ""
    """How the engine builds it: "direct", "caller", "fused"; "": the engine's own caller where the mode has one."""
    host_lengths: bool = True
    """Whether the batch carries a copy of its lengths on the host."""
    lengths: str = ""
    """"strided": its lengths are every second element of a wider tensor. "lagging": the copy on the host is a bound,
    one less each (a batch whose caller brings the indices reads nothing from it). "": neither."""
    kernel: bool = False
    """Also through the engine's own 1-D position kernel (Triton, interpreted without a GPU)."""
    buffer: str = ""
    """A wider buffer that it is loaded into as well: one of the mode's `buffers`."""
    buffer_rows: int = 0
    """Rows of that buffer."""
    buffer_tokens: int = 0
    """Columns of that buffer, where rows do not say it (windows of a prefill; a packed batch's tier)."""


class Accept(msgspec.Struct, frozen=True, tag="accept", omit_defaults=True):
    """A speculative round ends: the request's history grows by `tokens` (accepted drafts and the bonus token)."""

    req: int
    tokens: int


class Reschedule(msgspec.Struct, frozen=True, tag="reschedule", omit_defaults=True):
    """The scheduler considers a waiting request and refuses it, `refusals` times."""

    req: int
    refusals: int = 1


class MeasureCost(msgspec.Struct, frozen=True, tag="cost", omit_defaults=True):
    """Count the host-to-device operations of the forward `of` instead of reading its tables. State is unchanged."""

    of: Build


class Rotate(msgspec.Struct, frozen=True, tag="rotate", omit_defaults=True):
    """The rotary embedding turns heads by the table of a request's history, prompt and outputs. State is unchanged."""

    req: int
    layout: str = "contiguous"
    """Of the sections: a name in `reference.rotary.LAYOUTS`."""
    method: str = ""
    """"native": the engine's tensor version. "device": the one that it takes on a GPU. "fused": a model's kernel that
    norms the heads as well. "": native, on a GPU device as well."""


Operation = Submit | Open | Turn | Build | Accept | Retract | Reschedule | Finish | Abort | MeasureCost | Rotate


class Pick(msgspec.Struct, frozen=True):
    """What some forwards read of one request: those of the operations numbered `ops`."""

    req: int
    ops: tuple[int, ...]


class Law(msgspec.Struct, frozen=True):
    """A law that this scenario is an instance of: both picks reach the same tokens. `right` is None where the law
    speaks of one reading alone."""

    law: str
    left: Pick
    right: Pick | None = None


class Scenario(msgspec.Struct, frozen=True, dict=True):
    """A named script of operations for one model family."""

    name: str
    ops: tuple[Operation, ...]
    family: str = "qwen2_vl"
    note: str = ""
    """Why this scenario exists, in a sentence."""
    repeat: bool = False
    """Build every forward twice, and compare."""
    laws: tuple[Law, ...] = ()
    """Laws to check on what the engine itself answers."""

    @cached_property
    def id(self) -> str:
        """12 hex digits of the hash of family and operations; name, note, repeat and laws do not count."""
        body = msgspec.json.encode((self.family, self.ops), order="deterministic")
        return hashlib.sha256(body).hexdigest()[:12]


def tag(op: Operation) -> str:
    """ "submit", "turn", .."""
    return str(op.__struct_config__.tag)
