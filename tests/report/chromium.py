"""Where Chromium is: `python -m tests.report.chromium` prints its path."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The path of a Chromium: ROPECHECK_CHROMIUM, one on the PATH, or Playwright's own; "" when there is none."""
    if named := os.environ.get("ROPECHECK_CHROMIUM", ""):
        return named if Path(named).is_file() else ""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else ""


def main() -> int:
    """Print it; 1 when there is none."""
    path = chromium()
    print(path or "no Chromium: install one (Debian: apt-get install chromium), or name one in ROPECHECK_CHROMIUM")
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
