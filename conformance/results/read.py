"""Reading a report.json, with one line for what is wrong with it."""

from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report.json_file import SCHEMA, Report
from ropecheck.conformance.store.files import REPORTS


class _Head(msgspec.Struct):
    schema: int = 0


def report_file(path: Path) -> Path:
    """The file itself, or report.json in a run's folder."""
    return path / REPORTS["json"] if path.is_dir() else path


def read(path: Path) -> Report:
    """The report in a file or in a run's folder. Raises UsageError naming file and field."""
    file = report_file(path)
    try:
        body = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    try:
        schema = msgspec.json.decode(body, type=_Head).schema
        if schema != SCHEMA:
            raise UsageError(f"{file}: schema {schema or 'unknown'}, but this suite reads {SCHEMA}: run it again")
        return msgspec.json.decode(body, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not a whole report: {error}") from error
