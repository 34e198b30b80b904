"""`python -m ropecheck.adapters.toys FAMILY FOLDER [--seed N]`: make one."""

from __future__ import annotations

import argparse
from pathlib import Path

from ropecheck.adapters.toys.make import DRAFTS, MAKERS, draft, make


def main() -> int:
    """Write the checkpoint. Exit code 0."""
    parser = argparse.ArgumentParser(description="Make a toy checkpoint.")
    parser.add_argument("family", choices=sorted((*MAKERS, *DRAFTS)))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.family in DRAFTS:
        draft(options.family, options.folder)
    else:
        make(options.family, options.folder, options.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
