"""The rule book in a real browser, as it lies on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from ropecheck.conformance.book.build import SiteBuild

pytestmark = pytest.mark.xdist_group("browser")

PAGES = ("index.html", "modes/target_verify.html", "rules/table.past_table.html", "bugs/s8.html", "guides/check.html")


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A page that no complaint was heard of when the test ends."""
    complaints: list[str] = []
    context = browser.new_context()
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    yield page
    context.close()
    assert complaints == []


def address(site: tuple[Path, SiteBuild], page: str) -> str:
    return (site[0] / page).as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1920])
def test_no_page_scrolls_sideways(tab: Page, site: tuple[Path, SiteBuild], scheme: str, width: int) -> None:
    tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.set_viewport_size({"width": width, "height": 900})
    for page in PAGES:
        tab.goto(address(site, page))
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, page
        expect(tab.get_by_role("main")).to_be_visible()
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


def test_search_finds_and_leads(tab: Page, site: tuple[Path, SiteBuild]) -> None:
    tab.goto(address(site, "rules/index.html"))
    box = tab.get_by_role("searchbox", name="Search")
    box.fill("delta missing")
    expect(tab.locator("#found a").first).to_have_text("delta missing")
    box.fill("28464")
    expect(tab.locator("#found")).to_contain_text("draft extend")
    box.fill("no such thing at all")
    expect(tab.locator("#found")).to_have_text("Nothing found.")
    box.fill("target_verify")
    box.press("Enter")
    tab.wait_for_url("**/modes/target_verify.html")


def test_what_a_reader_sees_of_a_mode(tab: Page, site: tuple[Path, SiteBuild]) -> None:
    tab.goto(address(site, "modes/draft_extend_v2.html"))
    expect(tab.locator("figure.history svg").first).to_be_visible()
    assert "reads 13, 14, 15" in (tab.locator("figure.history svg").first.get_attribute("aria-label") or "")
    expect(tab.locator("math").first).to_be_visible()
    expect(tab.locator("table.tables").first).to_be_visible()
    expect(tab.get_by_role("link", name="sglang #28464").first).to_be_visible()


def test_a_narrow_page_begins_with_its_text(tab: Page, site: tuple[Path, SiteBuild]) -> None:
    tab.set_viewport_size({"width": 360, "height": 700})
    tab.goto(address(site, "rules/table.past_table.html"))
    assert tab.locator("details.menu").get_attribute("open") is None
    expect(tab.get_by_role("heading", level=1)).to_be_in_viewport()
    tab.get_by_text("Contents").click()
    expect(tab.get_by_role("link", name="Glossary")).to_be_visible()
