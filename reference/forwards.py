"""The forward that an operation runs: its batch, the tables that it must produce, and what it is an example of."""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.reference import tables
from ropecheck.reference.batches import Batch, Expected
from ropecheck.reference.operations import Block, Decode, Draft, DraftExtend, Extend, Idle, Mixed, Verify, Window
from ropecheck.reference.requests import Request, State, line_of, of, tokens_of
from ropecheck.reference.tables import Tables, WindowOf
from ropecheck.reference.timeline import Timeline
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import draft_decode, target_verify

MIXES = ("text only", "media only", "media beside text", "unequal deltas")
WINDOWS = (
    "inside the table",
    "straddles the table end",
    "past the table",
    "prefix hit",
    "chunk",
    "re-prefill",
    "session turn",
)

SITUATIONS: tuple[str, ...] = tuple(
    f"{mode} x {situation}"
    for mode, situations in {
        "extend": MIXES + WINDOWS,
        "split_prefill": MIXES + WINDOWS,
        "mixed": MIXES + WINDOWS,
        "decode": (*MIXES, "padded graph", "padded dp"),
        "target_verify": (*MIXES, "chain", "tree", "padded graph"),
        "ragged_verify": (*MIXES, "chain", "padded to a tier"),
        "draft_decode": (*MIXES, "one branch", "several branches", "padded graph", "padded frozen_kv"),
        "draft_extend_v2": (*MIXES, "host lengths", "device lengths", "padded graph", "padded multi_layer"),
        "idle": ("idle",),
        "dllm_extend": ("text only",),
    }.items()
    for situation in situations
)
"""What a complete run must reach; a report warns of each that it did not."""

ForwardOp = Extend | Mixed | Decode | Draft | Verify | DraftExtend | Idle | Block


def of_op(state: State, op: ForwardOp) -> Expected:
    """The forward of one operation. Raises OutOfDomain where a request is not in the state that it needs."""
    match op:
        case Extend() | Mixed():
            return _extend(state, op)
        case Decode():
            return _decode(state, op)
        case Draft():
            return _draft(state, op)
        case Verify():
            return _verify(state, op)
        case DraftExtend():
            return _draft_extend(state, op)
        case Idle():
            found = {"": tables.idle_tables()}
            if op.pad_batch:
                found["padded"] = tables.padded(found[""], op.pad_batch)
            return _expected(state, Batch(mode="idle"), found, {"idle"})
        case Block():
            return _block(state, op)


def window_of(request: Request, window: Window) -> tuple[int, int]:
    """(prefix_len, extend_len) of a request's window."""
    total = tokens_of(request)
    prefix = request.computed
    if window.hit:
        if request.admitted or request.computed:
            raise OutOfDomain(f"request {request.req}: a prefix hit comes before its first window")
        if window.hit >= total:
            raise OutOfDomain(f"request {request.req}: a hit leaves at least one of its {total} tokens")
        prefix = window.hit
    extend = window.tokens or total - prefix
    if not 0 < extend <= total - prefix:
        raise OutOfDomain(f"request {request.req}: window of {extend} tokens, {total - prefix} left")
    return prefix, extend


def _extend(state: State, op: Extend | Mixed) -> Expected:
    mode = "mixed" if isinstance(op, Mixed) else ("split_prefill" if op.split else "extend")
    waiting = [of(state, window.req, "waiting", "retracted") for window in op.windows]
    decodes = [of(state, req, "running") for req in (op.decodes if isinstance(op, Mixed) else ())]
    if not waiting or (isinstance(op, Mixed) and not decodes):
        raise OutOfDomain(f"a {mode} forward needs a window" + (" and a decoding request" if mode == "mixed" else ""))
    _distinct([*waiting, *decodes])
    spans = [window_of(request, window) for request, window in zip(waiting, op.windows, strict=True)]
    lines = [line_of(state, request) for request in waiting]
    decoding = [(line_of(state, request), tokens_of(request)) for request in decodes]
    built = tables.extend_tables(
        mode, [WindowOf(line, *span) for line, span in zip(lines, spans, strict=True)], decoding
    )
    seq_lens = tuple(prefix + extend for prefix, extend in spans) + tuple(length for _line, length in decoding)
    batch = Batch(
        mode=mode,
        reqs=tuple(request.req for request in (*waiting, *decodes)),
        seq_lens=seq_lens,
        prefix_lens=tuple(span[0] for span in spans) + tuple(length - 1 for _line, length in decoding),
        extend_lens=tuple(span[1] for span in spans) + (1,) * len(decoding),
        decoding=len(decoding),
    )
    found = {"": built}
    if isinstance(op, Extend) and op.pad:
        found["padded"] = tables.padded(built, op.pad_tokens)
    situations = _common(lines + [line for line, _ in decoding])
    for request, line, (prefix, extend) in zip(waiting, lines, spans, strict=True):
        situations |= _window_situations(request, line, prefix, extend)
    return _expected(state, batch, found, situations)


def _decode(state: State, op: Decode) -> Expected:
    requests = _running(state, op.reqs)
    lines = [line_of(state, request) for request in requests]
    seq_lens = tuple(tokens_of(request) for request in requests)
    found = {"": tables.decode_tables(lines, seq_lens)}
    if op.pad:
        found["padded"] = tables.padded(found[""], op.pad_batch)
    batch = Batch(mode="decode", reqs=op.reqs, seq_lens=seq_lens)
    return _expected(state, batch, found, _common(lines), op.pad)


def _draft(state: State, op: Draft) -> Expected:
    requests = _running(state, op.reqs)
    lines = [line_of(state, request) for request in requests]
    seq_lens = _committed(requests)
    forwards = draft_decode.forwards(op.num_steps)
    if forwards < 1 or op.topk < 1:
        raise OutOfDomain(f"a draft of {op.num_steps} steps and topk {op.topk} runs no forward")
    steps = 1 if op.path == "direct" else forwards
    found = {
        "" if step == 0 else f"step {step}": tables.draft_tables(lines, seq_lens, op.topk, step)
        for step in range(steps)
    }
    if op.pad:
        found["padded"] = tables.padded(found[""], op.pad_batch * op.topk)
    batch = Batch(
        mode="draft_decode",
        reqs=op.reqs,
        seq_lens=seq_lens,
        topk=op.topk,
        num_steps=op.num_steps,
        positions=_indices(found[""]),
    )
    branches = "one branch" if op.topk == 1 else "several branches"
    return _expected(state, batch, found, _common(lines) | {branches}, op.pad)


def _verify(state: State, op: Verify) -> Expected:
    requests = _running(state, op.reqs)
    lines = [line_of(state, request) for request in requests]
    seq_lens = _committed(requests)
    if len(op.parents) != len(op.reqs):
        raise OutOfDomain("one tree per request")
    nodes = tuple(len(parents) + 1 for parents in op.parents)
    if not op.ragged and len(set(nodes)) > 1:
        raise OutOfDomain("trees of one batch have the same number of nodes, unless ragged")
    if op.ragged:
        found = {"": tables.ragged_tables(lines, seq_lens, op.parents, op.ragged_tokens)}
    else:
        found = {"": tables.verify_tables(lines, seq_lens, op.parents)}
    if op.pad and op.ragged:
        raise OutOfDomain("a ragged verify is padded to its tier (ragged_tokens)")
    if op.pad:
        found["padded"] = tables.padded(found[""], op.pad_batch * nodes[0])
    chain = all(parents == tuple(range(len(parents))) for parents in op.parents)
    shape = "chain" if chain else "tree"
    if op.ragged_tokens:
        shape = "padded to a tier"
    deepest = max(max(_depths(parents)) for parents in op.parents)
    batch = Batch(
        mode="target_verify",
        reqs=op.reqs,
        seq_lens=seq_lens,
        topk=op.topk,
        num_steps=deepest,
        num_draft_tokens=max(nodes),
        parents=op.parents,
        positions=_indices(found[""]),
        verify_lens=nodes if op.ragged else (),
        ragged_tokens=op.ragged_tokens,
    )
    return _expected(state, batch, found, _common(lines) | {shape}, op.pad)


def _draft_extend(state: State, op: DraftExtend) -> Expected:
    requests = _running(state, op.reqs)
    lines = [line_of(state, request) for request in requests]
    seq_lens = _committed(requests)
    if op.num_draft_tokens < 1:
        raise OutOfDomain(f"draft extend of {op.num_draft_tokens} tokens")
    found = {"": tables.draft_extend_tables(lines, seq_lens, op.num_draft_tokens)}
    if op.pad:
        found["padded"] = tables.padded(found[""], op.pad_batch * op.num_draft_tokens)
    batch = Batch(mode="draft_extend_v2", reqs=op.reqs, seq_lens=seq_lens, num_draft_tokens=op.num_draft_tokens)
    lengths = "host lengths" if op.host_lengths else "device lengths"
    return _expected(state, batch, found, _common(lines) | {lengths}, op.pad)


def _block(state: State, op: Block) -> Expected:
    requests = [of(state, req, "waiting", "running") for req in op.reqs]
    if any(request.has_media for request in requests):
        raise OutOfDomain("diffusion blocks are text only")
    if len(op.blocks) != len(op.reqs) or op.block_size < 1:
        raise OutOfDomain("one block number per request, of at least one token")
    offsets = tuple(block * op.block_size for block in op.blocks)
    batch = Batch(
        mode="dllm_extend",
        reqs=op.reqs,
        seq_lens=tuple(offset + op.block_size for offset in offsets),
        block_offsets=offsets,
        block_size=op.block_size,
        prefix_lens=offsets,
        extend_lens=(op.block_size,) * len(offsets),
    )
    return _expected(state, batch, {"": tables.block_tables(offsets, op.block_size)}, {"text only"})


def _expected(state: State, batch: Batch, found: dict[str, Tables], situations: set[str], pad: str = "") -> Expected:
    requests = [state.requests[req] for req in batch.reqs]
    parents = [None if request.parent is None else state.requests[request.parent] for request in requests]
    return Expected(
        batch=batch,
        tables=found,
        lines=tuple(line_of(state, request) for request in requests),
        parent_lines=tuple(None if parent is None else line_of(state, parent) for parent in parents),
        situations=frozenset(situations | {f"padded {pad}"} if pad else situations),
        buffer=pad,
    )


def _running(state: State, reqs: Sequence[int]) -> list[Request]:
    if not reqs:
        raise OutOfDomain("a batch without requests")
    requests = [of(state, req, "running") for req in reqs]
    _distinct(requests)
    return requests


def _distinct(requests: Sequence[Request]) -> None:
    if len({request.req for request in requests}) != len(requests):
        raise OutOfDomain("a request stands twice in one batch")


def _committed(requests: Sequence[Request]) -> tuple[int, ...]:
    """seq_len as speculation counts: the newest token is not committed yet."""
    return tuple(tokens_of(request) - 1 for request in requests)


def _depths(parents: Sequence[int]) -> tuple[int, ...]:
    return target_verify.depths(parents)


def _indices(built: Tables) -> tuple[int, ...]:
    return tuple(built.positions.tolist())


def _common(lines: Sequence[Timeline]) -> set[str]:
    deltas = {line.delta for line in lines if line.has_media}
    media = sum(line.has_media for line in lines)
    out = {"text only" if not media else ("media only" if media == len(lines) else "media beside text")}
    if len(deltas) > 1:
        out.add("unequal deltas")
    return out


def _window_situations(request: Request, line: Timeline, prefix: int, extend: int) -> set[str]:
    out = set()
    if prefix and not request.admitted:
        out.add("prefix hit")
    if prefix + extend < tokens_of(request):
        out.add("chunk")
    if request.status == "retracted":
        out.add("re-prefill")
    if request.session is not None and request.parent is not None:
        out.add("session turn")
    if line.has_media:
        if prefix >= line.tabulated:
            out.add("past the table")
        elif prefix + extend > line.tabulated:
            out.add("straddles the table end")
        else:
            out.add("inside the table")
    return out
