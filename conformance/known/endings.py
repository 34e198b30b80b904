"""How the known bugs end a scheduler: with which exception, in which function of the engine's, and when."""

import re
from collections.abc import Callable
from functools import partial

from ropecheck.adapters import events
from ropecheck.conformance.known.inputs import ENDED, Inputs
from ropecheck.conformance.known.model import MEMBERS, MERGED, OFFSET, REPLACE, SHARES
from ropecheck.conformance.known.scheduler import (
    CUT,
    EMBEDS,
    ENDS,
    GATHERED,
    LOOKED_UP,
    PAUSED,
    PREEMPTED,
    PROMISED,
    REFUSED,
    STAGES,
    TRANSFERRED,
    UNKEPT,
    UNTOLD,
    KnownHistories,
    grown,
)
from ropecheck.conformance.trace.live import LiveRequest
from ropecheck.reference.timeline import laid
from ropecheck.spec.modes import mode_of


def ended_by(known: KnownHistories, died: events.Died) -> str:
    """The bug that ends the loop here, now, in this way; "" for none."""
    function = died.where.rsplit(" ", 1)[-1]
    known.fatal = died.given
    for cause, error, name, pattern, so in ENDINGS:
        so_far = cause in known.bugs and error == died.error and re.fullmatch(name, function)
        found = re.fullmatch(pattern, died.message) if so_far else None
        if found is not None and so(known, *found.groups()):
            return cause
    return ""


SILENT = "ends without a word"
"""The shape of an end of which no exception tells: a GPU's own."""


def silenced_by(known: KnownHistories) -> str:
    """The bug that ends the process without an exception, where the stream stops, at the pictures of a window that is
    embedded then, by the target or its draft; "" for none. The stream may have the target's forward of it or not."""
    algorithm = known.server.get("speculative_algorithm")
    last = known.last.reqs if known.last is not None and mode_of(known.last.mode).prefills else ()
    for live in known.going:
        begins = [live.window[0]] * (live.name in last) + [live.computed] * (not live.running)
        pictures = [(start, stop) for run, start, stop in laid(known.family.name, live.history) if not run.is_text]
        ends = (
            (
                CUT,
                algorithm == "STANDALONE"
                and any(start <= begin < stop for start, stop in pictures for begin in begins),
            ),
            (LOOKED_UP, algorithm == "EAGLE" and any(begin < stop for _, stop in pictures for begin in begins)),
            (OFFSET, bool(begins) and OFFSET in known.causes.get(live.name, ())),
        )
        for bug, so in ends:
            if so and bug in known.bugs:
                return bug
    return ""


def _never_spawned(known: KnownHistories, wanted: str, free: str) -> bool:
    """The last forward completed the prompt of a search, and another request was admitted with it."""
    last = known.last
    if last is None or not mode_of(last.mode).prefills or len(set(last.reqs)) < 2:
        return False
    news = [live for req in last.reqs if (live := known.live.get(req)) is not None and live in known.searches()]
    return any(live.total == live.width + 1 and live.beams - 1 == int(wanted) > int(free) for live in news)


def _reaches(known: KnownHistories) -> bool:
    """Beside a search with its rows decodes a request whose table reaches its newest token."""
    decoding = [live for live in known.going if live.running or live.undecided]
    wide = [live for live in decoding if any(one.width >= live.total for one in _now(known, live))]
    return bool(known.searches()) and bool(wide)


def _now(known: KnownHistories, live: LiveRequest) -> list[Inputs]:
    return grown(known.batched.get(live.name) or known.held(live.name), "", 2 * live.total + 64, known.bugs)


def _short(known: KnownHistories, tokens: str, columns: str) -> bool:
    """A turn that has left its session comes back: its window has fewer columns than tokens."""
    for live in known.going:
        if known.retracted.get(live.name, 0) > 1:
            for one in _now(known, live):
                for start in range(one.width):
                    if one.width - start == int(columns) < int(tokens) <= live.total - start:
                        return True
    return False


def _merged(known: KnownHistories) -> bool:
    """The forward that ends the loop brought a table that does not fit, of media that have joined."""
    return known.unfit() and any(MERGED in media.causes for media in known.rows)


def _sizes(known: KnownHistories) -> set[str]:
    """The shapes of the running requests' deltas, as a verify has them."""
    held = [_now(known, live)[0] for live in known.going if live.running]
    return {f"{len(one.deltas)}, 1" if one.more else "1" for one in held}


def _shrank(cause: str, known: KnownHistories, prefix: str, protected: str) -> bool:
    """Of two turns with one record, one has more in the cache than the other has tokens."""
    for names in known.paired(cause):
        turns = [known.live[name] for name in names if name in known.live]
        if any(one.total - 1 == int(prefix) for one in turns) and any(one.computed >= int(protected) for one in turns):
            return True
    return False


def _leaks(cause: str, known: KnownHistories, total: str, *parts: str) -> bool:
    """At rest tokens are missing: two turns ran on one record. No more than both had, page by page."""
    page = known.server.get("page_size", 1)
    assert isinstance(page, int)
    had = sum(known.ended.get(name, 0) + page - 1 for names in known.paired(cause) for name in names)
    return not known.going and 0 < int(total) - sum(map(int, parts)) <= had


def _record_lost(known: KnownHistories, total: str, *parts: str) -> bool:
    """At rest tokens are missing: a session's record came twice, and one was dropped. No more than all had."""
    lost = int(total) - sum(map(int, parts))
    twice = any(times > 1 for times in known.recorded.values())
    return twice and not known.going and 0 < lost <= sum(known.ended.values())


def _frees_twice(known: KnownHistories, total: str, *parts: str) -> bool:
    """At rest there are more than there were: a search was sent back with its rows, and took others."""
    had = sum(known.ended.get(name, 0) for name, bug in known.sent_back.items() if bug == PAUSED)
    return not known.going and 0 < sum(map(int, parts)) - int(total) <= had


def _chunks_lost(known: KnownHistories, total: str, *parts: str) -> bool:
    """At rest the tokens of forgotten chunks are missing, and no others."""
    return not known.going and known.unkept == int(total) - sum(map(int, parts)) > 0


def _filled(known: KnownHistories) -> bool:
    """Forgotten chunks have left no room for another."""
    pool, chunk = (known.server.get(*one) for one in (("max_total_tokens", 4000), ("chunked_prefill_size", 32)))
    assert isinstance(pool, int) and isinstance(chunk, int)
    left = pool - known.unkept
    return known.unkept > 0 and 0 < left <= chunk + sum(known.ended.values()) + sum(live.total for live in known.going)


def _rows_lost(known: KnownHistories, free: str, held: str, total: str) -> bool:
    """At rest the further rows of the searches that were sent back are missing, and no others."""
    back = PAUSED in known.sent_back.values()
    return back and not known.going and int(total) - int(free) - int(held) == known.kept_rows


def _waits_for_itself(known: KnownHistories) -> bool:
    """A search waits for rows that it holds, and nothing runs."""
    rows = known.server.get("max_running_requests", 0)
    assert isinstance(rows, int)
    return any(live.name in known.sent_back and rows - known.kept_rows < live.beams for live in known.going)


LEAK = (
    r"pool memory leak detected! \[full\] total=(\d+), available=(\d+), evictable=(\d+), protected=(\d+), "
    r"session_held=(\d+), uncached=(\d+)"
)
ROWS_LEAK = r"req_to_token_pool memory leak detected!available_size=(\d+), session_held=(\d+), total_size=(\d+)"

FILLS = "fill_from|_foreach_copy"
"""What copies a forward's tables into a graph's buffers, tensor by tensor or, on a GPU, all at once."""

ENDINGS: tuple[tuple[str, str, str, str, Callable[..., bool]], ...] = (
    (
        PROMISED,
        "AssertionError",
        "_spawn_member_rows",
        r"Beam member spawn needs (\d+) req-to-token slots but only (\d+) are free;.*",
        _never_spawned,
    ),
    (
        PAUSED,
        "AssertionError",
        "strip_beam_tail",
        "reqs changed while a beam tail was attached",
        lambda known: known.pausing and bool(known.tail),
    ),
    (
        TRANSFERRED,
        "AssertionError",
        "take",
        "session_id='(.*)' already has a slot",
        lambda known, session: session in known.recorded and known.second_turn(session, False),
    ),
    (
        REFUSED,
        "AssertionError",
        "take",
        "session_id='(.*)' already has a slot",
        lambda known, session: known.second_turn(session, True),
    ),
    (
        REFUSED,
        "AssertionError",
        "save_from_req|try_cache_finished_req",  # up to 0.5.21
        "",
        lambda known: any(one.session and one.session in known.beside for one in known.going),
    ),
    (
        UNTOLD,
        "AttributeError",
        "__post_init__",
        "'NoneType' object has no attribute 'startswith'",
        lambda known: known.server.get("disaggregation_mode") == "decode" and any(one.session for one in known.going),
    ),
    *(
        (
            cause,
            "AssertionError",
            "try_match_prefix",
            r"streaming session prefix shrank: prefix_len=(\d+) < slot\.kv\.cache_protected_len=(\d+)",
            partial(_shrank, cause),
        )
        for cause in (ENDS, REFUSED)
    ),
    (MEMBERS, "IndexError", "_compute_mrope_positions_decode", "list index out of range", _reaches),
    (
        REPLACE,
        "RuntimeError",
        "create_req",
        "dictionary changed size during iteration",
        lambda known: REPLACE in known.due,
    ),
    (
        EMBEDS,
        "TypeError",
        "create_req|init_req_max_new_tokens",
        r"object of type 'NoneType' has no len\(\)",
        lambda known: EMBEDS in known.due,
    ),
    (
        REFUSED,
        "RuntimeError",
        "_extend_session_image_inputs",
        "upper bound and lower bound inconsistent with step sign",
        lambda known: REFUSED in known.due,
    ),
    (
        OFFSET,
        "IndexError",
        "_scatter_mm_embedding",
        ".*",
        lambda known: any(OFFSET in known.causes.get(one.name, ()) and not one.running for one in known.going),
    ),
    (
        ENDS,
        "RuntimeError",
        FILLS,
        r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension 1",
        _short,
    ),
    *(
        (cause, "RuntimeError", function, pattern, so)
        for function, pattern in (
            (
                FILLS,
                r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) at non-singleton dimension 1",
            ),
            (FILLS, r"output with shape \[3, 1\] doesn't match the broadcast shape \[3, \d+\]"),
            ("_pad_inputs_to_size", r"Trying to create tensor with negative dimension -\d+: \[3, -\d+\]"),
        )
        for cause, so in ((MERGED, _merged), (ENDED, KnownHistories.unfit))
    ),
    (
        MERGED,
        "RuntimeError",
        "_compute_mrope_positions_decode",
        r"a Tensor with (\d+) elements cannot be converted to Scalar",
        lambda known, deltas: f"{deltas}, 1" in _sizes(known),
    ),
    (
        MERGED,
        "RuntimeError",
        "compute_spec_mrope_positions",
        r"stack expects each tensor to be equal size, but got \[(.*)\] at entry 0 and \[(.*)\] at entry \d+",
        lambda known, one, other: one != other and {one, other} <= _sizes(known),
    ),
    (
        GATHERED,
        "RuntimeError",
        "_pad_tensor_to_size",
        r"Trying to create tensor with negative dimension -(\d+): \[-\1\]",
        lambda known, rows: sum(one.beams - 1 for one in known.searches()) == int(rows),
    ),
    (
        SHARES,
        "RuntimeError",
        "compute_spec_mrope_positions",
        r"shape '\[(\d+), -1\]' is invalid for input of size (\d+)",
        lambda known, rows, width: int(width) % int(rows) > 0 and known.running == int(rows),
    ),
    (
        STAGES,
        "TypeError",
        "run_batch",
        r"(FrozenKVMTPWorkerV2)\.forward_batch_generation\(\) got an unexpected keyword argument 'pp_proxy_tensors'",
        lambda known, _: (
            known.server.get("speculative_algorithm") == "FROZEN_KV_MTP"
            and known.server.get("disable_overlap_schedule", True) is True
        ),
    ),
    (
        PREEMPTED,
        "Stuck",
        "ingest_requests|event_loop_normal",
        "requests are left, and nothing moves them",
        _waits_for_itself,
    ),
    (
        UNKEPT,
        "RuntimeError",
        "alloc_token_slots",
        r"Out of memory\. Try to lower your batch size\.",
        _filled,
    ),
    (UNKEPT, "ValueError", "raise_error_or_warn", LEAK, _chunks_lost),
    *((cause, "ValueError", "raise_error_or_warn", LEAK, partial(_leaks, cause)) for cause in (ENDS, REFUSED)),
    (PAUSED, "ValueError", "raise_error_or_warn", LEAK, _frees_twice),
    (PAUSED, "ValueError", "raise_error_or_warn", ROWS_LEAK, _rows_lost),
    (TRANSFERRED, "ValueError", "raise_error_or_warn", LEAK, _record_lost),  # up to 0.5.21
)
"""Ends of the loop: the bug, the exception, the engine's functions in all releases, its whole message, and when it must
come."""
