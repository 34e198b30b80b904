"""Judge a trace from a file, line by line, in one pass."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path

import msgspec

from ropecheck.adapters import events
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.trace.judge import BadTrace, Judge

Kind = Callable[[Failure], tuple[str, ...]]

_decoder = msgspec.json.Decoder(events.Event)


@dataclass(slots=True)
class Checked:
    """What a trace came to."""

    judge: Judge
    kind: Kind
    """Failures of one kind are counted together."""
    failures: list[Failure] = field(default_factory=list)
    """The first of each kind."""
    counts: dict[tuple[str, ...], int] = field(default_factory=dict)
    torn: bool = False
    """The last line was not complete: a recorder was ended while it wrote. Everything before it is judged."""

    def add(self, failure: Failure) -> None:
        """Count a failure and keep the first of its kind."""
        kind = self.kind(failure)
        if kind not in self.counts:
            self.failures.append(failure)
        self.counts[kind] = self.counts.get(kind, 0) + 1


BY_KEY: Kind = attrgetter("key")


def check_lines(lines: Iterable[bytes], name: str = "trace", prefix: str = "", kind: Kind = BY_KEY) -> Checked:
    """Judge NDJSON lines. prefix: see Judge.

    Raises UsageError naming the line that is not an event; a torn last line is normal.
    """
    checked = Checked(Judge(prefix), kind)
    torn: str = ""
    for number, line in enumerate(lines, start=1):
        if torn:
            raise UsageError(torn)
        if not line.strip():
            continue
        try:
            event = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            torn = f"{name}:{number}: not an event: {error}"
            if isinstance(error, msgspec.ValidationError) or line.endswith(b"\n"):
                raise UsageError(torn) from error
            continue
        try:
            for failure in checked.judge.feed(event):
                checked.add(failure)
        except BadTrace as error:
            raise UsageError(f"{name}:{number}: {error}") from error
        except (IndexError, ValueError) as error:
            raise UsageError(f"{name}:{number}: fields do not fit together: {error}") from error
    checked.torn = bool(torn)
    if checked.judge.header is None:
        raise UsageError(f"{name}: no header; the first line of a trace is one")
    return checked


def check_files(paths: Sequence[Path], prefix: str = "", kind: Kind = BY_KEY) -> Checked:
    """Judge the parts of one stream, in order. Raises UsageError naming file and line."""
    return check_lines(chain.from_iterable(map(_lines, paths)), str(paths[0]), prefix, kind)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
