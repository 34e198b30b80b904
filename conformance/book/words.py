"""Text into HTML: Markdown, prose with names in backticks, Python source. Names of rules, modes, families, shapes and
public bugs become links wherever they stand."""

import io
import keyword
import re
import tokenize
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from ropecheck.conformance.book.site import SCHEME, to
from ropecheck.conformance.cards.bugs import OWNERS, address

Resolve = Callable[[str], str]
"""A link as a Markdown file writes it -> as the page must write it."""

_ARXIV = re.compile(r"\b(?:arXiv[: ])?(\d{4}\.\d{5})\b")
_BUG = re.compile(rf"(?<![\w/])((?:{'|'.join(map(re.escape, OWNERS))}|[\w.-]+/[\w.-]+) #\d+)")
_URL = re.compile(r"https?://[^\s)>,;]+[^\s)>,;.]")
_MARKED = re.compile(
    "|".join(("`(?P<code>[^`]+)`", f"(?P<url>{_URL.pattern})", f"(?P<bug>{_BUG.pattern})", _ARXIV.pattern))
)


_PLACES = re.compile(r'\b(src|srcset|href)="(?![a-z]+:)([^"#]+)"')
"""Relative addresses in HTML that stands in a Markdown text."""


class Words:
    """Writes for one page. names: what is linked when it stands in backticks -> the page that explains it."""

    def __init__(self, page: str, names: Mapping[str, str]) -> None:
        self.page = page
        self.names = names

    def link(self, name: str, text: str = "") -> Markup:
        """A name as code, linked where a page explains it."""
        shown = Markup("<code>{}</code>").format(text or name)
        target = self.names.get(name)
        if target is None or target == self.page:
            return shown
        return Markup('<a href="{}">{}</a>').format(to(target, self.page), shown)

    def bug(self, name: str) -> Markup:
        """A public bug by its short name, linked to its thread."""
        place = address(name)
        return Markup('<a href="{}">{}</a>').format(place, name) if place else escape(name)

    def bugs(self, names: Sequence[str]) -> Markup:
        """Several, in a line."""
        return Markup(", ").join(self.bug(name) for name in names)

    def prose(self, text: str) -> Markup:
        """A paragraph of plain text: backticks, addresses, papers and bugs are linked."""
        parts: list[Markup | str] = []
        at = 0
        for match in _MARKED.finditer(text):
            parts.append(text[at : match.start()])
            at = match.end()
            if match["code"]:
                parts.append(self.link(match["code"]))
            elif match["url"]:
                parts.append(Markup('<a href="{0}">{0}</a>').format(match["url"]))
            elif match["bug"]:
                parts.append(self.bug(match["bug"]))
            else:
                number = _ARXIV.search(match[0])
                assert number is not None
                parts.append(Markup('<a href="https://arxiv.org/abs/{}">{}</a>').format(number[1], match[0]))
        parts.append(text[at:])
        return Markup("").join(escape(part) for part in parts)

    def paragraphs(self, text: str) -> Markup:
        """A docstring: paragraphs; indented blocks, tables and doctests stay as they are."""
        return self.markdown(_fenced(text), lambda target: target)

    def markdown(self, text: str, resolve: Resolve) -> Markup:
        """A Markdown text. Headings get anchors, tables may be scrolled, names in backticks are linked."""
        made = MarkdownIt("commonmark", {"html": True}).enable("table")
        rules: Any = made.renderer
        rules.rules["code_inline"] = lambda tokens, at, *_: str(self.link(tokens[at].content))
        rules.rules["fence"] = lambda tokens, at, *_: str(block(tokens[at].content, tokens[at].info.strip()))
        tokens = made.parse(text)
        for number, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", anchor(tokens[number + 1].content))
            elif token.type == "html_block":
                token.content = _PLACES.sub(lambda found: f'{found[1]}="{resolve(found[2])}"', token.content)
            elif token.type == "inline":
                for child in token.children or ():
                    for name in ("href", "src"):
                        if (target := child.attrGet(name)) and not SCHEME.match(str(target)):
                            child.attrSet(name, resolve(str(target)))
        html = made.renderer.render(tokens, made.options, {})
        return Markup(html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>"))


def anchor(heading: str) -> str:
    """A heading's anchor, as code hosts make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def _fenced(doc: str) -> str:
    """Doctests in a docstring as code blocks: Markdown would run them together."""
    lines: list[str] = []
    inside = False
    for line in doc.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```python")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def block(code: str, language: str) -> Markup:
    """A code block."""
    return Markup("<pre><code>{}</code></pre>\n").format(python(code) if language in ("python", "py") else code)


def python(source: str) -> Markup:
    """Python source with its tokens marked; as it is where it is no whole program."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    parts: list[Markup] = []
    at = 0
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return escape(source)
    before = ""
    for token in tokens:
        kind = _kind(token, before)
        before = token.string if token.string.strip() else before
        if not kind:
            continue
        first, last = starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]
        parts += [escape(source[at:first]), Markup('<span class="tok-{}">{}</span>').format(kind, source[first:last])]
        at = last
    return Markup("").join([*parts, escape(source[at:])])


def _kind(token: tokenize.TokenInfo, before: str) -> str:
    if token.type == tokenize.NAME:
        if before in ("def", "class"):
            return "f"
        return "k" if keyword.iskeyword(token.string) else ""
    return {tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.NUMBER: "n"}.get(token.type, "")
