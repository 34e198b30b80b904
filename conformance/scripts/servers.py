"""Ways to start the server, from data/servers.toml."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from ropecheck.adapters import play
from ropecheck.conformance.errors import meant, toml_of
from ropecheck.spec.history import OutOfDomain

FILE = Path(__file__).parents[1] / "data" / "servers.toml"


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to start it."""

    about: str
    """What it is for."""
    arguments: dict[str, bool | int | float | str] = {}
    environment: dict[str, str] = {}
    draft: str = ""
    """A toy draft model of the adapter's."""
    modes: tuple[str, ...] = ()
    """Forward modes that only such a server makes."""
    scripts: tuple[str, ...] = ()
    """The chosen scripts that are played on it, and no drawn ones; none: all, and drawn ones."""


@cache
def servers() -> Mapping[str, Configuration]:
    """Every configuration by name, in the file's order."""
    return toml_of(FILE, dict[str, Configuration])


def server(name: str) -> play.ServerConfig:
    """What an adapter is told. Raises OutOfDomain for an unknown name."""
    known = servers()
    if name not in known:
        raise OutOfDomain(f"unknown server configuration {name!r}{meant(name, known)}; known: {', '.join(known)}")
    return play.ServerConfig(
        name=name, arguments=known[name].arguments, environment=known[name].environment, draft=known[name].draft
    )


def made() -> tuple[str, ...]:
    """Forward modes that some server makes by itself."""
    return ("extend", "decode", *sorted({mode for one in servers().values() for mode in one.modes}))
