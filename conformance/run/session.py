"""One run: start the workers, replay the known failures' witnesses, drive the phases, sum up."""

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp, UsageError, line_of
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.routes import PREFIX
from ropecheck.conformance.families.verdict import judge as judge_case
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known import differences as family_known
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.known import model, stream
from ropecheck.conformance.known.base import news
from ropecheck.conformance.routes.verdict import judge as judge_route
from ropecheck.conformance.run import baseline
from ropecheck.conformance.run.base import Base
from ropecheck.conformance.run.choice import EVERYTHING, Choice
from ropecheck.conformance.run.counts import entry_counts, overdue_lines
from ropecheck.conformance.run.events import (
    Event,
    Found,
    Gone,
    Header,
    Listener,
    PhaseStarted,
    RunEnded,
    RunStarted,
    ScenarioDone,
    Scope,
    Summary,
    Warned,
)
from ropecheck.conformance.run.notices import ROUTES, before_run, not_offered_lines, unreached, unreached_lines
from ropecheck.conformance.run.phases import Options, Phase, all_phases
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.seat import Doubted, Reply, RunLimits
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.run.trace import Passing, trace, traced_job
from ropecheck.conformance.run.warm import Warm
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.random.shrink import shrink
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.scripts.shrink import shrink_script
from ropecheck.conformance.store.files import claimed, clear_failures, clear_reports, reserved
from ropecheck.conformance.subject import AnyPlan, CasePlan, ScriptPlan, Subject, plan_of
from ropecheck.conformance.targets.registry import Target
from ropecheck.conformance.trace import function_level
from ropecheck.conformance.trace.verdict import judge_script
from ropecheck.conformance.versions import released
from ropecheck.spec.history import OutOfDomain

SHRINK_ONE = 10.0
"""Seconds after which one finding's witness is small enough."""


COVER = "ROPECHECK_COVER"
"""How a worker is asked to tell the lines that ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run needs to know."""

    target: Target
    device: str = "cpu"
    workers: int = 1
    out: Path
    phases: tuple[Phase, ...] = ()
    options: Options = field(default_factory=Options)
    shard: tuple[int, int] = (1, 1)
    """This shard and how many there are, from 1."""
    limits: RunLimits = field(default_factory=RunLimits)
    known_folder: Path = known_list.FOLDER
    families_file: Path = family_known.FILE
    """The known differences of prompt tables."""
    today: datetime.date | None = None
    witnesses: bool = True
    """Replay the known failures' witnesses first."""
    shrink_seconds: float = 30.0
    """For making new findings' witnesses smaller; 0: leave them as they are."""
    cover: bool = False
    """Ask the workers which lines of the engine's position code ran; they are slower then."""
    trace: bool = True
    """Find out which engine functions ran for each finding."""
    known_levels: bool = False
    """Say known failures of scripts at function level too, and not new ones alone."""
    base: Base | None = None
    """Run everything there too, and expect what it does alike instead of asking the known-failure list."""
    choice: Choice = EVERYTHING
    """Which scenarios and rules count."""
    most_new: int = 0
    """End the run after so many new findings; 0: never."""
    write_baseline: bool = False
    warm: Warm | None = None
    """What forks its workers, where its imports have begun; who began them ends it."""
    complete: bool = True
    """Every default phase: what was never reached is worth a warning, once all shards are there."""


class Enough(Exception):
    """As many new findings as were asked for."""


class Runner:
    """The driver that phases see, and the emitter of events."""

    def __init__(self, settings: Settings, pool: Pool[AnyPlan], header: Header, listeners: Iterable[Listener]) -> None:
        self.options = settings.options
        self.tally = Tally(header)
        self.scope: Scope = self.tally.summary.scope
        self._pool = pool
        self._listeners = tuple(listeners)
        self._shard = settings.shard
        self._device = settings.device
        self._bugs = frozenset(known.entry.cause for known in header.known)
        self._shared = known_list.shared(header.known)
        self._seen: set[str] = set()
        self._phase = ""
        self._passing = Passing()
        self._base = settings.base
        self._choice = settings.choice
        self._most_new = settings.most_new
        self._told: set[tuple[str, str, str]] = set()
        self.outcomes: Callable[[Outcome], None] = lambda outcome: None

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def end(self) -> None:
        """Let every listener write its report. Raises GaveUp for those that could not, once all have tried."""
        self.tally.summary.sort()
        problems = []
        for listener in self._listeners:
            try:
                listener(RunEnded(self.tally.summary))
            except BrokenPipeError:
                raise  # the reader of our output left
            except OSError as error:
                problems.append(line_of(error))
        if problems:
            raise GaveUp("not written: " + "; ".join(problems))

    def warn(self, message: str, loud: bool = False) -> None:
        """Put it before people once."""
        if message not in self.tally.summary.warnings:
            self.tally.summary.warnings.append(message)
            self.emit(Warned(message, loud))

    def enter(self, phase: str) -> None:
        self._phase = phase

    def mine(self, scenario: Subject) -> bool:
        """Whether the scenario belongs to this shard: by its id, so that every split agrees."""
        index, count = self._shard
        return count == 1 or int(scenario.id, 16) % count == index - 1

    @property
    def engine(self) -> str:
        """As phases.Driver says."""
        return self.tally.summary.header.hello.target

    @property
    def hello(self) -> protocol.Hello:
        """As phases.Driver says."""
        return self.tally.summary.header.hello

    def check_all(self, scenarios: Iterable[Subject], total: int | None = None) -> None:
        """As phases.Driver says."""
        # What falls to a shard is not known in advance.
        self.emit(PhaseStarted(self._phase, total if self._shard[1] == 1 else None))
        self._run(self._fresh(scenarios))

    def check(self, scenario: Scenario) -> Outcome:
        """As phases.Driver says."""
        found: list[Outcome] = []
        self._run([scenario], found.append)
        return found[0]

    def check_traced(self, scenarios: Sequence[Subject]) -> Iterator[tuple[Subject, tuple[str, ...]]]:
        """As relevant.Tracer says."""
        self.emit(PhaseStarted(self._phase, len(scenarios)))
        ran: dict[str, tuple[str, ...]] = {}
        for done in self._done(self._fresh(scenarios), ran):
            yield done.scenario, ran.get(done.scenario.id, ())

    def check_batch(self, scenarios: Iterable[Subject]) -> list[ScenarioDone]:
        """As phases.Driver says."""
        wanted = list(scenarios)
        done = {one.scenario.id: one for one in self._done(self._fresh(wanted))}
        return [done[scenario.id] for scenario in wanted if scenario.id in done]

    @property
    def found_new(self) -> bool:
        """As phases.Driver says."""
        return any(finding.unexpected for finding in self.tally.summary.findings)

    def shrink_new(self, seconds: float) -> None:
        """Make the witness of every new finding smaller; consequences shrink with their cause."""
        deadline = time.monotonic() + seconds
        for finding in self.tally.summary.findings:
            left = deadline - time.monotonic()
            if not finding.unexpected or finding.failure.follows or left <= 0:
                continue
            if breaks_device(finding.failure) or isinstance(finding.scenario, Case):
                continue
            smaller: Scenario | Script
            if isinstance(finding.scenario, Script):
                smaller, failure = shrink_script(finding.scenario, finding.key, self._news, min(left, SHRINK_ONE))
                if failure is not None:
                    self.tally.shrunk(finding, smaller, failure)
                continue
            smaller, failure = shrink(finding.scenario, finding.key, self._news, min(left, SHRINK_ONE))
            if failure is not None:
                self.tally.shrunk(finding, smaller, failure)

    def say_at_function_level(self, known: bool, seconds: float) -> None:
        """Of every new finding of a script, and of known ones where asked, what it comes to without a scheduler."""
        deadline = time.monotonic() + seconds
        for finding in self.tally.summary.findings:
            script, failure = finding.scenario, finding.failure
            asked = (finding.unexpected or known) and not failure.follows and not breaks_device(failure)
            if isinstance(script, Script) and asked and time.monotonic() < deadline:
                finding.level, finding.level_file = self._at_function_level(script, failure)

    def _at_function_level(self, script: Script, failure: Failure) -> tuple[str, str]:
        """In a line; and where the scenario is stored, if it fails."""
        planned, answer = self._answer(script)
        played = answer.results[0] if isinstance(answer, protocol.JobAnswer) else None
        again = [one for one in verdict_of(planned, answer).failures if one.key == failure.key]
        if not isinstance(played, protocol.Played) or not again:
            return "cannot be said at function level: the script's answers are not always the same", ""
        scenario = function_level.said(played.trace, again[0], f"{script.name}, at function level")
        if isinstance(scenario, str):
            return f"cannot be said at function level: {scenario}", ""
        try:
            outcome = self._quietly(scenario)
        except OutOfDomain as error:
            return f"cannot be said at function level: {error}", ""
        told = function_level.compared(again[0], scenario, outcome)
        file = self.tally.beside(scenario, outcome) if outcome.failures else ""
        return (f"not at function level: {told}" if told else "also at function level"), file

    def trace(self) -> None:
        """Find out which engine functions ran for each finding that is no consequence."""
        causes = [
            finding
            for finding in self.tally.summary.findings
            if not finding.failure.follows and not breaks_device(finding.failure)
        ]
        if causes:
            trace(self.tally.summary, causes, self._passing, self._traced)

    def _traced(self, scenarios: Iterable[Subject]) -> dict[str, tuple[AnyPlan, protocol.JobAnswer]]:
        plans = (plan_of(scenario, self._device) for scenario in scenarios)
        answers = self._pool.answers(replace(planned, job=traced_job(planned.job)) for planned in plans)
        return {one.scenario.id: (one, answer) for one, answer in answers if isinstance(answer, protocol.JobAnswer)}

    def _answer(self, scenario: Subject) -> tuple[AnyPlan, Reply]:
        return next(iter(self._pool.answers([plan_of(scenario, self._device)])))

    def _quietly(self, scenario: Subject) -> Outcome:
        """A scenario's outcome, outside all counts."""
        return verdict_of(*self._answer(scenario))

    def _news(self, scenario: Subject) -> Outcome:
        """The same, of its failures only those that nobody expects: what is new must not shrink to what is known."""
        for planned, answer in self._pool.answers(self._plans([scenario])):
            outcome = verdict_of(planned, answer)
            if self._base is not None:
                fresh = news(outcome, self._base.outcome(scenario.id)) if outcome.failures else ()
            else:
                done = ScenarioDone("", scenario, outcome, predicted=self._predicted(planned, answer, outcome))
                expected = zip(outcome.failures, self.tally.expectations(done), strict=True)
                fresh = tuple(failure for failure, known in expected if known is None)
            return msgspec.structs.replace(outcome, failures=fresh)
        raise AssertionError("the pool answers every plan")

    def _fresh(self, scenarios: Iterable[Subject]) -> Iterator[Subject]:
        for scenario in scenarios:
            if scenario.id not in self._seen and self.mine(scenario) and self._choice.takes(scenario):
                self._seen.add(scenario.id)
                yield scenario

    def _run(self, scenarios: Iterable[Subject], then: Callable[[Outcome], None] = lambda outcome: None) -> None:
        for done in self._done(scenarios):
            then(done.outcome)

    def _done(
        self, scenarios: Iterable[Subject], ran: dict[str, tuple[str, ...]] | None = None
    ) -> Iterator[ScenarioDone]:
        """ran: let the worker take notes of forwards, and put what each scenario called there, by its id."""
        for planned, answer in self._pool.answers(self._plans(scenarios, traced=ran is not None)):
            if ran is not None and isinstance(answer, protocol.JobAnswer):
                ran[planned.scenario.id] = tuple(dict.fromkeys(name for step in answer.traced for name in step))
            lines = answer.covered if isinstance(answer, protocol.JobAnswer) else {}
            if isinstance(answer, protocol.JobAnswer):
                self.tally.summary.routes.update(answer.routes)
            outcome = self._choice.of(verdict_of(planned, answer))
            done = ScenarioDone(
                self._phase, planned.scenario, outcome, lines, self._predicted(planned, answer, outcome)
            )
            base = self._base.outcome(planned.scenario.id) if self._base and done.outcome.failures else None
            self.tally.add(done, base)
            self._passing.note(done)
            self.emit(done)
            if done.outcome.failures:
                self._tell()
            yield done

    def _predicted(self, planned: AnyPlan, answer: Reply, outcome: Outcome) -> tuple[Failure, ...]:
        """What the bugs and differences of the lists give there; with a base, that says it."""
        if self._base is not None or not isinstance(answer, protocol.JobAnswer):
            return ()
        if isinstance(planned, CasePlan):
            header = self.tally.summary.header
            release = header.hello.target, header.hello.version
            return family_known.predicted(planned.scenario, answer.results[0], header.differences, *release)
        if isinstance(planned, ScriptPlan):
            return stream.predicted(planned.scenario, answer.results[0], outcome.failures, self._bugs)
        found = model.predicted(planned, model.bugs_of(self._bugs))
        return model.attributed(planned, found, self._shared)

    def _tell(self) -> None:
        """Say at once what is new. Raises Enough when that was as much as was asked for."""
        for finding in self.tally.summary.new:
            if finding.key not in self._told:
                self._told.add(finding.key)
                self.emit(Found(finding))
                if self._base is not None:
                    self._base.begin()  # it will be asked for smaller witnesses
        causes = [one for one in self.tally.summary.new if not one.failure.follows]
        if self._most_new and len(causes) >= self._most_new:
            raise Enough(f"ended early, as asked: {len(causes)} new")

    def compare(self) -> None:
        """What only the base does wrong, of all that both have run."""
        if self._base is None:
            return
        self._base.drain()
        summary = self.tally.summary
        seen = {finding.key for finding in summary.findings}
        gone: dict[tuple[str, str, str], list[Outcome]] = {}
        for outcome in self._base.outcomes.values():
            for failure in outcome.failures if outcome.scenario in self._seen else ():
                gone.setdefault(failure.key, []).append(outcome)
        summary.gone = [
            Gone(key, len(found), found[0].scenario, found[0].name)
            for key, found in sorted(gone.items())
            if key not in seen
        ]

    def _plans(self, scenarios: Iterable[Subject], traced: bool = False) -> Iterator[AnyPlan]:
        for scenario in scenarios:
            try:
                ready = plan_of(scenario, self._device)
            except OutOfDomain as error:
                raise UsageError(f"scenario {scenario.name} ({scenario.id}) is not legal: {error}") from error
            if self._base is not None:
                self._base.want(ready)
            yield replace(ready, job=traced_job(ready.job)) if traced else ready

    def replay_known(self, today: datetime.date) -> None:
        """Witnesses first: what an entry says must still be so."""
        header = self.tally.summary.header
        version = header.hello.version
        settled = not header.identity and released(header.hello.target, version)
        checks: dict[str, list[Callable[[Outcome], known_list.Check]]] = {}
        shown: dict[str, Subject] = {}
        for entry in header.known:
            shown[entry.witness.id] = entry.witness
            checks.setdefault(entry.witness.id, []).append(
                partial(known_list.check, entry, today=today, released=settled)
            )
        for difference in header.differences:
            case = family_known.witness(difference, self.engine)
            shown[case.id] = case
            check = partial(known_list.check_difference, difference, case, target=self.engine, version=version)
            checks.setdefault(case.id, []).append(check)
        scheduler = all_phases().get("scheduler")
        plays = "scheduler" in header.phases or (scheduler is not None and self._device in scheduler.devices)
        witnesses = [one for one in shown.values() if self.mine(one) and (plays or not isinstance(one, Script))]
        if not witnesses:
            return
        # One script first: while its worker waits for the scheduler's imports, the others have something to do.
        scripts = sorted((one for one in witnesses if isinstance(one, Script)), key=lambda one: one.server)
        witnesses = [*scripts[:1], *(one for one in witnesses if not isinstance(one, Script)), *scripts[1:]]
        self.enter("known")

        known = self.tally.summary.known
        asked: list[tuple[Subject, Callable[[Outcome], known_list.Check]]] = []

        def checked(outcome: Outcome) -> None:
            for judged in checks[outcome.scenario]:
                asked.append((shown[outcome.scenario], judged))
                known.append(judged(outcome))

        self.emit(PhaseStarted("known", len(witnesses)))
        self._run(self._fresh(witnesses), checked)
        for number, (witness, judged) in enumerate(asked):
            if known[number].state == "stale" and (again := judged(self._quietly(witness))).state != "stale":
                message = f"{known[number].message}; asked again: {again.message}: its answers are not always the same"
                known[number] = msgspec.structs.replace(again, state="changed", message=message)


def refuse_illegal(where: str, scenario: Scenario | Script, device: str) -> None:
    """Raises UsageError, naming the file `where` the scenario was read from, for one that cannot be planned."""
    try:
        plan_of(scenario, device)
    except OutOfDomain as error:
        raise UsageError(f"{where}: not legal: {error}") from error


def _measure(settings: Settings, runner: Runner, whole: bool) -> None:
    """Compare what a whole run reached with the target's baseline, or write it; a shard's is added up by merging."""
    summary = runner.tally.summary
    reach = baseline.reached(summary, summary.header.phases, settings.options.bound)
    if settings.write_baseline and whole:
        runner.warn(f"baseline written: {baseline.write(reach)}", loud=True)
    elif settings.choice is EVERYTHING and settings.base is None:
        summary.reach = reach
        summary.below = baseline.below(reach) if whole else ()
        for line in baseline.below_lines(reach, summary.below):
            runner.warn(line, loud=True)


def breaks_device(failure: Failure) -> bool:
    """Every try at a smaller witness would cost two starts of a worker."""
    return any(word in failure.message for word in protocol.BROKEN)


def verdict_of(planned: AnyPlan, answer: Reply) -> Outcome:
    """The verdict, or why there is none. A bug of the suite's own is never an engine failure."""
    scenario = planned.scenario
    if isinstance(answer, Unrun):
        return Outcome(scenario=scenario.id, name=scenario.name, unrun=(answer,))
    if isinstance(answer, Doubted):
        outcome = verdict_of(planned, answer.answer)
        return msgspec.structs.replace(outcome, unrun=(*outcome.unrun, answer.why))
    try:
        if isinstance(planned, ScriptPlan):
            outcome = judge_script(planned.scenario, answer.results[0])
            return msgspec.structs.replace(outcome, engine_ns=answer.engine_ns)
        if isinstance(planned, CasePlan):
            routed = planned.scenario.builder.startswith(PREFIX)
            verdict = judge_route if routed else judge_case
            outcome = verdict(planned.scenario, answer.results[0])
            return msgspec.structs.replace(outcome, engine_ns=answer.engine_ns)  # and no forward
        return judge(planned, answer)
    except Exception as error:  # whatever it is, it costs one scenario and is told
        why = Unrun(stage="judge", message=f"the suite's own verdict raised {type(error).__name__}: {error}")
        return Outcome(scenario=scenario.id, name=scenario.name, unrun=(why,))


def pool_of(
    settings: Settings, warn: Callable[[str], None] = lambda message: None, warm: Warm | None = None
) -> Pool[AnyPlan]:
    """A run's workers, not started yet; forked by `warm`, where there is one."""
    return Pool(
        replace(settings.target, env={**settings.target.env, COVER: "1"}) if settings.cover else settings.target,
        device=settings.device,
        workers=settings.workers,
        out=settings.out,
        limits=settings.limits,
        warn=warn,
        warm=warm or (None if settings.cover else settings.warm),
        version=settings.target.identity,
    )


def run(settings: Settings, listeners: Iterable[Listener], warm: Pool[AnyPlan] | None = None) -> Summary:
    """Do a run and return its summary; listeners have written their reports by then. warm: a started pool of the same
    target and device, which the run uses and leaves as it is.

    Raises GaveUp when no worker starts or a report cannot be written, UsageError for bad input; an interrupt and a full
    disk end the run and are in the summary.
    """
    entries = known_list.load(settings.known_folder)
    differences = family_known.load(settings.families_file)
    today = settings.today or datetime.date.today()
    for phase in settings.phases:
        phase.accepts(settings.options)
    for known in entries:
        refuse_illegal(str(known.path.parent / known.entry.witness), known.witness, settings.device)
    early: list[str] = []
    with (
        claimed(settings.out),
        nullcontext(warm) if warm is not None else pool_of(settings, early.append) as pool,
        reserved(settings.out) as free_room,
    ):
        # Bad input has been refused by now and lost nothing; from here on an older result must not pass for this one.
        clear_reports(settings.out)
        hello = protocol.unheard(settings.target.name)
        interrupted = False
        try:
            hello = pool.hello if pool.hello is not None else pool.start()
        except KeyboardInterrupt:
            interrupted = True
        header = Header(
            target=settings.target.name,
            hello=hello,
            identity=settings.target.identity,
            source=settings.target.source,
            base="" if settings.base is None else settings.base.name,
            device=settings.device,
            seed=settings.options.seed,
            workers=pool.workers,
            phases=tuple(phase.name for phase in settings.phases),
            shard=f"{settings.shard[0]}/{settings.shard[1]}",
            complete=settings.complete,
            out=settings.out,
            known_folder=settings.known_folder,
            known=known_list.applying(entries, hello.target, hello.version, settings.device),
            differences=family_known.applying(differences, hello.target, hello.version),
        )
        clear_failures(settings.out / "failures")
        runner = Runner(settings, pool, header, listeners)
        pool.warn = runner.warn
        summary = runner.tally.summary
        summary.totals.workers = pool.workers
        bad_input: UsageError | None = None
        started, restarts = time.monotonic(), pool.restarts
        try:
            if interrupted:
                raise KeyboardInterrupt
            runner.emit(RunStarted(header))
            before_run(header, entries, early, runner.warn)
            if settings.witnesses:
                runner.replay_known(today)
            try:
                for phase in settings.phases:
                    runner.enter(phase.name)
                    phase.drive(runner)
            except Enough as reason:
                summary.stopped = str(reason)
            runner.compare()
            runner.shrink_new(settings.shrink_seconds)
            if settings.shrink_seconds or settings.known_levels:
                runner.say_at_function_level(settings.known_levels, SHRINK_ONE)
            if settings.trace:
                runner.trace()
        except KeyboardInterrupt:
            summary.interrupted = True
        except GaveUp as error:
            summary.gave_up = str(error)
        except UsageError as error:
            bad_input = error
        except BrokenPipeError:
            raise
        except OSError as error:
            summary.gave_up = line_of(error)
        summary.totals.seconds = time.monotonic() - started
        summary.unreached = unreached(summary, {phase.needs for phase in settings.phases})
        ended = not summary.interrupted and not summary.gave_up and bad_input is None
        whole = ended and settings.shard[1] == 1
        always = {ROUTES: summary.unreached[ROUTES]}  # by name in every run
        for line in unreached_lines(summary.unreached if settings.complete and whole else always):
            runner.warn(line)
        for line in not_offered_lines(summary.not_offered):
            runner.warn(line)
        for line in overdue_lines(entry_counts(summary)):
            runner.warn(line, loud=True)
        if ended and not summary.stopped:
            _measure(settings, runner, whole)
        scope = summary.scope
        scope.of_shard = None if summary.totals.could_not_run else scope.certificate
        scope.certificate = scope.of_shard if settings.shard[1] == 1 else None  # it speaks of the whole bound
        if restarts := pool.restarts - restarts:
            runner.warn(f"{restarts} worker restarts; see worker-N.log in {settings.out}")
        free_room()
    runner.end()
    if bad_input is not None:
        raise bad_input
    return summary
