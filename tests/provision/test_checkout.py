"""Which code a checkout is, and its base."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.targets import checkout as module
from ropecheck.conformance.targets.changed import changed_functions, function_of, touches
from ropecheck.conformance.targets.checkout import at_commit, checkout_of, default_base, release_of


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "home", lambda: tmp_path / "home")
    package = tmp_path / "repo" / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    git(tmp_path / "repo", "add", "-A")
    git(tmp_path / "repo", "commit", "-qm", "one")
    return tmp_path / "repo"


def test_identity_follows_the_code(repo: Path) -> None:
    clean = checkout_of(repo)
    assert (clean.dirty, len(clean.commit), clean.identity) == ("", 12, clean.commit)
    file = repo / "python" / "sglang" / "__init__.py"
    file.write_text("one = 2\n")
    changed = checkout_of(repo)
    assert changed.commit == clean.commit
    assert changed.identity.startswith(f"{clean.commit}+")
    (repo / "python" / "sglang" / "new.py").write_text("three = 3\n")
    assert checkout_of(repo).dirty not in ("", changed.dirty)
    (repo / "notes.txt").write_text("not code")
    (repo / "python" / "sglang" / "new.py").unlink()
    assert checkout_of(repo) == changed


def test_without_git_the_files_are_the_identity(tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("one = 1\n")
    first = checkout_of(tmp_path)
    assert first.identity.startswith("no git: ")
    assert default_base(first) == ""
    (package / "__init__.py").write_text("one = 2\n")
    assert checkout_of(tmp_path).identity != first.identity


def test_the_base_of_changes_is_their_commit_and_of_a_branch_where_it_left(repo: Path) -> None:
    start = checkout_of(repo)
    assert default_base(start) == "", "on main, with nothing changed"
    git(repo, "checkout", "-qb", "topic")
    file = repo / "python" / "sglang" / "__init__.py"
    file.write_text("one = 2\n")
    assert default_base(checkout_of(repo)) == start.commit
    git(repo, "commit", "-qam", "two")
    assert default_base(checkout_of(repo)).startswith(start.commit)
    before = at_commit(checkout_of(repo), "HEAD~1")
    assert (before.root / "sglang" / "__init__.py").read_text() == "one = 1\n"
    assert file.read_text() == "one = 2\n"
    assert before.identity == start.commit
    assert [path.name for path in before.root.parent.iterdir()] == [start.commit], "nothing half made is left"


def test_the_functions_that_a_change_touches(repo: Path) -> None:
    file = repo / "python" / "sglang" / "a.py"
    text = "import os\n\n\nclass A:\n    def one(self):\n        return 1\n\n    def two(self):\n        return 2\n"
    file.write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a")
    assert changed_functions(checkout_of(repo), "HEAD") == frozenset()
    file.write_text(text.replace("return 2", "return 3"))
    changed = changed_functions(checkout_of(repo), "HEAD")
    assert changed == {("sglang/a.py", "A.two")}
    assert touches(map(function_of, ["sglang/a.py:8 A.two"]), changed)
    assert not touches([("sglang/a.py", "A.one"), ("sglang/b.py", "A.two")], changed)
    file.write_text(text.replace("import os", "import sys"))
    everywhere = changed_functions(checkout_of(repo), "HEAD")
    assert touches([("sglang/a.py", "A.one")], everywhere)
    assert not touches([("sglang/b.py", "A.one")], everywhere)


def test_bad_input_is_one_line(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        checkout_of(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no checkout of SGLang"):
        checkout_of(tmp_path)
    with pytest.raises(UsageError, match="no commit of"):
        at_commit(checkout_of(repo), "no-such-branch")


def test_releases_are_told_from_refs() -> None:
    assert release_of("0.5.23") == release_of("sglang==0.5.23") == "sglang==0.5.23"
    assert release_of("v0.5.23") == release_of("main") == release_of("1234abc") == ""
