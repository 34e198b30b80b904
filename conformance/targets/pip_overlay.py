"""Packages by name, installed with pip into a folder that is put before the common environment.

A release is installed without its dependencies; only the packages that break at import in another version than the
release's own follow it, with the versions read from the metadata of what was just installed. Everything here works
inside the folder that it is given.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

FOLLOWERS: dict[str, tuple[str, ...]] = {
    # An engine subclasses its transformers' configurations: another version fails while importing.
    "sglang": ("transformers", "tokenizers"),
    # transformers checks both versions while importing.
    "transformers": ("tokenizers", "huggingface-hub"),
}
"""Package -> those of its requirements that must have the very version that it asks for."""

NEEDED_BYTES = 600 << 20
"""Free space asked for before an installation starts: an overlay and its temporary copy."""

UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|Connection refused|ConnectTimeout"
    r"|ReadTimeout|Network is unreachable|ProxyError|Connection reset|Max retries exceeded|SSLError|timed out"
)
REFUSED = re.compile(r"HTTP error (4\d\d|5\d\d)|\b(4\d\d|5\d\d) (?:Client|Server) Error")
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|Errno 28|Errno 122")
VERSIONS = re.compile(r"\(from versions: (.*?)\)")


class ProvisionError(Exception):
    """A target could not be made: one clear line.

    `exit_code`: 2 when the user asked for something that does not exist, 3 when the machine could not do it.
    """

    def __init__(self, message: str, exit_code: int = 3) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def install(requirement: str, folder: Path) -> dict[str, str]:
    """Install `requirement` (like "sglang==0.5.14") and what follows it into `folder`; name -> version installed.

    Raises ProvisionError.
    """
    pip([requirement], folder)
    return follow(folder, requirements_of(folder))


def follow(folder: Path, asked: dict[str, list[str]], package: str = "sglang") -> dict[str, str]:
    """Install into `folder` the followers of `package`, whose requirements are `asked`; all that the folder holds.

    A follower is skipped when the common environment's version will do. Raises ProvisionError.
    """
    led, tried = [package], set[str]()
    while missing := [
        name
        for leader in led
        for name in FOLLOWERS.get(leader, ())
        if name in asked and name not in tried and not satisfied(name, asked[name], folder)
    ]:
        # One at a time: the engine and its transformers both have a say in which tokenizers it is.
        tried.add(missing[0])
        led.append(missing[0])
        pip([f"{missing[0]}{','.join(asked[missing[0]])}"], folder)
        for name, specifiers in requirements_of(folder).items():
            asked[name] = list(dict.fromkeys([*asked.get(name, ()), *specifiers]))
    return {canonicalize_name(d.name): d.version for d in metadata.distributions(path=[str(folder)])}


def requirements_of(folder: Path) -> dict[str, list[str]]:
    """The version specifiers that the packages in `folder` ask of others: canonical name -> specifiers."""
    asked: dict[str, list[str]] = {}
    for distribution in metadata.distributions(path=[str(folder)]):
        add_requirements(asked, distribution.requires or ())
    return asked


def add_requirements(asked: dict[str, list[str]], lines: Iterable[str]) -> None:
    """Add requirement `lines` (as in a package's metadata) that apply here and without extras to `asked`."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # a requirement that this Python cannot read is none that we follow
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        specifiers = asked.setdefault(canonicalize_name(requirement.name), [])
        specifiers += [s for s in map(str, requirement.specifier) if s not in specifiers]


def satisfied(name: str, specifiers: Sequence[str], folder: Path) -> bool:
    """Whether `folder`, or else the common environment, holds a version of `name` that fits."""
    found = installed(name, [str(folder)]) or installed(name)
    requirement = Requirement(f"{name}{','.join(specifiers)}")
    return found is not None and requirement.specifier.contains(found, prereleases=True)


def installed(name: str, path: list[str] | None = None) -> str | None:
    """The version of `name` in this Python's environment (or on `path`), None when it is not there."""
    found = metadata.distributions(name=name, path=sys.path if path is None else path)
    return next((d.version for d in found), None)


def version_key(text: str) -> Version:
    """For sorting releases; what is no version comes first."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")


def pip(requirements: Sequence[str], folder: Path) -> None:
    """Install wheels of `requirements` by name, without their dependencies, into `folder`. Raises ProvisionError."""
    scratch = folder / ".tmp"
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ProvisionError(f"cannot write to {folder}: {error.strerror}") from error
    if free < NEEDED_BYTES:
        raise ProvisionError(
            f"disk full: {free >> 20} MB free where targets are kept, {NEEDED_BYTES >> 20} MB needed; "
            f"`ropecheck target remove` frees some"
        )
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--no-compile"]
    # Byte code is written by the first import; pip would compile thousands of files that are never imported.
    command += ["--quiet", "--no-input", "--retries", "2", "--target", str(folder), *requirements]
    # pip unpacks into a temporary folder and moves: inside the target's own folder the move is a rename.
    environment = os.environ | {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ProvisionError(f"pip could not be started: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if done.returncode:
        raise explain(requirements, done.stdout + done.stderr)


def explain(requirements: Sequence[str], output: str) -> ProvisionError:
    """One clear line for a failed pip, from what it printed."""
    what = ", ".join(requirements)
    if NO_SPACE.search(output):
        return ProvisionError(f"disk full while installing {what}; `ropecheck target remove` frees some")
    if "No module named pip" in output:
        return ProvisionError("this Python has no pip: run `python -m ensurepip` once")
    if UNREACHABLE.search(output):
        return ProvisionError(f"the package index cannot be reached: {what} was not installed (no network?)")
    if refused := REFUSED.search(output):
        code = refused.group(1) or refused.group(2)
        return ProvisionError(f"the package index refused {what} (HTTP {code})")
    if versions := VERSIONS.search(output):
        known = [v for v in versions.group(1).split(", ") if v and v != "none"]
        version = requirements[0].partition("==")[2]
        if version and re.search(rf"Requires-Python|different python version.*\b{re.escape(version)}\b", output):
            return ProvisionError(f"{what} has no wheel for Python {sys.version_info[0]}.{sys.version_info[1]}")
        if known:
            return ProvisionError(f"{what}: no such release here; newest: {', '.join(known[-3:])}", 2)
        return ProvisionError(f"{what}: the package index has no such package for this machine", 2)
    errors = [line.partition("ERROR:")[2].strip() for line in output.splitlines() if "ERROR:" in line]
    return ProvisionError(f"pip could not install {what}: {errors[-1] if errors else 'it gave no reason'}")
