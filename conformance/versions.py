"""Version ranges of known failures, such as ">=0.5.20,<0.5.24". Versions and ranges mean what they mean to pip.

A range stays open until a release has proven that the bug is gone. A checkout's version says little: a tree without a
generated version file has none, and development versions count commits of some branch.
"""

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
    """Whether the version satisfies the range. What has no version number satisfies every range that is open."""
    wanted = versions if isinstance(versions, SpecifierSet) else parse_range(versions)
    if not numbered(version):
        return all(one.operator in (">=", ">", "!=") for one in wanted)
    found = Version(version)
    return all(
        # pip's "<0.5.24" leaves 0.5.24's own development versions out; they may still have the bug.
        found < Version(one.version)
        if one.operator == "<" and found.is_devrelease
        else one.contains(version, prereleases=True)
        for one in wanted
    )


def numbered(version: str) -> bool:
    """Whether it says which code it is; "0.0.0.dev0" and the like are what build tools write when they do not know."""
    return is_version(version) and Version(version).release[:3] != (0, 0, 0)


def released(engine: str, version: str) -> bool:
    """Whether it is a release that the list has been checked against: there an entry whose witness passes is stale."""
    newest = NEWEST_KNOWN.get(engine)
    if not numbered(version):
        return False
    found = Version(version)
    return found.local is None and not found.is_devrelease and (newest is None or found <= Version(newest))


def newer_than_known(engine: str, version: str) -> str:
    """One line when the release is newer than any that the adapter has been run on; "" otherwise."""
    newest = NEWEST_KNOWN.get(engine)
    if newest is None or not numbered(version) or Version(version) <= Version(newest):
        return ""
    return f"{engine} {version} is newer than any release known here ({newest}): it runs on what was found in it"
