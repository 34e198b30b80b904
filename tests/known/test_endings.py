"""How the known bugs end a scheduler's loop: each by its own exception, and only where what lets it is so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from ropecheck.adapters.events import Died, Forward, Opened, PromptRun
from ropecheck.conformance.known.endings import ENDINGS, ended_by, silenced_by
from ropecheck.conformance.known.failures import CAUSES
from ropecheck.conformance.known.inputs import Inputs
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
    Media,
)
from ropecheck.conformance.trace.live import LiveRequest
from tests.known.test_stream import IMAGE, ROWS, arrive, extend

WORDS = (PromptRun("text", 5),)


class Scene:
    """A scheduler with one bug, in a state by hand."""

    def __init__(self, bug: str, **server: object) -> None:
        self.bug = bug
        self.known = KnownHistories("qwen2_vl", {bug}, server)

    def request(self, name: str = "a", outputs: int = 0, computed: int = 0, **more: object) -> LiveRequest:
        """One with five tokens and so many answers; it runs where it has some."""
        live = self.known.arrive(arrive(name, WORDS, **more))
        assert live is not None
        live.outputs, live.computed, live.running = [7] * outputs, computed, outputs > 0
        return live

    def ends(self, died: Died) -> bool:
        """Whether the bug ends it so."""
        return ended_by(self.known, died) == self.bug


def died(error: str, message: str, function: str) -> Died:
    return Died(error, message, f"file.py:1 {function}")


def total(*parts: int) -> Died:
    """total, available, evictable, protected, session_held, uncached."""
    names = ("total", "available", "evictable", "protected", "session_held", "uncached")
    said = ", ".join(f"{name}={part}" for name, part in zip(names, parts, strict=True))
    return died("ValueError", f"pool memory leak detected! [full] {said}", "raise_error_or_warn")


def test_every_ending_is_a_listed_bugs() -> None:
    assert {cause for cause, *_ in ENDINGS} <= set(CAUSES)


def test_an_ending_is_asked_for_whole() -> None:
    """The bug, the exception, the function and the whole message."""
    scene = Scene(REPLACE)
    scene.known.due.add(REPLACE)
    right = died("RuntimeError", "dictionary changed size during iteration", "create_req")
    assert scene.ends(right) and scene.ends(replace(right, where="other.py:9 create_req"))
    for odd in (
        replace(right, error="KeyError"),
        replace(right, message=right.message + "!"),
        replace(right, message="!" + right.message),
        replace(right, where="file.py:1 create_reqs"),
        replace(right, where="file.py:1 xcreate_req"),
    ):
        assert not scene.ends(odd)
    given = extend(0, ((0,),) * 3)
    ended_by(scene.known, replace(right, given=given))
    assert scene.known.fatal == given
    other = KnownHistories("qwen2_vl", {EMBEDS}, {})
    other.due.add(REPLACE)
    assert ended_by(other, right) == ""


@pytest.mark.parametrize(
    ("bug", "died"),
    [
        (REPLACE, died("RuntimeError", "dictionary changed size during iteration", "create_req")),
        (EMBEDS, died("TypeError", "object of type 'NoneType' has no len()", "create_req")),
        (EMBEDS, died("TypeError", "object of type 'NoneType' has no len()", "init_req_max_new_tokens")),
        (
            REFUSED,
            died(
                "RuntimeError",
                "upper bound and lower bound inconsistent with step sign",
                "_extend_session_image_inputs",
            ),
        ),
    ],
)
def test_what_a_message_lets_happen(bug: str, died: Died) -> None:
    scene = Scene(bug)
    assert not scene.ends(died)
    scene.known.due.add(bug)
    assert scene.ends(died)


def test_rows_that_were_promised_twice() -> None:
    scene = Scene(PROMISED)
    search = scene.request(outputs=1, beams=3)
    scene.request("b")
    last = replace(extend(0, ((0,),) * 3), reqs=("a", "b"))

    def ends(wanted: int = 2, free: int = 1, last: Forward | None = last) -> bool:
        scene.known.last = last
        words = f"Beam member spawn needs {wanted} req-to-token slots but only {free} are free; so it is"
        return scene.ends(died("AssertionError", words, "_spawn_member_rows"))

    assert ends() and ends(free=0)
    assert not ends(wanted=3) and not ends(wanted=1, free=0) and not ends(free=2)
    assert not ends(last=None) and not ends(last=replace(last, mode="decode"))
    assert not ends(last=replace(last, reqs=("a", "a"))) and not ends(last=replace(last, reqs=("b", "c")))
    search.outputs.append(7)
    assert not ends()  # it has had its rows
    search.outputs.pop()
    search.running = False
    assert not ends()


def test_a_pause_while_rows_hang_on_the_batch() -> None:
    scene = Scene(PAUSED)
    tail = died("AssertionError", "reqs changed while a beam tail was attached", "strip_beam_tail")
    for pausing, rows, so in ((True, {"a"}, True), (False, {"a"}, False), (True, set[str](), False)):
        scene.known.pausing, scene.known.tail = pausing, rows
        assert scene.ends(tail) is so


SLOT = died("AssertionError", "session_id='s' already has a slot", "take")


@pytest.mark.parametrize(("bug", "refused"), [(TRANSFERRED, False), (REFUSED, True)])
def test_a_second_record(bug: str, refused: bool) -> None:
    """Of a turn that waits: one that was to be refused, or one whose session's record came from elsewhere."""
    scene = Scene(bug)
    scene.known.recorded["s"] = 1
    live = scene.request(session="s")
    live.refuse = refused
    assert scene.ends(SLOT)
    assert not scene.ends(replace(SLOT, message="session_id='t' already has a slot"))
    live.computed = 3
    assert not scene.ends(SLOT)
    live.computed, live.refuse = 0, not refused
    assert not scene.ends(SLOT)
    live.refuse, live.finished = refused, "abort"
    assert not scene.ends(SLOT)
    live.finished = ""
    scene.known.recorded.clear()
    assert scene.ends(SLOT) is refused


@pytest.mark.parametrize("function", ["save_from_req", "try_cache_finished_req"])
def test_a_session_that_was_asked_for_two_turns(function: str) -> None:
    scene = Scene(REFUSED)
    live = scene.request(session="s")
    scene.known.beside.clear()
    assert not scene.ends(died("AssertionError", "", function))
    scene.known.beside.add("s")
    assert scene.ends(died("AssertionError", "", function))
    live.session = "t"
    assert not scene.ends(died("AssertionError", "", function))


def test_a_turn_on_a_decode_server() -> None:
    words = "'NoneType' object has no attribute 'startswith'"
    for mode, session, so in (("decode", "s", True), ("prefill", "s", False), ("decode", "", False)):
        scene = Scene(UNTOLD, disaggregation_mode=mode)
        scene.request(session=session)
        assert scene.ends(died("AttributeError", words, "__post_init__")) is so


def test_a_prefix_that_shrank() -> None:
    """Of two turns with one record: one of nine tokens, and one that has computed eleven."""
    scene = Scene(ENDS)
    scene.request("a", outputs=4)
    scene.request("b", computed=11)

    def ends(prefix: int, protected: int) -> bool:
        words = f"streaming session prefix shrank: prefix_len={prefix} < slot.kv.cache_protected_len={protected}"
        return scene.ends(died("AssertionError", words, "try_match_prefix"))

    assert not ends(8, 11)
    scene.known.shared["t"] = ("x", "y")
    scene.known.shared["s"] = ("a", "b")
    assert ends(8, 11) and ends(8, 10) and ends(4, 11)
    assert not ends(7, 11) and not ends(9, 11) and not ends(8, 12)
    scene.known.because["s"] = REFUSED
    assert not ends(8, 11), "another bug's"


def table(width: int, more: tuple[int, ...] = ()) -> Media:
    return Media([Inputs(np.zeros((3, width), dtype=np.int64), 0, (), more)])


def test_a_search_beside_a_table_that_reaches_its_token() -> None:
    words = died("IndexError", "list index out of range", "_compute_mrope_positions_decode")
    scene = Scene(MEMBERS)
    scene.request("a", outputs=2, beams=2)
    wide = scene.request("b", outputs=2)
    for width, so in ((7, True), (8, True), (6, False)):
        scene.known.media["b"] = table(width)
        assert scene.ends(words) is so
    scene.known.media["b"], scene.known.batched["b"] = table(6), table(7)
    assert scene.ends(words)  # as it joined the batch
    scene.known.batched["b"] = Media(table(6).options, growing={"b": range(1, 2)})
    assert scene.ends(words)  # it may have grown by now
    scene.known.batched["b"] = table(7)
    wide.running = False
    assert not scene.ends(words)
    wide.undecided = True  # a retraction may have thrown its last answers away: its prompt may be complete
    assert scene.ends(words)
    wide.running, scene.known.live["a"].running = True, False
    assert not scene.ends(words)


def test_an_items_place_that_was_cut_off() -> None:
    scene = Scene(OFFSET)
    live = scene.request()
    words = died("IndexError", "whatever it is", "_scatter_mm_embedding")
    assert not scene.ends(words)
    scene.known.touch("a", OFFSET)
    assert scene.ends(words)
    live.running = True
    assert not scene.ends(words)


def test_a_turn_that_comes_back_without_its_session() -> None:
    """Of nine tokens, its table six wide: a window from token 2 on has seven, and four columns."""
    scene = Scene(ENDS)
    scene.request("z")
    scene.request("a", outputs=4)
    scene.known.media["a"] = table(6)

    def ends(tokens: int, columns: int) -> bool:
        words = (
            f"The size of tensor a ({tokens}) must match the size of tensor b ({columns}) at non-singleton dimension 1"
        )
        return scene.ends(died("RuntimeError", words, "fill_from"))

    for times, so in ((0, False), (1, False), (2, True), (3, True)):
        scene.known.retracted["a"] = times
        assert ends(7, 4) is so
    assert ends(5, 4) and ends(9, 6) and ends(4, 1)
    assert not ends(8, 4) and not ends(4, 4) and not ends(9, 7) and not ends(3, 0) and not ends(10, 6)


def test_two_deltas_in_a_batch() -> None:
    scene = Scene(MERGED)
    scene.request("a", outputs=1)
    scene.request("b", outputs=1)
    scene.known.media["a"], scene.known.media["b"] = table(3, (-3,)), table(3)

    def scalar(deltas: int) -> bool:
        words = f"a Tensor with {deltas} elements cannot be converted to Scalar"
        return scene.ends(died("RuntimeError", words, "_compute_mrope_positions_decode"))

    def stack(one: str, other: str) -> bool:
        words = f"stack expects each tensor to be equal size, but got [{one}] at entry 0 and [{other}] at entry 1"
        return scene.ends(died("RuntimeError", words, "compute_spec_mrope_positions"))

    assert scalar(2) and not scalar(3) and not scalar(1)
    assert stack("1", "2, 1") and stack("2, 1", "1") and not stack("1", "1") and not stack("1", "3, 1")
    scene.known.live["a"].running = False
    assert not scalar(2) and not stack("1", "2, 1")


def test_padding_that_counts_no_rows() -> None:
    scene = Scene(GATHERED)
    for name, beams, outputs in (("a", 3, 1), ("b", 2, 1), ("c", 5, 0), ("d", 1, 1)):
        scene.request(name, outputs=outputs, beams=beams)

    def ends(rows: int, other: int) -> bool:
        words = f"Trying to create tensor with negative dimension -{rows}: [-{other}]"
        return scene.ends(died("RuntimeError", words, "_pad_tensor_to_size"))

    assert ends(3, 3) and not ends(3, 4) and not ends(2, 2) and not ends(4, 4)


def test_packed_columns_that_cannot_be_dealt_out() -> None:
    scene = Scene(SHARES)
    for name, outputs in (("a", 1), ("b", 1), ("c", 0)):
        scene.request(name, outputs=outputs)

    def ends(rows: int, size: int) -> bool:
        words = f"shape '[{rows}, -1]' is invalid for input of size {size}"
        return scene.ends(died("RuntimeError", words, "compute_spec_mrope_positions"))

    assert ends(2, 5) and ends(2, 1) and not ends(2, 6) and not ends(3, 5)


@pytest.mark.parametrize(
    ("server", "so"),
    [
        ({"speculative_algorithm": "FROZEN_KV_MTP"}, True),
        ({"speculative_algorithm": "FROZEN_KV_MTP", "disable_overlap_schedule": True}, True),
        ({"speculative_algorithm": "FROZEN_KV_MTP", "disable_overlap_schedule": False}, False),
        ({"speculative_algorithm": "EAGLE"}, False),
    ],
)
def test_a_worker_that_knows_no_stages(server: Mapping[str, object], so: bool) -> None:
    words = "FrozenKVMTPWorkerV2.forward_batch_generation() got an unexpected keyword argument 'pp_proxy_tensors'"
    assert Scene(STAGES, **server).ends(died("TypeError", words, "run_batch")) is so


@pytest.mark.parametrize("function", ["ingest_requests", "event_loop_normal"])
def test_a_search_that_waits_for_rows_that_it_holds(function: str) -> None:
    stuck = died("Stuck", "requests are left, and nothing moves them", function)
    scene = Scene(PREEMPTED, max_running_requests=4)
    scene.request("a", beams=3)
    scene.known.sent_back["a"] = PREEMPTED
    for kept, so in ((0, False), (1, False), (2, True)):
        scene.known.kept_rows = kept
        assert scene.ends(stuck) is so
    scene.known.sent_back.clear()
    assert not scene.ends(stuck)


FULL = died("RuntimeError", "Out of memory. Try to lower your batch size.", "alloc_token_slots")


def test_forgotten_chunks_that_fill_the_pool() -> None:
    """A pool of 100 tokens, chunks of 16; ten have ended, and five are going: 31 may be asked for."""
    scene = Scene(UNKEPT, max_total_tokens=100, chunked_prefill_size=16)
    scene.request()
    scene.known.ended["x"] = 10
    for unkept, so in ((0, False), (68, False), (69, True), (99, True), (100, False)):
        scene.known.unkept = unkept
        assert scene.ends(FULL) is so
    small = Scene(UNKEPT, max_total_tokens=10)
    small.known.unkept = 1
    assert small.ends(FULL)
    usual = Scene(UNKEPT)  # 4000, and chunks of 32
    for unkept, so in ((3967, False), (3968, True), (3999, True), (4000, False)):
        usual.known.unkept = unkept
        assert usual.ends(FULL) is so


@pytest.mark.parametrize(
    ("bug", "prepare", "lost", "others"),
    [
        (UNKEPT, lambda known: setattr(known, "unkept", 5), (5,), (0, 4, 6, -5)),
        (
            ENDS,
            lambda known: (known.ended.update(a=4, b=3, c=9), known.shared.update(s=("a", "b"), t=("x", "y"))),
            (1, 7),
            (0, 8, -1),
        ),
        (
            PAUSED,
            lambda known: (known.ended.update(a=4, b=9), known.sent_back.update(a=PAUSED, b=PREEMPTED, x=PAUSED)),
            (-1, -4),
            (0, -5, 1),
        ),
        (
            TRANSFERRED,
            lambda known: (known.ended.update(a=4, b=3), known.recorded.update(s=1, t=2)),
            (1, 7),
            (0, 8, -1),
        ),
    ],
)
def test_tokens_that_are_missing_at_rest(
    bug: str, prepare: Callable[[KnownHistories], object], lost: tuple[int, ...], others: tuple[int, ...]
) -> None:
    """Those that the bug can have lost, and where nothing runs any more."""
    scene = Scene(bug)
    prepare(scene.known)
    for count in lost:
        assert scene.ends(total(100, 70 - count, 10, 8, 7, 5)), count
    for count in others:
        assert not scene.ends(total(100, 70 - count, 10, 8, 7, 5)), count
    scene.request("z")
    assert not scene.ends(total(100, 70 - lost[0], 10, 8, 7, 5))
    assert not Scene(bug).ends(total(100, 70 - lost[0], 10, 8, 7, 5))  # nothing of it has happened


def test_a_chunk_of_one_token_is_missing() -> None:
    scene = Scene(UNKEPT)
    scene.known.unkept = 1
    assert scene.ends(total(100, 99, 0, 0, 0, 0)) and not scene.ends(total(100, 100, 0, 0, 0, 0))


def test_two_turns_with_one_record_lose_whole_pages() -> None:
    scene = Scene(ENDS, page_size=4)
    scene.known.shared["s"] = ("a", "b")
    scene.known.ended.update(a=2, b=1)
    assert scene.ends(total(100, 91, 0, 0, 0, 0)) and not scene.ends(total(100, 90, 0, 0, 0, 0))  # 2 + 3 + 1 + 3


def test_a_record_that_came_once_is_not_lost() -> None:
    scene = Scene(TRANSFERRED)
    scene.known.ended["a"] = 9
    scene.known.recorded["s"] = 1
    assert not scene.ends(total(100, 99, 0, 0, 0, 0))


def test_rows_that_nobody_gives_back() -> None:
    scene = Scene(PAUSED)
    scene.known.sent_back["a"], scene.known.kept_rows = PAUSED, 2

    def ends(free: int, held: int) -> bool:
        words = f"req_to_token_pool memory leak detected!available_size={free}, session_held={held}, total_size=64"
        return scene.ends(died("ValueError", words, "raise_error_or_warn"))

    assert ends(62, 0) and ends(60, 2) and not ends(61, 0) and not ends(63, 0) and not ends(62, 1)
    scene.known.sent_back["a"] = PREEMPTED
    assert not ends(62, 0)
    scene.known.sent_back["a"] = PAUSED
    scene.request("z")
    assert not ends(62, 0)


def test_an_end_without_a_word() -> None:
    """A picture of four tokens stands at 1 .. 4; a window that begins inside is embedded one row too many."""

    def silent(computed: int, running: bool = False, bug: str = CUT, draft: str = "STANDALONE") -> str:
        known = KnownHistories("qwen2_vl", {bug}, {"speculative_algorithm": draft})
        known.arrive(arrive("z", WORDS))
        live = known.arrive(arrive("a", IMAGE))
        assert live is not None
        live.computed, live.running = computed, running
        return silenced_by(known)

    assert [silent(computed) for computed in range(6)] == ["", CUT, CUT, CUT, CUT, ""]
    assert silent(2, running=True) == silent(2, bug=UNKEPT) == silent(2, draft="EAGLE") == ""


def test_a_draft_that_sees_nothing_and_a_place_that_was_cut_off_end_it_silently_too() -> None:
    """Wherever a window begins before the picture's end; and where a turn's media are not in its tokens."""

    def silent(computed: int, bug: str, draft: str, touched: bool = False, last: Forward | None = None) -> str:
        known = KnownHistories("qwen2_vl", {bug}, {"speculative_algorithm": draft})
        live = known.arrive(arrive("a", IMAGE))
        assert live is not None
        live.computed, live.window, known.last = computed, (3, 2), last
        live.running = last is not None
        if touched:
            known.touch("a", OFFSET)
        return silenced_by(known)

    assert [silent(at, LOOKED_UP, "EAGLE") for at in (0, 4, 5)] == [LOOKED_UP, LOOKED_UP, ""]
    assert silent(0, LOOKED_UP, "STANDALONE") == silent(0, CUT, "EAGLE") == ""
    assert silent(9, OFFSET, "", touched=True) == OFFSET and silent(9, OFFSET, "") == ""
    window = extend(3, tuple(row[3:] for row in ROWS))  # the target's forward of it has come
    assert silent(5, LOOKED_UP, "EAGLE", last=window) == LOOKED_UP and silent(5, CUT, "STANDALONE", last=window) == CUT
    assert silent(5, OFFSET, "", touched=True, last=window) == OFFSET
    for last in (replace(window, mode="decode"), replace(window, reqs=("b",))):
        assert silent(5, LOOKED_UP, "EAGLE", last=last) == silent(5, OFFSET, "", touched=True, last=last) == ""


def test_a_session_is_opened_for_turns_by_hand() -> None:
    """What `Scene.request` makes of a turn in a session that is open."""
    scene = Scene(ENDS)
    scene.known.open(Opened("s"))
    assert scene.request(session="s").refuse is False and scene.request("b", session="t").refuse is True
