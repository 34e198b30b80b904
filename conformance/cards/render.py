"""Small things that every report writes alike."""

import shlex
from collections.abc import Iterable

from rich.text import Text

from ropecheck.conformance.run.events import Header


def replay_command(header: Header, file: str) -> str:
    """The one line that runs one scenario again."""
    command = ["ropecheck", "replay", str(header.out / file), "--target", header.target]
    if header.device != "cpu":
        command += ["--device", header.device]
    return shlex.join(command)


def as_text(lines: Iterable[Text]) -> str:
    """Without styles."""
    return "\n".join(line.plain.rstrip() for line in lines)
