"""How strong the suite is against the engine itself: one edit of one function of its source at a time.

The functions are a list (data/engine_faults.toml); the edits are drawn from their places by a seed, without a look at
what the suite sends. An edit that changes no answer is told as missed, unless the list argues that it is no fault.
"""

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp, toml_of
from ropecheck.conformance.families.cases import all_cases
from ropecheck.conformance.judge.outcome import Outcome, Unrun
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.routes.cases import cases as route_cases
from ropecheck.conformance.run.ask import NoAnswer, StartedWorker
from ropecheck.conformance.run.session import verdict_of
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios import pairs
from ropecheck.conformance.scenarios.chosen import chosen, laws
from ropecheck.conformance.scenarios.exhaustive import sweep
from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios
from ropecheck.conformance.subject import CasePlan, plan_case
from ropecheck.conformance.targets.registry import find

FILE = Path(__file__).parents[1] / "data" / "engine_faults.toml"

DRAWN = 5
"""Drawn prompts per family, beside the chosen ones."""


SYNTAX = ("sign", "bound", "number", "call", "condition", "lost line")
"""Kinds of edits that any function offers; others change values on their way, or what a loop goes over."""


class Functions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Functions of one module, and how many edits of each are drawn."""

    module: str
    names: tuple[str, ...]
    places: int = 3
    edits: tuple[str, ...] = SYNTAX
    """Kinds that are drawn."""


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An edit that is no fault."""

    function: str
    edit: str
    nth: int
    reason: str


@dataclass(frozen=True, slots=True)
class EngineFault:
    """One edit."""

    module: str
    function: str
    edit: str
    nth: int

    @property
    def name(self) -> str:
        return f"{self.function}: {self.edit} {self.nth}"


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list."""

    function: tuple[Functions, ...]
    chosen: tuple[EngineFault, ...] = ()
    """Edits that somebody chose from the engine's source; they come after the drawn ones."""
    equivalent: tuple[Equivalent, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredEdit:
    """What became of a fault. by: the rule that caught it, or how the worker ended. equivalent: why it is none."""

    fault: EngineFault
    where: str
    caught: bool
    by: str = ""
    subject: str = ""
    seconds: float = 0.0
    equivalent: str = ""
    phases: tuple[str, ...] = ()
    """All that catch it, where each was asked."""


def load(path: Path = FILE) -> Faults:
    """The list. Raises UsageError for a broken one."""
    return toml_of(path, Faults)


def draw(offers: Iterable[tuple[Functions, str, dict[str, int]]], seed: int) -> list[EngineFault]:
    """`places` edits of each function, spread over the kinds. offers: (entry of the list, function, kind -> number)."""
    found = []
    for entry, function, kinds in offers:
        offered = [(edit, nth) for edit, many in sorted(kinds.items()) if edit in entry.edits for nth in range(many)]
        source = random.Random(f"{function} {seed}")
        source.shuffle(offered)
        taken: list[tuple[str, int]] = []
        for edit, nth in offered:  # a kind that is not there yet goes first
            if len(taken) < entry.places and edit not in {kind for kind, _ in taken}:
                taken.append((edit, nth))
        for one in offered:
            if len(taken) < entry.places and one not in taken:
                taken.append(one)
        found += [EngineFault(entry.module, function, edit, nth) for edit, nth in taken]
    return found


def phases(engine: str, bound: str | None = None) -> dict[str, list[Plan | CasePlan]]:
    """What a default run sends on a CPU, phase by phase, without schedulers. bound: walk up to it and draw, too."""
    found: dict[str, Iterable[Scenario]] = {"chosen": chosen(), "laws": laws.scenarios(), "pairs": pairs.scenarios()}
    if bound is not None:
        found |= {"exhaustive": sweep(bound), "drawn": (*random_scenarios(0, 120), *stateful_scenarios(0, 60))}
    cases = {"routes": route_cases(engine), "families": {one.id: one for one in all_cases(engine, 0, DRAWN)}.values()}
    plans: dict[str, list[Plan | CasePlan]] = {name: [plan(one, "cpu") for one in all] for name, all in found.items()}
    return plans | {name: [plan_case(one) for one in all] for name, all in cases.items()}


class Scorer:
    """A worker, what is sent to it, and what the engine answers as it is."""

    def __init__(self, asked: StartedWorker, bound: str | None = None) -> None:
        """bound: ask every phase of every fault; otherwise a fault is done with when something catches it."""
        self._asked, self._every = asked, bound is not None
        self._right: dict[str, set[str]] = {}
        self._calls: dict[str, list[tuple[str, Plan | CasePlan]]] = {}
        for phase, one in ((phase, one) for phase, all in phases(asked.hello.target, bound).items() for one in all):
            answer = asked.answered(msgspec.structs.replace(one.job, trace=True))
            self._right[one.job.id] = _keys(verdict_of(one, answer))
            for name in {called for step in answer.traced for called in step}:
                self._calls.setdefault(_place(name), []).append((phase, one))

    def offers(self, faults: Faults) -> list[tuple[Functions, str, dict[str, int]]]:
        """What edits the listed functions offer in this release."""
        found = []
        for one in faults.function:
            for name in one.names:
                counts = self._asked.plant(protocol.Plant(one.module, name, count=True)).counts
                if counts:
                    found.append((one, name, counts))
        return found

    def score(self, fault: EngineFault, equivalent: str = "") -> ScoredEdit:
        """Plant it, send everything until something is answered otherwise, and take it back."""
        started = time.monotonic()
        planted = self._asked.plant(protocol.Plant(fault.module, fault.function, fault.edit, fault.nth))
        if planted.problem:
            return ScoredEdit(fault, "", False, f"not planted: {planted.problem}")
        caught: dict[str, ScoredEdit] = {}
        try:
            for phase, one in self._calling(fault):
                if phase in caught:
                    continue
                new = _keys(self._outcome(one)) - self._right[one.job.id]
                if new:
                    by, seconds = sorted(new)[0], time.monotonic() - started
                    caught[phase] = ScoredEdit(fault, planted.where, True, by, one.scenario.name, seconds, equivalent)
                    if not self._every:
                        break
            if caught:
                return replace(next(iter(caught.values())), phases=tuple(caught))
        except NoAnswer as error:
            return ScoredEdit(fault, planted.where, True, str(error), "", time.monotonic() - started, equivalent)
        finally:
            self._asked.plant(protocol.Plant())
        by = "" if self._calling(fault) else "nothing calls it"
        return ScoredEdit(fault, planted.where, False, by, "", time.monotonic() - started, equivalent)

    def _calling(self, fault: EngineFault) -> list[tuple[str, Plan | CasePlan]]:
        """What calls the function: nothing else can be answered otherwise."""
        return self._calls.get(f"{fault.module.replace('.', '/')}.py {fault.function}", [])

    def _outcome(self, one: Plan | CasePlan) -> Outcome:
        results = self._asked.ask(one.job)
        return verdict_of(one, protocol.JobAnswer(one.job.id, results, 0, 0))


def _keys(outcome: Outcome) -> set[str]:
    """What is wrong, in words that do not depend on the run."""
    wrong = {f"{failure.rule} ({failure.signature})" for failure in outcome.failures}
    return wrong | {f"could not run: {one.stage}" for one in outcome.unrun} | _declined(outcome)


def _place(called: str) -> str:
    """ "file.py function" of a traced call, without its line."""
    path, _, rest = called.partition(":")
    return f"{path} {rest.partition(' ')[2]}"


def _declined(outcome: Outcome) -> set[str]:
    return {f"not offered: {reason}" for _, reason in outcome.not_offered}


def score(
    target: str,
    out: Path,
    seed: int = 0,
    most: int | None = None,
    bound: str | None = None,
    shard: tuple[int, int] = (1, 1),
) -> Iterator[ScoredEdit]:
    """Every fault of the i-th of n parts of the list, one after the other; with a bound, those that are faults, asked
    of every phase.

    Raises GaveUp when the worker does not start."""
    faults = load()
    argued = {(one.function, one.edit, one.nth): one.reason for one in faults.equivalent}
    try:
        with StartedWorker(find(target, "cpu"), "cpu", out / "engine-score.log") as asked:
            scorer = Scorer(asked, bound)
            drawn = (*draw(scorer.offers(faults), seed), *faults.chosen)
            for fault in drawn[shard[0] - 1 : most : shard[1]]:
                reason = argued.get((fault.function, fault.edit, fault.nth), "")
                if not reason or bound is None:
                    yield scorer.score(fault, reason)
    except NoAnswer as error:
        raise GaveUp(str(error)) from error


def line(one: ScoredEdit) -> str:
    """One line on one fault."""
    place = f"{one.fault.name} ({one.where})" if one.where else one.fault.name
    if one.caught:
        return f"caught      {place}: {one.by} in {one.seconds:.1f} s"
    if one.equivalent:
        return f"no fault    {place}: {one.equivalent}"
    return f"{'missed' if one.where else 'not planted':<12}{place} {one.by}".rstrip()


def summary(found: list[ScoredEdit]) -> str:
    """The score."""
    planted = [one for one in found if one.where]
    caught = sum(one.caught for one in planted)
    argued = sum(bool(one.equivalent) and not one.caught for one in planted)
    return (
        f"{caught} caught, {argued} argued to be no faults, {len(planted) - caught - argued} missed, of {len(planted)}"
    )


def by_phase(found: list[ScoredEdit]) -> Iterator[str]:
    """What each phase catches of those that were asked of all, and what nothing else does."""
    caught = [set(one.phases) for one in found if one.caught]
    for phase in sorted(set().union(*caught)):
        alone = [one.fault.name for one in found if one.phases == (phase,)]
        yield f"{phase}: {sum(phase in one for one in caught)} of {len(caught)}; alone {len(alone)}: {', '.join(alone)}"


def exit_code(found: list[ScoredEdit]) -> int:
    """1 for a missed fault, and for an argued one that is caught; 4 when nothing was planted."""
    planted = [one for one in found if one.where]
    if not planted:
        return 4
    return 1 if any(one.caught == bool(one.equivalent) for one in planted) else 0


__all__ = ["EngineFault", "ScoredEdit", "Unrun", "draw", "load", "score"]
