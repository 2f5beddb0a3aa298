"""Pictures of a site's own points: what is drawn says what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from tideline.report.scatter import AXES, GREY, NAMED, clouds, colours_of, draw_clouds, figure_of
from tideline.report.score_rows import NOTHING, in_words


def picture(classes: int) -> dict[str, Tensor]:
    """A site's rows and the points that stand for them."""
    y = torch.arange(5 * classes) % classes
    z = torch.stack([y.float(), torch.arange(len(y)) / len(y)], 1)
    return {"site": z, "site_class": y, "barycenter": z[:classes] + 0.1, "barycenter_class": y[:classes]}


def texts(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def test_a_picture_says_what_it_is() -> None:
    """Whose it is, along which axes, what colours mean, what marks are, and which colour is which class."""
    figure = figure_of(clouds(picture(3)), "Run 5f0c, seen at this site")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Run 5f0c, seen at this site"
    meaning = "Coloured are the site's rows by what was predicted for them, crosses by the barycenter's own label"
    assert figure.get_supxlabel() == meaning
    assert axes.get_xlabel().startswith(AXES[0]) and "two dimensions" in axes.get_xlabel() and axes.get_ylabel() == AXES[1]
    assert texts(axes.get_legend()) == ["site (15)", "barycenter (3)"]
    (classes,) = figure.legends
    assert classes.get_title().get_text() == "class" and texts(classes) == ["0", "1", "2"]


def test_a_class_has_one_colour_in_all_clouds() -> None:
    arrays = picture(4)
    arrays["barycenter_class"] = torch.tensor([3, 3, 3, 0])
    drawn = figure_of(clouds(arrays), "a").axes[0].collections
    colours = list(map(tuple, colours_of(clouds(arrays)).values()))
    assert len(set(colours)) == 4
    assert [tuple(c)[:3] for c in drawn[2].get_facecolors()] == [colours[i][:3] for i in (3, 3, 3, 0)]


@pytest.mark.parametrize(("classes", "named"), [(NAMED, 1), (NAMED + 1, 0)])
def test_many_classes_are_not_named(classes: int, named: int) -> None:
    arrays = picture(classes)
    assert len(figure_of(clouds(arrays), "a").legends) == named
    assert len(set(colours_of(clouds(arrays)).values())) == classes


def test_clouds_without_classes(tmp_path: Path) -> None:
    arrays = {"site": torch.rand(5, 2), "others": torch.rand(3, 2)}
    figure = figure_of(clouds(arrays), "$x^$")
    assert figure.axes[0].get_title(loc="left") == "$x^$" and figure.legends == []
    assert {c.get_facecolors()[0][0] for c in figure.axes[0].collections[::2]} == {float(GREY)}
    draw_clouds(arrays, tmp_path / "a.png", "$x^$")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG" and image.width > 800


def test_an_interval_holds_its_score_as_both_are_written() -> None:
    """Two digits of an interval beside three of the score: its ends are rounded outwards."""
    assert in_words({"value": 0.999, "low": 0.9972, "high": 0.9998, "rows": 250}) == "0.999 (0.99–1.00)"
    assert in_words({"value": 0.0, "low": 0.0, "high": 0.0276, "rows": 136}) == "0.000 (0.00–0.03)"
    assert in_words(None) == NOTHING
