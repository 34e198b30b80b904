"""One file per forward mode: which token indices each row of its batch reads, and what a batch of it carries.

Each file declares its mode with `@mode` (spec/modes/declaration.py). Everything else follows from the declaration:
tables, validation, enumeration, random batches, shrinking, vectors, laws, planted faults, documentation. A mode of
somebody's own comes from `load`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes.declaration import DECLARED, Mode


@cache
def _files() -> None:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)


def all_modes() -> Mapping[str, Mode]:
    """Every mode that a batch can be built in by name, in alphabetical order."""
    _files()
    return {name: mode for name, mode in sorted(DECLARED.items()) if not (mode.follows or mode.served)}


def mode_of(name: str) -> Mode:
    """The mode of that name. Raises OutOfDomain, naming the known ones: an unknown mode is an error, never "idle"."""
    _files()
    found = DECLARED.get(name)
    if found is None:
        raise OutOfDomain(f"unknown forward mode {name!r}; known: {', '.join(sorted(DECLARED))}")
    return found


def composed(parts: tuple[str, ...]) -> Mode:
    """The mode whose batch is made of rows of these modes, in this order. Raises OutOfDomain when none is declared."""
    _files()
    for found in DECLARED.values():
        if tuple(part.name for part in found.parts) == parts:
            return found
    raise OutOfDomain(f"no mode has rows of {', then '.join(parts)}")


def load(path: Path) -> tuple[Mode, ...]:
    """Modes declared in a file outside the repository. Raises OutOfDomain, naming the file, where it declares none."""
    _files()
    before = set(DECLARED)
    loader = importlib.util.spec_from_file_location(f"ropecheck_mode_{path.stem}", path)
    if loader is None or loader.loader is None or not path.is_file():
        raise OutOfDomain(f"{path}: no Python file")
    module = importlib.util.module_from_spec(loader)
    try:
        loader.loader.exec_module(module)
    except Exception as error:
        raise OutOfDomain(f"{path}: {type(error).__name__}: {error}") from error
    found = tuple(DECLARED[name] for name in DECLARED if name not in before)
    if not found:
        raise OutOfDomain(f"{path}: declares no mode (@mode(...) from ropecheck.spec.modes.declaration)")
    return found
