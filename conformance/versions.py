"""Version ranges of known failures, such as ">=0.5.20,<=0.5.23". Versions and ranges mean what they mean to pip."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


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
