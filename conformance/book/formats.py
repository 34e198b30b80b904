"""The file formats that others read or write, and their schemas: `python -m ropecheck.conformance.book.formats` writes
data/NAME.schema.json of each anew."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec

from ropecheck.adapters import batch, events
from ropecheck.conformance.judge import outcome
from ropecheck.conformance.report import json_file, part
from ropecheck.conformance.run import baseline
from ropecheck.conformance.scenario import operations
from ropecheck.conformance.scenario.upgrade import FORMAT
from ropecheck.conformance.store.files import write_atomic
from ropecheck.conformance.store.schema import schema_of
from ropecheck.conformance.vectors import types
from ropecheck.spec import history

DATA = Path(__file__).parents[1] / "data"


class Format(msgspec.Struct, frozen=True):
    """A format. schema: writes its schema. homes: where its types are declared, for what stands under their fields."""

    says: str
    schema: Callable[[], bytes]
    homes: tuple[ModuleType, ...]


FORMATS = {
    "scenario": Format(
        "A scenario: what `ropecheck replay` reads, and every witness is.",
        lambda: schema_of(operations.Scenario, "scenario", FORMAT),
        (operations, batch, history),
    ),
    "report": Format(
        "report.json of a run.",
        lambda: schema_of(json_file.Report, "report", json_file.SCHEMA),
        (json_file, outcome, part, operations, baseline),
    ),
    "vector": Format("A language-neutral vector.", lambda: schema_of(types.Vector, "vector", 2), (types, batch)),
    "trace": Format(
        "An event of an engine at work; a trace is one event per line.",
        lambda: schema_of(events.Event, "trace", events.VERSION),
        (events, history),
    ),
}
"""By the name of their schema files."""


def file_of(name: str) -> Path:
    """Where a format's schema is kept."""
    return DATA / f"{name}.schema.json"


if __name__ == "__main__":
    for name, one in FORMATS.items():
        write_atomic(file_of(name), one.schema())
