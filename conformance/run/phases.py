"""The phases of a run: an open registry. A phase drives scenarios through a `Driver` in whatever order it likes."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ropecheck.adapters.protocol import Hello
from ropecheck.conformance.errors import UsageError, meant
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.run.events import ScenarioDone, Scope
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.targets.registry import Target
from ropecheck.conformance.version import spec_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a phase may be told on the command line."""

    seed: int = 0
    bound: str | None = None
    """Size of the exhaustive scope; None: the phase's own default."""
    max_time: float = 60.0
    """Seconds that `fuzz` and `guided` may search."""
    seeds: int | None = None
    """Of `fuzz`, instead of a time: so many seeds, each to its end, whatever fails."""
    corpus: Path | None = None
    """Folder of scenarios that `corpus` runs and `guided` starts from."""
    keep: Path | None = None
    """Corpus that `guided` adds to, where it is another."""
    generations: int | None = None
    """Of `guided`, instead of a time."""
    start: tuple[Scenario, ...] = ()
    """That `guided` starts from, beside the corpus."""
    seen: frozenset[str] = frozenset()
    """What was reached before: `guided` keeps what reaches more."""


class Driver(Protocol):
    """How a phase gets scenarios checked."""

    @property
    def options(self) -> Options: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def engine(self) -> str:
        """The engine's own name: "sglang", "transformers", .."""

    def check_all(self, scenarios: Iterable[Subject], total: int | None = None) -> None:
        """Check every scenario of this shard once per run, on all workers. Scenarios are pulled lazily."""

    def warn(self, message: str, loud: bool = False) -> None:
        """Put one line before people, and into the reports."""

    @property
    def found_new(self) -> bool:
        """Whether a failure that no entry expects has been seen."""

    def check(self, scenario: Scenario) -> Outcome:
        """Check one scenario now and wait for its outcome, for searches that follow what they see."""


@runtime_checkable
class Follower(Protocol):
    """What a search needs of a driver that follows what scenarios reached."""

    @property
    def hello(self) -> Hello:
        """What the worker said of itself."""

    def check_batch(self, scenarios: Iterable[Subject]) -> list[ScenarioDone]:
        """Check those of this shard that are new in this run, and wait for all; in the given order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A named way to find scenarios."""

    name: str
    summary: str
    drive: Callable[[Driver], None]
    default: bool = True
    """Part of a run that names no phases."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """Devices on which it is a default."""
    needs: str = "forwards"
    """What a target must offer: "forwards", "prompt_tables" or "routes"."""
    accepts: Callable[[Options], None] = lambda options: None
    """Raises UsageError for options that the phase cannot run with; called before anything starts."""


def _chosen(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.chosen import chosen

    scenarios = chosen()
    driver.check_all(scenarios, total=len(scenarios))


def _exhaustive(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.exhaustive import DEFAULT_BOUND, certificate, count, sweep

    bound = driver.options.bound or DEFAULT_BOUND
    total = count(bound)
    walked = 0

    def counted() -> Iterator[Scenario]:
        nonlocal walked
        for scenario in sweep(bound):
            walked += 1
            yield scenario

    driver.scope.bound = bound
    driver.check_all(counted(), total=total)
    driver.scope.canonical = walked
    # The certificate counts without building scenarios: a walk that lost some must not carry it.
    if walked == total:
        driver.scope.certificate = certificate(bound, spec_hash())
    else:
        driver.warn(f"exhaustive: walked {walked} scenarios, a second count says {total}: no certificate", loud=True)


def _known_bound(options: Options) -> None:
    from ropecheck.conformance.scenarios.exhaustive import scopes

    scopes(options.bound)


RANDOM_COUNT = 120
STATEFUL_COUNT = 60
"""Scenarios of a default run; `fuzz` goes on until its time is up."""


def _laws(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.chosen.laws import scenarios

    found = scenarios()
    driver.check_all(found, total=len(found))


def _pairs(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.pairs import scenarios

    found = scenarios()
    driver.check_all(found, total=len(found))


def _hypothesis(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.random import random_scenarios

    driver.check_all(random_scenarios(driver.options.seed, RANDOM_COUNT))


def _stateful(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.random import stateful_scenarios

    driver.check_all(stateful_scenarios(driver.options.seed, STATEFUL_COUNT))


FAMILY_COUNT = 40
"""Drawn prompts per model family, beside the chosen ones."""


def _families(driver: Driver) -> None:
    from ropecheck.conformance.families.cases import all_cases

    cases = list({case.id: case for case in all_cases(driver.engine, driver.options.seed, FAMILY_COUNT)}.values())
    driver.check_all(cases, total=len(cases))


def _routes(driver: Driver) -> None:
    from ropecheck.conformance.routes.cases import cases

    found = list(cases(driver.engine))
    driver.check_all(found, total=len(found))


def _sizes(driver: Driver) -> None:
    from ropecheck.conformance.scenarios.chosen import sizes

    scenarios = sizes.scenarios()
    driver.check_all(scenarios, total=len(scenarios))


SCRIPT_COUNT = 120
"""Drawn scripts of a default run."""
SMALL_SERVERS = ("plain", "retracting_overlap", "ngram")
SMALL_ACTIONS = 3
"""Every script of so many client actions, on these servers."""


def by_server(scripts: Iterable[Script]) -> list[Script]:
    """One server after another, so that a worker starts each once; the next one's first script comes half-way: while
    one worker waits for that server, the others play."""
    ordered = sorted(scripts, key=lambda script: script.server)
    groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda script: script.server)]
    for this, following in itertools.pairwise(groups):
        this.insert(len(this) // 2, following.pop(0))
    return list(itertools.chain.from_iterable(groups))


def _scheduler(driver: Driver) -> None:
    from ropecheck.conformance.scripts import small
    from ropecheck.conformance.scripts.chosen import all_scripts
    from ropecheck.conformance.scripts.draws import random_scripts

    drawn = random_scripts(driver.options.seed, SCRIPT_COUNT)
    walked = [script for server in SMALL_SERVERS for script in small.walk(server, SMALL_ACTIONS)]
    scripts = by_server([*all_scripts(), *walked, *drawn])
    certificate = small.certificate(SMALL_SERVERS, SMALL_ACTIONS)
    if len(walked) == len(SMALL_SERVERS) * small.count(SMALL_ACTIONS):
        driver.warn(f"scheduler: {certificate}")
    else:
        driver.warn(f"scheduler: walked {len(walked)} scripts, a second count says otherwise: {certificate}", loud=True)
    driver.check_all(scripts, total=len(scripts))


def _drawn_scripts(driver: Driver) -> None:
    """Those of `scheduler` that another seed makes anew."""
    from ropecheck.conformance.scripts.draws import random_scripts

    driver.check_all(by_server(random_scripts(driver.options.seed, SCRIPT_COUNT)), total=SCRIPT_COUNT)


SCRIPTS_A_SEED = 20
SEEDS_AT_ONCE = 10
"""Of `fuzz --scripts`."""


def _fuzz(driver: Driver) -> None:
    """Both generators in turn, seed after seed: as many as asked for, or until the time is up or something new is
    found."""
    from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios

    options = driver.options
    deadline = time.monotonic() + options.max_time

    def drawn() -> Iterator[Scenario]:
        for seed in itertools.islice(itertools.count(options.seed), options.seeds):
            for scenario in itertools.chain(random_scenarios(seed, 50), stateful_scenarios(seed, 25)):
                if options.seeds is None and (driver.found_new or time.monotonic() > deadline):
                    return
                yield scenario

    driver.check_all(drawn())


def _fuzz_scripts(driver: Driver) -> None:
    """Clients' scripts likewise, ten seeds at a time: each server of theirs starts once for all ten."""
    from ropecheck.conformance.scripts.draws import random_scripts

    options = driver.options
    deadline = time.monotonic() + options.max_time
    seeds = itertools.islice(itertools.count(options.seed), options.seeds)
    while block := list(itertools.islice(seeds, SEEDS_AT_ONCE)):
        if options.seeds is None and (driver.found_new or time.monotonic() > deadline):
            return
        driver.check_all(
            by_server(itertools.chain.from_iterable(random_scripts(seed, SCRIPTS_A_SEED) for seed in block))
        )


def _corpus(driver: Driver) -> None:
    from ropecheck.conformance.corpus.store import Corpus

    assert driver.options.corpus is not None
    driver.check_all(Corpus(driver.options.corpus).subjects())


def _has_corpus(options: Options) -> None:
    if options.corpus is None:
        raise UsageError("phase corpus: name the folder with --corpus")
    if not (options.corpus / "scenarios").is_dir():
        raise UsageError(f"--corpus {options.corpus}: no corpus is there")


def _guided(driver: Driver) -> None:
    """Generation after generation until the time is up, or so many."""
    from ropecheck.conformance.corpus.features import features
    from ropecheck.conformance.corpus.guided import Guided
    from ropecheck.conformance.corpus.store import Corpus, engine_name

    if not isinstance(driver, Follower):
        raise UsageError("phase guided: only a run can follow what scenarios reach")
    options = driver.options
    corpus = Corpus(options.corpus) if options.corpus is not None else None
    start = [one for one in corpus.subjects() if isinstance(one, Scenario)] if corpus is not None else []
    search = Guided(options.seed, [*start, *options.start], options.seen)
    deadline = time.monotonic() + options.max_time
    done = 0
    driver.check_all(())  # it says that the phase begins
    while done < options.generations if options.generations is not None else time.monotonic() < deadline:
        reached = driver.check_batch(search.generation())
        search.learn((one.scenario, features(one.outcome, one.lines)) for one in reached)
        done += 1
    kept = options.keep or options.corpus
    if kept is not None:
        hello = driver.hello
        name = engine_name(hello.target, hello.version, hello.device)
        for scenario, names in search.kept:
            Corpus(kept).add(scenario, name, names)


_PHASES: dict[str, Phase] = {}


def register(phase: Phase) -> None:
    """Add a phase; runs go through them in the order of registration. Raises ValueError on a duplicate."""
    if phase.name in _PHASES:
        raise ValueError(f"phase {phase.name} is registered twice")
    _PHASES[phase.name] = phase


register(Phase(name="chosen", summary="scenarios that somebody chose, one reason each", drive=_chosen))
register(Phase(name="laws", summary="relations between forwards that need no oracle", drive=_laws))
register(Phase(name="exhaustive", summary="every scenario up to a bound", drive=_exhaustive, accepts=_known_bound))
register(Phase(name="hypothesis", summary="large and odd scenarios, drawn at random", drive=_hypothesis))
register(Phase(name="stateful", summary="a state machine over requests and sessions", drive=_stateful))
register(Phase(name="families", summary="prompt tables of every model family", drive=_families, needs="prompt_tables"))
register(
    Phase(
        name="routes",
        summary="from a request's media to the scheduler's table",
        drive=_routes,
        needs="routes",
        devices=("cpu",),  # processors work on a host
    )
)
register(
    Phase(
        name="scheduler",
        summary="clients' scripts on the engine's real scheduler",
        drive=_scheduler,
        devices=("cpu",),
        needs="scheduler",
    )
)
register(Phase(name="sizes", summary="sizes at which GPU kernels break", drive=_sizes, devices=("cuda",)))
register(Phase(name="pairs", summary="far values in every mode, every pair of two", drive=_pairs))
register(Phase(name="corpus", summary="scenarios that were kept", drive=_corpus, default=False, accepts=_has_corpus))
register(Phase(name="guided", summary="random scenarios that follow what they reach", drive=_guided, default=False))
register(Phase(name="fuzz", summary="random scenarios until the time is up", drive=_fuzz, default=False))
for _name, _summary, _drive in (
    ("drawn-scripts", "of these scripts, those that are drawn by the seed", _drawn_scripts),
    ("fuzz-scripts", "random scripts of clients until the time is up", _fuzz_scripts),
):
    register(Phase(name=_name, summary=_summary, drive=_drive, default=False, devices=("cpu",), needs="scheduler"))


def all_phases() -> dict[str, Phase]:
    """Every phase by name."""
    return dict(_PHASES)


def select(names: Iterable[str], target: Target | None = None, device: str = "cpu") -> tuple[Phase, ...]:
    """The phases of those names, or the device's default ones that the target offers.

    Raises UsageError, naming the known ones, for an unknown name and for a phase that the target lacks.
    """
    wanted = list(names)
    for name in wanted:
        if name not in _PHASES:
            raise UsageError(f"unknown phase {name!r}{meant(name, _PHASES)}; known: {', '.join(_PHASES)}")
    chosen = [
        phase
        for phase in _PHASES.values()
        if (phase.name in wanted if wanted else phase.default and device in phase.devices)
    ]
    if target is None:
        return tuple(chosen)
    offered_here = (*target.offers, *(target.on_request if wanted else ()))
    lacking = [phase.name for phase in chosen if phase.needs not in offered_here]
    if wanted and lacking:
        offered = ", ".join(name for name, phase in _PHASES.items() if phase.needs in offered_here)
        raise UsageError(f"target {target.name} offers no phase {lacking[0]}; it offers: {offered or 'none'}")
    return tuple(phase for phase in chosen if phase.name not in lacking)
