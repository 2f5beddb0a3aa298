"""What charts have in common: their width, the size of their words, the sites' colours and marks, legends."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.container import Container
    from matplotlib.figure import Figure

    Handles = Mapping[str, Artist] | Mapping[str, Artist | Container]

# The numbers behind a chart: rows of cells, the first of them a header.
Row = tuple[str | float, ...]
# Narrow, so that the words can still be read where the page is as wide as a hand.
INCHES, DPI, WORDS = 6.0, 200, 10.5
# Colours that differ in lightness too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d00")
# For those who see no colours.
MARKS = "osD^vPX*<>h"
INK, PALE = "#1c2733", "#d9dee3"
NAME = 22  # characters of a name beside bars and rows


def cut(name: str, most: int = NAME) -> str:
    """A name that is not longer than there is room for."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def png_of(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def legend(figure: Figure, handles: Handles, columns: int, most: int = NAME) -> None:
    """A legend below the axes, where no line can run. most: characters of a name."""
    drawn: Any = list(handles.values())  # a container is a handle, too, though matplotlib's types do not say so
    names = [cut(name, most) for name in handles]
    made = figure.legend(drawn, names, loc="outside lower left", ncols=columns, frameon=False, fontsize=WORDS)
    for text in made.get_texts():
        text.set_parse_math(False)
