"""What happens in a run, as data. The runner emits; every report is a listener."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.known.base import OnBase
from ropecheck.conformance.known.differences import KnownDifference
from ropecheck.conformance.known.failures import Check, Known
from ropecheck.conformance.run.baseline import Baseline
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.version import spec_hash, suite_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a run is about."""

    suite: str = field(default_factory=suite_version)
    """Version of this package."""
    spec: str = field(default_factory=spec_hash)
    """12 hex digits of the hash of the specification's sources."""
    target: str
    """As it was asked for."""
    hello: protocol.Hello
    identity: str = ""
    """Of a checkout: commit and hash of what is not committed."""
    source: str = ""
    """Of a checkout: the folder of the package."""
    base: str = ""
    """What it is compared with; "" for nothing."""
    device: str = "cpu"
    seed: int = 0
    workers: int = 1
    phases: tuple[str, ...] = ()
    shard: str = "1/1"
    complete: bool = False
    """Every default phase, whatever the shard."""
    out: Path
    known_folder: Path
    known: tuple[Known, ...] = ()
    """The entries that apply."""
    differences: tuple[KnownDifference, ...] = ()
    """The known differences of prompt tables that apply."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Workers are ready."""

    header: Header


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A phase begins; `total` scenarios, None when unknown."""

    name: str
    total: int | None = None


@dataclass(frozen=True, slots=True)
class ScenarioDone:
    """The verdicts of one scenario."""

    phase: str
    scenario: Subject
    outcome: Outcome
    lines: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Engine file -> lines that ran, where the worker tells."""
    predicted: Sequence[Failure] = ()
    """What the bugs of the known-failure list must give there."""


@dataclass(frozen=True, slots=True)
class Found:
    """A failure of a kind that nobody expects, the first of its kind in this run."""

    finding: "Finding"


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that people must see but that is no verdict. `loud`: at the top and in colour."""

    message: str
    loud: bool = False


@dataclass(slots=True, kw_only=True)
class Finding:
    """All failures of one (rule, mode, signature)."""

    key: tuple[str, str, str]
    known: Known | KnownDifference | OnBase | None
    """The entry that expects the witness or, for a consequence, that expects its cause."""
    count: int = 0
    unexpected: int = 0
    """How many of `count` no entry expects."""
    scenario: Subject
    """The smallest witness, of those that no entry expects if there are any: fewest operations, then fewest tokens."""
    failure: Failure
    size: tuple[int, int, str]
    file: str = ""
    """Where the witness is stored, relative to OUT."""
    was: str = ""
    """How the base breaks the same rule in the same mode of the witness, where a base is compared with."""
    level: str = ""
    """Of a script: what it comes to at function level."""
    level_file: str = ""
    """Where that is stored, relative to OUT, if it fails."""
    ran: tuple[str, ...] = ()
    """Engine functions that ran for the wrong result, "package/file.py:LINE name"; () where nobody could tell."""
    found: tuple[int, int, str] | None = None
    """Size of the smallest witness as it was found, where it has been shrunk since."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A failure that only the base has."""

    key: tuple[str, str, str]
    count: int
    scenario: str
    """Id of one that shows it on the base."""
    name: str


@dataclass(slots=True, kw_only=True)
class Counts:
    """Of an entry of the known-failure list or a known difference: what it says, beside what came out."""

    predicted: int = 0
    """Scenarios that must fail with it."""
    shown: int = 0
    """Of those, the ones that did."""
    right: str = ""
    """One that did not, "NAME (ID)": the entry says too much, or the bug is gone there."""


@dataclass(slots=True, kw_only=True)
class Totals:
    """Counts of a run. Scenarios are in exactly one of passed, failed, expected, not_offered, could_not_run."""

    forwards: int = 0
    scenarios: int = 0
    passed: int = 0
    failed: int = 0
    expected: int = 0
    not_offered: int = 0
    could_not_run: int = 0
    workers: int = 0
    seconds: float = 0.0
    """From workers ready to verdicts done."""
    engine_ns: int = 0
    compare_ns: int = 0


@dataclass(slots=True, kw_only=True)
class Scope:
    """What the exhaustive phase covered."""

    bound: str | None = None
    canonical: int | None = None
    certificate: str | None = None
    of_shard: str | None = None
    """The certificate that this shard adds to: the whole has it when all of its shards do."""


BROKEN = ("stale", "changed", "expired")
"""States of a known failure that fail a run."""


@dataclass(slots=True, kw_only=True)
class Summary:
    """Everything that a report may tell."""

    header: Header
    totals: Totals = field(default_factory=Totals)
    rules: dict[str, list[int]] = field(default_factory=dict)
    """Rule -> [checked, failed]."""
    by_mode: dict[str, dict[str, int]] = field(default_factory=dict)
    """Rule -> mode (or what else it was asked about) -> checked."""
    reached: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    """Phase -> rule -> modes in which it was asked there."""
    reach: Baseline | None = None
    """What it reached, where a baseline speaks of such a run: of everything, to its end, and of no other version."""
    below: tuple[str, ...] = ()
    """What the target's baseline reaches and this run, a whole one, did not."""
    modes: dict[str, list[int]] = field(default_factory=dict)
    """Mode -> [forwards (or calls of a prompt-table builder) checked, failures]."""
    situations: dict[str, int] = field(default_factory=dict)
    ran: dict[str, dict[str, int]] = field(default_factory=dict)
    """Engine function or kernel -> forwards in which it is known to have run."""
    lines: dict[str, set[int]] = field(default_factory=dict)
    """Engine file -> lines that ran, where the worker tells."""
    functions: dict[str, bool] = field(default_factory=dict)
    """Functions of the engine that handle positions, found in its source -> whether a script entered them."""
    findings: list[Finding] = field(default_factory=list)
    unrun: list[tuple[Subject, Unrun, str]] = field(default_factory=list)
    """Scenario, why, stored file; at most MAX_UNRUN of them (`totals.could_not_run` counts all)."""
    not_offered: dict[tuple[str, str], int] = field(default_factory=dict)
    """(mode, reason) -> scenarios."""
    known: list[Check] = field(default_factory=list)
    entries: dict[str, dict[str, Counts]] = field(default_factory=dict)
    """Phase -> entry -> its counts there."""
    differences: dict[str, int] = field(default_factory=dict)
    """Known difference -> failures that it explains."""
    routes: set[str] = field(default_factory=set)
    """Of the engine's routes to a table, those that ran."""
    scope: Scope = field(default_factory=Scope)
    warnings: list[str] = field(default_factory=list)
    right_ran: dict[str, int] = field(default_factory=dict)
    """Engine function -> traced steps with a right result in which it ran."""
    right_steps: int = 0
    """How many such steps were traced."""
    gone: list[Gone] = field(default_factory=list)
    """What the base does wrong and the checked version does not."""
    stopped: str = ""
    """Why the run was asked to end before all was done; "" when it was not."""
    interrupted: bool = False
    gave_up: str = ""
    """Why the run ended early; "" when it did not."""
    unreached: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """"rules never checked" and the like -> names."""

    def sort(self) -> None:
        """Put findings into an order that does not depend on which worker was faster: new before expected, causes
        before consequences, then by rule, mode and signature."""
        self.findings.sort(key=lambda finding: (not finding.unexpected, bool(finding.failure.follows), finding.key))

    @property
    def new(self) -> list[Finding]:
        """Findings with failures that no entry expects."""
        return [finding for finding in self.findings if finding.unexpected]

    @property
    def broken_entries(self) -> list[Check]:
        """Entries that fail the run."""
        return [check for check in self.known if check.state in BROKEN]

    @property
    def exit_code(self) -> int:
        """130 interrupted; 1 new, changed, stale or expired failure; 3 something could not run; 4 nothing was
        checked, or less than the target's baseline; 0 all as expected."""
        if self.interrupted:
            return 130
        if self.new or self.broken_entries:
            return 1
        if self.gave_up or self.totals.could_not_run or self.header.hello.lost:
            return 3
        if self.below or not any(checked for checked, _ in self.rules.values()):
            return 4
        return 0


MAX_UNRUN = 20


@dataclass(frozen=True, slots=True)
class RunEnded:
    """All verdicts are in."""

    summary: Summary


Event = RunStarted | PhaseStarted | ScenarioDone | Found | Warned | RunEnded
Listener = Callable[[Event], None]
