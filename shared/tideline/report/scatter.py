"""Clouds of points in two dimensions, as a picture and as numbers.

A picture is what a method stores under the name `picture`: arrays (n, 2), the places of points along the first two principal
components of all of them, and for a cloud `NAME`, if it has classes, `NAME_class` (n,).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from torch import Tensor

    Cloud = tuple[str, Tensor, Tensor | None]

MARKS = (("o", 9, 0.35), ("x", 26, 0.95), ("^", 20, 0.8))  # marker, size, opacity of the first cloud, the second, ...
CLASS = "_class"  # `NAME_class` colours the cloud `NAME`
NAMED = 20  # with more classes their colours look alike, and none is named
GREY = "0.5"
WORDS = 9.0
AXES = ("first principal component", "second principal component")
# What colours a cloud: the first one's classes are guessed, the other's are known.
MEANING = {"site": "the site's rows by what was predicted for them", "barycenter": "crosses by the barycenter's own label"}


def clouds(arrays: Mapping[str, Tensor]) -> list[Cloud]:
    """The arrays of shape (n, 2), each with the classes (n,) that belong to it, if any."""
    return [(n, a, arrays.get(n + CLASS)) for n, a in arrays.items() if a.dim() == 2 and a.shape[1] == 2]


def draw_clouds(arrays: Mapping[str, Tensor], out: Path, title: str) -> None:
    """A PNG: a mark for each cloud, a colour for each class."""
    figure_of(clouds(arrays), title).savefig(out)


def figure_of(drawn: list[Cloud], title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6.2), dpi=130, layout="constrained")
    axes: Any = figure.subplots()
    colours = colours_of(drawn)
    marks: dict[str, PathCollection] = {}
    for (name, points, classes), (mark, size, alpha) in zip(drawn, MARKS, strict=False):
        own = GREY if classes is None else [colours[c] for c in classes.tolist()]
        style = {"marker": mark, "s": size, "alpha": alpha, "linewidths": 1.2}
        axes.scatter(*points.numpy().T, c=own, **style)
        marks[f"{name} ({len(points)})"] = axes.scatter([], [], c="0.3", **style)  # colours stand for classes, not for clouds
    axes.set_title(title, fontsize=WORDS + 2, loc="left", parse_math=False)
    axes.set(xlabel=f"{AXES[0]} (a projection of all points to two dimensions)", ylabel=AXES[1], xticks=[], yticks=[])
    meanings = [MEANING[name] for name, _, classes in drawn if classes is not None and name in MEANING]
    figure.supxlabel(f"Coloured are {', '.join(meanings)}" if meanings else "", fontsize=WORDS)
    axes.legend(list(marks.values()), list(marks), frameon=False, fontsize=WORDS)
    if 0 < len(colours) <= NAMED:
        swatches = [axes.scatter([], [], marker="s", s=40, color=colour) for colour in colours.values()]
        figure.legend(swatches, list(map(str, colours)), loc="outside right upper", title="class", frameon=False, fontsize=WORDS)
    return figure


def colours_of(drawn: list[Cloud]) -> dict[int, tuple[float, float, float, float]]:
    """A colour for each class that any cloud has, the same in all of them."""
    from matplotlib import colormaps

    found = sorted({c for _, _, classes in drawn if classes is not None for c in classes.tolist()})
    if len(found) > NAMED:
        return {c: colormaps["turbo"](i / (len(found) - 1)) for i, c in enumerate(found)}
    return {c: colormaps["tab10" if len(found) <= 10 else "tab20"](i) for i, c in enumerate(found)}


def write_points(arrays: Mapping[str, Tensor], out: Path) -> None:
    """A CSV: cloud, x, y, class."""
    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("cloud", "x", "y", "class"))
        for name, points, classes in clouds(arrays):
            for i, (x, y) in enumerate(points.tolist()):
                rows.writerow((name, x, y, "" if classes is None else int(classes[i])))
