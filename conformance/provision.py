"""Engine releases, checkouts and environments as targets, kept under the project's own `.ropecheck/targets/`.

One folder per target, holding `target.json` and, for a release, the overlay of packages that its worker finds before
those of the common environment. A folder is staged beside the others and renamed when it is complete, so a folder
that is there is whole; a lock per target keeps two that add the same one apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from conformance import pip_overlay
from conformance.pip_overlay import ProvisionError
from conformance.targets import Target

WORKER = ("-m", "adapters.sglang.worker")
RELEASE = re.compile(r"sglang==([A-Za-z0-9.!+]+)")
RECORD = "target.json"

Say = Callable[[str], None]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a provisioned target is: the content of its `target.json`."""

    name: str
    """"sglang==0.5.14", or "sglang@NAME" for a checkout or an environment."""
    kind: str
    """"release", "checkout" or "environment"."""
    version: str
    python: str
    """The Python of an environment; "" for the running one."""
    tag: str
    """Python version that the overlay's wheels were chosen for, "3.11"."""
    paths: tuple[str, ...] = ()
    """Put first on the worker's path; relative ones lie in the target's own folder."""
    packages: dict[str, str] = {}
    """What the overlay holds."""
    megabytes: float = 0.0
    seconds: float = 0.0


def home() -> Path:
    """The folder for everything that the suite keeps: `.ropecheck` of the checkout, else of the working directory."""
    root = Path(__file__).resolve().parents[1]
    return (root if (root / "pyproject.toml").is_file() else Path.cwd()) / ".ropecheck"


def targets_folder() -> Path:
    """Where the provisioned targets lie, one folder each."""
    return home() / "targets"


def folder_of(name: str) -> Path:
    """The folder of the target called `name`, whether it is there or not."""
    return targets_folder() / name.replace("==", "-").replace("@", "-at-")


# ---------------------------------------------------------------- what is there


def records() -> dict[str, Record]:
    """The provisioned targets by name, releases first and in version order.

    Raises ProvisionError when a record cannot be read.
    """
    found = [read_record(path) for path in sorted(targets_folder().glob(f"*/{RECORD}"))]
    return {record.name: record for record in sorted(found, key=_order)}


def _order(record: Record) -> tuple[bool, Version, str]:
    return (record.kind != "release", version_key(record.version), record.name)


def version_key(version: str) -> Version:
    """For sorting: the version, or 0 for one that is not a release's."""
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


def read_record(path: Path) -> Record:
    """The record in the file `path`. Raises ProvisionError, naming the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise ProvisionError(f"{path}: {error}; `ropecheck target remove` it and add it again", 2) from error


def targets() -> list[Target]:
    """The provisioned targets as the runner takes them, and the release installed in the running Python."""
    found = [target_of(record) for record in records().values()]
    if version := pip_overlay.installed("sglang"):
        here = Record(name=f"sglang=={version}", kind="release", version=version, python="", tag=_tag())
        found.append(target_of(here))
    return found


def target_of(record: Record) -> Target:
    """How the worker of a provisioned target is started."""
    first = [str(folder_of(record.name) / path) for path in record.paths]
    # A foreign Python does not have this project installed; the running one might, but from elsewhere.
    project = str(Path(__file__).resolve().parents[1])
    path = [*first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), project]
    note = {"release": "release", "checkout": "source checkout", "environment": f"Python {record.python}"}
    return Target(
        name=record.name,
        argv=(record.python or sys.executable, *WORKER),
        env={"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))},
        devices=("cpu", "cuda"),
        note=f"SGLang {record.version}, {note.get(record.kind, record.kind)}",
    )


# ---------------------------------------------------------------- adding and removing


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
    if source := _source_root(path):
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
            if (folder / RECORD).is_file():
                say(f"{name} is there already")
                return read_record(folder / RECORD)
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
            if left.name != folder.name:
                with (locks / left.name).open("a") as other, contextlib.suppress(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left, ignore_errors=True)
        yield


def _staging(folder: Path) -> Path:
    staging = folder.parent / ".staging" / folder.name
    staging.parent.mkdir(parents=True, exist_ok=True)
    return staging


# ---------------------------------------------------------------- the three kinds


def _release(version: str, stage: Path, say: Say) -> Record:
    name = f"sglang=={version}"
    if pip_overlay.installed("sglang") == version:
        say(f"{name} is installed in this Python: no overlay needed")
        return Record(name=name, kind="release", version=version, python="", tag=_tag())
    if pip_overlay.installed("torch") is None:
        raise ProvisionError("this Python has no torch, which every release needs: install the engine's requirements")
    say(f"installing {name} and what must follow its pins")
    packages = pip_overlay.install(name, stage / "site")
    return Record(
        name=name, kind="release", version=version, python="", tag=_tag(), paths=("site",), packages=packages
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
    return Record(
        name=name, kind="checkout", version=name, python="", tag=_tag(), paths=paths, packages=packages
    )


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


def _source_root(path: Path) -> Path | None:
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
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise ProvisionError(f"sglang=={text}: not a version number", 2) from error


def _tag() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
