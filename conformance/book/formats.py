"""The file formats that others read or write, and their schemas: `python -m ropecheck.conformance.book.formats` writes
data/NAME.schema.json of each anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ropecheck.adapters import events
from ropecheck.conformance.report import json_file
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenario.upgrade import FORMAT
from ropecheck.conformance.store.files import write_atomic
from ropecheck.conformance.store.schema import schema_of
from ropecheck.conformance.vectors import types

DATA = Path(__file__).parents[1] / "data"


class Format(msgspec.Struct, frozen=True):
    """A format. schema: writes its schema."""

    says: str
    schema: Callable[[], bytes]


FORMATS = {
    "scenario": Format(
        "A scenario: what `ropecheck replay` reads, and every witness is.",
        lambda: schema_of(Scenario, "scenario", FORMAT),
    ),
    "report": Format("report.json of a run.", json_file.schema),
    "vector": Format("A language-neutral vector.", types.schema),
    "trace": Format(
        "An event of an engine at work; a trace is one event per line.",
        lambda: schema_of(events.Event, "trace", events.VERSION),
    ),
}
"""By the name of their schema files."""


def file_of(name: str) -> Path:
    """Where a format's schema is kept."""
    return DATA / f"{name}.schema.json"


if __name__ == "__main__":
    for name, one in FORMATS.items():
        write_atomic(file_of(name), one.schema())
