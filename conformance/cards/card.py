"""The data of a card. Plain and serialisable: report.json holds it as it is."""

import msgspec

from ropecheck.conformance.figures import OperationLine
from ropecheck.conformance.judge.outcome import Difference, TableView


class ItemLine(msgspec.Struct, frozen=True, kw_only=True):
    """One media item of a prompt: its place, and the column of each of its tokens."""

    kind: str
    start: int
    frames: int
    lines: int
    """Of tokens, in one frame; 0 where the item is no picture."""
    columns: tuple[tuple[int, ...], ...]


class RequestLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it stands before the wrong operation (after it, where the operation brings it)."""

    request: int
    prompt: str
    prompt_len: int
    """P."""
    delta: int
    outputs: int
    """Tokens generated so far."""
    computed: int
    """Tokens whose cache entries exist."""
    status: str
    items: tuple[ItemLine, ...] = ()


class EngineLine(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the engine that ran for the wrong result."""

    function: str
    file: str
    """From the package on: "sglang/srt/.."."""
    line: int
    share: str = ""
    """How often it ran for wrong and for right results, in words."""


class Bug(msgspec.Struct, frozen=True, kw_only=True):
    """A public bug."""

    name: str
    address: str


class FoldedLine(msgspec.Struct, frozen=True, kw_only=True):
    """Another finding of the same suspected cause."""

    rule: str
    mode: str
    signature: str
    count: int
    witness: str


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One suspected cause, shown by its most telling finding."""

    id: str
    """Stays the same for the same rule, mode, shape and witness."""
    state: str
    """ "new" or "known"."""
    rule: str
    mode: str
    signature: str
    count: int
    """Failures of all findings on the card."""
    message: str
    label: str
    must: str
    """The rule's sentence."""
    source: str
    says: str
    usually: str
    bugs: tuple[Bug, ...]
    operations: tuple[OperationLine, ...]
    requests: tuple[RequestLine, ...]
    prompt: str
    """Of a prompt-table case; "" elsewhere."""
    difference: Difference | None
    expected: TableView | None
    observed: TableView | None
    tokens: tuple[str, ...]
    """Per column of the tables, the token that it stands for; () when that is not known."""
    functions: tuple[EngineLine, ...]
    where: str
    """Where the engine raised."""
    was: str
    """How the base breaks the same rule there; "" where it does not, or where nothing is compared."""
    reason: str
    """Of the known failure that expects it."""
    link: str
    entry: str
    witness: str
    witness_name: str
    file: str
    replay: str
    level: str = ""
    """Of a client's script: what the same forwards come to without a scheduler."""
    folded: tuple[FoldedLine, ...] = ()

    @property
    def keys(self) -> tuple[tuple[str, str, str], ...]:
        """(rule, mode, signature) of every finding on the card, its own first."""
        own = (self.rule, self.mode, self.signature)
        return (own, *((one.rule, one.mode, one.signature) for one in self.folded))

    @property
    def location(self) -> tuple[str, int]:
        """File (from the package on) and line of the engine to look at first; ("", 0) where nobody could tell."""
        place, _, line = self.where.partition(" ")[0].rpartition(":")
        if place and line.isdigit():
            return place, int(line)
        return next(((one.file, one.line) for one in self.functions), ("", 0))
