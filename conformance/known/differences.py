"""Known differences between a target's prompt tables and the family's: data with a reason, and a witness each."""

import itertools
import math
from collections.abc import Callable, Container, Iterable
from functools import partial
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import UsageError, toml_of
from ropecheck.conformance.families.case import Case, offered
from ropecheck.conformance.families.cases import chosen, from_items, without_a_rate
from ropecheck.conformance.families.layout import Segment
from ropecheck.conformance.families.torn import TEARS
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known import builders
from ropecheck.conformance.known.base import alike
from ropecheck.conformance.routes.cases import routed
from ropecheck.conformance.versions import within
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import GridFamily
from ropecheck.spec.rules import all_rules

FILE = Path(__file__).parents[1] / "data" / "families.toml"


ANY = "any"
"""An entry of every target: what nobody outside can settle."""


class KnownDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way in which one target differs, in one or several families."""

    id: str
    families: tuple[str, ...]
    target: str
    versions: str = ""
    """The versions that were seen with it; "" for all."""
    rules: tuple[str, ...]
    signatures: tuple[str, ...]
    builder: str | tuple[str, ...] = "rope_index"
    """One, or several that differ alike."""
    when: str
    """A name in `CONDITIONS`."""
    gives: str = ""
    """What comes out, a name in `builders.TRAITS`, or "TYPE: message" of what is raised: an answer that this does not
    give is new. "": any of this shape; those of torn prompts are whole tables."""
    kind: str
    right: str
    reason: str
    witness: str
    """Name of a case that shows it."""

    @property
    def name(self) -> str:
        return self.id

    @property
    def path(self) -> Path:
        """The list that it stands in."""
        return FILE

    @property
    def rule(self) -> str:
        """The first of its rules, under which reports file it."""
        return self.rules[0]

    @property
    def link(self) -> str:
        """Who is right, and what it is called."""
        return f"{self.kind}; right: {self.right}"

    def applies(self, case: Case, target: str, version: str) -> bool:
        """Whether this release differs so in this case."""
        return (
            self.target in (target, ANY)
            and case.family in self.families
            and case.builder in ((self.builder,) if isinstance(self.builder, str) else self.builder)
            and (not self.versions or within(version, self.versions))
            and CONDITIONS[self.when](case)
        )

    def explains(self, case: Case, failure: Failure, target: str, version: str) -> bool:
        """Whether this difference has the failure's shape; that its numbers are this one's, `predicted` says."""
        shape = failure.rule in self.rules and failure.signature in self.signatures
        return shape and self.applies(case, target, version)


def segments(case: Case, *kinds: str) -> list[Segment]:
    return [segment for prompt in case.prompts for segment in prompt if segment.kind in kinds]


def _outlasts(case: Case) -> bool:
    family = FAMILIES[case.family]
    if not isinstance(family, GridFamily):
        return False
    for segment in segments(case, "video"):
        t, h, w = segment.grid or (1, 1, 1)
        steps = t // family.temporal_merge
        last = steps - 1
        if family.tokens_per_second is not None:
            last = math.floor(last * segment.seconds * family.tokens_per_second)
        if last + 1 > max(h, w) // family.merge:
            return True
    return False


def _several(case: Case) -> bool:
    return any(len(segments(case, kind)) > 1 for kind in ("image", "video"))


def _long_interval(case: Case) -> bool:
    return any(segment.seconds > 2 for segment in segments(case, "track"))


def _odd_interval(case: Case) -> bool:
    return any(segment.seconds * 1024 % 1 != 0 for segment in segments(case, "video", "track"))


def _newline_after(case: Case) -> bool:
    """A newline follows a picture, or another newline that does."""
    for prompt in case.prompts:
        kinds = [segment.kind for segment in prompt]
        for before, kind in itertools.pairwise(kinds):
            if kind == "newline" and before in ("image", "video", "newline"):
                return True
    return False


def _on_its_side(case: Case) -> bool:
    """In the place of a picture another request has one of as many patches and another shape."""
    for several in zip(*case.prompts, strict=False):
        grids = {segment.grid for segment in several if segment.kind == "image" and segment.grid is not None}
        if len(grids) > 1 and len({math.prod(grid) for grid in grids}) == 1:
            return True
    return False


def _torn(how: str, case: Case) -> bool:
    return case.torn == how


KINDS = ("mistake", "choice", "function level", "unsettled")

CONDITIONS: dict[str, Callable[[Case], bool]] = {
    "always": lambda case: True,
    "media": lambda case: bool(segments(case, "image", "video", "track")),
    "a video outlasts its frame": _outlasts,
    "a picture on its side": _on_its_side,
    "a clip at two rates": lambda case: len({s.seconds for s in segments(case, "video")}) > 1,
    "a video": lambda case: bool(segments(case, "video")),
    "a picture beside a clip": lambda case: bool(segments(case, "image") and segments(case, "video")),
    "clips alone": lambda case: bool(segments(case, "video")) and not segments(case, "image"),
    "two sounds beside a picture": lambda case: len(segments(case, "audio")) > 1 and bool(segments(case, "image")),
    "a batch of prompts": lambda case: len(case.prompts) > 1,
    "a track": lambda case: bool(segments(case, "track")),
    "a track whose interval is longer than a chunk": _long_interval,
    "an interval that is no binary fraction": _odd_interval,
    "a video whose interval is not one second": lambda case: any(s.seconds != 1 for s in segments(case, "video")),
    "several items of one kind": _several,
    "a newline after a picture": _newline_after,
    "torn": lambda case: bool(case.torn),
    **{how: partial(_torn, how) for how in TEARS},
}
"""What an entry's `when` may say."""


class _File(msgspec.Struct, frozen=True):
    difference: tuple[KnownDifference, ...] = ()


def load(path: Path = FILE) -> tuple[KnownDifference, ...]:
    """The list. Raises UsageError naming the entry that is wrong."""
    entries = toml_of(path, _File).difference
    rules = all_rules()
    seen: set[str] = set()
    for entry in entries:
        for problem in _problems(entry, rules, seen):
            raise UsageError(f"{path.name}: entry {entry.id}: {problem}")
        seen.add(entry.id)
    return entries


def applying(entries: Iterable[KnownDifference], target: str, version: str) -> tuple[KnownDifference, ...]:
    """The entries that this release must answer for. `target` is the engine's own name."""
    return tuple(
        entry
        for entry in entries
        if entry.target in (target, ANY)
        and any(offered(family, target) == "checked" for family in entry.families)
        and (not entry.versions or within(version, entry.versions))
    )


def predicted(
    case: Case, result: protocol.Result, entries: Iterable[KnownDifference], target: str, version: str
) -> tuple[Failure, ...]:
    """What these differences give in a case, beside what was answered (see builders.predicted)."""
    return builders.predicted(case, result, {one.gives for one in entries if one.applies(case, target, version)} - {""})


def explaining(
    case: Case,
    failure: Failure,
    predicted: Iterable[Failure],
    entries: Iterable[KnownDifference],
    target: str,
    version: str,
) -> list[KnownDifference]:
    """The entries that explain a failure: its shape, and its numbers."""
    given = any(alike(failure, other) for other in predicted)
    return [one for one in entries if (given or not one.gives) and one.explains(case, failure, target, version)]


def witness(entry: KnownDifference, target: str = "") -> Case:
    """The case that an entry names, of a family that the target offers where the entry is every target's.

    Raises UsageError for a name that no case has.
    """
    for family in entry.families:
        for case in (*chosen(family), *from_items(family), *without_a_rate(family), *routed(family)):
            if case.name == entry.witness:
                if entry.target == ANY and target and offered(family, target) != "checked":
                    return _elsewhere(entry, case, target)
                return case
    raise UsageError(f"{FILE.name}: entry {entry.id}: witness: no case of its families is named {entry.witness!r}")


def _elsewhere(entry: KnownDifference, case: Case, target: str) -> Case:
    """The witness in the entry's first family that the target offers."""
    name = case.name.removeprefix(f"{case.family}: ")
    for family in entry.families:
        for other in chosen(family):
            if offered(family, target) == "checked" and other.name == f"{family}: {name}":
                return other
    return case


def _problems(entry: KnownDifference, rules: Container[str], seen: set[str]) -> list[str]:
    found = [f"unknown family {name}" for name in entry.families if name not in FAMILIES]
    found += [f"unknown rule {name}" for name in entry.rules if name not in rules]
    if entry.when not in CONDITIONS:
        found.append(f"unknown condition {entry.when!r}")
    raised = f"raises {entry.gives.partition(': ')[0]}"
    if entry.gives and entry.gives not in builders.TRAITS and raised not in entry.signatures:
        found.append(f"gives: nothing is known of {entry.gives!r}")
    if entry.kind not in KINDS:
        found.append(f"unknown kind {entry.kind!r}")
    if entry.id in seen:
        found.append("its id is taken")
    return found
