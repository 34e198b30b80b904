"""Version ranges of known failures, such as ">=0.5.20,<=0.5.23". Versions and ranges mean what they mean to pip."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

NEWEST_KNOWN = {"sglang": "0.5.23"}
"""Engine -> the newest release that its adapter has been run on."""


def parse_range(text: str) -> SpecifierSet:
    """The range; "" holds always. Raises ValueError naming the bad text."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is not a version range, such as '>=0.5.20,<=0.5.23'") from error


def is_version(text: str) -> bool:
    """Whether it can be ordered; "unknown" or a commit hash cannot."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def within(version: str, versions: str | SpecifierSet) -> bool:
    """Whether the version satisfies the range. What is no version satisfies only the empty range."""
    wanted = versions if isinstance(versions, SpecifierSet) else parse_range(versions)
    if not str(wanted):
        return True
    return is_version(version) and wanted.contains(version, prereleases=True)


def newer_than_known(engine: str, version: str) -> str:
    """One line when the release is newer than any that the adapter has been run on; "" otherwise."""
    newest = NEWEST_KNOWN.get(engine)
    if newest is None or not is_version(version) or Version(version) <= Version(newest):
        return ""
    return f"{engine} {version} is newer than any release known here ({newest}): it runs on what was found in it"
