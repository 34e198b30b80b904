"""Drawings of what the suite talks about, for every page that shows them: two tables one over the other, a timeline of
operations, the grid of a media item, the tokens of a history that a batch reads, a prompt with a photo over its table.
Data in, safe HTML and SVG out; nothing here knows a run or a report."""

from ropecheck.conformance.figures.draw import environment, stylesheet
from ropecheck.conformance.figures.grid import Grid, grid
from ropecheck.conformance.figures.history import Lane, strip
from ropecheck.conformance.figures.picture import Column, picture
from ropecheck.conformance.figures.tables import DrawnTable, tables
from ropecheck.conformance.figures.timeline import OperationLine, timeline

__all__ = [
    "Column",
    "DrawnTable",
    "Grid",
    "Lane",
    "OperationLine",
    "environment",
    "grid",
    "picture",
    "strip",
    "stylesheet",
    "tables",
    "timeline",
]
