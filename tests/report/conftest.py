"""A page per test that notes every complaint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Shows HTML text in a new page. At the end: no page complained, and none asked for anything but its own file."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []

    def show(html: str, anchor: str = "", scheme: str = "light", width: int = 1200) -> Page:
        file = tmp_path / "report.html"
        file.write_text(html, "utf-8")
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light", viewport={"width": width, "height": 900}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri() + anchor)
        return page

    yield show
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith((tmp_path.as_uri(), "data:", "blob:"))] == []
