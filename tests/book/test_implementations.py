"""The engine functions that a mode's page names are those of the engine that is installed."""

from __future__ import annotations

from importlib import metadata

import pytest

from ropecheck.conformance.book.implementations import digest_of, folder_of, load

SOURCE = """
class A:
    if True:
        def f(self):
            return 1

    @property
    def g(self):
        return 2


def f():
    return 3
"""


def test_a_function_is_found_by_its_whole_name() -> None:
    digests = {name: digest_of(SOURCE, name) for name in ("A.f", "A.g", "f")}
    assert all(digests.values()) and len(set(digests.values())) == 3
    assert digest_of(SOURCE.replace("return 1", "return 4"), "A.f") != digests["A.f"]
    assert digest_of(SOURCE.replace("@property", "@cached"), "A.g") == digests["A.g"]
    assert digest_of(SOURCE, "A.h") == ""


@pytest.mark.engine
def test_the_installed_engine_is_what_was_read() -> None:
    """Ask it with `python -m ropecheck.conformance.book.implementations sglang`, read what changed, then add --read."""
    folder, kept = folder_of("sglang"), load()
    version = metadata.version("sglang")
    texts: dict[str, str] = {}
    for mode, functions in kept.releases[version].items():
        for name, digest in functions.items():
            file, _, function = name.partition(":")
            if file not in texts:
                texts[file] = (folder / file).read_text("utf-8")
            assert digest_of(texts[file], function) == digest, f"{mode}: {name}"
            assert kept.read[mode][name] == digest, f"{mode}: {name} has not been read"
