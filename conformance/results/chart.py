"""What the small pages share: a style, and a curve."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from ropecheck.conformance.figures import environment

STYLE = Markup("""body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: .15em .8em; text-align: left; border-bottom: 1px solid #8884; }
.bad { color: #c22; font-weight: bold; } svg { overflow: visible; } polyline { fill: none; stroke: #07a; }""")

_WIDTH, _HEIGHT = 360, 60


def small_page(template: Path, **values: object) -> str:
    """A page that needs nothing else. Its template has the style and `line` to draw with."""
    made = environment(template.parent).get_template(template.name)
    return made.render(style=STYLE, line=line, **values)


def line(values: Sequence[float], at: Sequence[float] | None = None) -> Markup:
    """A curve as SVG. at: where on the horizontal axis each value stands; evenly spread if left out."""
    places = list(at) if at is not None else [float(n) for n in range(len(values))]
    low, high = min(values), max(values)
    across = _WIDTH / (places[-1] - places[0]) if places[-1] > places[0] else 0.0
    up = _HEIGHT / (high - low) if high > low else 0.0
    points = " ".join(
        f"{(place - places[0]) * across:.1f},{_HEIGHT - (value - low) * up:.1f}"
        for place, value in zip(places, values, strict=True)
    )
    return Markup(
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="from {low:g} to {high:g}">'
        f'<polyline points="{points}"/></svg>'
    )
