"""The targets: which command starts a worker of which engine, and on which devices it can be asked to run.

A target is data. Provisioned releases are targets too; whoever provisions them calls `register_source` with a
function that lists them, and every verb knows them from then on.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ropecheck.conformance.errors import UsageError, meant

DEFAULT = "sglang"
"""The target of a run that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One engine that can be started."""

    name: str
    argv: tuple[str, ...]
    """Command of the worker, without `--in-fd N --out-fd M --device D`, which the pool appends."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Added to the runner's own environment."""
    devices: tuple[str, ...] = ("cpu",)
    offers: tuple[str, ...] = ("forwards", "prompt_tables")
    """What its worker can be asked for; a phase that needs something else is no phase of this target."""
    on_request: tuple[str, ...] = ()
    """What it can be asked for besides, by a phase that is named."""
    note: str = ""
    """One line for `list targets`."""
    forks: bool = False
    """Its worker's command takes `--fork-fd N` in place of the pipes, and forks workers on request; on a CPU alone."""
    source: str = ""
    """Where its code lies, where that is a checkout: the folder of the package, also first in env's PYTHONPATH."""
    identity: str = ""
    """Commit and hash of what is not committed, where it is a checkout: versions of checkouts say little."""


Source = Callable[[], Iterable[Target]]


def builtin() -> tuple[Target, ...]:
    """The targets of the running Python."""
    return (
        Target(
            name="reference",
            argv=(sys.executable, "-m", "ropecheck.conformance.selftest.reference_worker"),
            offers=("forwards",),
            note="the reference model behind the worker protocol; agrees with itself by construction",
        ),
        Target(
            name="sglang",
            argv=(sys.executable, "-m", "ropecheck.adapters.sglang.worker"),
            forks=True,
            devices=("cpu", "cuda"),
            offers=("forwards", "prompt_tables", "routes", "scheduler"),
            note="the SGLang installed in this Python",
        ),
        Target(
            name="transformers",
            argv=(sys.executable, "-m", "ropecheck.adapters.transformers.worker"),
            forks=True,
            offers=("prompt_tables",),
            note="the prompt-table builders of the Hugging Face transformers installed in this Python",
        ),
    )


_SOURCES: list[Source] = [builtin]


def register_source(source: Source) -> None:
    """Add a function that lists further targets. An earlier source's name wins."""
    _SOURCES.append(source)


def all_targets() -> dict[str, Target]:
    """Every known target by name, in the order of the sources."""
    found: dict[str, Target] = {}
    for source in _SOURCES:
        for target in source():
            found.setdefault(target.name, target)
    return found


def find(name: str, device: str) -> Target:
    """The target of that name. Raises UsageError, naming the known ones, or the devices that it offers."""
    # Source by source: a record that is torn stands in the way of provisioned targets alone.
    target = next((target for source in _SOURCES for target in source() if target.name == name), None)
    if target is None:
        known = all_targets()
        raise UsageError(f"unknown target {name!r}{meant(name, known)}; known: {', '.join(known)}")
    if device not in target.devices:
        raise UsageError(f"target {name} does not run on device {device!r}; it offers: {', '.join(target.devices)}")
    return target
