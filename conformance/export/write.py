"""The three forms of a finding that need no ropecheck to be read or run."""

import json
import re
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.cards.render import as_text
from ropecheck.conformance.cards.text import operation_lines, table_lines
from ropecheck.conformance.export.driver import as_lines, driver
from ropecheck.conformance.export.look import Look
from ropecheck.conformance.judge.failure_text import shorter
from ropecheck.conformance.plan.planner import Plan

FOLDER = Path(__file__).parent / "templates"
SUFFIX = {"script": ".py", "pytest": ".py", "issue": ".md"}
"""Form -> suffix of its file."""


def _environment() -> Environment:
    """Plain text: nothing is escaped, so what goes into Python goes through json first."""
    made = Environment(
        loader=FileSystemLoader(str(FOLDER)), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    made.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return made


def file_name(card: Card, form: str) -> str:
    """test_decode_delta_missing_94d088871624.py and the like."""
    words = re.sub(r"[^a-z0-9]+", "_", f"{card.mode} {card.signature} {card.witness}".lower()).strip("_")
    return {"script": "", "pytest": "test_", "issue": ""}[form] + words + SUFFIX[form]


def title_of(card: Card) -> str:
    """One line for a tracker."""
    return f"M-RoPE positions, {card.mode}: {card.signature}"


def script(card: Card, plan: Plan, look: Look, *, engine: str, pytest: bool = False) -> str:
    """A Python file that shows the failure; with `pytest`, also a test."""
    summary = [
        shorter(card.message),
        "",
        f"The rule: {card.must}",
        "",
        "What it does:",
        *as_text(operation_lines(card)).splitlines(),
        "",
        f"Seen with {engine}.",
    ]
    steps = ",\n".join(msgspec.json.encode(step).decode() for step in plan.job.steps)
    return (
        _environment()
        .get_template("script.py.jinja")
        .render(
            title=_in_docstring(title_of(card)),
            summary=[_in_docstring(line) for line in summary],
            name=file_name(card, "pytest" if pytest else "script"),
            job_id=json.dumps(card.witness),
            steps=steps.replace("\\", "\\\\").replace('"""', '\\"\\"\\"'),
            look=repr(json.dumps(msgspec.to_builtins(look))),
            driver=as_lines(driver()),
            pytest=pytest,
            test=re.sub(r"\W+", "_", f"{card.mode}_{card.signature}"),
        )
    )


def issue(card: Card, *, engine: str) -> str:
    """A text for the engine's tracker."""
    return (
        _environment()
        .get_template("issue.md.jinja")
        .render(
            title=f"# {title_of(card)}",
            card=card,
            says=card.says or f"the result is wrong ({card.signature})",
            operations=as_text(operation_lines(card)).splitlines(),
            tables=as_text(table_lines(card)),
            bugs=[bug.address or bug.name for bug in card.bugs],
            environment=engine,
        )
    )


def _in_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")
