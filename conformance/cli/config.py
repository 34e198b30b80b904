"""`[tool.ropecheck]` of the nearest pyproject.toml: defaults for options, by verb.

[tool.ropecheck.check]
base = "origin/main"
report = "junit,html"
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ropecheck.conformance.errors import UsageError, meant

Defaults = dict[str, Any]


def defaults(command: Any, folder: Path) -> Defaults:
    """What the file says, as click wants it, for the whole command line `command`.

    Raises UsageError naming file and entry.
    """
    files = (one / "pyproject.toml" for one in (folder, *folder.parents))
    file = next((one for one in files if one.is_file()), None)
    if file is None:
        return {}
    try:
        table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("ropecheck", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # whoever owns the file hears of it elsewhere; nothing in it is ours then
    return _of(command, table, f"{file}: tool.ropecheck")


def _of(command: Any, table: object, where: str) -> Defaults:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: must be a table")
    verbs: Mapping[str, Any] = getattr(command, "commands", {})
    options = {option.removeprefix("--"): one for one in command.params for option in one.opts if option[:2] == "--"}
    found: Defaults = {}
    for name, value in table.items():
        if name in verbs:
            found[name] = _of(verbs[name], value, f"{where}.{name}")
        elif name in options:
            if not isinstance(value, str | int | float | list):
                raise UsageError(f"{where}.{name}: must be a text, a number, true, false or a list")
            found[options[name].name] = value
        else:
            raise UsageError(f"{where}: unknown {name!r}{meant(name, [*verbs, *options])}")
    return found
