"""What public requests can do that is not sent, and why: for `ropecheck list requests` and docs/requests.md."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import toml_of

FILE = Path(__file__).parents[1] / "data" / "public_requests.toml"
BEGIN, END = "<!-- requests:begin -->", "<!-- requests:end -->"
"""Between these two lines of docs/requests.md stands what `ropecheck list requests --markdown` prints."""


class PublicField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of the public interface that one reason holds for."""

    fields: tuple[str, ...]
    touches: str
    """Of positions, lengths and media; or "none"."""
    says: str = ""
    """What the interface's own documentation says, in other words."""
    driven: tuple[str, ...] = ()
    """Values that are sent: "values: by what"."""
    apart: bool = False
    """No function of the engine that reads one of them handles positions; tests look into its source."""
    left_out: tuple[str, ...] = ()
    """Values that are not: "values: why"."""


class RefusedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a public request may do, and the suite refuses."""

    file: str
    raises: str
    """Words of the message of the OutOfDomain."""
    request: str
    why: str


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which flags count."""

    name: tuple[str, ...]
    """Words between the underscores of the name."""
    help: tuple[str, ...]
    """Regular expressions, searched in the help text."""


class Nonsense(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files all of whose OutOfDomain refuse nonsense in the suite's own files and calls."""

    files: tuple[str, ...]


class PublicRequests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """data/public_requests.toml."""

    GenerateReqInput: tuple[PublicField, ...]
    SessionParams: tuple[PublicField, ...]
    OpenSessionReqInput: tuple[PublicField, ...]
    CloseSessionReqInput: tuple[PublicField, ...]
    AbortReq: tuple[PublicField, ...]
    PauseGenerationReqInput: tuple[PublicField, ...]
    SamplingParams: tuple[PublicField, ...]
    ServerArgs: tuple[PublicField, ...]
    words: Words
    others: dict[str, tuple[str, ...]]
    """Why flags that do not count touch nothing -> patterns of "namespace.flag"."""
    refused: tuple[RefusedRequest, ...]
    nonsense: Nonsense

    def classes(self) -> dict[str, tuple[PublicField, ...]]:
        """The interface's classes by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name[0].isupper()}


@cache
def public_requests() -> PublicRequests:
    """The list, read once."""
    return toml_of(FILE, PublicRequests)


def markdown() -> str:
    """All of it as Markdown tables."""
    return "\n".join(_lines(public_requests())) + "\n"


def _lines(found: PublicRequests) -> Iterator[str]:
    for name, entries in found.classes().items():
        yield from (f"### {name}", "", "| field | touches | sent | not sent, and why |", "| --- | --- | --- | --- |")
        for entry in entries:
            names = ", ".join(f"`{field}`" for field in entry.fields)
            says = f" ({entry.says})" if entry.says else ""
            left_out = (*entry.left_out, *(("**apart**",) if entry.apart else ()))
            yield f"| {names}{says} | {entry.touches} | {'<br>'.join(entry.driven)} | {'<br>'.join(left_out)} |"
        yield ""
    yield from ("### Flags that touch nothing", "", "| flags | why |", "| --- | --- |")
    for why, patterns in found.others.items():
        yield f"| {', '.join(f'`{pattern}`' for pattern in patterns)} | {why} |"
    yield from ("", "### Refused by the suite", "", "| a public request | refused in | why |", "| --- | --- | --- |")
    for one in found.refused:
        yield f"| {one.request} | `{one.file}` | {one.why} |"
