"""An engine with known bugs, step by step: what it holds, and what a scenario comes to."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.inputs import ENDED
from ropecheck.conformance.known.model import (
    ABORTED as GIVEN_UP,
)
from ropecheck.conformance.known.model import (
    AGAIN,
    BUGS,
    CYCLED,
    DRAFTED,
    FILLS,
    FROM_T,
    GRAPHS,
    IDLE,
    MEMBERS,
    MERGED,
    NEVER,
    OFFSET,
    READER,
    REPLACE,
    SHARED,
    SHARES,
    STALE,
    START,
    STILL,
    KnownEngine,
    predicted,
    touches,
)
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import PAD_VALUE, answer
from ropecheck.conformance.scenario.operations import (
    Abort,
    Batch,
    Build,
    Finish,
    Open,
    Operation,
    Reschedule,
    Retract,
    Rotate,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import (
    decode,
    draft,
    draft_extend,
    extend,
    forward,
    idle,
    part,
    ragged_verify,
    window,
)
from ropecheck.reference.rotary import LAYOUTS
from ropecheck.spec.history import History, image, text, video

PICTURE: History = (text(1), image(1, 4, 4))
"""Five tokens; the picture stands at the end."""
WORDS: History = (text(2),)


def scenario(*ops: Operation, family: str = "qwen2_vl") -> Scenario:
    return Scenario(name="by hand", ops=ops, family=family)


def ran(bugs: Collection[str], *ops: Operation, family: str = "qwen2_vl") -> tuple[KnownEngine, Outcome]:
    """The engine behind a scenario, and what is said of it."""
    planned = plan(scenario(*ops, family=family))
    engine = KnownEngine(frozenset(bugs))
    return engine, judge(planned, answer(planned.job, engine))


def rules(bugs: Collection[str], *ops: Operation, family: str = "qwen2_vl") -> set[str]:
    outcome = ran(bugs, *ops, family=family)[1]
    assert not outcome.unrun
    return {failure.rule for failure in outcome.failures}


def turn(req: int, parent: int | None = 0, prompt: History = WORDS, **more: object) -> tuple[Operation, ...]:
    """A turn that is prefilled and ends."""
    return Turn(0, req, prompt, parent=parent, **more), extend([window(req)]), Finish(req)  # type: ignore[arg-type]


FIRST = (Open(0), *turn(0, None, PICTURE))


def test_a_replacing_turn_takes_what_came_after_its_parent() -> None:
    """And what continued that; a turn on any of them is refused, one on the parent or beside it is not."""
    tree = (*FIRST, *turn(1), *turn(2, 1), *turn(3, 2), *turn(4, None), *turn(5, 0, replace=True))
    for parent in (0, 4, 5):
        assert rules((), *tree, *turn(6, parent)) == set()
    for parent in (1, 2, 3):
        assert rules((), *tree, Turn(0, 6, WORDS, parent=parent)) == set()
    engine, _ = ran((), *tree)
    assert engine.sessions[0].known == (0, 4, 5)


def test_a_replace_of_everything_raises_half_way() -> None:
    """The first turn is gone, and what continues it; others are there."""
    tree = (*FIRST, *turn(1), *turn(2, 1), *turn(3, None))
    engine, outcome = ran({REPLACE}, *tree, Turn(0, 4, WORDS, replace=True))
    assert engine.sessions[0].known == (3,) and outcome.failures
    assert rules((), *tree, *turn(4, None, replace=True)) == set()
    assert rules({REPLACE}, Open(0), *turn(0, None, replace=True)) == set()  # nothing is there
    assert rules({REPLACE}, *FIRST, *turn(1, 0, replace=True)) == set()


def test_media_are_known_by_a_number_each() -> None:
    two: History = (image(1, 4, 4), text(1), image(1, 4, 4), text(1), image(1, 2, 2))
    engine, outcome = ran((), Submit(0, two), Submit(1, PICTURE), extend([window(0)]))
    assert engine.pads == {0: (PAD_VALUE + 1, PAD_VALUE + 2, PAD_VALUE + 3), 1: (PAD_VALUE + 4,)}
    assert not outcome.failures
    same, outcome = ran((), Submit(0, two, items="equal"), extend([window(0)]))
    assert len(set(same.pads[0])) == 1 and min(same.pads[0]) > PAD_VALUE and not outcome.failures
    joined, outcome = ran((), Submit(0, two, items="joined"), extend([window(0)]))
    assert len(joined.pads[0]) == 3 and len(set(joined.pads[0])) == 1 and not outcome.failures
    later, outcome = ran((), *FIRST, *turn(1, 0, PICTURE), *turn(2, 1, offset=5))
    assert later.pads[1] == (PAD_VALUE + 1, PAD_VALUE + 2) and later.pads[2] == (PAD_VALUE + 1,)
    assert not outcome.failures


BEFORE = (Submit(0, PICTURE), extend([window(0)]), decode([0]), Retract(0))
"""Five tokens of the prompt and two answers."""


@pytest.mark.parametrize(
    ("bugs", "more", "width", "last"),
    [
        ((), (extend([window(0)]),), 7, 4),
        ((), (Reschedule(0, 3), extend([window(0)])), 7, 4),
        ((FROM_T,), (extend([window(0)]),), 7, 3),
        ((AGAIN,), (Reschedule(0, 2), extend([window(0)])), 11, 8),
        ((AGAIN,), (extend([window(0, 3)]), extend([window(0)])), 7, 4),  # it is no longer considered
        ((AGAIN,), (extend([window(0)]), decode([0]), Retract(0), extend([window(0)])), 11, 8),  # four more
    ],
)
def test_a_retracted_requests_table(bugs: tuple[str, ...], more: tuple[Operation, ...], width: int, last: int) -> None:
    engine, outcome = ran(bugs, *BEFORE, *more)
    table = engine.inputs[0].table
    assert (table.shape[1], table[:, -1].tolist()) == (width, [last] * 3)
    assert bool(outcome.failures) is bool(set(bugs) - {AGAIN}) or width > 7


def test_a_turn_shares_its_parents_table() -> None:
    ops = (*FIRST, Turn(0, 1, WORDS, parent=0), extend([window(1)]), Retract(1), extend([window(1)]))
    for bugs, widths in (((SHARED,), (6, 6)), ((), (5, 6))):
        engine, _ = ran(bugs, *ops)
        assert tuple(engine.inputs[req].width for req in (0, 1)) == widths


def test_what_a_turn_holds() -> None:
    for bugs, width in (((OFFSET,), 5), ((), 3)):
        engine, outcome = ran(bugs, *FIRST, *turn(1, offset=3))
        assert engine.inputs[1].width == width and bool(outcome.failures) is bool(bugs)
    engine, _ = ran((), *FIRST, *turn(1, offset=1))
    assert 1 not in engine.inputs  # no media are left
    given_up = (Open(0), Turn(0, 0, PICTURE), extend([window(0)]), Abort(0), *turn(1))
    for bugs, held in (((GIVEN_UP,), False), ((), True)):
        engine, outcome = ran(bugs, *given_up)
        assert (1 in engine.inputs) is held and bool(outcome.failures) is not held
    for bugs, joined in (((MERGED,), True), ((), False)):
        engine, outcome = ran(bugs, *FIRST, *turn(1, 0, PICTURE))
        assert (engine.inputs[0] is engine.inputs[1]) is joined is bool(outcome.failures)


@pytest.mark.parametrize("bugs", [(), (START,)])
def test_a_start_of_sequence(bugs: tuple[str, ...]) -> None:
    """With no reply in between it is the picture's last token that gets its column: the one behind the picture."""
    engine, outcome = ran(bugs, Open(0), *turn(0, None, PICTURE, max_new_tokens=0), *turn(1, 0, PICTURE, bos=True))
    table = engine.inputs[1].table
    assert table[:, 4].tolist() == ([3, 3, 3] if bugs else [1, 2, 2]) and bool(outcome.failures) is bool(bugs)


def test_tokens_that_are_carried_on_keep_placeholders() -> None:
    """Up to the first placeholder that is not padded the cache can serve it."""
    stream = (
        Open(0, streaming=True),
        Turn(0, 0, PICTURE),
        extend([window(0)]),
        decode([0]),
        Finish(0),
        Turn(0, 1, (text(1), image(1, 4, 4), text(1))),
    )
    for bugs in ((), (FILLS,)):
        for hit in (6, 8):
            engine, outcome = ran(bugs, *stream, extend([window(1, hit=hit)]))
            held = engine.held[1]
            assert held.prefix_len == hit and held.fill_ids is not None
            raw = [at for at, token in enumerate(held.fill_ids) if token < 1000]
            assert raw == ([8, 9, 10, 11] if bugs else []) and bool(outcome.failures) is bool(bugs)
    engine, outcome = ran((FILLS,), *stream, extend([window(1, hit=10)]))
    assert engine.held[1].prefix_len == 8 and "request.prefix_len" in {one.rule for one in outcome.failures}


# ---------------------------------------------------------------- forwards


def frozen(req: int, rows: int = 1, topk: int = 1) -> Operation:
    return draft([req], 2, topk=topk, buffer="frozen_kv", buffer_rows=rows)


TWO = (
    Submit(0, PICTURE),
    Submit(1, PICTURE),
    Submit(2, WORDS),
    extend([window(0)]),
    extend([window(1)]),
    extend([window(2)]),
)


def test_padding_that_an_earlier_batch_left() -> None:
    """In the same runner: of as many branches."""
    large = draft([0, 1], 2, buffer="frozen_kv", buffer_rows=2)
    assert rules((STALE,), *TWO, large, frozen(2, 2)) == {"padding.harmless_fill"}
    assert rules((), *TWO, large, frozen(2, 2)) == rules((STALE,), *TWO, large) == set()
    wide = draft([0, 1], 2, topk=2, buffer="frozen_kv", buffer_rows=2)
    assert rules((STALE,), *TWO, wide, frozen(2, 2)) == set() == rules((STALE,), *TWO, large, frozen(2, 2, topk=2))
    assert rules((STALE,), *TWO, wide, frozen(2, 2, topk=2)) == {"padding.harmless_fill"}
    small = frozen(0)
    assert rules((STALE,), *TWO, large, small, frozen(2, 2)) == {"padding.harmless_fill"}  # it is left behind that


def test_rows_that_nobody_writes() -> None:
    eagle = draft([0, 1], 2, buffer="graph", buffer_rows=2)
    shared = draft_extend([0, 1], 2, buffer="multi_layer", buffer_rows=2)
    for bug, build in ((GRAPHS, eagle), (NEVER, shared)):
        assert rules((bug,), *TWO, build) == {"padding.live_columns"} and rules((), *TWO, build) == set()
    assert rules((GRAPHS,), *TWO, decode([0, 1], buffer="graph", buffer_rows=2)) == set()
    assert rules((NEVER,), *TWO, eagle) == rules((GRAPHS,), *TWO, shared) == set()


def test_modes_with_a_bug_of_their_own() -> None:
    for bug, build, broken in (
        (STILL, draft([0], 3), {"table.past_table"}),
        (IDLE, idle(), {"table.present"}),
        (SHARES, ragged_verify([0, 2], [(0, 1), ()]), {"table.past_table"}),
    ):
        assert rules((bug,), *TWO, build) >= broken and rules((), *TWO, build) == set()
    assert rules((SHARES,), *TWO, ragged_verify([0, 2], [(0,), ()])) == {"table.present"}  # three of two
    assert rules((SHARES,), *TWO, ragged_verify([0, 2], [(0,), (0,)])) == set()
    assert rules((STILL,), *TWO, draft([0], 2)) == set()


def test_members_have_no_delta() -> None:
    def beams(*reqs: int) -> Operation:
        members = part("beam_members", reqs[:1], members=(1,))
        return Build(Batch("beam_decode", (part("decode", reqs, "beam_decode"), members)))

    assert rules((MEMBERS,), *TWO, beams(0, 2)) == {"table.past_table"} and rules((), *TWO, beams(0, 2)) == set()
    assert rules((MEMBERS,), *TWO, beams(2, 0)) == set()  # of words


def test_a_draft_that_reads_the_prompt() -> None:
    build = forward("frozen_kv_draft", [0], topk=1)
    prompt = (Submit(0, (text(1), image(1, 4, 4), text(1))), extend([window(0)]))
    assert rules((), *prompt, build) == set()
    for bugs in ((), (DRAFTED,)):
        engine, outcome = ran(bugs, Submit(0, PICTURE), extend([window(0)]), build)
        assert bool(outcome.failures) is bool(bugs) and engine.inputs[0].width == 5


def test_a_delta_is_put_aside_where_columns_are_made_one_by_one() -> None:
    """Both of a batch's windows pass their tables, in a session: both requests' deltas are kept."""
    other = (Open(1), Turn(1, 5, (text(2), image(1, 4, 6))), extend([window(5)]), Finish(5))
    tree = (*FIRST, *other, Turn(0, 1, WORDS, parent=0), Turn(1, 2, (text(4),), parent=5))
    engine, outcome = ran((), *tree, extend([window(1), window(2)]))
    assert (engine.inputs[1].aside, engine.inputs[2].aside) == ((-2,), (-3,)) and not outcome.failures
    separate, _ = ran((), Submit(0, PICTURE), Submit(1, PICTURE), extend([window(0), window(1)]), decode([0, 1]))
    assert separate.inputs[0].aside == separate.inputs[1].aside == ()
    beams = Batch("beam_decode", (part("decode", [0, 1], "beam_decode"), part("beam_members", [0], members=(1,))))
    again = (Submit(1, PICTURE), extend([window(1)]), Retract(1), Reschedule(1, 3), extend([window(1)]))
    for build in (decode([0, 1]), Build(beams)):
        reaching, _ = ran((AGAIN,), Submit(0, PICTURE), extend([window(0)]), *again, build)
        assert (reaching.inputs[0].aside, reaching.inputs[1].aside) == ((-2,), ())  # 1's table reaches its token
    ended, _ = ran((ENDED,), *FIRST, *turn(1))
    assert ended.inputs[1].aside == ()


# ---------------------------------------------------------------- rotations


@pytest.mark.parametrize(("steps", "raises"), [(31, False), (32, True), (40, True)])
def test_a_position_past_the_reader(steps: int, raises: bool) -> None:
    """`short` has prepared 32."""
    assert LAYOUTS["short"].longest == 32
    clip = (Submit(0, (video(2, 2, 2, steps / 2),)), Rotate(0, "short"))
    assert rules((READER,), *clip, family="qwen2_5_vl") == ({"rotary.readers_bound"} if raises else set())
    found = predicted(plan(scenario(*clip, family="qwen2_5_vl")), frozenset({READER}))
    assert bool(found) is raises and all(f"index {steps} " in one.message for one in found[:1])


def test_sections_that_are_dealt_out_otherwise() -> None:
    for layout, method, broken in (("cycled", "", True), ("cycled", "device", False), ("contiguous", "", False)):
        ops = (Submit(0, PICTURE), Rotate(0, layout, method))
        assert bool(rules((CYCLED,), *ops)) is broken and rules((), *ops) == set()


# ---------------------------------------------------------------- where a bug may show at all

GIVEN = (Open(0), Turn(0, 0, PICTURE), extend([window(0)]), Abort(0), *turn(1))


@pytest.mark.parametrize(
    ("bug", "ops"),
    [
        *((bug, BEFORE) for bug in (FROM_T, AGAIN, SHARED)),
        (OFFSET, (*FIRST, *turn(1, offset=2))),
        (REPLACE, (Open(0), *turn(0, None), *turn(1, None, replace=True))),
        (START, (*FIRST, *turn(1, bos=True))),
        (MERGED, (*FIRST, *turn(1))),
        (ENDED, (*FIRST, *turn(1))),
        (GIVEN_UP, GIVEN),
        (SHARES, (Submit(0, WORDS), extend([window(0)]), ragged_verify([0], [()]))),
        (STALE, (*TWO, frozen(2))),
        (GRAPHS, (*TWO, draft([2], 2, buffer="graph", buffer_rows=1))),
        (NEVER, (*TWO, draft_extend([2], 2, buffer="multi_layer", buffer_rows=1))),
        (STILL, (Submit(0, WORDS), extend([window(0)]), draft([0], 3))),
        (IDLE, (idle(),)),
        (DRAFTED, (*TWO, forward("frozen_kv_draft", [0], topk=1))),
        (READER, (Submit(0, WORDS), Rotate(0, "short"))),
        (CYCLED, (Submit(0, WORDS), Rotate(0, "cycled"))),
    ],
)
def test_where_a_bug_may_show(bug: str, ops: tuple[Operation, ...]) -> None:
    assert touches(scenario(*ops), frozenset({bug}))
    elsewhere = (Submit(0, PICTURE), extend([window(0)]), decode([0]), Rotate(0))
    assert not touches(scenario(*elsewhere), frozenset({bug})) and bug in BUGS
    assert predicted(plan(scenario(*elsewhere)), frozenset({bug})) == ()


def test_words_alone_show_no_bug_of_media() -> None:
    words = (Submit(0, WORDS), extend([window(0)]), Retract(0), extend([window(0)]))
    assert not touches(scenario(*words), frozenset({FROM_T, AGAIN, SHARED}))
    session = (Open(0), *turn(0, None), *turn(1, offset=1))
    assert not touches(scenario(*session), frozenset({OFFSET, MERGED, ENDED, GIVEN_UP}))
    assert not touches(scenario(*FIRST, *turn(1, 0, replace=True)), frozenset({REPLACE}))
    assert not touches(scenario(*FIRST, *turn(1)), frozenset({OFFSET, START, GIVEN_UP}))
