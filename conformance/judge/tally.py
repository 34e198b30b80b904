"""What the checks of one scenario have found so far; every judge writes into it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Failure, Unrun


def times(names: Iterable[str]) -> dict[str, int]:
    """How often each name comes. Counter is slower for so few."""
    out: dict[str, int] = {}
    for name in names:
        out[name] = out.get(name, 0) + 1
    return out


class RulesAsked:
    """The rules that were asked."""

    def __init__(self) -> None:
        self.asked: defaultdict[str, list[str]] = defaultdict(list)
        """Mode -> the rules that were asked there, each as often as it was, in order."""

    @property
    def by_mode(self) -> dict[str, dict[str, int]]:
        """Rule -> mode -> times that it was asked."""
        out: dict[str, dict[str, int]] = {}
        for mode, rules in self.asked.items():
            for rule in rules:
                modes = out.setdefault(rule, {})
                modes[mode] = modes.get(mode, 0) + 1
        return out

    @property
    def checked(self) -> dict[str, int]:
        """Rule -> times that it was asked."""
        return {rule: sum(modes.values()) for rule, modes in self.by_mode.items()}

    def forget(self, rules: Collection[str]) -> None:
        """These do not count."""
        for mode, asked in self.asked.items():
            self.asked[mode] = [rule for rule in asked if rule not in rules]


class ScenarioTally(RulesAsked):
    """What the checks of one scenario have found so far."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Failure] = []
        self._told: set[object] = set()
        self.found = 0
        """How often something was found wrong, the same failure again included."""
        self.not_offered: list[tuple[str, str]] = []
        self.unrun: list[Unrun] = []
        self.forwards: list[str] = []
        """Of every forward, its mode."""
        self.reached: list[str] = []
        """"mode x situation" of every forward."""
        self.called: defaultdict[str, list[str]] = defaultdict(list)
        """Mode -> the engine functions or kernels that are known to have run for each forward of it."""
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
        """A forward of this mode; these engine functions or kernels ran for it."""
        self.forwards.append(mode)
        self.called[mode] += names

    def fail(self, failure: Failure) -> None:
        """Record a failure, once per rule, mode and signature of an operation, of each table and request.

        What one request shows must not stand for another that fails alike for another reason.
        """
        self.found += 1
        place = (failure.key, failure.step, failure.label, failure.difference and failure.difference.request)
        if place not in self._told:
            self._told.add(place)
            self.failures.append(failure)
