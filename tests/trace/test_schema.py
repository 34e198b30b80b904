"""The format's JSON schema in the repository is the one of the types that are read and written."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from ropecheck import conformance
from ropecheck.adapters import events


def test_the_schema_file_is_current() -> None:
    file = Path(conformance.__path__[0]) / "data" / "trace.schema.json"
    assert json.loads(file.read_text()) == json.loads(json.dumps(msgspec.json.schema(events.Event)))
