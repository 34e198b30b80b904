"""Forward modes from outside the repository: files named on the command line, and installed entry points.

A file declares a mode (ropecheck.spec.modes.declaration) and may say, beside it, how an engine is driven; workers are
told of it by their environment.
"""

import os
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from ropecheck.conformance.errors import UsageError
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import load

VARIABLE = "ROPECHECK_MODE_FILES"
"""In this process's environment, and so in its workers': the files, separated as on a path."""

GROUP = "ropecheck.modes"
"""Entry points of this group name modules that declare modes."""


def install(paths: Iterable[Path]) -> None:
    """Declare the modes of these files, of those in the environment, and of installed packages.

    Raises UsageError, naming the file, for one that declares no mode or cannot be read.
    """
    known = [Path(path) for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))]
    files = dict.fromkeys(path.resolve() for path in (*known, *paths, *_installed()))
    for path in files:
        try:
            load(path)
        except (OutOfDomain, ValueError) as error:
            raise UsageError(f"--mode-file {path}: {error}") from error
    if files:
        os.environ[VARIABLE] = os.pathsep.join(map(str, files))


def _installed() -> list[Path]:
    found = []
    for point in metadata.entry_points(group=GROUP):
        try:
            file = getattr(point.load(), "__file__", None)
        except Exception as error:
            raise UsageError(f"entry point {point.name} of {GROUP}: {type(error).__name__}: {error}") from error
        if file:
            found.append(Path(file))
    return found
