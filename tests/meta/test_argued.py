"""Edits that are argued to be no faults (tests/meta/argued): each is one that the mutation test can make, today."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.meta.mutation import ROOT, argued, edits_of


def file_of(module: str) -> Path:
    path = ROOT / module.removeprefix("ropecheck.").replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize(("module", "function"), sorted({entry[:2] for entry in argued()}))
def test_what_is_argued_can_be_made(module: str, function: str) -> None:
    made = edits_of(module, function, str(file_of(module)), random.Random(0))
    places = {(one.kind, one.nth, one.text) for one in made}
    assert [entry for entry in argued() if entry[:2] == (module, function) and entry[2:] not in places] == []
