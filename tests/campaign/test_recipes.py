"""The recipes in docs/ci say what the command line understands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from ropecheck.conformance.cli.app import app

CI = Path(__file__).parents[2] / "docs" / "ci"
COMMAND = re.compile(r"ropecheck\"? ((?:run|campaign|report merge)\b[^\n|&]*)")


def _commands() -> list[tuple[str, str]]:
    files = sorted(path for path in CI.iterdir() if path.is_file())
    return [(path.name, words) for path in files for words in COMMAND.findall(path.read_text())]


def test_there_is_one_in_each_recipe() -> None:
    assert {name for name, _ in _commands()} == {path.name for path in CI.iterdir()}


@pytest.mark.parametrize(("name", "words"), _commands())
def test_the_verbs_and_options_exist(name: str, words: str) -> None:
    command = typer.main.get_command(app)
    verb, *rest = words.split()
    if verb == "report":
        command, verb = command.commands["report"], rest[0]  # type: ignore[attr-defined]
    known = {option for one in command.commands[verb].params for option in one.opts}  # type: ignore[attr-defined]
    used = set(re.findall(r"--[a-z-]+", words))
    assert used and used <= known, f"{name}: {words}"


def test_the_matrix_has_every_shard_that_it_names() -> None:
    text = (CI / "github-actions.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    shards = jobs["shard"]["strategy"]["matrix"]["shard"]
    assert shards == list(range(1, len(shards) + 1))
    assert f"matrix.shard }}}}/{len(shards)} " in text
    assert jobs["merge"]["needs"] == "shard"


def test_the_cluster_recipes_are_well_formed() -> None:
    job = yaml.safe_load((CI / "kubernetes.yaml").read_text())
    assert job["kind"] == "RayJob"
    subprocess.run(["bash", "-n", str(CI / "slurm.sh")], check=True)


def test_the_nightly_job_has_every_part() -> None:
    root = CI.parents[1]
    nightly = (root / ".ci" / "nightly").read_text()
    default = re.search(r"\{\*:-([a-z ]+)\}", nightly)
    assert default is not None
    parts = default[1].split()
    assert re.findall(r"^#   (\w+) ", nightly, re.M) and set(re.findall(r"^(\w+)\(\) \{", nightly, re.M)) == set(parts)
    matrix = yaml.safe_load((root / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]["part"]["strategy"][
        "matrix"
    ]
    assert {*matrix["part"], *(one["part"] for one in matrix["include"])} == set(parts)
    subprocess.run(["bash", "-n", str(root / ".ci" / "nightly")], check=True)
