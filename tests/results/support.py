"""Reports to compare, and what may differ between two that say the same."""

from __future__ import annotations

import msgspec

from ropecheck.conformance.report.json_file import Report


def timeless(report: Report) -> Report:
    """Without what is measured: times, and how many workers there were."""
    totals = msgspec.structs.replace(report.totals, seconds=0.0, engine_seconds=0.0, compare_seconds=0.0, workers=0)
    part = msgspec.structs.replace(report.part, ended="")
    return msgspec.structs.replace(report, totals=totals, part=part)
