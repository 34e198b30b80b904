"""What ends a run early: bad input, and a target that cannot be kept running. Files of data, read with one line for
what is wrong with them."""

import difflib
import errno
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def meant(name: str, known: Iterable[str]) -> str:
    """ " (did you mean X?)" for the closest known name; "" when none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within it, a write that fails names its file; the system's own error does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def line_of(error: OSError) -> str:
    """The error as one line: the file, and what is wrong."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = "disk full" if full else error.strerror or f"{type(error).__name__}: {error}"
    return f"{error.filename}: {what}" if error.filename else what


_UNSEEN = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_UNSEEN |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    """The text with control characters written out: what an engine said must not steer a terminal. New lines and tabs
    stay; escape sequences and marks that turn the direction of text do not."""
    return text.translate(_UNSEEN)


class UsageError(Exception):
    """Bad input or configuration; the message is one line that names the file and field. Exit code 2."""


class GaveUp(Exception):
    """No worker can be kept running; the message is one line. Exit code 3."""


def toml_of(path: Path, form: type[T]) -> T:
    """A TOML file as `form`. Raises UsageError naming file and field."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), form)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from error


def json_of(path: Path, form: type[T]) -> T:
    """A JSON file as `form`. Raises UsageError naming file and field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {with_path(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error} - at `$`") from error


def with_path(error: msgspec.ValidationError) -> str:
    """What is wrong and where: msgspec names the field, except at the top."""
    message = str(error)
    return message if "`$" in message else f"{message} - at `$`"
