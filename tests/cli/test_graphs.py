"""Tables that are graphs, and tables whose rows are numbers: what is drawn, where it stands, and the numbers behind it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.test_maps import clustered, read
from tests.cli.test_report import page, words
from tests.planning.cases import MEASURED
from tideline.planning.links import plan_links
from tideline.report.figures import charts, figure_of, png, write_figures
from tideline.report.fold_tables import Series, table_charts
from tideline.report.graphs import MOST_NODES, MOST_WORDED, Graph, Link, Node, laid_out, planned_graph
from tideline.report.maps import HeatMap
from tideline.report.style import COLOURS

WEIGHT = "weight of each source"


def weights(names: str, **arrows: float) -> dict[str, Any]:
    """A table of weights: ab=0.5 is an arrow from a to b."""
    values = [[arrows.get(f"{i}{j}", 0.0) for j in names] for i in names]
    return {"rows": list(names), "columns": list(names), "values": values, "drawn": "graph"}


def costs(**joules: float) -> dict[str, Any]:
    rows = [f"{link[0]} to {link[1]}" for link in joules]
    return {"rows": rows, "columns": ["weight", "joules"], "values": [[1.0, value] for value in joules.values()]}


def told(names: str = "abcd", *, rounds: int = 1, **tables: Any) -> dict[str, Any]:
    return clustered(*[{}] * rounds, names=names, tables=tables)


def drawn(made: dict[str, Any], name: str = "w") -> Any:
    (chart,) = dict(table_charts(made))[f"{name} in phase train"]
    return chart


def said(chart: Any) -> list[str]:
    return [each.get_text() for each in figure_of(chart).axes[0].texts if each.get_text()]


def test_sources_face_targets() -> None:
    """Those that receive stand by those that they get most from; who gets nothing stands with the senders."""
    chart = drawn(told(w=weights("abcd", ad=0.25, bd=0.75, ac=1.0)))
    assert isinstance(chart, Graph) and chart.two_sided
    assert [node.name for node in chart.senders] == ["a", "b"] and [node.name for node in chart.receivers] == ["c", "d"]
    assert [(e.sender, e.receiver, e.weight) for e in chart.links] == [("a", "c", 1.0), ("a", "d", 0.25), ("b", "d", 0.75)]
    assert said(chart) == ["sources", "targets", "a", "b", "c", "1.00", "d", "0.25", "0.75"]
    assert chart.seen() == (
        "w in phase train, round 1: 3 links from 2 senders to 2 receivers; the largest weight is 1.00, from a to c."
    )
    alone = drawn(told(w=weights("abc", ab=1.0)))
    assert [node.name for node in alone.senders] == ["a", "c"]


def test_joules_stand_beside_the_arrows() -> None:
    """Where the same round's table of links has them; that table is then not drawn again, unless it says more."""
    made = told(w=weights("abc", ab=0.5, cb=0.5), links=costs(ab=3.0, cb=4.25))
    chart = drawn(made)
    assert [link.joules for link in chart.links] == [3.0, 4.25] and "0.50, 4.25 J" in said(chart)
    assert "of 7.25 J in all" in chart.seen() and [title for title, _ in table_charts(made)] == ["w in phase train"]
    assert list(chart.numbers()) == [("from", "to", "weight", "joules"), ("a", "b", 0.5, 3.0), ("c", "b", 0.5, 4.25)]
    more = told(w=weights("abc", ab=1.0), links=costs(ab=3.0, cb=4.25))
    assert [title for title, _ in table_charts(more)] == ["w in phase train", "links in phase train"]
    other = told(w=weights("abc", ab=1.0), links={"rows": ["a to b"], "columns": ["weight"], "values": [[1.0]]})
    assert drawn(other).links[0].joules is None and len(table_charts(other)) == 2


def test_who_sends_and_receives_stands_in_a_circle() -> None:
    chart = drawn(told(w=weights("abc", ab=0.5, ba=0.5, cb=1.0, aa=1.0)))
    assert not chart.two_sided and len(chart.links) == 3
    assert said(chart) == ["a", "b", "c", "0.50", "0.50", "1.00"]


def test_rounds_are_drawn_as_those_of_a_heat_map() -> None:
    ((_, found),) = table_charts(told(rounds=5, w=weights("ab", ab=1.0)))
    assert [chart.name for chart in found] == [f"train-w-round-{r}" for r in (1, 3, 5)]


def test_a_site_has_its_own_colour() -> None:
    """That of its place in the run, as in every chart; what is no site has that of its row."""
    made = told("abcd", w=weights("bd", bd=1.0))
    (axes,) = figure_of(drawn(made)).axes
    assert axes.lines[0].get_color() == COLOURS[1]
    strangers = told("abcd", w=weights("xy", xy=1.0))
    assert [node.place for node in drawn(strangers).nodes] == [0, 1]


@pytest.mark.parametrize(("senders", "receivers", "each"), [(1, 39, 1), (20, 20, 20), (39, 1, 39), (6, 8, 6)])
def test_pictures_of_any_size_can_be_read(senders: int, receivers: int, each: int) -> None:
    """Six inches wide and no endless strip; words beside arrows where there are not too many, each in a row of its own."""
    nodes = [Node(f"n{i}", f"n{i}", i) for i in range(senders + receivers)]
    links = tuple(
        Link(f"n{i}", f"n{senders + j}", 1 / each, 2.0)
        for j in range(receivers)
        for i in [(j + k) % senders for k in range(each)]
    )
    chart = laid_out("g", "g", nodes, links)
    width, height = Image.open(io.BytesIO(png(chart))).size
    assert width == 1200 and height < 2300
    places = [text.get_position() for text in figure_of(chart).axes[0].texts if text.get_text().endswith("J")]
    assert len(set(places)) == len(places) == (len(links) if len(links) <= MOST_WORDED else 0)


def test_too_many_for_arrows_are_a_heat_map() -> None:
    names = [f"s{i}" for i in range(MOST_NODES + 1)]
    table = {"rows": names, "columns": names, "values": [[1.0] * len(names)] * len(names), "drawn": "graph"}
    assert isinstance(drawn(told(w=table)), HeatMap)


def test_a_graph_without_arrows() -> None:
    chart = drawn(told(w=weights("ab")))
    assert png(chart).startswith(b"\x89PNG") and chart.seen().endswith("0 links from 0 senders to 0 receivers.")


@pytest.mark.parametrize("odd", ["$x^$", "_hidden", "a & <b>", "\\frac"])
def test_names_are_drawn_as_they_are(odd: str) -> None:
    for links in ((Link(odd, "b", 1.0),), (Link(odd, "b", 1.0), Link("b", odd, 1.0))):
        chart = laid_out("g", odd, [Node(odd, odd, 0), Node("b", "b", 1)], links)
        assert odd in said(chart) and png(chart).startswith(b"\x89PNG")


def test_a_plan_is_a_graph_too() -> None:
    chart = planned_graph(plan_links(MEASURED))
    assert chart is not None and said(chart) == ["sources", "targets", "anna", "bert", "dora", "1.00, 4 J", "carl", "1.00, 4.5 J"]


SWEEP = {"rows": ["0.001", "1", "1000"], "columns": ["joules", "links"], "values": [[9.0, 3.0], [8.0, 2.0], [7.5, 2.0]]}


def test_rows_that_are_numbers_are_lines_over_them() -> None:
    """A line for each column, on a scale of powers where they span much; the table's name says what they are."""
    chart = drawn(told(**{"cost by phi": SWEEP}), "cost by phi")
    assert isinstance(chart, Series) and [line.site for line in chart.lines] == ["joules", "links"]
    (axes,) = figure_of(chart).axes
    assert (axes.get_xlabel(), axes.get_xscale()) == ("phi", "symlog")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "1", "1000"]
    assert chart.seen() == "cost by phi in phase train: over phi, from 0.001 to 1000: joules from 9 to 7.5, links from 3 to 2."
    assert list(chart.numbers()) == [("phi", "joules", "links"), ("0.001", 9.0, 3.0), ("1", 8.0, 2.0), ("1000", 7.5, 2.0)]
    zero = drawn(told(w=SWEEP | {"rows": ["0", "0.5", "2"]}))
    (axes,) = figure_of(zero).axes
    assert (axes.get_xlabel(), axes.get_xscale(), zero.axis) == ("number", "linear", "")


def test_a_row_over_numbers_is_a_line() -> None:
    table = {"rows": ["objective"], "columns": [str(i) for i in range(1, 31)], "values": [[50.0 - i for i in range(30)]]}
    chart = drawn(told(**{"objective by iteration": table}), "objective by iteration")
    assert isinstance(chart, Series) and (chart.at, chart.axis) == ("iteration", "objective")
    (axes,) = figure_of(chart).axes
    assert axes.get_xscale() == "linear" and list(axes.get_xticks()) == [1, 5, 10, 15, 20, 25, 30]


def test_other_rows_are_no_numbers() -> None:
    """Not ascending, not finite, or not alone: a heat map."""
    rows = (["1", "1", "2"], ["3", "2", "4"], ["1", "nan", "2"], ["1", "2", "inf"], ["cluster 1", "2", "3"])
    for table in (*(SWEEP | {"rows": each} for each in rows), {"rows": ["a"], "columns": ["1"], "values": [[1.0]]}):
        assert isinstance(drawn(told(w=table)), HeatMap)


def test_sites_that_are_called_by_numbers_are_no_numbers() -> None:
    table = {"rows": ["1", "2"], "columns": ["x", "y"], "values": [[1.0, 2.0], [3.0, 4.0]]}
    assert isinstance(drawn(told("12", w=table)), HeatMap)


def test_figures_and_the_page(tmp_path: Path) -> None:
    table = weights("ab", ab=1.0) | {"rows": ["<i>", "b"], "columns": ["<i>", "b"]}
    made = told(**{WEIGHT: table, "cost by phi": SWEEP})
    write_figures(made, tmp_path)
    assert [chart.name for chart in charts(made) if isinstance(chart, (Graph, Series))] == [
        f"train-{WEIGHT}-round-1",
        "train-cost by phi-round-1",
    ]
    assert read(tmp_path / "train-weight-of-each-source-round-1.csv") == [
        ["from", "to", "weight", "joules"],
        ["<i>", "b", "1.0", ""],
    ]
    assert read(tmp_path / "train-cost-by-phi-round-1.csv")[1] == ["0.001", "9.0", "3.0"]
    assert (tmp_path / "train-cost-by-phi-round-1.png").read_bytes().startswith(b"\x89PNG")
    text = page(made, tmp_path)
    assert "from &lt;i&gt; to b" in text and "<i>" not in text
    assert "1 link from 1 sender to 1 receiver" in words(text)
