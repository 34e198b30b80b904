"""What the checks of one scenario have found so far; every judge writes into it."""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Failure, Unrun


class Tally:
    """What the checks of one scenario have found so far."""

    def __init__(self) -> None:
        self.checked: dict[str, int] = {}
        self.by_mode: dict[str, dict[str, int]] = {}
        """Rule -> mode -> times that it was asked."""
        self.failures: list[Failure] = []
        self._told: set[object] = set()
        self.not_offered: list[tuple[str, str]] = []
        self.unrun: list[Unrun] = []
        self.modes: dict[str, int] = {}
        self.situations: dict[str, int] = {}
        self.ran: dict[str, dict[str, int]] = {}
        self.tainted: dict[int, str] = {}
        """Requests whose held state was seen to be wrong -> the rule that said so. Wrong tables that such a request
        is given afterwards are consequences, and say so instead of posing as findings of their own."""

        self.grown: set[int] = set()
        """Requests whose table gained columns by what another one did: right for themselves, and what continues from
        them follows from it."""

        self.strayed: dict[int, str] = {}
        """Requests whose prompt was seen to be other tokens -> the rule that said so."""

        self.held: dict[int, tuple[protocol.Tensor, protocol.Tensor]] = {}
        """Table and delta that each request was last seen to hold."""

    def taint(self, req: int, rule: str) -> str:
        """Mark a request's state as wrong; returns the first rule that did."""
        return self.tainted.setdefault(req, rule)

    def note(self, mode: str, names: Sequence[str]) -> None:
        """These engine functions or kernels ran for a forward of this mode."""
        forwards = self.ran.setdefault(mode, {})
        for name in names:
            forwards[name] = forwards.get(name, 0) + 1

    def check(self, rule: str, mode: str) -> None:
        """A rule was asked in this mode, whatever it said."""
        self.checked[rule] = self.checked.get(rule, 0) + 1
        by_mode = self.by_mode.setdefault(rule, {})
        by_mode[mode] = by_mode.get(mode, 0) + 1

    def fail(self, failure: Failure) -> None:
        """Record a failure, once per rule, mode and signature of an operation, of each table and request.

        What one request shows must not stand for another that fails alike for another reason.
        """
        place = (failure.key, failure.step, failure.label, failure.difference and failure.difference.request)
        if place not in self._told:
            self._told.add(place)
            self.failures.append(failure)
