"""How long report.html takes to open: `python -m bench.report_open [FINDINGS]`. Needs a Chromium."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from ropecheck.conformance.report.html_page import build
from ropecheck.conformance.scenarios.chosen import chosen
from tests.report.chromium import chromium
from tests.report.support import many, run


def main() -> int:
    """Write a report of that many findings, open it, filter it; print seconds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with TemporaryDirectory() as folder:
        summary = many(run(Path(folder), "verify delta missing", "append keeps the delta", scenarios=chosen()), count)
        began = time.perf_counter()
        file = Path(folder) / "report.html"
        file.write_text(build(summary), "utf-8")
        print(f"{count} findings, {file.stat().st_size / 1e6:.1f} MB, written in {time.perf_counter() - began:.1f} s")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            for _ in range(3):
                page = browser.new_page()
                page.goto(file.as_uri())
                loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
                began = time.perf_counter()
                page.fill("#search", "delta missing 12")
                found = page.inner_text("#count")
                print(f"opened in {loaded / 1e3:.2f} s; filtered to {found} in {time.perf_counter() - began:.2f} s")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
