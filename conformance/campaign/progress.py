"""A campaign as it goes: a line now and then in the terminal, and a page that reloads itself."""

import time
from collections.abc import Callable
from pathlib import Path

from ropecheck.conformance.campaign.driver import CampaignDriver
from ropecheck.conformance.campaign.ledger import CampaignState, folder_of, now
from ropecheck.conformance.report import ranges
from ropecheck.conformance.results.chart import small_page
from ropecheck.conformance.store.files import write_atomic

LINE_SECONDS = 5.0
PAGE_SECONDS = 5.0


class Progress:
    """What a driver tells (see driver.CampaignDriver.tell)."""

    def __init__(self, say: Callable[[str], None], page: Path) -> None:
        self._say, self._page = say, page
        self._lined = self._paged = 0.0

    def __call__(self, driver: CampaignDriver, force: bool = False) -> None:
        at = time.monotonic()
        if force or at - self._lined > LINE_SECONDS:
            self._lined = at
            self._say(told(driver))
        if force or at - self._paged > PAGE_SECONDS:
            self._paged = at
            write_atomic(self._page, page(driver.ledger.state, told(driver)).encode())


def told(driver: CampaignDriver) -> str:
    """One line."""
    state = driver.ledger.state
    here, spent = now(state), driver.spent
    rate = here.forwards / spent if spent else 0.0
    lines = f" and {here.lines} lines of the engine" if here.lines else ""
    places = len(driver.crew.places())
    lost = f", {driver.lost} blocks lost and given again" if driver.lost else ""
    return (
        f"{spent / 60:.1f} min (processor {here.cpu / 60:.1f}): {here.blocks} blocks, {here.scenarios} scenarios, "
        f"{here.forwards} forwards ({rate:.0f}/s on {places} places), {here.reached} reached{lines}, "
        f"{here.findings} findings ({here.new} new){lost}"
    )


def page(state: CampaignState, head: str) -> str:
    """The campaign as one page that needs nothing else."""
    curve = state.curve
    names = ("scenarios", "forwards", "reached", "findings", "new") if curve else ()
    return small_page(
        Path(__file__).parent / "templates" / "campaign.html.jinja",
        head=head,
        at=[point.seconds for point in curve],
        charts=[(name, [float(getattr(point, name)) for point in curve]) for name in names],
        columns=state.columns,
        folder_of=folder_of,
        size=ranges.size,
    )
