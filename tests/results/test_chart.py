"""A curve as SVG: from left to right, the largest value above."""

from __future__ import annotations

import pytest

from ropecheck.conformance.results.chart import line


@pytest.mark.parametrize(
    ("values", "at", "points"),
    [
        ([1, 3, 2], None, "0.0,60.0 180.0,0.0 360.0,30.0"),
        ([5.5], None, "0.0,60.0"),
        ([2, 2], None, "0.0,60.0 360.0,60.0"),
        ([0, 4, 1], [10, 20, 50], "0.0,60.0 90.0,0.0 360.0,45.0"),
        ([0, 4], [7, 7], "0.0,60.0 0.0,0.0"),
    ],
)
def test_a_curve(values: list[float], at: list[float] | None, points: str) -> None:
    drawn = line(values, at)
    assert f'<polyline points="{points}"/>' in drawn
    assert f'aria-label="from {min(values):g} to {max(values):g}"' in drawn
