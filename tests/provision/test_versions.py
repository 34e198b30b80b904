"""A release newer than any known one says so."""

from __future__ import annotations

import pytest

from ropecheck.conformance.known import differences as known_differences
from ropecheck.conformance.known import failures
from ropecheck.conformance.versions import NEWEST_KNOWN, newer_than_known, released, within


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


@pytest.mark.parametrize(
    ("version", "versions", "inside"),
    [
        ("0.5.23", ">=0.5.20", True),
        ("0.5.24.dev40+g1234abcde", ">=0.5.23", True),
        ("0.5.24.dev40+g1234abcde", ">=0.5.23,<0.5.24", True),
        ("0.5.24", ">=0.5.23,<0.5.24", False),
        ("0.5.19", ">=0.5.20", False),
        ("unknown", ">=0.5.23", True),
        ("0.0.0.dev0", ">=0.5.23", True),
        ("unknown", ">=0.5.14,<0.5.16", False),
        ("unknown", "==0.5.23", False),
        ("unknown", "", True),
    ],
)
def test_an_open_range_holds_for_code_without_a_number(version: str, versions: str, inside: bool) -> None:
    assert within(version, versions) is inside


@pytest.mark.parametrize(
    ("version", "is_release"),
    [
        ("0.5.23", True),
        ("0.5.20", True),
        ("0.5.24", False),
        ("0.5.24.dev4", False),
        ("0.5.23+g12", False),
        ("x", False),
    ],
)
def test_only_known_releases_can_make_an_entry_stale(version: str, is_release: bool) -> None:
    assert released("sglang", version) is is_release


@pytest.mark.parametrize("version", ["0.5.24.dev40+g1234abcde", "unknown", "0.0.0.dev0"])
def test_what_is_known_of_the_newest_release_is_known_of_a_checkout_after_it(version: str) -> None:
    """A version string alone makes nothing new."""
    newest = NEWEST_KNOWN["sglang"]
    entries, differences = failures.load(), known_differences.load()
    for device in ("cpu", "cuda"):
        assert failures.applying(entries, "sglang", version, device) == failures.applying(
            entries, "sglang", newest, device
        )
    assert known_differences.applying(differences, "sglang", version) == known_differences.applying(
        differences, "sglang", newest
    )
