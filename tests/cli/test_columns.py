"""Tables of one column: lines over the rounds, and the numbers behind them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.test_maps import clustered, read
from tests.cli.test_report import headings, page
from tideline.report.figures import charts, figure_of, png, write_figures
from tideline.report.fold_tables import MOST_ROWS, Column, table_charts
from tideline.report.maps import HeatMap
from tideline.report.style import DPI

WEIGHT = "weight of each client"


def told(*rounds: dict[str, float], name: str = WEIGHT, column: str = "rho", **changed: Any) -> dict[str, Any]:
    """A result whose rounds told this table, a value for each row."""
    made = clustered(*[{}] * len(rounds), **changed)
    for closed, values in zip(made["phases"], rounds, strict=True):
        closed["tables"] = {name: {"rows": list(values), "columns": [column], "values": [[v] for v in values.values()]}}
    return made


def drawn(made: dict[str, Any]) -> Column:
    ((_, (chart,)),) = table_charts(made)
    assert isinstance(chart, Column)
    return chart


def legend(chart: Column) -> list[str]:
    (made,) = figure_of(chart).legends
    return [text.get_text() for text in made.get_texts()]


def test_a_line_for_each_site_over_the_rounds() -> None:
    """Titled by table and column; a site looks as in every chart, and may be away for a round."""
    chart = drawn(told({"b": 0.25, "a": 0.75}, {"b": 1.0}, {"b": 0.5, "a": 0.5}))
    assert (chart.name, chart.title) == (f"train-{WEIGHT}", f"{WEIGHT}, rho in phase train")
    assert [(line.site, line.role, line.place, line.points) for line in chart.lines] == [
        ("a", "source", 0, ((1, 0.75), (3, 0.5))),
        ("b", "source", 1, ((1, 0.25), (2, 1.0), (3, 0.5))),
    ]
    assert legend(chart) == ["a (source)", "b (source)"]
    (axes,) = figure_of(chart).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "rho")
    assert chart.seen() == f"{chart.title}: a line for each row; 0.25 to 0.75 at round 1, 0.5 at round 3."


def test_rows_that_are_no_sites_stand_as_they_were_told() -> None:
    chart = drawn(told({"layer 2": 0.1, "layer 1": 0.2}, {"layer 2": 0.3, "layer 1": 0.4, "a": 0.5}))
    assert [(line.label, line.role, line.place) for line in chart.lines] == [("layer 2", "", 0), ("layer 1", "", 1), ("a", "", 2)]
    assert {line.get_linestyle() for line in figure_of(chart).axes[0].get_lines()} == {"-"}


def test_sites_stand_by_their_last_groups() -> None:
    made = clustered({"two": ["a"], "one": ["b"]}, {"two": ["a"], "one": ["b"]}, tables={"t": column("a", "b")})
    assert [line.site for line in drawn(made).lines] == ["b", "a"]


def column(*rows: str) -> dict[str, Any]:
    return {"rows": list(rows), "columns": ["x"], "values": [[0.5] for _ in rows]}


def test_what_stays_a_heat_map() -> None:
    """A table of more columns, also if only at times; one whose column changed; one that was told once."""
    two, other = {"rows": ["a"], "columns": ["x", "y"], "values": [[1.0, 2.0]]}, column("a") | {"columns": ["y"]}
    for rounds in ((two, two), (column("a"), two), (column("a"), other), (column("a"),)):
        made = clustered(*[{}] * len(rounds))
        for closed, table in zip(made["phases"], rounds, strict=True):
            closed["tables"] = {"t": table}
        ((_, found),) = table_charts(made)
        assert all(isinstance(each, HeatMap) for each in found) and len(found) == len(rounds)


@pytest.mark.parametrize(("rows", "which"), [(24, "each row"), (30, "the first 24 of 30 rows")])
def test_many_rows_are_drawn_in_part(rows: int, which: str, tmp_path: Path) -> None:
    made = told(*({f"row {i}": r + i / 100 for i in range(rows)} for r in (1, 2)))
    chart = drawn(made)
    assert len(chart.drawn) == len(legend(chart)) == MOST_ROWS and f"a line for {which};" in chart.seen()
    write_figures(made, tmp_path)
    head, *lines = read(tmp_path / "train-weight-of-each-client.csv")
    assert head == ["row", "round", "rho"] and len(lines) == 2 * rows
    assert lines[:2] == [["row 0", "1", "1.0"], ["row 0", "2", "2.0"]]


@pytest.mark.parametrize(("rows", "letters"), [(1, 5), (3, 200), (10, 26), (24, 24), (24, 200)])
def test_a_long_legend_leaves_room_for_the_lines(rows: int, letters: int) -> None:
    """Whatever the names are, the picture is six inches wide, nothing runs out of it, and lines have a third of 3.7 inches."""
    names = {f"{'n' * (letters - 3)} {i}": float(i) for i in range(rows)}
    chart = drawn(told(names, names, name="T" * letters, column="c" * letters, phase="p" * letters))
    figure = figure_of(chart)
    figure.set_dpi(DPI)
    figure.savefig(io.BytesIO(), format="png")  # which places everything
    width, height = Image.open(io.BytesIO(png(chart))).size
    assert width == 1200 and height < 2400
    (made,), (axes,) = figure.legends, figure.axes
    assert made.get_window_extent().x1 <= figure.bbox.x1 and made.get_window_extent().y0 >= 0
    assert axes.get_window_extent().height / figure.dpi > 1.2 and axes.get_window_extent().y0 > made.get_window_extent().y1
    assert axes.yaxis.label.get_window_extent().height <= figure.bbox.height


def test_a_page_has_lines_and_maps(tmp_path: Path) -> None:
    made = told({"<i>": 0.5}, {"<i>": 1.0}, name="<u>", column="<s>")
    for closed in made["phases"]:
        closed["tables"]["wide"] = {"rows": ["a"], "columns": ["x", "y"], "values": [[1.0, 2.0]]}
    text = page(made, tmp_path)
    section = text.split("<h2>Tables of the rounds</h2>")[1].split("<h2>")[0]
    assert "Tables of the rounds" in headings(text) and section.count("<figure>") == 2
    assert "<h3>&lt;u&gt; in phase train</h3>" in section and not any(tag in text for tag in ("<i>", "<u>", "<s>"))
    assert [type(each).__name__ for each in charts(made)][1:] == ["Column", "HeatMap", "HeatMap"]
