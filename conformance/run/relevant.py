"""What runs a changed function, first. One scenario of each kind is run with the worker taking notes; the others of its
kind are taken to run what it ran. What no scenario of forwards runs is looked for in routes, builders and scripts.

The notes are kept: the next run begins with the right ones at once, and those that ran nothing which differs from the
base, then or now, are known to run no change."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.run.choice import modes_of
from ropecheck.conformance.run.phases import Driver, Phase
from ropecheck.conformance.scenario.operations import Rotate
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.targets.changed import Function, function_of, touches
from ropecheck.conformance.version import suite_hash

Subjects = Sequence[Subject]
Kind = frozenset[str]
"""A scenario's operations, forward modes and layouts of a rotary embedding, each once; a case's builder or route, its
family, and whether it has several items of a kind; a script's server."""


def kind_of(scenario: Subject) -> Kind:
    """What sorts of things the scenario does."""
    if isinstance(scenario, Case):
        media = [segment.kind for prompt in scenario.prompts for segment in prompt if segment.kind != "text"]
        several = ("several items of a kind",) if len(media) > len(set(media)) else ()
        return frozenset((scenario.builder, scenario.mode, *several))
    if isinstance(scenario, Script):
        return frozenset(("script", scenario.server))
    layouts = {op.layout for op in scenario.ops if isinstance(op, Rotate)}
    return frozenset({str(op.__struct_config__.tag) for op in scenario.ops} | modes_of(scenario) | layouts)


@runtime_checkable
class Tracer(Protocol):
    """What the phase needs of a driver that hears which functions ran."""

    def check_traced(self, scenarios: Sequence[Subject]) -> Iterator[tuple[Subject, tuple[str, ...]]]:
        """Check them like any others; each with the engine functions that it called ("file.py:LINE name")."""


class Noted(msgspec.Struct, frozen=True):
    """What one kind was seen to run."""

    ran: tuple[Function, ...] = ()
    base: str = ""
    """The commit that the version which ran was compared with."""
    changed: tuple[Function, ...] = ()
    """What differed from it."""


class KindReach(msgspec.Struct):
    """Which functions each kind of scenario has been seen to run."""

    suite: str
    kinds: dict[str, Noted] = {}

    def __getitem__(self, kind: Kind) -> Noted:
        return self.kinds.get(" ".join(sorted(kind)), Noted())

    def note(self, kind: Kind, noted: Noted) -> None:
        """Keep it."""
        self.kinds[" ".join(sorted(kind))] = noted


def load(path: Path) -> KindReach:
    """What was noted there by this edition of the suite."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(path.read_bytes(), type=KindReach)
        if found.suite == suite_hash():
            return found
    return KindReach(suite_hash())


def save(reach: KindReach, path: Path) -> None:
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
    base: str = ""
    """The commit that the change is told from; "": a change of it goes unnoticed, and nothing is taken from notes."""
    traced: set[Kind] = field(default_factory=set)
    touched: set[Kind] = field(default_factory=set)
    _reached: set[Function] = field(default_factory=set)
    """Changed functions that something ran."""

    def __call__(self, scenario: Subject) -> bool:
        """Whether it runs what changed. A kind that was not traced does when it shares a mode with one that does."""
        kind = kind_of(scenario)
        if kind in self.traced:
            return kind in self.touched
        return any(modes_of(scenario) & touched for touched in self.touched)

    def phase(self, scenarios: Subjects, further: Sequence[Callable[[], Subjects]] = ()) -> Phase:
        """Run those of these scenarios that matter. further: where to look, one after another, for what they do not
        run."""
        return Phase(name="what changed", summary="", drive=lambda driver: self._drive(driver, scenarios, further))

    def _drive(self, driver: Driver, scenarios: Subjects, further: Sequence[Callable[[], Subjects]]) -> None:
        reach = load(self.notes)
        try:
            self._look(driver, reach, scenarios, self.changed)
            for more in further:
                if missing := self.changed - self._reached:
                    self._look(driver, reach, more(), missing)
        finally:
            save(reach, self.notes)
        names = _named(self.changed)
        if self.touched:
            driver.warn(f"what changed: {len(self.touched)} of {len(self.traced)} kinds of scenarios run it: {names}")
        if missing := self.changed - self._reached:
            driver.warn(f"what changed: nothing that was looked at runs {_named(missing)}", loud=True)

    def _look(
        self, driver: Driver, reach: KindReach, scenarios: Sequence[Subject], wanted: frozenset[Function]
    ) -> None:
        """Find the kinds that run one of the wanted functions, and run all that is of them."""
        assert isinstance(driver, Tracer)
        firsts: dict[Kind, Subject] = {}
        for scenario in scenarios:
            firsts.setdefault(kind_of(scenario), scenario)
        known = {kind for kind in firsts if self._untouched(reach[kind])}
        self.traced |= known
        likely = [kind for kind in firsts if touches(reach[kind].ran, wanted)]
        for kinds in (likely, [kind for kind in firsts if kind not in known and kind not in likely]):
            for first, ran in driver.check_traced([firsts[kind] for kind in kinds]):
                functions = tuple(sorted({function_of(place) for place in ran}))
                kind = kind_of(first)
                reach.note(kind, Noted(functions, self.base, tuple(sorted(self.changed))))
                self.traced.add(kind)
                self._reached |= {one for one in self.changed if touches(functions, frozenset((one,)))}
                if touches(functions, wanted):
                    self.touched.add(kind)
            mine = {kind for kind in kinds if kind in self.touched}
            more = [one for one in scenarios if kind_of(one) in mine and one.id != firsts[kind_of(one)].id]
            if more:
                driver.check_all(more, total=len(more))

    def _untouched(self, noted: Noted) -> bool:
        """Whether the kind cannot have met a change: it ran code of the base alone, which is as it was."""
        differs = self.changed | set(noted.changed)
        return bool(self.base and noted.base == self.base and noted.ran) and not touches(noted.ran, differs)


def _named(functions: Iterable[Function]) -> str:
    return ", ".join(sorted(f"{file} {name}".strip() for file, name in functions))


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
