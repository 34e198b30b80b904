"""What a scenario came to, in one word; what the base of a run says to a failure; and which failure is which."""

from __future__ import annotations

import msgspec
import pytest

from ropecheck.conformance.judge.outcome import Outcome, Unrun
from ropecheck.conformance.known.base import otherwise
from tests.judge.test_failure_text import FAILURE


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "pass"),
        ({"checked": {"table.width": 1}}, "pass"),
        ({"checked": {"table.width": 1}, "not_offered": (("decode", "no such mode"),)}, "pass"),
        ({"not_offered": (("decode", "no such mode"),)}, "not_offered"),
        ({"unrun": (Unrun("run", "ended"),), "not_offered": (("decode", "no such mode"),)}, "could_not_run"),
        ({"failures": (FAILURE,), "unrun": (Unrun("run", "ended"),)}, "fail"),
    ],
)
def test_a_failure_comes_before_what_could_not_run_and_that_before_what_is_not_offered(
    fields: dict[str, object], state: str
) -> None:
    assert Outcome("", "", **fields).state == state  # type: ignore[arg-type]


def test_the_base_is_asked_for_the_same_rule_in_the_same_mode() -> None:
    base = Outcome("", "", failures=(FAILURE,))
    assert otherwise(FAILURE, base).startswith("too few columns: 1 columns")
    for other in ("rule", "mode"):
        assert otherwise(msgspec.structs.replace(FAILURE, **{other: "another"}), base) == ""
