"""The rule book is whole: everything has a page, every link leads somewhere, what is committed is fresh."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from markupsafe import Markup

from ropecheck.conformance.book import formats, observed
from ropecheck.conformance.book.build import SiteBuild
from ropecheck.conformance.book.contents import ROOT, Book
from ropecheck.conformance.book.pages import guides
from ropecheck.conformance.book.site import Page, broken_links, write
from ropecheck.conformance.book.start_picture import SCHEMES, picture
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.known import failures
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import all_rules

pytestmark = pytest.mark.xdist_group("browser")

Site = tuple[Path, SiteBuild]


def test_no_link_leads_nowhere(site: Site) -> None:
    folder, built = site
    assert built.broken == ()
    assert len(list(folder.rglob("*.html"))) == len(built.pages)


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    body = Markup('<a href="gone.html">x</a><a href="#here">y</a><img src="https://example.org/z.png">')
    write([Page(path="index.html", title="t", body=body)], {}, tmp_path)
    assert {"index.html: gone.html", "index.html: #here"} <= set(broken_links(tmp_path))


def test_everything_has_a_page(site: Site) -> None:
    paths = {page.path for page in site[1].pages}
    assert {f"modes/{mode}.html" for mode in (*all_modes(), "draft_block", "draft_context")} <= paths
    assert {f"rules/{rule}.html" for rule in all_rules()} <= paths
    assert {f"families/{family}.html" for family in FAMILIES} <= paths
    assert {Book.finding(known) for known in failures.load()} <= paths
    assert {guides.place(file) for file in guides.files()} <= paths


def test_every_document_is_a_guide() -> None:
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md")]
    names = {path.relative_to(ROOT).as_posix() for path in found}
    assert names <= {*documents()}, "GUIDES in conformance/book/pages/guides.py says who it is for"


def test_a_page_that_is_gone_is_removed(tmp_path: Path) -> None:
    for names in (("index.html", "modes/old.html"), ("index.html",)):
        write([Page(path=name, title=name, body=Markup("")) for name in names], {}, tmp_path)
    assert not (tmp_path / "modes" / "old.html").exists()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_committed_picture_is_the_one_that_is_drawn(scheme: str) -> None:
    file = ROOT / "docs" / "images" / f"position-table-{scheme}.svg"
    assert file.read_text("utf-8") == picture(scheme), "python -m ropecheck.conformance.book.start_picture"
    assert ET.fromstring(file.read_text("utf-8")).tag.endswith("svg")


@pytest.mark.parametrize("name", formats.FORMATS)
def test_the_committed_schema_is_that_of_the_types(name: str) -> None:
    text = formats.file_of(name).read_bytes()
    assert text == formats.FORMATS[name].schema(), formats.__doc__
    assert json.loads(text)["$id"].startswith(f"urn:ropecheck:schema:{name}:")


def test_what_engines_showed_is_of_todays_witnesses() -> None:
    """Refresh with `python -m ropecheck.conformance.book.observed`. An entry may lack one; a wrong one may not stay."""
    entries = {known.path.stem: known for known in failures.load()}
    for name, seen in observed.load().known.items():
        assert name in entries, f"observed.json: {name} is no known failure"
        assert seen.failure.key == entries[name].entry.key
        assert seen.witness == entries[name].witness.id


def commands(text: str) -> Iterator[str]:
    """Command lines of ropecheck in a Markdown text: in code blocks, and in backticks."""
    for block in re.findall(r"(?ms)^(?: *```\w*\n(.*?)^ *```|(?: {4}\S.*\n)+)", text):
        yield from re.findall(
            r"(?m)^(?: *\$ )?(?:.*?\bpython3? -m |\.venv/bin/| *)(ropecheck .*)$", block.replace("\\\n", "")
        )
    indented = re.findall(r"(?m)^ {4}(?:\$ )?(?:\.venv/bin/)?(ropecheck .*)$", text.replace("\\\n", ""))
    yield from indented
    yield from re.findall(r"`(?:\.venv/bin/)?(ropecheck [^`]*)`", text)


def plain(command: str) -> list[str]:
    """Its words, without a comment behind it."""
    return shlex.split(command, comments=True)[1:]


def documents() -> list[str]:
    return [*guides.files(), "docs/glossary.md"]


def shown_commands() -> list[tuple[str, str]]:
    found = []
    for file in documents():
        text = (ROOT / file).read_text("utf-8")
        found += [
            (file, command) for command in commands(text) if not set("…<|") & set(command) and ".." not in command
        ]
    return list(dict.fromkeys(found))


def test_every_command_in_the_documents_parses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the real command line: verbs, options, kinds of values."""
    tree = typer.main.get_command(cli.app)
    _stub(tree)
    wrong = []
    seen = shown_commands()
    for file, command in seen:
        words, _ = cli.without_mode_files(plain(command))
        if not words or words == ["--version"]:
            continue
        try:
            tree.main(words, prog_name="ropecheck", standalone_mode=False)
        except Exception as error:
            said = getattr(error, "format_message", error.__repr__)()
            if len(words) > 2 or "Missing" not in said:  # a verb that is merely named
                wrong.append(f"{file}: {command}: {said}")
    assert wrong == []
    assert len(seen) > 60


def _stub(command: object) -> None:
    for child in getattr(command, "commands", {}).values():
        _stub(child)
    if not getattr(command, "commands", None):
        command.callback = lambda **_: None  # type: ignore[attr-defined]


CHEAP = ("explain", "list")
"""Verbs whose commands are executed as the documents have them."""


def test_cheap_commands_in_the_documents_work(capsys: pytest.CaptureFixture[str]) -> None:
    ran = 0
    for file, command in shown_commands():
        words = plain(command)
        if words and words[0] in CHEAP and "MODE" not in words and "RULE" not in words and "my_verify" not in words:
            assert cli.execute(words) == 0, f"{file}: {command}"
            ran += 1
    assert ran >= 5
    assert capsys.readouterr().out


def test_the_image_has_what_the_suite_needs(tmp_path: Path) -> None:
    """What the Dockerfile copies, in a folder of its own, is a ropecheck that runs."""
    for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines():
        if line.startswith("COPY "):
            *sources, to = line.split()[1:]
            for source in sources:
                if (ROOT / source).is_dir() and source != "ropecheck":
                    (tmp_path / to).symlink_to(ROOT / source)
                elif (ROOT / source).is_dir():
                    shutil.copytree(
                        ROOT / source, tmp_path / to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copy(ROOT / source, tmp_path / to)
    assert (tmp_path / "requirements" / "setup.sh").is_file()
    run = subprocess.run(
        [sys.executable, "-m", "ropecheck", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("ropecheck ")


def test_readme_begins_with_the_two_commands() -> None:
    lines = [line.strip() for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line.startswith("    ")]
    assert [line.partition("#")[0].strip() for line in lines[:2]] == ["make run", "make test"]
