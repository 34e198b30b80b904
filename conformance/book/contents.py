"""What the book is made from: read once, handed to every page."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec

from ropecheck.conformance.book.matrix import Matrix
from ropecheck.conformance.book.matrix import read as read_matrix
from ropecheck.conformance.book.words import Words
from ropecheck.conformance.cards.shapes import SHAPES, STARTS
from ropecheck.conformance.errors import UsageError, toml_of
from ropecheck.conformance.known import differences, failures
from ropecheck.conformance.known.differences import KnownDifference
from ropecheck.conformance.known.failures import Known
from ropecheck.conformance.selftest.history_score import PastBug
from ropecheck.conformance.selftest.history_score import load as past_bugs
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import DECLARED, Mode
from ropecheck.spec.rules import Rule, all_rules

BASELINES = Path(__file__).resolve().parents[1] / "data" / "baseline"

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, or the folder that holds the installed package."""


class _Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody wrote of the book's parts; data/book.toml says what each table is."""

    topics: dict[str, str]
    places: dict[str, str]
    guides: dict[str, dict[str, str]]


CONTENTS = toml_of(Path(__file__).resolve().parents[1] / "data" / "book.toml", _Contents)


def slug(name: str) -> str:
    """A name as a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-").lower()


def modes_with_pages() -> dict[str, Mode]:
    """Every mode that a batch is built in, those that servers alone make included."""
    batches = all_modes()
    return dict(sorted({**batches, **{name: mode for name, mode in DECLARED.items() if mode.served}}.items()))


@dataclass(frozen=True)
class Book:
    """Everything. root: the checkout whose guides are read."""

    root: Path
    rules: Mapping[str, Rule] = field(default_factory=all_rules)
    modes: Mapping[str, Mode] = field(default_factory=modes_with_pages)
    known: tuple[Known, ...] = field(default_factory=failures.load)
    differences: tuple[KnownDifference, ...] = field(default_factory=differences.load)
    bugs: tuple[PastBug, ...] = field(default_factory=past_bugs)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The committed matrices."""
        return tuple(read_matrix(self.root / "docs" / name) for name in ("matrix.md", "matrix-families.md"))

    @cached_property
    def reached(self) -> dict[str, set[str]]:
        """Rule -> modes and topics in which a whole run on the default engine asks it, from the committed baseline."""
        found: dict[str, set[str]] = {}
        for file in sorted(BASELINES.glob("*.json")):
            for rules in json.loads(file.read_text("utf-8"))["phases"].values():
                for rule, modes in rules.items():
                    found.setdefault(rule, set()).update(modes)
        return found

    def asked(self, mode: str) -> list[str]:
        """The rules that a run asks of a mode, in their order."""
        return [rule for rule in self.rules if mode in self.reached.get(rule, ())]

    @cached_property
    def names(self) -> dict[str, str]:
        """What is linked where it stands in backticks -> its page."""
        found = {f"{shape}": f"shapes/{slug(shape)}.html" for shape in (*SHAPES, *STARTS)}
        found |= {shape.strip(): path for shape, path in found.items()}
        found |= {name: f"families/{name}.html" for name in FAMILIES}
        found |= {name: f"modes/{name}.html" for name in self.modes}
        found |= {rule: f"rules/{rule}.html" for rule in self.rules}
        found |= {known.path.stem: self.finding(known) for known in self.known}
        found |= {known.witness.id: self.finding(known) for known in self.known}
        return found

    def words(self, page: str) -> Words:
        """How a page writes."""
        return Words(page, self.names)

    @staticmethod
    def finding(known: Known) -> str:
        """The page of a known failure."""
        return f"findings/{slug(known.path.stem)}.html"


def shape_page(signature: str) -> str:
    """The page that explains a signature; "" where none does."""
    if signature in SHAPES:
        return f"shapes/{slug(signature)}.html"
    return next((f"shapes/{slug(start)}.html" for start in STARTS if signature.startswith(start)), "")


def opened(root: Path) -> Book:
    """The book of a checkout. Raises UsageError where there is none: the guides are not in an installed package."""
    if not (root / "docs" / "modes.md").is_file():
        raise UsageError(f"{root}: no checkout of ropecheck; the guides are its docs/ (--source DIR)")
    return Book(root)
