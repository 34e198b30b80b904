"""A worked example of every rule: the smallest scenario in which a planted fault breaks it, and which faults break it.

Found once by `python -m ropecheck.conformance.book.examples` (minutes) and kept in data/examples.json; a page runs its
example again, on the reference with the fault planted, and draws what it gives.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path

import msgspec

from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.reference_engine import answer
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen, laws
from ropecheck.conformance.scenarios.random.shrink import shrink
from ropecheck.conformance.selftest.mutant_score import touches
from ropecheck.conformance.selftest.mutants import MUTANTS, Mutant
from ropecheck.conformance.store.files import pretty, write_atomic

FILE = Path(__file__).parents[1] / "data" / "examples.json"
SECONDS = 4.0
"""For making one example smaller."""


class Example(msgspec.Struct, frozen=True):
    """A rule broken by a planted fault."""

    rule: str
    fault: str
    mode: str
    signature: str
    scenario: Scenario


class Examples(msgspec.Struct, frozen=True):
    """examples: by rule. faults: rule -> the planted faults that break it in the chosen scenarios, and how first."""

    examples: dict[str, Example] = {}
    faults: dict[str, dict[str, str]] = {}


@cache
def load() -> Examples:
    """What is kept."""
    return msgspec.json.decode(FILE.read_bytes(), type=Examples) if FILE.is_file() else Examples()


def run(fault: Mutant, scenario: Scenario) -> Outcome:
    """A scenario on the reference with the fault planted."""
    planned = plan(scenario)
    return judge(planned, answer(planned.job, fault.make()))


def shown(example: Example) -> Failure | None:
    """The failure that the example is there for; None where it does not show it any more."""
    fault = MUTANTS.get(example.fault)
    if fault is None:
        return None
    wanted = (example.rule, example.mode, example.signature)
    return next((one for one in run(fault, example.scenario).failures if one.key == wanted), None)


def find(rules: Sequence[str] = (), say: bool = True) -> Examples:
    """Examples of these rules, or of all; what is kept of the others stays."""
    plans = [plan(scenario) for scenario in chain(chosen(), laws.scenarios())]
    best: dict[str, tuple[tuple[bool, bool, bool, bool, int, int], Example]] = {}
    faults: dict[str, dict[str, str]] = {}
    for fault in MUTANTS.values():
        for planned in plans:
            if touches(fault, planned):
                for number, failure in enumerate(_failures(fault, planned)):
                    faults.setdefault(failure.rule, {}).setdefault(fault.name, failure.signature)
                    made = Example(failure.rule, fault.name, failure.mode, failure.signature, planned.scenario)
                    size = _size(fault, failure, number, planned.scenario)
                    if failure.rule not in best or size < best[failure.rule][0]:
                        best[failure.rule] = (size, made)
        if say:
            print(f"{fault.name}: {len(best)} rules so far", flush=True)
    kept = dict(load().examples) if rules else {}
    for rule, (_, example) in sorted(best.items()):
        if not rules or rule in rules:
            kept[rule] = _smaller(example)
    return Examples(dict(sorted(kept.items())), {rule: faults[rule] for rule in sorted(faults)})


def _failures(fault: Mutant, planned: Plan) -> Iterable[Failure]:
    """Causes; and laws, which are always broken in the wake of a wrong table."""
    found = judge(planned, answer(planned.job, fault.make())).failures
    return (one for one in found if not one.follows or one.rule.startswith("laws."))


def _size(fault: Mutant, failure: Failure, number: int, scenario: Scenario) -> tuple[bool, bool, bool, bool, int, int]:
    """Least is best: both tables to draw, those of the forward itself, the first rule that the fault breaks, a fault
    like a public bug, few operations, little to write down."""
    tables = failure.expected is not None and failure.observed is not None
    slip = fault.like == "slip"
    return not tables, failure.label != "", number > 0, slip, len(scenario.ops), len(msgspec.json.encode(scenario))


def _smaller(example: Example) -> Example:
    key = (example.rule, example.mode, example.signature)
    small, _ = shrink(example.scenario, key, partial(run, MUTANTS[example.fault]), SECONDS)
    named = msgspec.structs.replace(small, name=f"{example.rule}, broken", note="")
    return msgspec.structs.replace(example, scenario=named)


def main(argv: Sequence[str]) -> int:
    """Find the examples anew, of all rules or of those that are named, and keep them."""
    write(find(argv))
    return 0


def write(found: Examples) -> None:
    """Keep them."""
    write_atomic(FILE, pretty(found))
    load.cache_clear()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
