"""What a vector gives an engine: requests, batches, session events. See `types`, which has these names too."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Counts = tuple[Count, ...]
Rows = tuple[tuple[int, ...], ...]
"""One tuple per axis (t, h, w, ..), all of equal width."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A misspelt field is an error; a field that holds its default is left out."""


# ---------------------------------------------------------------- what a request brings


class Run(Strict, frozen=True):
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


class Request(Strict, frozen=True):
    """A request as an engine holds it before a forward."""

    runs: tuple[Run, ...]
    """Its whole prompt; in a session, with all earlier turns and replies."""
    table: Rows
    """[axes][P]: the columns of the whole prompt."""
    delta: int
    """max(table) + 1 - P; 0 without media."""
    tabulated: Count
    """An engine need not hold more than this many leading columns: later ones are text, at index + delta."""


# ---------------------------------------------------------------- batches


class Extend(Strict, frozen=True, tag_field="mode", tag="extend"):
    """Prefill windows: request i reads tokens prefix_lens[i] .. prefix_lens[i] + extend_lens[i] - 1."""

    seq_lens: Counts
    """prefix + extend."""
    prefix_lens: Counts
    extend_lens: Counts


class SplitPrefill(Strict, frozen=True, tag_field="mode", tag="split_prefill"):
    """As extend."""

    seq_lens: Counts
    prefix_lens: Counts
    extend_lens: Counts


class Mixed(Strict, frozen=True, tag_field="mode", tag="mixed"):
    """Windows, then `decoding` requests that decode (each a window of one token)."""

    seq_lens: Counts
    prefix_lens: Counts
    extend_lens: Counts
    decoding: Count


class Decode(Strict, frozen=True, tag_field="mode", tag="decode"):
    """One token per request."""

    seq_lens: Counts
    """Counts the token that is fed."""


class DraftDecode(Strict, frozen=True, tag_field="mode", tag="draft_decode"):
    """num_steps - 1 forwards of topk branches per request."""

    seq_lens: Counts
    """Committed tokens."""
    topk: Count
    num_steps: Count


class TargetVerify(Strict, frozen=True, tag_field="mode", tag="target_verify"):
    """A tree of drafted tokens per request."""

    seq_lens: Counts
    """Committed tokens; the root's index is seq_len."""
    topk: Count
    parents: tuple[Counts, ...]
    """Per request: for each node after the root (node 0), its parent's node number. All of one length."""


class RaggedVerify(Strict, frozen=True, tag_field="mode", tag="ragged_verify"):
    """Each request brings its own number of drafted tokens, packed."""

    seq_lens: Counts
    """Committed tokens."""
    topk: Count
    parents: tuple[Counts, ...]
    verify_lens: Counts
    """Nodes per request, root included."""
    ragged_tokens: Count = 0
    """Packed width after padding to a graph tier; 0: none."""


class DraftExtendV2(Strict, frozen=True, tag_field="mode", tag="draft_extend_v2"):
    """num_draft_tokens per request, after a verify."""

    seq_lens: Counts
    """Committed tokens."""
    num_draft_tokens: Count


class DllmExtend(Strict, frozen=True, tag_field="mode", tag="dllm_extend"):
    """A block of tokens per request; 1-D only."""

    block_offsets: Counts
    block_size: Count


class Idle(Strict, frozen=True, tag_field="mode", tag="idle"):
    """No requests."""


Batch = (
    Extend
    | SplitPrefill
    | Mixed
    | Decode
    | DraftDecode
    | TargetVerify
    | RaggedVerify
    | DraftExtendV2
    | DllmExtend
    | Idle
)


# ---------------------------------------------------------------- session events


class Open(Strict, frozen=True, tag_field="do", tag="open"):
    """A session is opened."""

    session: Count
    streaming: bool = False


class Turn(Strict, frozen=True, tag_field="do", tag="turn"):
    """A request arrives in a session with its own runs, and the table and delta of those runs alone."""

    session: Count
    request: Count
    runs: tuple[Run, ...]
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


class Reply(Strict, frozen=True, tag_field="do", tag="reply"):
    """The request's model emits so many more tokens, perhaps past its max_new_tokens."""

    request: Count
    tokens: Count


class Finish(Strict, frozen=True, tag_field="do", tag="finish"):
    """The request ends normally."""

    request: Count


class Abort(Strict, frozen=True, tag_field="do", tag="abort"):
    """The request is aborted."""

    request: Count


class Retract(Strict, frozen=True, tag_field="do", tag="retract"):
    """The scheduler takes the request's memory back and prefills it again; its history stays."""

    request: Count


Event = Open | Turn | Reply | Finish | Abort | Retract


class Retraction(Strict, frozen=True):
    """One retraction."""

    outputs: Count
    """Tokens that the request had emitted by then."""
    refusals: Count = 0
    """Times that the scheduler then considered the request and refused it."""


class Load(Strict, frozen=True):
    """A batch that is put into a wider buffer."""

    requests: tuple[Request, ...]
    batch: Batch
    padded_tokens: Count


# ---------------------------------------------------------------- inputs


class ForwardInput(Strict, frozen=True, tag_field="kind", tag="forward"):
    """The batch of one forward."""

    family: str
    requests: tuple[Request, ...]
    batch: Batch


class PaddingInput(Strict, frozen=True, tag_field="kind", tag="padding"):
    """Batches loaded one after another into one buffer; the last one is looked at."""

    family: str
    buffer: Literal["graph", "dp"]
    """"graph": static buffers that keep what an earlier load left. "dp": padded to another rank's size."""
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
    request: Request
    retractions: tuple[Retraction, ...]


class PromptTableInput(Strict, frozen=True, tag_field="kind", tag="prompt_table"):
    """A prompt whose table a model family's builder must make."""

    family: str
    runs: tuple[Run, ...]


Input = ForwardInput | PaddingInput | SessionInput | RetractionInput | PromptTableInput


# ---------------------------------------------------------------- expected values and answers
