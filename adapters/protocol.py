"""What crosses the pipe between the runner and a worker.

A worker is a process that owns one engine on one device. The runner writes one `Job` at a time and reads one
`Answer`; both are length-prefixed msgpack (`send`, `receive`) over a pipe of their own, because engines print to
standard output. A job is a list of steps with every number already resolved: an adapter hands the numbers to the
engine and reads tables back, and never computes a position.

Conventions: `req` and `session` are small ints, unique in a job. Lengths count tokens. Tensors travel as
little-endian, C-ordered bytes.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from ropecheck.adapters.batch import Batch

PROTOCOL = 8
"""Raised with every change of a message; a worker of another number is refused at the handshake."""

MAX_FRAME = 1 << 30
"""Bytes. A longer frame means that something other than the protocol was written to the pipe."""


BROKEN = (
    "CUDA error",
    "Triton Error [CUDA]",
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
)
"""What an exception's message says once a kernel has failed; every later call of that process fails as well."""


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    """A dense tensor: numpy dtype name ("int64"), shape, and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


# ---------------------------------------------------------------- what a request brings


class Item(msgspec.Struct, frozen=True, array_like=True):
    """One media item of a prompt; its placeholder tokens are ids[start:stop], counted within this turn."""

    kind: str
    """"image", "video" or "audio"."""
    start: int
    stop: int
    more: tuple[tuple[int, int], ...] = ()
    """Further spans of the same item."""
    pixels: int = 0
    """Which pixels: items of one number above 0 have one hash. 0: unlike all others."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """All of them, half-open, as the processor lists them."""
        return ((self.start, self.stop), *self.more)


class Media(msgspec.Struct, frozen=True, array_like=True):
    """The multimodal inputs of one turn, as the engine's own processor would hand them over."""

    table: Tensor
    """int64 [3, len(ids)]: the prompt table of this turn alone, starting at position 0."""
    delta: int
    """max(table) + 1 - len(ids)."""
    items: tuple[Item, ...]
    view: bool = False
    """The table is every second column of a wider one in memory."""


# ---------------------------------------------------------------- steps


class SubmitStep(msgspec.Struct, frozen=True, tag="submit"):
    """A plain request arrives: build the engine's request object, media attached, prompt padded."""

    req: int
    ids: tuple[int, ...]
    media: Media | None = None
    max_new_tokens: int = 1 << 20


class Open(msgspec.Struct, frozen=True, tag="open", omit_defaults=True):
    """Open a session."""

    session: int
    streaming: bool = False


class TurnStep(msgspec.Struct, frozen=True, tag="turn"):
    """A request arrives in a session, with the session parameters of the public interface.

    ids are the new turn's own tokens. `parent` names the request that it appends to (None: as the public
    interface allows, the first turn, a `replace` of everything, or a streaming append to the last turn).
    """

    session: int
    req: int
    ids: tuple[int, ...]
    media: Media | None = None
    parent: int | None = None
    replace: bool = False
    offset: int = 0
    drop_previous_output: bool = False
    max_new_tokens: int = 1 << 20
    bos: bool = False
    """ids[0] is the tokenizer's start of sequence, which the session must leave out; the media's table counts it."""


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """The request's model emitted these tokens: append them to its outputs."""

    req: int
    ids: tuple[int, ...]


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """The request ends normally (and, in a session, becomes the saved parent)."""

    req: int


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """The request is aborted."""

    req: int


class Retract(msgspec.Struct, frozen=True, tag="retract"):
    """The scheduler takes the request's memory back; it will be prefilled again from its start."""

    req: int


class Schedule(msgspec.Struct, frozen=True, tag="schedule"):
    """The scheduler considers a waiting request `attempts` times; only the last one is admitted.

    With `hit` > 0 a prefix cache already holds the first `hit` tokens, so prefix_len becomes `hit`.
    """

    req: int
    attempts: int = 1
    hit: int = 0


class Padding(msgspec.Struct, frozen=True, array_like=True):
    """Load the forward into a wider buffer as well. Sizes are the padded batch and token counts.

    kind "graph": the static buffers of the CUDA-graph runner that replays this mode; they persist over the job.
    "frozen_kv" (draft_decode), "multi_layer" (draft_extend_v2): the same for those two runners, whose batches are
    otherwise built. "dp": padding to the other data-parallel ranks' size.
    """

    kind: str
    batch: int
    tokens: int


class TablePair(msgspec.Struct, frozen=True, array_like=True):
    """The two tables of one forward. label: "" for the forward itself, "step 1".. for later draft forwards,
    "again" for a repeat, "padded" for the wider buffer. None: the engine left the table unset."""

    label: str
    positions: Tensor | None
    mrope: Tensor | None
    matched: bool = False
    """Both tables were compared on the device and are right; they stayed there."""


class BuildForward(msgspec.Struct, frozen=True, tag="forward"):
    """Build the batch of one forward through the engine's own code and report its two tables.

    Rows follow the batch's order. A mode with a loop reports one table per forward of the loop.
    """

    batch: Batch
    """Every field of every row."""
    positions: tuple[int, ...] = ()
    """The 1-D indices, for the "direct" path of modes whose caller brings them."""
    host_lengths: bool = True
    """False: the batch carries no CPU copy of its lengths (seq_lens_cpu is None)."""
    path: str = "direct"
    """"direct": the batch is set by hand and given to the engine's batch constructor. "caller": the engine's own
    preparing function builds it. "fused": the same, steered to the engine's fused (GPU) branch. "kernel": the
    engine's 1-D position kernel alone, run for itself."""
    strided: bool = False
    """The batch's lengths on the device are every second element of a wider tensor."""
    lagging: bool = False
    """The copy of the lengths on the host is a bound: one less each."""
    repeat: bool = False
    """Do it twice and report both tables."""
    padding: Padding | None = None
    tier: int = 0
    """Above 0: the packed batch itself is padded to so many columns."""
    expect: tuple[TablePair, ...] = ()
    """The right tables, for a worker on a device: compare there, and answer `matched` instead of sending tables. The
    engine never sees them."""

    @property
    def mode(self) -> str:
        return self.batch.mode

    @property
    def reqs(self) -> tuple[int, ...]:
        return self.batch.reqs


class Observe(msgspec.Struct, frozen=True, tag="observe"):
    """Report the state of these requests; one whose step failed before it came to be is left out."""

    reqs: tuple[int, ...]


class Cost(msgspec.Struct, frozen=True, tag="cost"):
    """Run this forward with the batch on a device other than the host and count host-to-device operations."""

    forward: BuildForward


class Rotary(msgspec.Struct, frozen=True, tag="rotary"):
    """Turn heads by a three-row table, through the engine's own rotary embedding."""

    table: Tensor
    """int64 [3, T]."""
    query: Tensor
    """float32 [T, heads * head_size]."""
    key: Tensor
    head_size: int
    rotary_dim: int
    base: float
    sections: tuple[int, ...]
    """Pairs of a head that row t, h and w turn."""
    interleaved: bool = False
    alternating: bool = False
    """Rows h and w take turns, t turns the last pairs."""
    cycled: bool = False
    """Interleaved as GLM-V has it. "device" runs on a CPU, too: its Triton kernel is interpreted."""
    scaling: tuple[float, int] | None = None
    """YaRN: the factor, and the positions of training."""
    longest: int = 4096
    """Positions that the engine prepares."""
    method: str = "native"
    """"native": the engine's tensor version. "device": the one that it takes on a GPU. "fused": a model's kernel that
    norms the heads as well; theirs are plus and minus one, which the norm leaves."""
    buffer: int = 0
    """> 0: the table is the first columns of a buffer of this width."""


class PromptTable(msgspec.Struct, frozen=True, tag="prompt_table"):
    """Call the target's own prompt-table builder of a model family, without weights, on a batch of prompts.

    Everything is what a processor hands to the builder; `config` names fields of the family's own configuration
    class, dotted where nested, with the values that its constructor is given.
    """

    family: str
    ids: tuple[tuple[int, ...], ...]
    """One row per prompt, all of one width."""
    kinds: tuple[tuple[int, ...], ...]
    """Per token 0 text, 1 image, 2 video, 3 audio (transformers' mm_token_type_ids)."""
    config: dict[str, int] = {}
    mask: tuple[tuple[int, ...], ...] | None = None
    """Attention mask, 0 for left padding."""
    image_grids: tuple[tuple[int, int, int], ...] | None = None
    video_grids: tuple[tuple[int, int, int], ...] | None = None
    seconds_per_grid: tuple[float, ...] | None = None
    audio_features: tuple[int, ...] | None = None
    """Mel frames of each audio."""
    audio_in_video: bool = False
    images_per_prompt: tuple[int, ...] | None = None
    image_pixels: tuple[tuple[int, int] | None, ...] | None = None
    """A route: (height, width) of each picture as the client sends it; None: its grid times the patch."""
    markers: tuple[int, ...] = ()
    """A route: the ids around media, which a client does not write as words."""
    items: tuple[Item, ...] = ()
    """builder "processor": the prompt's items in order, each with the next grid of its kind."""
    builder: str = "rope_index"
    """"rope_index": the function that a model or processor calls. "processor": the processor's
    `compute_mrope_positions`, which the scheduler calls when a request arrives without a table. "offsets": the
    processor's short cut for prompts whose only media are images, where it has one."""
    parts: tuple[PromptTable, ...] = ()
    """A route on which several messages come one after the other (two requests, a turn behind a turn): each of them."""


class PlayStep(msgspec.Struct, frozen=True, tag="play"):
    """Play a client's script on the engine's real scheduler."""

    body: bytes
    """msgpack of `ropecheck.adapters.play.Play`."""


Step = (
    SubmitStep
    | Open
    | TurnStep
    | Generate
    | Finish
    | Abort
    | Retract
    | Schedule
    | BuildForward
    | Observe
    | Cost
    | Rotary
    | PromptTable
    | PlayStep
)


class Job(msgspec.Struct, frozen=True, tag="job"):
    """One scenario. Steps run in order; nothing of an earlier job may be visible to it."""

    id: str
    steps: tuple[Step, ...]
    device: str = "cpu"
    trace: bool = False
    """Also say which of the engine's functions each step ran; several times slower."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the process."""


class Plant(msgspec.Struct, frozen=True, tag="plant"):
    """Make one edit of one engine function, in memory, in place of the last one. Without a function: the engine as it
    was. For `score --engine`; an adapter that cannot says so."""

    module: str = ""
    function: str = ""
    edit: str = ""
    nth: int = 0
    count: bool = False
    """Only say how many edits of each kind the function has."""


class Planted(msgspec.Struct, frozen=True, tag="planted"):
    """Answer to a Plant."""

    where: str = ""
    """The line; "" where nothing was planted."""
    counts: dict[str, int] = {}
    problem: str = ""


Request = Job | Shutdown | Plant


# ---------------------------------------------------------------- answers


class TablesAnswer(msgspec.Struct, frozen=True, tag="tables"):
    """Answer to a Forward."""

    tables: tuple[TablePair, ...]
    changed: tuple[str, ...] = ()
    """Inputs that the batch constructor altered though it must only read them ("seq_lens", "multimodal_inputs", ..)."""
    ran: tuple[str, ...] = ()
    """Engine functions or kernels known to have run, by their qualified names."""


class RequestState(msgspec.Struct, frozen=True, array_like=True):
    """What the engine holds for one request. Fields that the engine lacks are None."""

    req: int
    ids: tuple[int, ...]
    """Prompt tokens (padded: media tokens hold the item's pad values)."""
    unpadded_ids: tuple[int, ...]
    fill_ids: tuple[int, ...] | None
    """What the next prefill will feed; None when not built yet."""
    output_ids: tuple[int, ...]
    prefix_len: int
    table: Tensor | None
    delta: Tensor | None
    delta_cache: Tensor | None
    """A cached value derived from delta (the engine's repeated delta), None when empty."""
    offsets: tuple[tuple[int, int], ...]
    """Half-open token ranges of the attached items, in order."""
    aborted: bool = False
    """The engine refused or aborted it."""
    note: str = ""


class States(msgspec.Struct, frozen=True, tag="states"):
    """Answer to an Observe."""

    states: tuple[RequestState, ...]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Answer to a step that has nothing to report."""


class Raised(msgspec.Struct, frozen=True, tag="raised", rename={"type": "error"}):
    """The step raised.

    stage "engine": the exception came out of engine code; anything else ("adapter", ...) means that the suite's
    own stand-ins are at fault and the step could not run.
    """

    stage: str
    type: str
    message: str
    where: str
    """Innermost engine frame, "package/file.py:line function"."""


class NotOfferedAnswer(msgspec.Struct, frozen=True, tag="not_offered"):
    """The engine lacks what the step needs."""

    reason: str


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """Answer to a Cost: host-to-device operations, with the engine lines that made them."""

    copies: int
    lines: tuple[str, ...]
    to_host: int = 0
    """Device-to-host copies. Without a device the first ends the count: 1, and nothing after it was counted."""
    to_host_lines: tuple[str, ...] = ()
    syncs: int = 0
    """Operations that wait for the device; counted on a device only."""
    sync_lines: tuple[str, ...] = ()
    method: str = "meta"
    """"meta": operations onto torch's meta device. "cuda": copies and waits of a real build."""
    ran: tuple[str, ...] = ()
    """As in Tables."""


class Rotated(msgspec.Struct, frozen=True, tag="rotated"):
    """Answer to a Rotary: float32, shaped as given."""

    query: Tensor
    key: Tensor
    ran: tuple[str, ...] = ()
    table_changed: bool = False
    """The embedding wrote into the table that it was given."""


class PromptTables(msgspec.Struct, frozen=True, tag="prompt_tables"):
    """Answer to a PromptTable, as the builder returned it: dtypes and shapes are part of the answer."""

    table: Tensor
    delta: Tensor
    ahead: Tensor | None = None
    """Columns that the builder keeps for tokens to come, where it keeps them apart (GLM-Image in transformers)."""
    ran: str = ""
    """The builder's qualified name."""
    kinds: tuple[int, ...] | None = None
    """Where the engine expanded the prompt itself: per token of it 0 text, 1 image, 2 video, 3 audio, 4 a word of
    the client's."""
    hit: int | None = None
    """Of two requests: tokens of the second that the engine's prefix cache serves from the first."""


class Played(msgspec.Struct, frozen=True, tag="played"):
    """Answer to a Play: what happened, as `ropecheck.adapters.events` in NDJSON."""

    trace: bytes
    functions: dict[str, bool] = {}
    """Functions of the engine that handle positions -> whether they were entered; what has not been told before."""
    ran: tuple[str, ...] = ()
    """Of a traced job: the engine functions that were called, as in Answer.traced."""


Result = Played | TablesAnswer | States | Done | Raised | NotOfferedAnswer | Counted | Rotated | PromptTables


class JobAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """One result per step of the job, in order."""

    id: str
    results: tuple[Result, ...]
    engine_ns: int
    """Nanoseconds inside the engine's own constructors and functions."""
    forwards: int
    """Forward batches that the engine built."""
    compare_ns: int = 0
    """Nanoseconds spent comparing on the device."""
    traced: tuple[tuple[str, ...], ...] = ()
    """Of a traced job, per step: "package/file.py:LINE name" of each engine function, by first call. () where the
    worker cannot tell."""
    covered: dict[str, tuple[int, ...]] = {}
    """Engine file -> lines that ran, where the worker was asked to tell; {} elsewhere."""
    routes: tuple[str, ...] = ()
    """Of `Hello.routes`, those that ran in this job and in none before."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First frame from a worker, once its engine is imported."""

    protocol: int
    target: str
    version: str
    device: str
    torch: str
    python: str
    pid: int
    modes: dict[str, int]
    """The engine's own ForwardMode members."""
    covered: dict[str, str]
    """Engine member -> protocol mode that drives it."""
    uncovered: dict[str, str]
    """Known engine member that this adapter does not drive -> the reason. A member in neither map is unknown."""
    capabilities: dict[str, str]
    """Probed: name -> what was found ("" = absent)."""
    lost: tuple[str, ...] = ()
    """Capabilities that this version is known to have and that were not found in it: an offer that is lost."""
    faked: tuple[str, ...] = ()
    not_driven: dict[str, str] = {}
    """Other ways to a table that this adapter does not drive, though the engine may have them -> what they are."""
    routes: dict[str, str] = {}
    """Read out of the engine's source: every function that calls a prompt-table builder, or puts a table or a delta
    into a request -> what it does. "file:function"."""


def unheard(target: str) -> Hello:
    """The hello of a worker that never came up: no version, no mode."""
    return Hello(PROTOCOL, target, "", "", "", "", 0, {}, {}, {}, {})


Response = Hello | JobAnswer | Planted


# ---------------------------------------------------------------- framing


class ProtocolError(Exception):
    """The other side did not speak the protocol."""


_encoder = msgspec.msgpack.Encoder()


def send(stream: BinaryIO, message: Request | Response) -> None:
    """Write one frame: 4 bytes little-endian length, then msgpack."""
    body = _encoder.encode(message)
    stream.write(struct.pack("<I", len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Read one frame's body; None at a clean end of the stream. Raises ProtocolError on a torn frame."""
    head = _read_exactly(stream, 4)
    if head is None:
        return None
    (length,) = struct.unpack("<I", head)
    if length > MAX_FRAME:
        raise ProtocolError(f"frame of {length} bytes: not a protocol frame")
    body = _read_exactly(stream, length)
    if body is None:
        raise ProtocolError("stream ended inside a frame")
    return body


def _read_exactly(stream: BinaryIO, count: int) -> bytes | None:
    chunks = b""
    while len(chunks) < count:
        chunk = stream.read(count - len(chunks))
        if not chunk:
            if chunks:
                raise ProtocolError("stream ended inside a frame")
            return None
        chunks += chunk
    return chunks
