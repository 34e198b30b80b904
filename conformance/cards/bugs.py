"""Public bugs by the short names that rules use, and their addresses."""

import re
from pathlib import Path

from ropecheck.conformance.errors import toml_of

OWNERS = toml_of(Path(__file__).parents[1] / "data" / "repositories.toml", dict[str, str])
"""Repository as rules call it -> its place on GitHub. A name with a slash is a place already."""

_NAME = re.compile(r"(?P<repository>\S+) #(?P<number>\d+)")


def address(bug: str) -> str:
    """The thread of a bug such as "sglang #28464"; "" for a name of another form or an unknown repository."""
    match = _NAME.fullmatch(bug)
    if match is None:
        return ""
    repository = match["repository"]
    place = repository if "/" in repository else OWNERS.get(repository, "")
    return f"https://github.com/{place}/issues/{match['number']}" if place else ""
