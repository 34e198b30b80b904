"""A source checkout as a target without adding it: which code it is, and a base to compare it with."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec

import ropecheck
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.targets.provision import source_root
from ropecheck.conformance.targets.provisioned import WORKER, home
from ropecheck.conformance.targets.registry import Target

MAIN = ("origin/main", "upstream/main", "main", "origin/master", "master")
"""Where a branch is taken to come from, the first that exists."""


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's source tree."""

    root: Path
    """The folder that holds the package `sglang`."""
    commit: str
    """Abbreviated; "" outside of git."""
    dirty: str
    """8 hex digits over what differs from the commit; "" for nothing."""

    @property
    def identity(self) -> str:
        """ "1234abcd5678", "1234abcd5678+9f8e7d6c" with changes that are not committed, "no git: 9f8e7d6c"."""
        if not self.commit:
            return f"no git: {self.dirty}"
        return f"{self.commit}+{self.dirty}" if self.dirty else self.commit


def checkout_of(path: Path) -> Checkout:
    """The checkout at a path. Raises UsageError when no engine is there."""
    if not path.exists():
        raise UsageError(f"{path}: no such folder")
    root = source_root(path.resolve())
    if root is None:
        raise UsageError(f"{path}: no checkout of SGLang (python/sglang) is there")
    return Checkout(root=root, commit=_git(root, "rev-parse", "--short=12", "HEAD").strip(), dirty=_dirty(root))


def _dirty(root: Path) -> str:
    package = root / "sglang"
    total = hashlib.sha256()
    if not _git(root, "rev-parse", "HEAD"):
        for path in sorted(package.rglob("*.py")):
            total.update(f"{path.relative_to(root)} ".encode() + path.read_bytes())
        return total.hexdigest()[:8]
    changed = _git(root, "diff", "HEAD", "--binary", "--", "sglang")
    fresh = _git(root, "ls-files", "--others", "--exclude-standard", "--", "sglang").splitlines()
    for name in sorted(name for name in fresh if name.endswith(".py")):
        total.update(name.encode() + (root / name).read_bytes())
        changed += name
    total.update(changed.encode())
    return total.hexdigest()[:8] if changed else ""


def target_of(checkout: Checkout, name: str) -> Target:
    """How a worker of it is started."""
    project = str(Path(ropecheck.__file__).parents[1])
    path = [str(checkout.root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), project]
    return Target(
        name=name,
        argv=(sys.executable, *WORKER),
        env={"PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "ROPECHECK_BYTECODE": str(home() / "bytecode")},
        devices=("cpu", "cuda"),
        forks=True,
        offers=("forwards", "prompt_tables", "routes", "scheduler"),
        note=f"checkout {checkout.identity}",
        identity=checkout.identity,
        source=str(checkout.root),
    )


def default_base(checkout: Checkout) -> str:
    """The commit to compare with where none is named: HEAD for changes that are not committed, else where the branch
    left the main one. "" when there is none."""
    if not checkout.commit:
        return ""
    if checkout.dirty:
        return checkout.commit
    head = _git(checkout.root, "rev-parse", "HEAD").strip()
    for name in MAIN:
        found = _git(checkout.root, "merge-base", "HEAD", name).strip()
        if found and found != head:
            return found
    return ""


def commit_of(checkout: Checkout, ref: str) -> str:
    """The commit that a ref names, abbreviated; "" for an unknown one."""
    return _git(checkout.root, "rev-parse", "--verify", "--quiet", "--short=12", f"{ref}^{{commit}}").strip()


def at_commit(checkout: Checkout, ref: str) -> Checkout:
    """The same tree at a commit, taken from git into a folder of ours. Raises UsageError for an unknown one."""
    commit = commit_of(checkout, ref)
    if not commit:
        raise UsageError(f"--base {ref!r}: no commit of {checkout.root}, and no release (write 0.5.23, or a git ref)")
    folder = home() / "bases" / commit
    if not (folder / "sglang").is_dir():
        prefix = _git(checkout.root, "rev-parse", "--show-prefix").strip()
        top = _git(checkout.root, "rev-parse", "--show-toplevel").strip()
        made = subprocess.run(
            ["git", "-C", top, "archive", "--format=tar", commit, f"{prefix}sglang"], capture_output=True, check=False
        )
        if made.returncode:
            raise UsageError(f"--base {ref!r}: {made.stderr.decode('utf-8', 'replace').strip()}")
        staged = folder.with_name(f".{commit}.{os.getpid()}")
        with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # CPython before 3.11.4 has none
            archive.extractall(staged)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            (staged / prefix).rename(folder)
        shutil.rmtree(staged, ignore_errors=True)
    return Checkout(root=folder, commit=commit, dirty="")


RELEASE = re.compile(r"(?:sglang==)?(\d+\.\d[\w.+]*)")


def release_of(base: str) -> str:
    """ "sglang==0.5.23" for "0.5.23" or the same in full; "" for anything else."""
    match = RELEASE.fullmatch(base)
    return f"sglang=={match[1]}" if match else ""


def _git(folder: Path, *arguments: str) -> str:
    """Git's answer; "" when it has none."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
