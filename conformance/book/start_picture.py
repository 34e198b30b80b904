"""The picture that opens the book and the README: a photo in a prompt over its position table."""

from ropecheck.conformance import figures
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.history import TokenIndex, delta_of, ideal_column, image, prompt_table, text

SCHEMES = ("light", "dark")
"""The papers that it is drawn on; docs/images/position-table-SCHEME.svg are its committed copies."""

WORDS = ("What", "is", "", "", "", "", "", "", "?", "A", "hill")
"""The words of the picture's tokens; the photo's have none."""
PROMPT = 9
"""How many of them are the prompt; the rest is generated."""


def picture(scheme: str) -> str:
    """The picture as an SVG file, on "light" or "dark" paper. Its numbers are the specification's."""
    table = prompt_table(QWEN2_VL, (text(2), image(1, 4, 6), text(1)))
    columns = [
        figures.Column(
            index,
            word or "▦",
            "after" if index >= PROMPT else "text" if word else "media",
            ideal_column(table, TokenIndex(index)),
        )
        for index, word in enumerate(WORDS)
    ]
    return f"{figures.picture(columns, lines=2, delta=delta_of(table), scheme=scheme)}\n"


if __name__ == "__main__":
    from pathlib import Path

    for scheme in SCHEMES:
        file = Path(__file__).parents[2] / "docs" / "images" / f"position-table-{scheme}.svg"
        file.write_text(picture(scheme), "utf-8")
