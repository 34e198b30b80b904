"""Reading scenarios from disk with errors that name file and field, and writing files all at once or not at all."""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from ropecheck.conformance.errors import UsageError, json_of, naming, with_path
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.files import refuse_wrong
from ropecheck.conformance.judge.outcome import Failure, Unrun
from ropecheck.conformance.scenario.legal import refuse_nonsense
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenario.upgrade import upgraded
from ropecheck.conformance.scripts import legal
from ropecheck.conformance.scripts.script import Script
from ropecheck.spec.history import OutOfDomain


class StoredRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """On what a stored subject failed or could not run, and how."""

    target: str
    """As asked for with --target."""
    engine: str = ""
    """The engine's own name, which known-failure entries use."""
    version: str
    device: str
    seed: int = 0
    failures: tuple[Failure, ...] = ()
    unrun: tuple[Unrun, ...] = ()


class Stored(StoredRun, frozen=True, kw_only=True, omit_defaults=True):
    """OUT/failures/ID.json of a scenario. `ropecheck replay` reads it."""

    scenario: Scenario


class StoredCase(StoredRun, frozen=True, kw_only=True, omit_defaults=True):
    """OUT/failures/ID.json of a prompt-table case."""

    case: Case


class StoredScript(StoredRun, frozen=True, kw_only=True, omit_defaults=True):
    """OUT/failures/ID.json of a client's script."""

    script: Script


AnyStored = Stored | StoredCase | StoredScript


def subject_of(stored: AnyStored) -> Scenario | Case | Script:
    """What a stored failure is about."""
    match stored:
        case StoredCase(case=case):
            return case
        case StoredScript(script=script):
            return script
        case Stored(scenario=scenario):
            return scenario


def write_atomic(path: Path, data: bytes) -> None:
    """Write beside and rename over, so that a reader never meets half a file. Raises OSError, naming the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            temporary.write_bytes(data)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


WIDTH = 120
"""Characters of a line, beyond which lists of lists and objects are spread over several."""


def pretty(value: object) -> bytes:
    """JSON for people, and for small diffs."""
    plain = msgspec.json.decode(msgspec.json.encode(value))  # no number that JSON does not have
    return (laid_out(plain) + "\n").encode()


def laid_out(value: object, indent: int = 0) -> str:
    """JSON on one line where it fits or holds only scalars, else one item per line: rows of numbers can be read."""
    line = json.dumps(value, ensure_ascii=False)
    scalars = isinstance(value, list | tuple) and not any(isinstance(item, list | tuple | dict) for item in value)
    if scalars or not isinstance(value, list | tuple | dict) or len(line) + indent <= WIDTH:
        return line
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(key)}: {laid_out(item, indent + 2)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + laid_out(item, indent + 2) for item in value) + "\n" + " " * indent + "]"


@contextlib.contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Keep OUT for one run at a time. Raises UsageError when another run has it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{out}: another run is writing there; name another folder with --out") from error
        yield


RESERVE = 4 << 20
"""Bytes kept free for the reports of a run."""


@contextlib.contextmanager
def reserved(out: Path) -> Iterator[Callable[[], None]]:
    """Room on the disk for the reports, taken before the run fills it. Call what it gives before they are written."""
    path = out / ".reserve"
    try:
        with naming(path):
            path.write_bytes(bytes(RESERVE))
        yield lambda: path.unlink(missing_ok=True)
    finally:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Form:
    """How subjects of one kind stand in files. mark: a field that they have and the others lack."""

    name: str
    mark: str
    stored: type[AnyStored]
    refuse: Callable[[Any], None]
    """Raises OutOfDomain for what no subject may say."""
    upgraded: Callable[[Any], Any] = lambda raw: raw
    """What older files say, as today's."""


def _without_rule(raw: Any) -> Any:
    """Older files of cases say which rule the case is there for; today all are asked."""
    return {name: value for name, value in raw.items() if name != "rule"} if isinstance(raw, dict) else raw


_FORMS = (
    _Form("case", "prompts", StoredCase, refuse_wrong, _without_rule),
    _Form("script", "actions", StoredScript, legal.check),
    _Form("scenario", "ops", Stored, refuse_nonsense, upgraded),
)


def _form_of(raw: dict[str, Any]) -> _Form:
    return next((one for one in _FORMS if one.name in raw or one.mark in raw), _FORMS[-1])


def stored_of(body: bytes) -> AnyStored:
    """A stored failure as a run of this suite wrote it."""
    raw = msgspec.json.decode(body)
    return msgspec.convert(raw, _form_of(raw).stored)


def read_any(path: Path) -> AnyStored:
    """A stored failure; a bare scenario, case or client's script counts as one without target and failures.

    Raises UsageError naming file and field.
    """
    raw = json_of(path, Any)
    if not isinstance(raw, dict):
        raise UsageError(f"{path}: a scenario is a JSON object, not {type(raw).__name__}")
    form = _form_of(raw)
    bare = form.name not in raw
    run = {"target": "", "version": "", "device": ""} if bare else raw
    try:
        body = form.upgraded(raw if bare else raw[form.name])
        stored = msgspec.convert({**run, form.name: body}, form.stored)
        _refuse_unknown_fields(body, subject_of(stored), f"$.{form.name}")
        form.refuse(subject_of(stored))
    except msgspec.ValidationError as error:
        message = with_path(error)
        raise UsageError(f"{path}: {message.replace(f'`$.{form.name}', '`$') if bare else message}") from error
    except (OverflowError, OutOfDomain) as error:
        raise UsageError(f"{path}: {error}") from error
    return stored


def _refuse_unknown_fields(raw: Any, value: object, path: str) -> None:
    """A misspelt field would silently mean its default. Raises msgspec.ValidationError."""
    if isinstance(value, msgspec.Struct):
        known = {"type", *type(value).__struct_fields__}
    elif is_dataclass(value):
        known = set(value.__dataclass_fields__)
    elif isinstance(value, tuple) and isinstance(raw, list):
        for index, (raw_item, item) in enumerate(zip(raw, value, strict=True)):
            _refuse_unknown_fields(raw_item, item, f"{path}[{index}]")
        return
    else:
        return
    for name in raw:
        if name not in known:
            raise msgspec.ValidationError(f"unknown field `{name}` - at `{path}`")
        if name != "type" or "type" in getattr(value, "__struct_fields__", ()):
            _refuse_unknown_fields(raw[name], getattr(value, name), f"{path}.{name}")


_ID = re.compile(r"^[0-9a-f]{12}\.json$")


REPORTS = {
    "json": "report.json",
    "cards": "cards.json",
    "junit": "junit.xml",
    "html": "report.html",
    "github": "summary.md",
    "sarif": "ropecheck.sarif",
}
"""File names of the reports in OUT."""


def clear_reports(out: Path) -> None:
    """Remove the reports of the last run, so that a run that dies leaves no older result behind.

    Raises UsageError when the folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in REPORTS.values():
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}") from error


def clear_failures(folder: Path) -> None:
    """Forget the failures of the last run into this folder; only files that a run writes are touched."""
    if folder.is_dir():
        for path in folder.iterdir():
            if _ID.match(path.name):
                path.unlink(missing_ok=True)
