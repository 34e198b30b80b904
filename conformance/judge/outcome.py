"""What a scenario came to: plain data between the verdicts, the known-failure list and the reports."""

from typing import Any

import msgspec

from ropecheck.spec.rules import Violation


class TableView(msgspec.Struct, frozen=True):
    """A forward's tables for people and reports. Rows of ints; None where the engine left the table unset."""

    positions: tuple[int, ...] | None
    rows: tuple[tuple[int, ...], ...] | None
    requests: tuple[int, ...] = ()
    """Per column, the request that it belongs to (-1: padding)."""
    axes: tuple[str, ...] = ()
    """Names of the rows; () for t, h, w."""


class Difference(msgspec.Struct, frozen=True):
    """The first thing that is wrong."""

    axis: str
    """"1d", "t", "h", "w", or the name of a state field ("delta", "table", ..)."""
    column: int | None = None
    request: int | None = None
    expected: int | str | None = None
    observed: int | str | None = None


class Failure(msgspec.Struct, frozen=True):
    """One rule broken at one step of a scenario."""

    rule: str
    mode: str
    signature: str
    """The shape of what is wrong: "too few columns", "delta missing", "parent changed", "raises TypeError", .."""
    step: int
    """Index into the scenario's operations."""
    label: str
    """Which table of the step ("" the forward itself, "step 1", "again", "padded")."""
    message: str
    """One line: what was found, in numbers."""
    difference: Difference | None = None
    expected: TableView | None = None
    observed: TableView | None = None
    where: str = ""
    """Engine line, for an exception."""
    follows: str = ""
    """The rule that this request's own state broke earlier in the scenario: this failure is its consequence."""
    causes: tuple[str, ...] = ()
    """Of a scheduler's failure that known bugs give: which ones (`known.stream`)."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Failures of one key are one finding."""
        return (self.rule, self.mode, self.signature)


def failure_of(rule: str, mode: str, found: Violation, request: int | None = None, **more: Any) -> Failure:
    """What a rule found, as a failure; a consequence is named by what it follows from. more: other fields, and those in
    which the rule's own words are not enough."""
    follows = more.get("follows")
    said: dict[str, Any] = {
        "signature": f"follows from {follows}" if follows else found.shape,
        "step": 0,
        "label": "",
        "message": found.message,
        "difference": Difference(found.axis, found.at, request, found.expected, found.observed),
    }
    return Failure(rule=rule, mode=mode, **said | more)


class Unrun(msgspec.Struct, frozen=True):
    """Something that could not run. stage: "start", "handshake", "send", "run", "decode", "time limit", "adapter"."""

    stage: str
    message: str
    step: int | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The verdicts of one scenario."""

    scenario: str
    """The scenario's id."""
    name: str
    checked: dict[str, int] = {}
    """Rule id -> times it was checked (passed or failed)."""
    by_mode: dict[str, dict[str, int]] = {}
    """Rule id -> mode -> times that it was checked there."""
    failures: tuple[Failure, ...] = ()
    not_offered: tuple[tuple[str, str], ...] = ()
    """(mode, reason)."""
    unrun: tuple[Unrun, ...] = ()
    modes: dict[str, int] = {}
    """Mode -> forwards checked."""
    situations: dict[str, int] = {}
    """"mode x situation" -> times reached."""
    ran: dict[str, dict[str, int]] = {}
    """Mode -> engine function or kernel -> forwards in which it is known to have run."""
    functions: dict[str, bool] = {}
    """Functions of the engine that handle positions -> whether they were entered."""
    forwards: int = 0
    engine_ns: int = 0
    compare_ns: int = 0
    """Comparing on the device, where that is done."""

    @property
    def state(self) -> str:
        """ "fail", "could_not_run", "not_offered" or "pass", before the known-failure list is asked."""
        if self.failures:
            return "fail"
        if self.unrun:
            return "could_not_run"
        if not self.checked and self.not_offered:
            return "not_offered"
        return "pass"
