"""Modules of the engine that one step needs and the rest of the adapter does not.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | Raised.message | the import that failed |

Nothing is faked here; `absent_packages` stands in for a package that the module asks for.
"""

from __future__ import annotations

import importlib
from typing import Any

from ropecheck.adapters.sglang import absent_packages


class CannotImport(Exception):
    """A module of the engine is there, and its import fails, be it for a package that is not installed: the step that
    needs it could not run."""


def imported(name: str) -> Any:
    """The module, or None where this release has none of that name.

    Raises ModuleNotFoundError for a missing module of the engine's own, and CannotImport when the import fails in any
    other way.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            return None
        if (package := absent_packages.missing(error)) is not None:
            absent_packages.stand_in(package)
            return imported(name)
        if missing.split(".")[0] == name.split(".")[0]:
            raise
        raise CannotImport(f"{name} cannot be imported here: {missing or error} is not installed") from None
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise CannotImport(f"{name} cannot be imported: {type(error).__name__}: {first}") from error
