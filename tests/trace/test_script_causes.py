"""Causes of the scheduler's known failures: each predicts its witness and no plain script."""

from __future__ import annotations

import msgspec
import pytest

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known.failures import Known, entries_for, load, match
from ropecheck.conformance.known.script_causes import SCRIPT_CAUSES
from ropecheck.conformance.scripts.script import Arrive, Script
from ropecheck.conformance.trace.live import BEHIND, LEFT_OUT
from ropecheck.spec.history import image, text

ENTRIES = [known for known in load() if isinstance(known.witness, Script)]
PLAIN = Script("plain", "plain", (Arrive(0, (image(1, 4, 4),)), Arrive(1, (text(2),))))


PAST = {
    "output-follows-the-t-row": ("retracted",),
    "close-drops-the-media": ("closed",),
    "abort-drops-the-media": ("given up",),
    "cut-keeps-the-parents-media": ("offset",),
    "members-have-no-media": ("beams",),
    "offset-zero-is-none": ("offset 0",),
    "retraction-ends-a-turn": ("retracted", "streaming"),
}
"""Cause -> what has been done to a request that shows it."""


def failure(known: Known) -> Failure:
    rule, mode, signature = known.entry.key
    past = PAST.get(known.entry.cause, ())
    return Failure(rule=rule, mode=mode, signature=signature, step=0, label="", message="", past=past)


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_an_entry_is_matched_by_its_witness_alone(known: Known) -> None:
    assert known.entry.cause in SCRIPT_CAUSES
    assert match(failure(known), ENTRIES, known.witness) is known
    assert match(msgspec.structs.replace(failure(known), past=()), ENTRIES, PLAIN) is None


def test_every_cause_has_an_entry() -> None:
    assert {known.entry.cause for known in ENTRIES} == set(SCRIPT_CAUSES)


@pytest.mark.parametrize(
    ("signature", "past", "expected"),
    [
        (BEHIND, ("retracted",), True),
        (BEHIND, (), False),
        ("off by one", ("retracted",), False),
        ("delta of another request", ("retracted", "streaming"), False),
        (LEFT_OUT, ("retracted", "streaming"), True),
        (LEFT_OUT, ("retracted",), False),
    ],
)
def test_a_later_row_is_expected_in_shapes_in_which_a_cause_spreads(
    signature: str, past: tuple[str, ...], expected: bool
) -> None:
    first = next(known for known in ENTRIES if known.entry.cause == "output-follows-the-t-row")
    cause = failure(first)
    later = msgspec.structs.replace(
        cause, mode="scheduler.target_verify", signature=signature, past=past, follows=cause.rule
    )
    known = entries_for(first.witness, [cause, later], ENTRIES)
    assert known[0] is not None
    assert (known[1] is not None) is expected
