"""JSON schemas of what the suite reads and writes, each with a name of its own ($id)."""

from typing import Any

import msgspec

from ropecheck.conformance.store.files import pretty

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: Any, name: str, version: int) -> bytes:
    """The schema of a struct, or of a union of them, as its file holds it. version: raised when older files, or older
    readers, are no longer understood."""
    return pretty({"$schema": DIALECT, "$id": f"urn:ropecheck:schema:{name}:{version}", **msgspec.json.schema(kind)})
