"""The list of what public requests can do, against the classes in the source of the engine, read and not imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from ropecheck.adapters.sglang_routes.sources import package
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.cli.requests import BEGIN, END, PublicField, markdown, public_requests
from ropecheck.conformance.families.routes import ROUTES
from ropecheck.conformance.scripts.servers import servers
from ropecheck.spec.modes import all_modes
from tests.conformance.support import ROOT
from tests.families.test_support_table import between_markers

FOUND = public_requests()
CLASSES = {name: entries for name, entries in FOUND.classes().items() if name != "ServerArgs"}
FILES = {"SamplingParams": "sampling/sampling_params.py"}
FLAGS = "arg_groups/fields"
NAME = re.compile(rf"(^|_)({'|'.join(FOUND.words.name)})(_|$)")
HELP = re.compile("|".join(FOUND.words.help), re.IGNORECASE)
WITHOUT_FIELD = {"config", "monokernel_backend"}
"""Command-line options that are no fields: a file that holds others, and another spelling of enable_amd_monokernel."""
SENDERS = {"servers": servers(), "routes": ROUTES, "mode": all_modes()}
"""What names in backquotes behind these words are."""


def _source() -> Path:
    found = package()
    assert found is not None
    return found


def _fields(node: ast.ClassDef) -> dict[str, str]:
    """Field -> the texts of its declaration, in the order of the class."""
    found = {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            words = [
                one.value for one in ast.walk(line) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            found[line.target.id] = " ".join(words)
    return found


def _classes(path: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}


def interface(name: str) -> set[str]:
    """The fields of a class, its bases' too."""
    known = _classes(_source() / FILES.get(name, "managers/io_struct.py"))
    found: set[str] = set()
    waiting = [name]
    while waiting:
        node = known[waiting.pop()]
        found |= _fields(node).keys()
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in known]
    return found


@cache
def flags(root: Path) -> dict[str, tuple[str, str]]:
    """Flag -> its namespace and the texts of its declaration."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted((root / FLAGS).glob("*.py")):
        for space, node in _classes(path).items():
            found |= {flag: (space, words) for flag, words in _fields(node).items()}
    return found


def counts(flag: str, words: str) -> bool:
    return bool(NAME.search(flag) or HELP.search(words))


def problems(found: dict[str, tuple[str, str]]) -> Iterator[str]:
    """What the list says wrongly of these flags."""
    listed = {field for entry in FOUND.ServerArgs for field in entry.fields}
    patterns = [pattern for some in FOUND.others.values() for pattern in some]
    yield from (f"{flag}: is no flag" for flag in sorted(listed - found.keys()))
    for flag, (space, words) in found.items():
        if flag in listed:
            continue
        if counts(flag, words):
            yield f"{flag}: counts and is not listed"
        elif not any(fnmatchcase(f"{space}.{flag}", pattern) for pattern in patterns):
            yield f"{flag}: neither listed nor meant by a pattern"


@pytest.mark.engine
@pytest.mark.parametrize("name", CLASSES)
def test_every_field_of_the_interface_is_listed_and_no_other(name: str) -> None:
    listed = [field for entry in CLASSES[name] for field in entry.fields]
    assert sorted(listed) == sorted(interface(name))


@pytest.mark.engine
def test_every_flag_that_counts_is_listed_and_all_others_are_meant_by_a_pattern() -> None:
    found = flags(_source())
    assert len(found) > 500
    assert not list(problems(found))
    listed = [field for entry in FOUND.ServerArgs for field in entry.fields]
    assert len(listed) == len(set(listed))


POSITIONS = re.compile(r"mrope|(^|_)positions?($|_)|rope_index")


@cache
def placing(root: Path) -> dict[str, bytes]:
    """Files of the engine that speak of positions, but for those that declare flags."""
    found = {path: path.read_bytes() for path in root.rglob("*.py") if path.name != "server_args.py"}
    return {
        str(path): body
        for path, body in found.items()
        if "arg_groups" not in path.parts and (b"position" in body or b"mrope" in body)
    }


def readers(root: Path, fields: set[str]) -> Iterator[tuple[str, str]]:
    """(field, function) for every function that reads one of them and handles positions."""
    for path, body in placing(root).items():
        if not any(name.encode() in body for name in fields):
            continue
        lines = {
            number for number, line in enumerate(body.decode().split("\n"), 1) if any(one in line for one in fields)
        }
        for node in ast.walk(ast.parse(body)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1)):
                continue
            named = {getattr(one, "id", getattr(one, "attr", getattr(one, "arg", ""))) or "" for one in ast.walk(node)}
            if any(POSITIONS.search(name) for name in named):
                yield from ((field, f"{path}:{node.name}") for field in fields & named)


@pytest.mark.engine
def test_what_is_apart_is_read_by_no_function_that_handles_positions() -> None:
    fields = {
        field for entries in FOUND.classes().values() for entry in entries if entry.apart for field in entry.fields
    }
    assert len(fields) > 40
    assert not list(readers(_source(), fields))
    assert {field for field, _ in readers(_source(), {"speculative_num_draft_tokens"})}


def test_no_value_is_left_out_for_want_of_time() -> None:
    told = [value for entries in FOUND.classes().values() for entry in entries for value in entry.left_out]
    assert not [value for value in (*told, *(one.why for one in FOUND.refused)) if "not done" in value]


@pytest.mark.engine
def test_a_new_flag_fails() -> None:
    found = flags(_source())
    assert list(problems(found | {"mrope_position_scale": ("Model", "")}))
    assert list(problems(found | {"odd": ("Model", "Scales the position of each image.")}))
    assert list(problems(found | {"odd": ("Schedule", "")}))
    assert list(problems({flag: about for flag, about in found.items() if flag != "page_size"}))
    assert not list(problems(found | {"log_color": ("Observability", "Colour of the log.")}))


@pytest.mark.engine
def test_every_pattern_means_a_flag() -> None:
    names = [f"{space}.{flag}" for flag, (space, words) in flags(_source()).items() if not counts(flag, words)]
    for patterns in FOUND.others.values():
        for pattern in patterns:
            assert any(fnmatchcase(name, pattern) for name in names), pattern


@pytest.mark.engine
def test_flags_are_declared_nowhere_else() -> None:
    tree = ast.parse((_source() / "server_args.py").read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    added = [
        call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    ]
    names = {str(name.value)[2:].replace("-", "_") for name in added if isinstance(name, ast.Constant)}
    assert not names - flags(_source()).keys() - WITHOUT_FIELD


def test_each_entry_says_what_it_touches_and_what_becomes_of_its_values() -> None:
    for name, entries in FOUND.classes().items():
        for entry in entries:
            assert _whole(entry), f"{name}: {entry.fields}"


def test_what_is_said_to_send_is_there() -> None:
    said = [value for entries in FOUND.classes().values() for entry in entries for value in entry.driven]
    for word, known in SENDERS.items():
        named = [names for value in said for names in re.findall(rf"\b{word} (`[^`]+`(?:, `[^`]+`)*)", value)]
        assert named, word
        assert {name for names in named for name in re.findall("`([^`]+)`", names)} <= set(known)


def _whole(entry: PublicField) -> bool:
    kinds = set(entry.touches.split(", "))
    values = (*entry.driven, *entry.left_out)
    named = all(": " in value or value == "field by field below" for value in values)
    return bool(values) and named and (kinds == {"none"} or kinds <= {"positions", "lengths", "media"})


def test_what_the_suite_refuses_is_listed() -> None:
    for one in FOUND.refused:
        assert one.raises in (ROOT / one.file).read_text("utf-8"), one
    known = {one.file for one in FOUND.refused} | set(FOUND.nonsense.files)
    sources = [path for folder in ("reference", "spec", "conformance") for path in (ROOT / folder).rglob("*.py")]
    raising = {str(path.relative_to(ROOT)) for path in sources if "raise OutOfDomain(" in path.read_text("utf-8")}
    assert raising == known


def test_the_page_holds_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    hint = f"put the output of `ropecheck list requests --markdown` between {BEGIN} and {END} in docs/requests.md"
    assert between_markers(ROOT / "docs" / "requests.md", BEGIN, END) == markdown(), hint
    assert cli.execute(["list", "requests", "--markdown"]) == 0
    assert capsys.readouterr().out == markdown()
    assert cli.execute(["list", "requests"]) == 0
    assert "positional_embed_overrides" in capsys.readouterr().out
