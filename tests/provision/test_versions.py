"""A release newer than any known one says so."""

from __future__ import annotations

import pytest

from ropecheck.conformance.versions import newer_than_known


@pytest.mark.parametrize(
    ("engine", "version", "newer"),
    [
        ("sglang", "0.5.23", False),
        ("sglang", "0.5.9", False),
        ("sglang", "0.5.24", True),
        ("sglang", "0.5.23.post1", True),
        ("sglang", "0.6.0rc1", True),
        ("sglang", "0.0.0.dev0", False),
        ("sglang", "unknown", False),
        ("reference", "9", False),
    ],
)
def test_newer_than_known(engine: str, version: str, newer: bool) -> None:
    assert bool(newer_than_known(engine, version)) is newer
