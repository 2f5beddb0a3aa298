"""Clouds of points in two dimensions, as a picture and as numbers."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MARKS = (("o", 9, 0.35), ("x", 26, 0.95), ("^", 20, 0.8))  # marker, size, opacity of the first cloud, the second, ...
CLASS = "_class"  # `NAME_class` colours the cloud `NAME`


def clouds(arrays: Mapping[str, Tensor]) -> list[tuple[str, Tensor, Tensor | None]]:
    """The arrays of shape (n, 2), each with the classes (n,) that belong to it, if any."""
    return [(n, a, arrays.get(n + CLASS)) for n, a in arrays.items() if a.dim() == 2 and a.shape[1] == 2]


def draw_clouds(arrays: Mapping[str, Tensor], out: Path) -> None:
    """A PNG: a mark for each cloud, a colour for each class."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5.6), dpi=130, layout="constrained")
    axes: Any = figure.subplots()
    for (name, points, classes), (mark, size, alpha) in zip(clouds(arrays), MARKS, strict=False):
        colour: dict[str, Any] = {"color": "0.5"} if classes is None else {"c": classes.numpy(), "cmap": "tab10", "vmin": 0}
        axes.scatter(
            *points.numpy().T, marker=mark, s=size, alpha=alpha, linewidths=1.2, label=f"{name} ({len(points)})", **colour
        )
    axes.set_xticks([])
    axes.set_yticks([])
    for handle in axes.legend(frameon=False).legend_handles:
        handle.set_color("0.3")  # colours stand for classes, not for clouds
    figure.savefig(out)


def write_points(arrays: Mapping[str, Tensor], out: Path) -> None:
    """A CSV: cloud, x, y, class."""
    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("cloud", "x", "y", "class"))
        for name, points, classes in clouds(arrays):
            for i, (x, y) in enumerate(points.tolist()):
                rows.writerow((name, x, y, "" if classes is None else int(classes[i])))
