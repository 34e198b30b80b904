"""What is there: the provisioned targets, read from `.ropecheck/targets/`, and how their workers are started."""

import hashlib
import os
import sys
from pathlib import Path

import msgspec

import ropecheck
from ropecheck.conformance.targets import pip_overlay
from ropecheck.conformance.targets.pip_overlay import ProvisionError, version_key
from ropecheck.conformance.targets.registry import Target

WORKER = ("-m", "ropecheck.adapters.sglang.worker")
RECORD = "target.json"


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
    root = Path(__file__).resolve().parents[2]
    return (root if (root / "pyproject.toml").is_file() else Path.cwd()) / ".ropecheck"


def targets_folder() -> Path:
    """Where the provisioned targets lie, one folder each."""
    return home() / "targets"


def folder_of(name: str) -> Path:
    """The folder of the target called `name`, whether it is there or not."""
    return targets_folder() / name.replace("==", "-").replace("@", "-at-")


def records() -> dict[str, Record]:
    """The provisioned targets by name, releases first and in version order.

    Raises ProvisionError when a record cannot be read.
    """
    found = [read_record(path) for path in sorted(targets_folder().glob(f"*/{RECORD}"))]
    found.sort(key=lambda record: (record.kind != "release", version_key(record.version), record.name))
    return {record.name: record for record in found}


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
        here = Record(name=f"sglang=={version}", kind="release", version=version, python="", tag=python_tag())
        found.append(target_of(here))
    return found


def target_of(record: Record) -> Target:
    """How the worker of a provisioned target is started."""
    first = [str(folder_of(record.name) / path) for path in record.paths]
    # A foreign Python does not have this project installed; the running one might, but from elsewhere.
    project = str(Path(ropecheck.__file__).parents[1])
    path = [*first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), project]
    note = {"release": "release", "checkout": "source checkout", "environment": f"Python {record.python}"}
    return Target(
        name=record.name,
        argv=(record.python or sys.executable, *WORKER),
        env={"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))},
        devices=("cpu", "cuda"),
        forks=True,
        on_request=("scheduler",),
        note=f"SGLang {record.version}, {note.get(record.kind, record.kind)}",
        source=record.paths[0] if record.kind == "checkout" else "",
    )


def identity(name: str) -> str:
    """Changes when the code behind the target does; "" when that cannot be told (an environment, a built-in)."""
    record = records().get(name)
    if record is None:
        version = pip_overlay.installed("sglang")
        return f"{name} {pip_overlay.installed('torch')}" if name == f"sglang=={version}" else ""
    if record.kind == "environment":
        return ""
    total = hashlib.sha256(msgspec.json.encode(record) + (pip_overlay.installed("torch") or "").encode())
    if record.kind == "checkout":
        for path in sorted(Path(record.paths[0]).glob("sglang/**/*.py")):
            found = path.stat()
            total.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return total.hexdigest()


def python_tag() -> str:
    """The running Python's version, which wheels are chosen by: "3.11"."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
