"""`target add`, `list` and `remove` against an index on disk."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from pathlib import Path

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.targets import pip_overlay, provision, provisioned
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from tests.provision.conftest import leftovers, write_wheel


def test_a_release_brings_only_what_must_follow_its_pins(index: Path, home: Path, said: list[str]) -> None:
    record = provision.add("sglang==0.0.9", say=said.append)
    # aiohttp and torch come from the common environment; tokenizers is what that transformers asks for.
    assert record.packages == {"sglang": "0.0.9", "transformers": "0.4.1", "tokenizers": "0.0.2"}
    assert provisioned.records() == {"sglang==0.0.9": record}
    assert leftovers(home) == []
    assert sorted(path.name for path in home.iterdir()) == ["targets"]


def test_what_the_environment_has_is_not_installed(index: Path, home: Path) -> None:
    assert provision.add("sglang==0.1.0").packages == {"sglang": "0.1.0"}


def test_the_overlay_comes_first_on_the_workers_path(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    provision.add("sglang==0.0.9")
    (target,) = provisioned.targets()
    paths = target.env["PYTHONPATH"].split(os.pathsep)
    assert target.argv[0] == sys.executable
    assert paths[0] == str(home / "targets" / "sglang-0.0.9" / "site")
    assert paths[1] == "/somewhere"


def test_adding_twice_installs_once(index: Path, home: Path, said: list[str]) -> None:
    first = provision.add("sglang==0.0.9")
    shutil.rmtree(index)
    assert provision.add("sglang==0.0.9", say=said.append) == first
    assert said == ["sglang==0.0.9 is there already"]


def test_the_installed_release_needs_no_overlay(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_overlay, "installed", lambda name, path=None: "0.1.0")
    assert provision.add("sglang==0.1.0").paths == ()


@pytest.mark.parametrize(
    ("what", "message", "code"),
    [
        ("sglang==0.0.8", "no such release here; newest: 0.0.9, 0.1.0", 2),
        ("sglang==x", "written sglang==VERSION", 2),
        ("sglang==1.2.three", "not a version number", 2),
        ("sglang==../../x", "written sglang==VERSION", 2),
        ("vllm==1.0", "written sglang==VERSION", 2),
        ("no/such/folder", "neither a release", 2),
    ],
)
def test_a_wrong_request_is_one_line(index: Path, home: Path, what: str, message: str, code: int) -> None:
    with pytest.raises(ProvisionError) as caught:
        provision.add(what)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == code
    assert leftovers(home) == []


def test_an_interrupted_add_leaves_nothing(index: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path, asked: dict[str, list[str]]) -> dict[str, str]:
        assert (folder / "sglang").is_dir()
        raise KeyboardInterrupt

    monkeypatch.setattr(pip_overlay, "follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        provision.add("sglang==0.0.9")
    assert leftovers(home) == []
    assert provisioned.records() == {}


def test_what_a_killed_add_left_is_swept_away(index: Path, home: Path) -> None:
    for dead in ("sglang-9.9~1", "sglang-0.1.0~1"):
        (home / "targets" / ".staging" / dead / "site").mkdir(parents=True)
    provision.add("sglang==0.1.0")
    assert leftovers(home) == []


def _add_in_another_process(done: multiprocessing.Queue[str]) -> None:
    try:
        done.put(provision.add("sglang==0.0.9").version)
    except BaseException as error:
        done.put(repr(error))


def test_two_at_once_make_one_target(index: Path, home: Path) -> None:
    context = multiprocessing.get_context("fork")
    done: multiprocessing.Queue[str] = context.Queue()
    both = [context.Process(target=_add_in_another_process, args=(done,)) for _ in range(2)]
    for process in both:
        process.start()
    assert [done.get() for _ in both] == ["0.0.9", "0.0.9"]  # however long the machine takes
    for process in both:
        process.join()
    assert list(provisioned.records()) == ["sglang==0.0.9"]
    assert leftovers(home) == []


def test_a_full_disk_is_said_before_anything_is_downloaded(
    index: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=5 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ProvisionError, match="disk full: 5 MB free") as caught:
        provision.add("sglang==0.0.9")
    assert caught.value.exit_code == 3
    assert leftovers(home) == []


@pytest.mark.parametrize(
    ("output", "message", "code"),
    [
        ("OSError: [Errno 28] No space left on device", "disk full", 3),
        ("WARNING: Retrying: NewConnectionError\nERROR: none (from versions: none)", "cannot be reached", 3),
        ("ERROR: HTTP error 403 while getting x", "refused sglang==1.0 (HTTP 403)", 3),
        ("ERROR: 401 Client Error: Unauthorized for url", "(HTTP 401)", 3),
        ("ERROR: Could not find a version (from versions: none)", "no such package for this machine", 2),
        ("/usr/bin/python: No module named pip", "no pip", 3),
        ("ERROR: something else", "something else", 3),
        ("", "gave no reason", 3),
        (
            "Ignored the following versions that require a different python version: 1.0 Requires-Python >=4\n"
            "ERROR: Could not find a version (from versions: 0.9)",
            "no wheel for Python",
            3,
        ),
    ],
)
def test_what_pip_said_becomes_one_line(output: str, message: str, code: int) -> None:
    error = pip_overlay.explain(["sglang==1.0"], output)
    assert message in str(error)
    assert error.exit_code == code


def test_a_checkout_is_used_in_place(index: Path, home: Path, tmp_path: Path) -> None:
    source = tmp_path / "my sglang" / "python"
    (source / "sglang").mkdir(parents=True)
    (source / "sglang" / "__init__.py").touch()
    (source / "pyproject.toml").write_text('[project]\ndependencies = ["transformers==0.4.1", "torch==99"]\n')
    record = provision.add(str(tmp_path / "my sglang"))
    assert record.name == "sglang@my-sglang"
    assert record.paths == (str(source), "site")
    assert record.packages == {"transformers": "0.4.1", "tokenizers": "0.0.2"}
    before = provisioned.identity(record.name)
    (source / "sglang" / "__init__.py").write_text("changed = True\n")
    assert provisioned.identity(record.name) != before


def test_a_broken_checkout_names_the_file(index: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "c" / "sglang").mkdir(parents=True)
    (tmp_path / "c" / "sglang" / "__init__.py").touch()
    (tmp_path / "c" / "pyproject.toml").write_text("[project\n")
    with pytest.raises(ProvisionError, match=r"pyproject\.toml") as caught:
        provision.add(str(tmp_path / "c"))
    assert caught.value.exit_code == 2


def _environment(folder: Path, body: str) -> Path:
    """A stand-in for an environment: a `bin/python` that answers as told."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    return folder


def test_an_environment_is_asked_for_its_versions(home: Path, tmp_path: Path) -> None:
    record = provision.add(str(_environment(tmp_path / "env", "echo 3.12 0.5.99")), name="mine")
    assert (record.name, record.version, record.tag) == ("sglang@mine", "0.5.99", "3.12")
    (target,) = provisioned.targets()
    assert target.argv[0] == str(tmp_path / "env" / "bin" / "python")
    assert provisioned.identity("sglang@mine") == ""


def test_an_environment_without_the_engine_is_refused(home: Path, tmp_path: Path) -> None:
    folder = _environment(tmp_path / "env", "echo 'PackageNotFoundError: sglang' >&2; exit 1")
    with pytest.raises(ProvisionError, match="PackageNotFoundError: sglang") as caught:
        provision.add(str(folder))
    assert caught.value.exit_code == 2
    assert provisioned.records() == {}


def test_an_overlay_of_another_python_is_made_again(index: Path, home: Path, said: list[str]) -> None:
    provision.add("sglang==0.1.0")
    record = home / "targets" / "sglang-0.1.0" / "target.json"
    record.write_text(record.read_text().replace(f'"{provisioned.python_tag()}"', '"2.7"'))
    assert provision.add("sglang==0.1.0", say=said.append).tag == provisioned.python_tag()
    assert "made for Python 2.7" in said[0]


def test_remove(index: Path, home: Path) -> None:
    provision.add("sglang==0.1.0")
    provision.remove("sglang==0.1.0")
    assert provisioned.records() == {}
    assert leftovers(home) == []
    for name in ("sglang==0.1.0", "../x", ""):
        with pytest.raises(ProvisionError, match="no target"):
            provision.remove(name)


def test_a_torn_record_names_its_file(index: Path, home: Path) -> None:
    provision.add("sglang==0.1.0")
    (home / "targets" / "sglang-0.1.0" / "target.json").write_text("{")
    with pytest.raises(ProvisionError, match=r"sglang-0\.1\.0/target\.json") as caught:
        provisioned.records()
    assert caught.value.exit_code == 2
    provision.remove("sglang==0.1.0")
    assert provisioned.records() == {}


def test_a_torn_record_is_one_line_and_in_nobody_elses_way(
    index: Path, home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torn = home / "targets" / "sglang-0.1.0" / "target.json"
    torn.parent.mkdir(parents=True)
    torn.write_text('{"name": "sglang==0.1.0", "ki')
    for argv in (
        ["run", "--target", "sglang==0.1.0"],
        ["list", "targets"],
        ["target", "list"],
        ["doctor", "--target", "x"],
    ):
        assert cli.execute(argv) == 2
        error = capsys.readouterr().err
        assert str(torn) in error and "remove" in error
        assert error.count("\n") == 1
    assert targets.find("reference", "cpu").name == "reference"


def test_records_are_in_version_order(index: Path, home: Path) -> None:
    write_wheel(index, "sglang", "0.0.10")
    for version in ("0.1.0", "0.0.10", "0.0.9"):
        provision.add(f"sglang=={version}")
    assert list(provisioned.records()) == ["sglang==0.0.9", "sglang==0.0.10", "sglang==0.1.0"]


def test_the_command_line_adds_lists_and_removes(index: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["target", "add", "sglang==0.0.9", "--no-check"]) == 0
    assert "transformers 0.4.1" in capsys.readouterr().out
    assert cli.execute(["target", "list"]) == 0
    assert "sglang==0.0.9  release 0.0.9" in capsys.readouterr().out
    assert cli.execute(["target", "remove", "sglang==0.0.9"]) == 0
    assert cli.execute(["target", "remove", "sglang==0.0.9"]) == 2
    assert "no target 'sglang==0.0.9' to remove" in capsys.readouterr().err


def test_the_command_line_says_what_to_do_with_a_release_that_does_not_run(
    index: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # This release is an empty package: its worker ends while importing.
    assert cli.execute(["target", "add", "sglang==0.1.0"]) == 3
    said = capsys.readouterr().out
    assert "sglang==0.1.0 is there but does not run: no hello" in said
    assert "`ropecheck doctor --target sglang==0.1.0`" in said


def test_a_missing_network_is_exit_code_3(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody listens
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert cli.execute(["target", "add", "sglang==0.5.14"]) == 3
    error = capsys.readouterr().err
    assert "the package index cannot be reached" in error
    assert error.count("\n") == 1
    assert leftovers(home) == []
