"""The format's JSON schema in the repository is the one of the types that are read and written."""

from __future__ import annotations

from pathlib import Path

from ropecheck import conformance
from ropecheck.adapters import events
from ropecheck.conformance.store.schema import schema_of


def test_the_schema_file_is_current() -> None:
    file = Path(conformance.__path__[0]) / "data" / "trace.schema.json"
    assert file.read_bytes() == schema_of(events.Event, "trace", events.VERSION), "ropecheck trace schema"
