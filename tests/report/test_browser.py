"""report.html in a real browser."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest
from playwright.sync_api import Page, expect

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.judge.outcome import Unrun
from ropecheck.conformance.report.html_page import INLINE, build, page
from ropecheck.conformance.run.events import Summary
from ropecheck.conformance.scenarios.chosen import chosen
from tests.report.conftest import Open
from tests.report.support import many, run

pytestmark = pytest.mark.xdist_group("browser")

FAULTS = ("verify delta missing", "decode delta of the first request", "append keeps the delta")
EVIL = "<b>bold</b><script>alert('x')</script>\"'&amp;"


@cache
def summary() -> Summary:
    """Three planted faults, on every fourth chosen scenario."""
    return run(Path(mkdtemp()), *FAULTS, scenarios=chosen()[::4])


@cache
def shown() -> tuple[Card, ...]:
    return cards(summary())


@cache
def html() -> str:
    return page(summary(), shown())


def visible(tab: Page) -> int:
    return tab.locator("details.card:visible").count()


def test_what_a_reader_finds(open_page: Open) -> None:
    tab = open_page(html())
    expect(tab.get_by_role("main")).to_be_visible()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("reference 1.0")
    for name in ("Overview", "Findings", "Warnings", "Engine code"):
        expect(tab.get_by_role("heading", level=2, name=name)).to_be_visible()
    assert visible(tab) == len(shown()) > 3
    card = tab.locator(f"#{shown()[0].id}")
    expect(card.get_by_text(shown()[0].must[:40])).to_be_visible()
    expect(card.locator("li.wrong")).to_contain_text("wrong here")
    wrong = card.locator("td.wrong")
    assert wrong.count() > 0
    for cell in wrong.all():
        assert "✗" in cell.inner_text(), "marked by more than colour"
        assert "must be" in (cell.get_attribute("title") or "")
        assert "request" in (cell.get_attribute("title") or "")
        assert "index" in (cell.get_attribute("title") or "")


def test_the_matrix_leads_to_the_finding(open_page: Open) -> None:
    tab = open_page(html())
    chip = tab.locator(".matrix a").last
    anchor = chip.get_attribute("href")
    chip.click()
    expect(tab.locator(f"{anchor} > .body")).to_be_in_viewport()


def test_search_and_filters(open_page: Open) -> None:
    tab = open_page(html())
    wanted = [card for card in shown() if card.mode == "target_verify"]
    tab.get_by_role("combobox", name="Mode").select_option("target_verify")
    assert visible(tab) == len(wanted)
    expect(tab.locator("#count")).to_have_text(f"{len(wanted)} of {len(shown())}")
    tab.get_by_role("searchbox", name="Search").fill("no such words")
    assert visible(tab) == 0
    expect(tab.get_by_text("No finding matches.")).to_be_visible()
    tab.get_by_role("combobox", name="Mode").select_option("")
    tab.get_by_role("searchbox", name="Search").fill("DELTA missing")
    assert visible(tab) == sum("delta missing" in card.signature for card in shown())
    tab.get_by_role("combobox", name="State").select_option("known")
    assert visible(tab) == 0


def test_a_link_opens_a_packed_card(open_page: Open) -> None:
    summed = many(run(Path(mkdtemp()), "verify delta missing", scenarios=chosen()[::4]), INLINE + 120)
    found = cards(summed)
    last = found[-1]
    tab = open_page(page(summed, found), f"#{last.id}")
    body = tab.locator(f"#{last.id} > .body")
    expect(body).to_be_in_viewport()
    expect(body).to_contain_text(last.message)
    assert tab.locator(".body").count() == INLINE + 1, "the others are still packed"
    tab.locator(f"#{found[-70].id} > summary").click()
    expect(tab.locator(f"#{found[-70].id} > .body")).to_contain_text(found[-70].replay)


def test_the_keyboard_is_enough(open_page: Open) -> None:
    tab = open_page(html())
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="To the findings")).to_be_focused()
    second = tab.locator("details.card > summary").nth(1)
    second.focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("details.card").nth(1)).to_have_attribute("open", "")
    expect(tab.locator("details.card").nth(1).locator(".message")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_no_page_scrolls_sideways(open_page: Open, scheme: str, width: int) -> None:
    tab = open_page(html(), scheme=scheme, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


def test_names_with_markup_are_text(open_page: Open) -> None:
    summed = run(Path(mkdtemp()), "verify delta missing", scenarios=chosen()[::4])
    evil = msgspec.structs.replace(summed.findings[0].scenario, name=EVIL)
    summed.findings[0].scenario = evil
    summed.findings[0].failure = msgspec.structs.replace(
        summed.findings[0].failure, message=EVIL, signature=EVIL, where=EVIL
    )
    summed.findings[0].key = (summed.findings[0].key[0], EVIL, EVIL)
    summed.unrun.append((evil, Unrun(stage="run", message=EVIL), ""))
    summed.warnings.append(EVIL)
    tab = open_page(build(summed))
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for place in (".card .message", ".card h3", "#unrun li", "#warnings li", ".card .code", "#mode"):
        assert EVIL in (tab.locator(place).first.text_content() or ""), place
    assert tab.locator("main b", has_text="bold").filter(has_not_text="<b>").count() == 0


def test_a_run_without_findings(open_page: Open, tmp_path: Path) -> None:
    tab = open_page(build(run(tmp_path)))
    expect(tab.get_by_text("None: nothing that was checked fails.")).to_be_visible()
