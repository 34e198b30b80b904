"""Far values in every declared mode: of every two things that vary, each pair of values is in some scenario.

Which values count as far is declared in `conformance.scenario.dimensions`; here is what makes a request so. The rows
are covering arrays: the same on every machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from covertable import make
from msgspec.structs import replace

from ropecheck.conformance.scenario.dimensions import ITEMS, LENGTHS, NODES, ROWS, WINDOWS
from ropecheck.conformance.scenario.operations import (
    Abort,
    Batch,
    Build,
    Finish,
    Open,
    Operation,
    Retract,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import decode, draft_extend, extend, mixed, verify, window
from ropecheck.conformance.scenarios.chosen.modes import begun
from ropecheck.conformance.scenarios.chosen.script import chain, prefill, replies, running
from ropecheck.reference.timeline import token_count
from ropecheck.spec.history import History, image, text, video
from ropecheck.spec.modes import all_modes, mode_of
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, RUNNING, TEXT, Mode

FAMILY = "qwen2_5_vl"
"""Its deltas have both signs, and its columns any size."""

LAST = (1 << 31) - 1
NEAR_LAST = float((LAST - 15) / 2)
"""Seconds of a step, two positions each, one word before it: the second step stands at 2^31 - 15."""

FAR: Mapping[str, History] = {
    "near": (text(2), image(1, 4, 6), text(2)),
    "301 words": (text(301), image(1, 4, 6), text(2)),
    "4,201 words": (text(4201), image(1, 4, 6), text(2)),
    "a slow clip": (text(1), video(2, 2, 2, 2.75), text(1)),
    "a long recording": (text(2), video(384, 2, 2, 187.5), text(3)),
    "a month's clip": (text(1), video(2, 2, 2, 1e7), text(1)),
    "the last columns": (text(1), video(2, 2, 2, NEAR_LAST - 100), text(1)),
}
"""Prompts by what is large in them. Odd numbers: a float that rounds to even ones is seen."""

ELEPHANTS: Mapping[str, History] = {
    "33,001 words": (text(33_001), image(1, 4, 6), text(2)),
    "70,001 words": (text(70_001), image(1, 4, 6), text(2)),
    "a picture of 67,600 tokens": (text(1), image(1, 520, 520), text(1)),
}
"""Large in tokens, not only in positions: a second each, so each is seen in two modes alone."""

BESIDE: Mapping[str, History] = {
    "text": (text(3),),
    "pictures": (text(1), image(1, 6, 4), image(1, 4, 4), text(1)),
    "a slow clip": (text(2), video(2, 2, 2, 40.25), image(1, 2, 4), text(1)),
}
"""What the other requests of a batch are, and what turns bring."""

Row = Mapping[str, Any]


def covering(values: Mapping[str, Sequence[object]], *legal: tuple[str, Callable[[Row], bool]]) -> list[Row]:
    """Rows that hold every pair of values that is in some legal row. legal: (names, a condition on their values)."""
    conditions = [{"operator": "fn", "requires": names.split(), "evaluate": holds} for names, holds in legal]
    factors = {name: list(choices) for name, choices in values.items()}
    return [{name: row[name] for name in values} for row in make(factors, constraints=conditions)]


def scenarios() -> tuple[Scenario, ...]:
    """Every scenario of the phase; no two have one content."""
    found = {one.id: one for one in (*_forwards(), *_turns(), *_written(), *_elephants(), *_blocks(), *_edge())}
    return tuple(found.values())


def _scenario(name: str, note: str, *ops: Operation) -> Scenario:
    return Scenario(name=name, note=note, ops=ops, family=FAMILY)


# ---------------------------------------------------------------- every mode


def modes() -> tuple[str, ...]:
    """Declared modes that read histories by three rows."""
    known = all_modes().values()
    return tuple(mode.name for mode in known if mode.three_rows and mode.reads not in (NOBODY, TEXT))


def _forwards() -> Iterator[Scenario]:
    """A batch of each mode in which one request is far."""
    rows = covering(
        {
            "far": tuple(FAR),
            "mode": modes(),
            "rows": ROWS,
            "place": ("first", "middle", "last"),
            "beside": tuple(BESIDE),
            "moment": ("at once", "later"),
            "path": ("direct", ""),
            "lengths": ("host", "device", "strided", "lagging"),
            "items": tuple(ITEMS),
        },
        ("rows place", lambda row: row["place"] == "first" or row["rows"] > (2 if row["place"] == "middle" else 1)),
        ("rows path", lambda row: row["rows"] <= 9 or row["path"] == "direct"),  # interpreted kernels, row by row
        ("mode rows", lambda row: row["rows"] <= 9 or mode_of(row["mode"]).by_hand),
        ("mode path", lambda row: row["path"] == "direct" or mode_of(row["mode"]).prepared),
        ("mode lengths", lambda row: row["lengths"] != "device" or mode_of(row["mode"]).either_lengths),
        ("mode lengths", lambda row: row["lengths"] != "lagging" or mode_of(row["mode"]).given_indices),
        ("path lengths", lambda row: row["lengths"] in ("host", "device") or row["path"] == "direct"),
        ("mode lengths", lambda row: row["lengths"] != "strided" or mode_of(row["mode"]).by_hand),  # by the address
    )
    for row in rows:
        yield _forward(**row)


def _forward(
    *, far: str, mode: str, rows: int, place: str, beside: str, moment: str, path: str, lengths: str, items: str
) -> Scenario:
    each = -(-rows // len(mode_of(mode).parts))  # the parts of a batch share its rows
    prompts = [BESIDE[beside]] * each
    prompts[{"first": 0, "middle": each // 2, "last": each - 1}[place]] = FAR[far]
    start, batch = begun(mode_of(mode), each, prompts)
    start = [replace(op, items=items) if isinstance(op, Submit) else op for op in start]
    batch = _whole(batch)
    back = _reading(mode_of(mode), batch, PREFILLING)
    if moment == "later":
        start += [prefill(*back)] if back else []
        start += [decode(tuple(dict.fromkeys((*back, *_reading(mode_of(mode), batch, RUNNING)))))]
        start += map(Retract, back)
    kept = lengths if lengths in LENGTHS else ""
    forward = Build(batch, path=path, host_lengths=lengths != "device", lengths=kept)
    name = f"{far} {place} of {rows} {mode}, beside {beside}, {moment}, {path or 'by its caller'}, {lengths} lengths"
    return _scenario(f"{name}, {ITEMS[items]}", "A pair of values that no cheaper scenario has.", *start, forward)


def _whole(batch: Batch) -> Batch:
    """The batch without prefix hits: neighbours are short."""
    parts = [
        replace(part, fields={name: value for name, value in part.fields.items() if name != "prefix_len"})
        for part in batch.parts
    ]
    return replace(batch, parts=tuple(parts))


def _reading(mode: Mode, batch: Batch, reads: str) -> list[int]:
    return [req for part, rows in zip(mode.parts, batch.parts, strict=True) if part.reads == reads for req in rows.reqs]


# ---------------------------------------------------------------- tables that know what comes

WRITES = ((text(2), image(1, 2, 3), text(2)), (image(1, 3, 2), text(1)))
"""A prompt of GLM-Image's, and what it will write."""


def _written() -> Iterator[Scenario]:
    """A request that writes an image, beside others of a batch that decodes."""
    rows = covering(
        {
            "mode": ("decode", "mixed"),
            "rows": (2, 3, 9),
            "place": ("first", "last", "all"),
            "beside": ("text", "pictures"),
            "items": tuple(ITEMS),
            "steps": (0, 3),
        }
    )
    for row in rows:
        yield _written_beside(**row)


def _written_beside(*, mode: str, rows: int, place: str, beside: str, items: str, steps: int) -> Scenario:
    places = {"first": [0], "last": [rows - 1], "all": list(range(rows))}[place]
    start, batch = begun(mode_of(mode), rows, [BESIDE[beside]] * rows)
    decoding = list(dict.fromkeys(_reading(mode_of(mode), batch, RUNNING)))
    writers = [decoding[at] for at in places]
    prompt, ahead = WRITES
    ops = [
        replace(op, prompt=prompt, ahead=ahead, items=items) if isinstance(op, Submit) and op.req in writers else op
        for op in start
    ]
    ops += [decode(tuple(decoding)) for _ in range(steps)]
    name = f"{place} of {rows} writes an image, beside {beside}, after {steps} tokens: {mode}, {ITEMS[items]}"
    note = "A decode that reads one table and counts on in the others."
    return Scenario(name=name, note=note, ops=(*ops, Build(_whole(batch), path="direct")), family="glm_image")


# ---------------------------------------------------------------- turns

HOW = (
    *("append", "streaming append", "branch", "without the reply", "after an aborted one", "after a refused one"),
    "with a start of sequence",
    *("replace a child", "replace two, one after the other", "after one on a replaced turn"),
    *("offset in the prompt", "offset in the reply"),
)
"""What a turn does with the one that it is on."""


def _turns() -> Iterator[Scenario]:
    rows = covering(
        {
            "first": tuple(FAR),
            "reply": (0, 1, 4),
            "how": HOW,
            "turn": tuple(BESIDE),
            "items": tuple(ITEMS),
            "read": ("whole", "chunks", "mixed", "verified"),
        },
        ("reply how", lambda row: row["how"] != "offset in the reply" or row["reply"] > 1),
    )
    for row in rows:
        yield _session(**row)


def _session(*, first: str, reply: int, how: str, turn: str, items: str, read: str) -> Scenario:
    streaming = how == "streaming append"
    ops: list[Operation] = [Open(0, streaming), Turn(0, 0, FAR[first], max_new_tokens=reply), prefill(0)]
    ops += [*replies(0, reply), Finish(0)]
    last = Turn(0, 9, BESIDE[turn], parent=None if streaming else 0, items=items)
    other = replace(last, prompt=(text(1), image(1, 4, 4)), items="")
    match how:
        case "branch":
            ops += [replace(other, req=1), prefill(1)]
        case "after an aborted one":
            ops += [replace(other, req=1), prefill(1), Abort(1)]
        case "after a refused one":
            ops += [replace(other, req=1, parent=77)]
        case "replace a child":
            ops += [replace(other, req=1), prefill(1), Finish(1)]
        case "after one on a replaced turn":
            ops += [replace(other, req=1), prefill(1), Finish(1), replace(other, req=2, replace=True), prefill(2)]
            ops += [Finish(2), replace(other, req=3, parent=1)]
        case "replace two, one after the other":
            ops += [replace(other, req=1), prefill(1), Finish(1), replace(other, req=2, replace=True), prefill(2)]
            ops += [Finish(2)]
    last = replace(
        last,
        replace=how.startswith("replace"),
        drop_previous_output=how == "without the reply",
        bos=how == "with a start of sequence",
        offset={"offset in the prompt": 1, "offset in the reply": token_count(FAMILY, FAR[first]) + 1}.get(how, 0),
    )
    ops += [last]
    match read:
        case "whole":
            ops += [prefill(9), decode((9,))]
        case "chunks":
            ops += [extend((window(9, 3),)), prefill(9)]
        case "mixed":
            ops += [Submit(8, (text(2), image(1, 4, 4))), prefill(8), mixed((window(9),), (8,)), decode((8, 9))]
        case "verified":
            ops += [prefill(9), verify((9,), (chain(3),), path="direct"), draft_extend((9,), 3)]
    name = f"{first}, {reply} new, then {turn}: {how}, {read}"
    return _scenario(f"{name}, {ITEMS[items]}", "A history that begins far.", *ops)


# ---------------------------------------------------------------- what costs a second, and edges


def _elephants() -> Iterator[Scenario]:
    beside = BESIDE["text"]
    for name, prompt in (*ELEPHANTS.items(), ("70,001 words alone", (text(70_001),))):
        ops = (*running(prompt, beside), decode((0, 1)), verify((0, 1), (chain(3), chain(3)), path="direct"))
        yield _scenario(name, "Indices past 15 and 16 bits.", *ops)


def _blocks() -> Iterator[Scenario]:
    """Widths around what one program of a kernel takes."""
    long = tuple(BESIDE["pictures"][:3])
    prompts = [(*long, text(width)) for width in WINDOWS]
    hits = [token_count(FAMILY, prompt) - width for prompt, width in zip(prompts, WINDOWS, strict=True)]
    whole = extend(tuple(window(req, hit=hit) for req, hit in enumerate(hits)), kernel=True)
    arrivals = (Submit(req, prompt) for req, prompt in enumerate(prompts))
    yield _scenario(
        "windows around a kernel's block", "The last program is partial, full, or has one token.", *arrivals, whole
    )
    start = running(FAR["a long recording"], BESIDE["text"], BESIDE["pictures"])
    reqs = (0, 1, 2)
    for nodes in NODES:
        path = "" if nodes <= 4 else "direct"  # the tree's kernel takes seconds, interpreted
        rounds = [verify(reqs, (chain(nodes),) * 3, path=path), draft_extend(reqs, nodes, host_lengths=False)]
        yield _scenario(f"{nodes} drafted", "A block of the next power of two, masked.", *start, *rounds)


def _edge() -> Iterator[Scenario]:
    """To the last position of all: 2^31 - 1."""
    prompt = (text(1), video(2, 2, 2, NEAR_LAST), text(3))
    start = running(prompt, BESIDE["pictures"])
    verified = verify((0, 1), (chain(11), chain(11)), path="direct")
    drafted = draft_extend((0, 1), 11)
    yield _scenario("up to the last position", "A signed number of 32 bits ends here.", *start, verified, drafted)
