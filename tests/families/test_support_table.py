"""`ropecheck list families`, `explain`, and the table in docs/families.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropecheck.adapters.sglang_families import handler
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.cli.families import BEGIN, END, markdown
from ropecheck.conformance.families.case import ABSENT, NOT_COVERED
from ropecheck.conformance.known.differences import load
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.rules import all_rules
from tests.conformance.support import ROOT


def between_markers(document: Path, begin: str = BEGIN, end: str = END) -> str | None:
    """The generated part of a document; None when its markers are missing."""
    text = document.read_text("utf-8")
    if begin not in text or end not in text:
        return None
    return text.partition(begin)[2].partition(end)[0].strip("\n") + "\n"


def test_the_readme_holds_the_generated_table() -> None:
    found = between_markers(ROOT / "docs" / "families.md")
    hint = f"put the output of `ropecheck list families --markdown` between {BEGIN} and {END} in docs/families.md"
    assert found == markdown(), hint


def test_list_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["list", "families"]) == 0
    text = capsys.readouterr().out
    for name in (*FAMILIES, *NOT_COVERED, "sglang", "transformers", "arXiv 2409.12191", "not offered: SGLang"):
        assert name in text
    assert cli.execute(["list", "families", "--markdown"]) == 0
    assert capsys.readouterr().out == markdown()


def test_explain_shows_the_known_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["explain", "families.absolute_time"]) == 0
    text = capsys.readouterr().out
    for entry in load():
        assert (entry.id in text) == ("families.absolute_time" in entry.rules)
    assert "no known failure" not in text
    broken = {rule for entry in load() for rule in entry.rules}
    kept = next(rule for rule in all_rules() if rule.startswith("families.") and rule not in broken)
    assert cli.execute(["explain", kept]) == 0
    assert "no known failure breaks it" in capsys.readouterr().out


def test_the_adapter_refuses_what_the_table_says_that_it_lacks() -> None:
    assert {family: reason for (family, target), reason in ABSENT.items() if target == "sglang"} == handler.ABSENT
