"""What is observed is compared: every value of the reference's answers is changed, and somebody has to notice.

A change that nobody notices fails here, unless its silence has a reason in the table.
"""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import Plan, StateCheck, TableCheck
from ropecheck.conformance.plan.rotary import RotaryCheck
from ropecheck.conformance.scenario.operations import Rotate
from tests.meta.silence import Change, changes, noticed
from tests.meta.support import answered, plans

EVERY = 12
"""One scenario of so many is tried."""

EACH = 2
"""Changes of one kind in one scenario."""

OVER = "a finished turn's tokens are what its continuations are compared with; a refused one has none"
READ_BY_A_PREFILL = "rebuilt when the scheduler admits the request, and compared then"
MOVED = "with one row moved alone it is judged which pairs turn, not by how much"

ALWAYS = {
    "RequestState.note": "words for people",
    "Counted.method": "says how the copies were counted",
    "Counted.copies": "one copy more may be within the budget",
    "Counted.syncs": "counted on a device only: cost.synchronisations",
    "Counted.to_host": "told beside the copies; no rule forbids reading back",
    "Counted.lines": "words for people",
    "TablesAnswer.ran": "counted, not judged",
    "TablePair.matched": "says that a device compared the tables",
    "RequestState.delta_cache:dtype": "its values are compared: whoever adds them may keep them as he likes",
    "RequestState.delta_cache:another rank": "as above",
    "RequestState.delta_cache:none": "a cache may be empty at any time",
    "RequestState.table:narrower": "later text needs no columns: a table may be shorter than the history",
}
"""Field -> why a change of it may be silent anywhere."""

WHEN = {
    "over": {
        "RequestState.ids": OVER,
        "RequestState.unpadded_ids": OVER,
        "RequestState.output_ids": OVER,
        "RequestState.delta_cache": OVER,
        "RequestState.prefix_len": OVER,
        "RequestState.fill_ids": OVER,
        "RequestState.aborted": "a turn that a later one replaced may be ended by that",
    },
    "not admitted": {
        "RequestState.fill_ids": READ_BY_A_PREFILL,
        "RequestState.prefix_len": "a window's prefix_len stands in its batch, and is compared when one is admitted",
    },
    "given": {"TablePair.positions": "handed to the engine: comparing it says that it was kept, not that it is right"},
    "moved": {
        "Rotated.query": MOVED,
        "Rotated.key": MOVED,
    },
    "seen once": {"RequestState.ids": "which value a placeholder is padded with is the engine's own to choose"},
}
"""State of the request, rotation or forward -> field -> why a change of it may be silent then."""


def states(planned: Plan, change: Change) -> set[str]:
    """What can be said of the request, rotation or forward whose answer was changed, as `WHEN` names it."""
    if any(isinstance(c, RotaryCheck) and change.step in c.results[1:] for c in planned.checks):
        return {"moved"}
    if any(isinstance(c, TableCheck) and c.echoed and change.step == c.result for c in planned.checks):
        return {"given"}
    check = next((c for c in planned.checks if isinstance(c, StateCheck) and c.result == change.step), None)
    if check is None or ".states[" not in change.path:
        return set()
    at = int(change.path.split(".states[")[1].split("]")[0])
    request = check.expected[at].request
    later = [c for c in planned.checks if isinstance(c, StateCheck) and c.result > change.step]
    alone = not any(e.request.req == request.req for c in later for e in c.expected)
    out = {"seen once"} if alone else set()
    if request.status in ("finished", "refused") or request.req in check.replaced:
        out.add("over")
    if request.req not in check.hits:
        out.add("not admitted")
    return out


def reason(planned: Plan, change: Change) -> str:
    """Why nobody need notice; "" where somebody must."""
    plain = change.field.split(":")[0]
    for table in (ALWAYS, *(WHEN[state] for state in sorted(states(planned, change)))):
        if found := table.get(change.field) or table.get(plain):
            return found
    return ""


def picked(planned: Plan, dice: random.Random) -> list[Change]:
    """Some changes of every kind that this scenario's answer has."""
    kinds: dict[str, list[Change]] = defaultdict(list)
    for change in changes(answered(planned)):
        kinds[change.field].append(change)
    return [change for same in kinds.values() for change in dice.sample(same, min(EACH, len(same)))]


def unnoticed(chosen: list[Plan], dice: random.Random) -> tuple[set[str], list[str]]:
    """(every field that was changed, silent changes without a reason)."""
    seen: set[str] = set()
    silent = []
    for planned in chosen:
        for change in picked(planned, dice):
            seen.add(change.field.split(":")[0])
            if not reason(planned, change) and not noticed(planned, change):
                silent.append(f"{planned.scenario.name}: {change.path}")
    return seen, silent


@pytest.mark.parametrize("seed", range(2))
def test_a_changed_value_is_noticed(seed: int) -> None:
    dice = random.Random(seed)
    rotations = [one for one in plans() if any(isinstance(op, Rotate) for op in one.scenario.ops)]
    others = [one for one in plans() if one not in rotations]
    some = [*dice.sample(others, len(others) // EVERY), min(rotations, key=lambda one: len(one.job.steps))]
    seen, silent = unnoticed(some, dice)
    assert silent == [], "\n".join(silent)
    wanted = {
        "TablePair.positions",
        "TablePair.mrope",
        "RequestState.output_ids",
        "RequestState.aborted",
        "Rotated.query",
    }
    assert wanted <= seen


def test_a_comparison_that_is_left_out_is_silence() -> None:
    """The experiment can fail: an answer whose states nobody looks at."""
    planned = next(one for one in plans() if any(isinstance(check, StateCheck) for check in one.checks))
    blind = Plan(planned.scenario, planned.job, tuple(c for c in planned.checks if not isinstance(c, StateCheck)))
    assert any("RequestState" in change.field and not noticed(blind, change) for change in changes(answered(planned)))


def test_every_reason_is_of_a_field_that_there_is() -> None:
    for table in (ALWAYS, *WHEN.values()):
        for field in table:
            struct, _, name = field.split(":")[0].partition(".")
            assert name in getattr(protocol, struct).__struct_fields__, field
