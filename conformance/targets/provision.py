"""Make engine releases, checkouts and environments targets, under the project's own `.ropecheck/targets/`.

One folder per target, holding `target.json` and, for a release, the overlay of packages that its worker finds before
those of the common environment. A folder is staged beside the others and renamed when it is complete, so a folder
that is there is whole; a lock per target keeps two that add the same one apart.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ropecheck.conformance.targets import pip_overlay
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from ropecheck.conformance.targets.provisioned import (
    RECORD,
    Record,
    folder_of,
    python_tag,
    read_record,
    records,
    targets_folder,
)
from ropecheck.conformance.versions import is_version

RELEASE = re.compile(r"sglang==([0-9][A-Za-z0-9.+]*)")

Say = Callable[[str], None]


def add(what: str, *, name: str = "", say: Say = lambda _: None) -> Record:
    """Make `what` ("sglang==0.5.14", a checkout's folder, an environment's folder or Python) a target.

    A target that is there already is left as it is. `say` gets one line per step. Raises ProvisionError.
    """
    if match := RELEASE.fullmatch(what):
        version = _checked_version(match.group(1))
        return _make(f"sglang=={version}", say, lambda stage: _release(version, stage, say))
    if "==" in what:
        raise ProvisionError(f"{what!r}: a release is written sglang==VERSION", 2)
    path = Path(what).expanduser()
    if not path.exists():
        raise ProvisionError(f"{what!r} is neither a release (sglang==VERSION) nor an existing path", 2)
    # The path to a Python is not resolved: a virtual environment's Python is a link whose own place matters.
    path = Path(os.path.abspath(path))  # noqa: PTH100
    label = f"sglang@{name or _label(path)}"
    if not re.fullmatch(r"sglang@[A-Za-z0-9._-]+", label):
        raise ProvisionError(f"--name {name!r}: letters, digits, dots, dashes and underscores only", 2)
    if source := source_root(path):
        return _make(label, say, lambda stage: _checkout(label, source, stage))
    if python := _python_of(path):
        return _make(label, say, lambda stage: _environment(label, python))
    raise ProvisionError(f"{path}: neither a checkout (python/sglang) nor a Python environment (bin/python)", 2)


def remove(name: str) -> None:
    """Remove a target. Raises ProvisionError when it is not there."""
    folder = folder_of(name)
    if not folder.is_dir() or folder.parent != targets_folder():
        raise ProvisionError(f"no target {name!r} to remove; known: {', '.join(records()) or 'none'}", 2)
    with _locked(folder, lambda _: None):
        # Renamed first: a removal that is interrupted leaves a staging folder, which the next `add` sweeps away.
        gone = _staging(folder)
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _make(name: str, say: Say, fill: Callable[[Path], Record]) -> Record:
    """Fill a staged folder, and rename it to the target's own when it is complete."""
    folder, began = folder_of(name), time.monotonic()
    try:
        with _locked(folder, say):
            if folder.is_dir():
                record = read_record(folder / RECORD)
                if record.kind == "environment" or record.tag == python_tag():
                    say(f"{name} is there already")
                    return record
                say(f"{name} was made for Python {record.tag}: making it again for {python_tag()}")
                shutil.rmtree(folder)
            stage = _staging(folder)
            shutil.rmtree(stage, ignore_errors=True)
            stage.mkdir(parents=True)
            try:
                record = fill(stage)
                size = sum(f.lstat().st_size for f in stage.rglob("*") if f.is_file())
                seconds = round(time.monotonic() - began, 1)
                record = msgspec.structs.replace(record, megabytes=round(size / 1e6, 1), seconds=seconds)
                (stage / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)))
                stage.rename(folder)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
            return record
    except OSError as error:
        full = "disk full" if error.errno in (28, 122) else error.strerror
        raise ProvisionError(f"{name}: {full} ({error.filename or folder})") from error


@contextlib.contextmanager
def _locked(folder: Path, say: Say) -> Iterator[None]:
    """Hold the target's lock, which a process that dies lets go; sweep what dead ones left behind."""
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / folder.name).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another ropecheck is working on {folder.name}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        for left in folder.parent.glob(".staging/*"):
            owner = left.name.rpartition("~")[0]
            with contextlib.ExitStack() as held, contextlib.suppress(BlockingIOError):
                if owner != folder.name:
                    other = held.enter_context((locks / owner).open("a"))
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        yield


def _staging(folder: Path) -> Path:
    # A name of this process's own: a pip whose ropecheck was killed may still be writing into its folder.
    staging = folder.parent / ".staging" / f"{folder.name}~{os.getpid()}"
    staging.parent.mkdir(parents=True, exist_ok=True)
    return staging


# ---------------------------------------------------------------- the three kinds


def _release(version: str, stage: Path, say: Say) -> Record:
    name = f"sglang=={version}"
    if pip_overlay.installed("sglang") == version:
        say(f"{name} is installed in this Python: no overlay needed")
        return Record(name=name, kind="release", version=version, python="", tag=python_tag())
    if pip_overlay.installed("torch") is None:
        raise ProvisionError("this Python has no torch, which every release needs: install the engine's requirements")
    say(f"installing {name} and what must follow its pins")
    packages = pip_overlay.install(name, stage / "site")
    return Record(
        name=name, kind="release", version=version, python="", tag=python_tag(), paths=("site",), packages=packages
    )


def _checkout(name: str, source: Path, stage: Path) -> Record:
    """A source tree on the running Python; its pyproject.toml says which transformers must follow."""
    asked: dict[str, list[str]] = {}
    project = source / "pyproject.toml"
    if project.is_file():
        try:
            lines = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("dependencies", [])
        except tomllib.TOMLDecodeError as error:
            raise ProvisionError(f"{project}: {error}", 2) from error
        pip_overlay.add_requirements(asked, lines)
    (stage / "site").mkdir()
    packages = pip_overlay.follow(stage / "site", asked)
    paths = (str(source), "site") if packages else (str(source),)
    return Record(name=name, kind="checkout", version=name, python="", tag=python_tag(), paths=paths, packages=packages)


def _environment(name: str, python: Path) -> Record:
    """An environment that has its own SGLang: asked for its versions without importing anything heavy."""
    ask = (
        "import sys, importlib.metadata as m; print('%d.%d' % sys.version_info[:2], m.version('sglang'));"
        "import msgspec, numpy"
    )
    try:
        done = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProvisionError(f"{python}: could not be run ({error})", 2) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise ProvisionError(f"{python}: needs sglang, msgspec and numpy installed: {last}", 2)
    tag, version = done.stdout.split()
    return Record(name=name, kind="environment", version=version, python=str(python), tag=tag)


def source_root(path: Path) -> Path | None:
    """The folder to put on the path for a checkout: the one that holds the package `sglang`."""
    for root in (path / "python", path):
        if (root / "sglang" / "srt" / "__init__.py").is_file() or (root / "sglang" / "__init__.py").is_file():
            return root
    return None


def _python_of(path: Path) -> Path | None:
    if path.is_file() and os.access(path, os.X_OK) and path.name.startswith("python"):
        return path
    python = path / "bin" / "python"
    return python if python.exists() else None


def _label(path: Path) -> str:
    base = path.parents[1] if path.is_file() and len(path.parents) > 1 else path
    return re.sub(r"[^A-Za-z0-9._-]+", "-", base.name).strip("-.") or "local"


def _checked_version(text: str) -> str:
    if not is_version(text):
        raise ProvisionError(f"sglang=={text}: not a version number", 2)
    return text
