"""Scenarios that run a changed function, first. One of each kind is run with the worker taking notes; the others of its
kind are taken to run what it ran. The notes are kept, so that the next run begins with the right ones at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from ropecheck.conformance.run.choice import modes_of
from ropecheck.conformance.run.phases import Driver, Phase
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.targets.changed import Function, function_of, touches
from ropecheck.conformance.version import spec_hash

Kind = frozenset[str]
"""A scenario's operations and forward modes, each once."""


def kind_of(scenario: Subject) -> Kind:
    """What sorts of things the scenario does."""
    verbs = {str(op.__struct_config__.tag) for op in scenario.ops} if isinstance(scenario, Scenario) else set()
    return frozenset(verbs | modes_of(scenario))


@runtime_checkable
class Tracer(Protocol):
    """What the phase needs of a driver that hears which functions ran."""

    def check_traced(self, scenarios: Sequence[Subject]) -> Iterator[tuple[Subject, tuple[str, ...]]]:
        """Check them like any others; each with the engine functions that it called ("file.py:LINE name")."""


class Reach(msgspec.Struct):
    """Which functions each kind of scenario has been seen to run."""

    spec: str
    kinds: dict[str, tuple[Function, ...]] = {}

    def __getitem__(self, kind: Kind) -> tuple[Function, ...]:
        return self.kinds.get(" ".join(sorted(kind)), ())

    def note(self, kind: Kind, ran: Iterable[str]) -> None:
        """It ran these ("file.py:LINE name")."""
        self.kinds[" ".join(sorted(kind))] = tuple(sorted({function_of(place) for place in ran}))


def load(path: Path) -> Reach:
    """What was noted there by this edition of the suite."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(path.read_bytes(), type=Reach)
        if found.spec == spec_hash():
            return found
    return Reach(spec_hash())


def save(reach: Reach, path: Path) -> None:
    """Keep it. What cannot be kept only costs time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(".new")
        staged.write_bytes(msgspec.json.encode(reach))
        staged.replace(path)


@dataclass(slots=True)
class Relevant:
    """The scenarios of a change, as far as they are known."""

    changed: frozenset[Function]
    notes: Path
    traced: set[Kind] = field(default_factory=set)
    touched: set[Kind] = field(default_factory=set)

    def __call__(self, scenario: Subject) -> bool:
        """Whether it runs what changed. A kind that was not traced does when it shares a mode with one that does."""
        kind = kind_of(scenario)
        if kind in self.traced:
            return kind in self.touched
        return any(modes_of(scenario) & touched for touched in self.touched)

    def phase(self, scenarios: Sequence[Scenario]) -> Phase:
        """Run those of these scenarios that matter."""
        return Phase(name="what changed", summary="", drive=lambda driver: self._drive(driver, scenarios))

    def _drive(self, driver: Driver, scenarios: Sequence[Scenario]) -> None:
        assert isinstance(driver, Tracer)
        reach = load(self.notes)
        firsts: dict[Kind, Scenario] = {}
        for scenario in scenarios:
            firsts.setdefault(kind_of(scenario), scenario)
        likely = [kind for kind in firsts if touches(reach[kind], self.changed)]
        try:
            for kinds in (likely, [kind for kind in firsts if kind not in likely]):
                for first, ran in driver.check_traced([firsts[kind] for kind in kinds]):
                    kind = kind_of(first)
                    reach.note(kind, ran)
                    self.traced.add(kind)
                    if touches(map(function_of, ran), self.changed):
                        self.touched.add(kind)
                mine = {kind for kind in kinds if kind in self.touched}
                more = [one for one in scenarios if kind_of(one) in mine and one.id != firsts[kind_of(one)].id]
                if more:
                    driver.check_all(more, total=len(more))
        finally:
            save(reach, self.notes)
        names = ", ".join(sorted(f"{file} {name}".strip() for file, name in self.changed))
        if self.touched:
            driver.warn(f"what changed: {len(self.touched)} of {len(self.traced)} kinds of scenarios run it: {names}")
        else:
            driver.warn(f"what changed: no chosen scenario of forwards runs it: {names}", loud=True)


def only(phase: Phase, relevant: Relevant) -> Phase:
    """The phase without the scenarios that do not matter."""

    class Narrow:
        def __init__(self, driver: Driver) -> None:
            self._driver = driver

        def __getattr__(self, name: str) -> Any:
            return getattr(self._driver, name)

        def check_all(self, scenarios: Iterable[Subject], total: int | None = None) -> None:
            self._driver.check_all(filter(relevant, scenarios))

    return replace(phase, drive=lambda driver: phase.drive(cast(Driver, Narrow(driver))))
