"""A scenario: a script of operations over several requests, as a user's requests and a scheduler's choices make them.

Operations say what happens, in the domain's own terms; every number that follows from them (prefix_len, seq_len,
positions) is the lifecycle's to work out. A scenario is frozen, serialises to JSON, and its id is the hash of its
content, so that renaming it breaks nothing.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from ropecheck.spec.history import Run

UNLIMITED = 1 << 20


class Submit(msgspec.Struct, frozen=True, tag="submit", omit_defaults=True):
    """A plain request arrives."""

    req: int
    prompt: tuple[Run, ...]
    max_new_tokens: int = UNLIMITED


class Open(msgspec.Struct, frozen=True, tag="open", omit_defaults=True):
    """A session is opened."""

    session: int
    streaming: bool = False


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


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one request prefills in one forward: `tokens` of what is left (0: the rest). `hit`, on the first window
    after arrival or retraction: that many tokens come from the prefix cache."""

    req: int
    tokens: int = 0
    hit: int = 0


class Extend(msgspec.Struct, frozen=True, tag="extend", omit_defaults=True):
    """A prefill forward. A request whose prompt is complete afterwards emits its first token."""

    windows: tuple[Window, ...]
    split: bool = False
    """Through SPLIT_PREFILL, where the engine has it."""
    kernel: bool = False
    """Also through the engine's own 1-D position kernel (Triton, interpreted without a GPU)."""
    pad: str = ""
    """"" or "dp": also pad to the other data-parallel ranks' size."""
    pad_tokens: int = 0


class Decode(msgspec.Struct, frozen=True, tag="decode", omit_defaults=True):
    """A decode forward; every request emits one more token afterwards."""

    reqs: tuple[int, ...]
    pad: str = ""
    """"" , "graph" (CUDA-graph static buffers) or "dp"."""
    pad_batch: int = 0


class Mixed(msgspec.Struct, frozen=True, tag="mixed", omit_defaults=True):
    """A mixed forward: prefill windows, then requests that decode."""

    windows: tuple[Window, ...]
    decodes: tuple[int, ...]


class Draft(msgspec.Struct, frozen=True, tag="draft", omit_defaults=True):
    """The draft model's decode loop: num_steps - 1 forwards of topk branches each."""

    reqs: tuple[int, ...]
    num_steps: int
    topk: int = 1
    path: str = "caller"
    pad: str = ""
    """"", "graph" (the draft loop's static buffers) or "frozen_kv" (those of the frozen-KV MTP runner)."""
    pad_batch: int = 0
    host_lengths: bool = True
    """Whether the batch carries a copy of its lengths on the host; here and below."""


class Verify(msgspec.Struct, frozen=True, tag="verify", omit_defaults=True):
    """The target model scores a tree of drafted tokens per request.

    `parents[r]` lists, for each node after the root, the number of its parent; a chain of n nodes is 0, 1, .. n - 2.
    Without `ragged` all trees have the same number of nodes.
    """

    reqs: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    topk: int = 1
    ragged: bool = False
    ragged_tokens: int = 0
    """Packed width after padding to a graph tier; 0: none."""
    path: str = "caller"
    pad: str = ""
    pad_batch: int = 0
    host_lengths: bool = True


class DraftExtend(msgspec.Struct, frozen=True, tag="draft_extend", omit_defaults=True):
    """The draft model reads the target's tokens after a verify: num_draft_tokens per request."""

    reqs: tuple[int, ...]
    num_draft_tokens: int
    host_lengths: bool = True
    path: str = "caller"
    pad: str = ""
    """"", "graph" (the draft extend's static buffers) or "multi_layer" (those that all layers of a multi-layer draft
    share)."""
    pad_batch: int = 0


class Accept(msgspec.Struct, frozen=True, tag="accept", omit_defaults=True):
    """A speculative round ends: the request's history grows by `tokens` (accepted drafts and the bonus token)."""

    req: int
    tokens: int


class Retract(msgspec.Struct, frozen=True, tag="retract", omit_defaults=True):
    """The scheduler takes a running request's memory back."""

    req: int


class Reschedule(msgspec.Struct, frozen=True, tag="reschedule", omit_defaults=True):
    """The scheduler considers a waiting request and refuses it, `refusals` times."""

    req: int
    refusals: int = 1


class Finish(msgspec.Struct, frozen=True, tag="finish", omit_defaults=True):
    """The request ends normally."""

    req: int


class Abort(msgspec.Struct, frozen=True, tag="abort", omit_defaults=True):
    """The request is aborted by its user."""

    req: int


class Idle(msgspec.Struct, frozen=True, tag="idle", omit_defaults=True):
    """A forward without requests (another data-parallel rank works). `pad_batch` > 0: padded to that rank's size."""

    pad_batch: int = 0


class Block(msgspec.Struct, frozen=True, tag="block", omit_defaults=True):
    """A diffusion model's denoise pass: one block of `block_size` tokens per request, `blocks[r]` blocks in."""

    reqs: tuple[int, ...]
    blocks: tuple[int, ...]
    block_size: int


class MeasureCost(msgspec.Struct, frozen=True, tag="cost", omit_defaults=True):
    """Count the host-to-device operations of the operation `of` instead of reading its tables. State is unchanged."""

    of: Decode | Verify | Draft | DraftExtend


class Rotate(msgspec.Struct, frozen=True, tag="rotate", omit_defaults=True):
    """The rotary embedding turns heads by the table of a request's history, prompt and outputs. State is unchanged."""

    req: int
    layout: str = "contiguous"
    """Of the sections: a name in `ropecheck.reference.rotary.LAYOUTS`."""
    method: str = ""
    """"native": the engine's tensor version. "device": the one that it takes on a GPU. "": native, on a GPU both."""


Operation = (
    Submit
    | Open
    | Turn
    | Extend
    | Decode
    | Mixed
    | Draft
    | Verify
    | DraftExtend
    | Accept
    | Retract
    | Reschedule
    | Finish
    | Abort
    | Idle
    | Block
    | MeasureCost
    | Rotate
)


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
