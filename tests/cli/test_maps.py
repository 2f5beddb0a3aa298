"""Groups of sites and tables of rounds: what is drawn as maps or lines, in which order, and the numbers behind it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.test_report import client, headings, page, result, words
from tests.engine.clusters import NORTH, SOUTH, WEIGHT, played
from tideline.cli.coordinator.runs import show_result
from tideline.cli.tables import groups_table
from tideline.engine.coordinator.result import groups as last_of
from tideline.experiments.simulation import adjusted_rand_index, fill_in
from tideline.report.figures import charts, figure_of, png, write_figures
from tideline.report.fold_tables import MOST_ROWS, Column, table_charts
from tideline.report.maps import ClusterMap, HeatMap, Member, cluster_map, codes_of, written
from tideline.report.style import DPI

DOMAINS = {"anna": "usps", "bert": "usps", "carl": "mnist"}
Groups = dict[str, list[str]]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """A run's result whose domains are known."""
    on, run = played(rounds=5)
    made = on.result(run)
    fill_in(made, DOMAINS)
    return made


def clustered(*rounds: Groups, names: str = "abcd", tables: Any = None, phase: str = "train") -> dict[str, Any]:
    """A result whose rounds told these groups, and these tables in each."""
    phases = [
        {"name": phase, "round": i, "groups": groups, "tables": tables or {}, "marks": {}, "asked": 0}
        for i, groups in enumerate(rounds, 1)
    ]
    clients = [client(name, "source", domain=None) for name in names]
    return result(clients, phases=phases, groups=last_of(phases), notes=[])


def read(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))


def texts(chart: ClusterMap | HeatMap) -> list[str]:
    return [each.get_text() for each in figure_of(chart).axes[0].texts]


def test_the_map_has_the_rounds_in_which_groups_changed(told: dict[str, Any]) -> None:
    """Sites by their last group and name; the first round that told groups, and those after a change."""
    found = cluster_map(told)
    assert found is not None and found.rounds == ("1", "3") and found.groups == (NORTH, SOUTH)
    assert found.rows == (
        Member("anna", "usps", (NORTH, NORTH)),
        Member("bert", "usps", (SOUTH, NORTH)),
        Member("carl", "mnist", (SOUTH, SOUTH)),
    )
    assert found.agreement == told["groups"]["adjusted_rand_index"] == 1.0
    assert found.seen() == (
        "Groups of sites: a row for each site, a colour for each group; the groups changed once."
        " At the end the-north-cluster has 2, the-south-cluster has 1."
    )


def test_who_comes_and_goes_is_on_the_map() -> None:
    """A round without groups changes nothing; numbers in names count; who is in no group stands last."""
    first, second = {"c 10": ["a"], "c 2": ["b", "c"]}, {"c 10": ["b"], "c 2": ["a", "c"]}
    found = cluster_map(clustered(first, {}, first, second))
    assert found is not None and (found.rounds, found.groups) == (("1", "4"), ("c 2", "c 10"))
    assert [(row.site, row.groups) for row in found.rows] == [
        *(("a", ("c 10", "c 2")), ("c", ("c 2", "c 2")), ("b", ("c 2", "c 10")), ("d", (None, None)))
    ]
    assert texts(found) == ["10", "2", "2", "2", "2", "10", "–", "–"]
    assert cluster_map(clustered({}, {})) is None


def test_two_phases_that_group_are_named() -> None:
    made = clustered({"one": ["a"]}, {"two": ["a"]})
    made["phases"][1]["name"] = "refine"
    found = cluster_map(made)
    assert found is not None and found.rounds == ("train 1", "refine 2")


def test_many_changes_are_drawn_in_part(tmp_path: Path) -> None:
    """The first, the last and some between; the numbers and the file have all of them, and the page says so."""
    rounds = [{"one": ["a"], "two": ["b", "c", "d"]}, {"one": ["a", "b"], "two": ["c", "d"]}] * 10
    found = cluster_map(clustered(*rounds))
    assert found is not None and len(found.rounds) == 20
    assert found.drawn == (0, 2, 5, 8, 10, 13, 16, 19)
    write_figures(clustered(*rounds), tmp_path)
    assert read(tmp_path / "groups.csv")[0] == ["site", "domain", *map(str, range(1, 21))]
    assert "8 of 20, all of them are in figures/groups.csv" in page(clustered(*rounds), tmp_path)


def test_groups_are_compared_with_domains() -> None:
    """Over the sites that have both; of fewer than two nothing is said."""
    domains = {"a": "x", "b": "x", "c": "y", "d": "y"}
    same, crossed = {"a": "1", "b": "1", "c": "2", "d": "2"}, {"a": "1", "b": "2", "c": "1", "d": "2"}
    assert (adjusted_rand_index(same, domains), adjusted_rand_index(crossed, domains)) == (1.0, pytest.approx(-0.5))
    assert adjusted_rand_index({"a": "1", "b": "1", "c": "1", "e": "2"}, {"a": "x", "b": "x", "c": "y", "f": "y"}) == 0.0
    assert adjusted_rand_index({"a": "1", "b": "1"}, {"a": "x"}) is None is adjusted_rand_index({}, {"a": "x"})


def test_a_table_is_drawn_at_first_halfway_and_at_last(told: dict[str, Any]) -> None:
    """Three maps in the same colours, in the order of the map of groups, and true domains beside the names."""
    ((title, drawn),) = table_charts(told)
    assert title == f"{WEIGHT} in phase count"
    assert [chart.name for chart in drawn] == [f"count-{WEIGHT}-round-{r}" for r in (1, 3, 5)]
    maps = [chart for chart in drawn if isinstance(chart, HeatMap)]
    assert [(chart.low, chart.high) for chart in maps] == [(0.0, 5 / 3)] * 3
    last = maps[-1]
    assert (last.rows, last.cuts) == (("anna", "bert", "carl"), (2,))
    assert last.labels == ("anna (usps)", "bert (usps)", "carl (mnist)")
    assert last.seen() == f"{WEIGHT} in phase count, round 5: 3 rows, 3 columns; from 0 to 1.67, which anna has under source."
    assert texts(last) == ["1.67", "0.00", "0.00"] * 3


def test_sites_stand_by_group_other_rows_as_they_were_told() -> None:
    """Rows and columns that are sites; a table of other rows keeps its order, and has no groups."""
    near = {"rows": ["a", "b", "c"], "columns": ["c", "b", "a"], "values": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]}
    loss = {"rows": ["z", "a"], "columns": ["loss"], "values": [[1], [2]]}
    made = clustered({"one": ["b", "c"], "two": ["a"]}, tables={"near": near, "loss": loss})
    (_, (sites,)), (_, (others,)) = table_charts(made)
    assert isinstance(sites, HeatMap) and isinstance(others, HeatMap)
    assert (sites.rows, sites.columns, sites.values) == (
        ("b", "c", "a"), ("b", "c", "a"), ((5, 4, 6), (8, 7, 9), (2, 1, 3))
    )  # fmt: skip
    assert sites.cuts == (2,) and texts(sites) == ["5", "4", "6", "8", "7", "9", "2", "1", "3"]
    assert (others.rows, others.cuts) == (("z", "a"), ())


@pytest.mark.parametrize(("told", "drawn"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 3, 4]), (9, [1, 5, 9])])
def test_which_rounds_are_drawn(told: int, drawn: list[int]) -> None:
    table = {"rows": ["a"], "columns": ["x", "y"], "values": [[1.0, 2.0]]}
    ((_, charts),) = table_charts(clustered(*[{}] * told, tables={"t": table}))
    assert [chart.name for chart in charts] == [f"train-t-round-{r}" for r in drawn]


def square(rows: int, columns: int, value: float = 0.25) -> HeatMap:
    heads = tuple(f"site-{i}" for i in range(rows))
    cells = tuple(tuple(value * (i + j) for j in range(columns)) for i in range(rows))
    return HeatMap("t", "t", heads, heads, tuple(f"cluster {j}" for j in range(columns)), cells, (), 0.0, 1.0)


@pytest.mark.parametrize(
    ("rows", "columns", "numbered"), [(1, 1, True), (20, 8, True), (25, 3, False), (4, 30, False), (100, 100, False)]
)
def test_numbers_stand_in_cells_where_they_fit(rows: int, columns: int, numbered: bool) -> None:
    """Else a bar says what the colours mean. Whatever the size, a picture is six inches wide and no endless strip."""
    chart = square(rows, columns)
    assert (len(texts(chart)), len(figure_of(chart).axes)) == ((rows * columns, 1) if numbered else (0, 2))
    width, height = Image.open(io.BytesIO(png(chart))).size
    assert width == 1200 and height < 2300


def test_numbers_of_a_map_are_alike() -> None:
    """Whole numbers without places; small and large ones by their power of ten."""
    rows = [[1.0, -20.0], [0.123, 12.0], [0.000123, 0.0], [1234.5, 2.0]]
    texts = [["1", "-20"], ["0.12", "12.00"], ["1.2e-04", "0.0e+00"], ["1.2e+03", "2.0e+00"]]
    assert [written([row]) for row in rows] == [[text] for text in texts]


def test_a_cell_has_a_groups_own_word() -> None:
    codes = {("cluster 1", "cluster 10"): ["1", "10"], ("cluster 1",): ["1"], ("north", "south"): ["north", "south"]}
    codes |= {("a b c", "a b"): ["b c", "b"], ("the northern ones", "x"): ["the no…", "x"]}
    assert {groups: [*codes_of(groups).values()] for groups in codes} == codes


def test_figures_and_their_numbers(told: dict[str, Any], tmp_path: Path) -> None:
    """A picture and a file of equal numbers for the map of groups and each heat map."""
    write_figures(told, tmp_path)
    maps = [chart for chart in charts(told) if isinstance(chart, (ClusterMap, HeatMap))]
    assert [chart.name for chart in maps] == ["groups", *(f"count-{WEIGHT}-round-{r}" for r in (1, 3, 5))]
    for chart in maps:
        assert (tmp_path / f"{chart.name}.png").read_bytes().startswith(b"\x89PNG")
    assert read(tmp_path / "groups.csv")[1:3] == [["anna", "usps", NORTH, NORTH], ["bert", "usps", SOUTH, NORTH]]
    head, *rows = read(tmp_path / f"count-{WEIGHT}-round-5.csv")
    table = told["phases"][5]["tables"][WEIGHT]
    assert head == ["row", *table["columns"]] and [row[0] for row in rows] == table["rows"]
    assert [list(map(float, row[1:])) for row in rows] == table["values"]


def test_a_page_has_the_maps(tmp_path: Path, told: dict[str, Any]) -> None:
    """The grouping in words, how well it fits, and the heat maps under the table's name; names cannot become markup."""
    made = clustered({"<q>": ["a", "<i>"]}, names="ab", tables={"<u>": {"rows": ["a"], "columns": ["<s>"], "values": [[1.0]]}})
    made["clients"].append(client("<i>", "source", domain="$x_1$"))
    text = page(made, tmp_path)
    assert {"Groups of sites", "Tables of the rounds"} <= set(headings(text))
    section = " ".join(words(text.split("<h2>Groups of sites</h2>")[1].split("<h2>")[0]).split())
    assert "site domain round 1 &lt;i&gt; $x_1$ &lt;q&gt; a – &lt;q&gt; b – –" in section and "Rand" not in section
    assert not re.search("<q>|<i>|<u>|<s>", text) and "<h3>&lt;u&gt; in phase train</h3>" in text
    known = page(result(told["clients"]) | {key: told[key] for key in ("phases", "groups", "notes")}, tmp_path)
    assert "Adjusted Rand index of the last groups and the true domains: 1.00 (1 is" in " ".join(words(known).split()).replace(
        "  ", " "
    )
    assert known.count("<figure>") == 5  # groups, three rounds, bytes; two rounds of accuracies are a table


def test_a_page_without_groups_and_tables_has_no_such_heading(tmp_path: Path) -> None:
    """Neither where a result says that there are none nor where a coordinator of before says nothing."""
    for made in (clustered({}, {}), result([client("anna", "source")])):
        text = page(made, tmp_path)
        assert "Groups of sites" not in text and "Tables that" not in text
        assert groups_table(made) is None


def test_very_many_tables_are_drawn_in_part(tmp_path: Path) -> None:
    table = {"rows": ["a"], "columns": ["x"], "values": [[1.0]]}
    text = page(clustered({}, tables={f"t{i}": table for i in range(14)}), tmp_path)
    assert text.count("in phase train</h3>") == 12 and "2 more tables are in result.json." in text


def test_the_command_line_has_the_last_groups() -> None:
    shown = groups_table(clustered({"c 1": ["a"]}, {"c 10": ["d"], "c 9": ["c", "b"]}))
    assert shown is not None and str(shown.title) == "Groups"
    assert [[str(cell) for cell in column.cells] for column in shown.columns] == [["c 9", "c 10"], ["b, c", "d"]]


def test_a_result_for_people_ends_with_the_groups(told: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    show_result(told, as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = lines.index("Groups")
    assert f"{NORTH} anna, bert" in lines[at:] and f"{SOUTH} carl" in lines[at:]


def test_domains_are_filled_in_without_groups_too() -> None:
    """Sites of which nothing is known have none; what is filled in is plain JSON."""
    made = clustered({}, names="ab")
    fill_in(made, {"a": "usps"})
    assert [line["domain"] for line in made["clients"]] == ["usps", None] and made["groups"] is None
    grouped = clustered({"one": ["a", "b"]}, names="ab")
    fill_in(grouped, {"a": "usps", "b": "mnist"})
    assert json.loads(json.dumps(grouped["groups"])) == {"last": {"one": ["a", "b"]}, "adjusted_rand_index": 0.0}


CLIENTS = "weight of each client"


def rows_told(*rounds: dict[str, float], name: str = CLIENTS, column: str = "rho", **changed: Any) -> dict[str, Any]:
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
    chart = drawn(rows_told({"b": 0.25, "a": 0.75}, {"b": 1.0}, {"b": 0.5, "a": 0.5}))
    assert (chart.name, chart.title) == (f"train-{CLIENTS}", f"{CLIENTS}, rho in phase train")
    assert [(line.site, line.role, line.place, line.points) for line in chart.lines] == [
        ("a", "source", 0, ((1, 0.75), (3, 0.5))),
        ("b", "source", 1, ((1, 0.25), (2, 1.0), (3, 0.5))),
    ]
    assert legend(chart) == ["a (source)", "b (source)"]
    (axes,) = figure_of(chart).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "rho")
    assert chart.seen() == f"{chart.title}: a line for each row; 0.25 to 0.75 at round 1, 0.5 at round 3."


def test_rows_that_are_no_sites_stand_as_they_were_told() -> None:
    chart = drawn(rows_told({"layer 2": 0.1, "layer 1": 0.2}, {"layer 2": 0.3, "layer 1": 0.4, "a": 0.5}))
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
    made = rows_told(*({f"row {i}": r + i / 100 for i in range(rows)} for r in (1, 2)))
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
    chart = drawn(rows_told(names, names, name="T" * letters, column="c" * letters, phase="p" * letters))
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
    made = rows_told({"<i>": 0.5}, {"<i>": 1.0}, name="<u>", column="<s>")
    for closed in made["phases"]:
        closed["tables"]["wide"] = {"rows": ["a"], "columns": ["x", "y"], "values": [[1.0, 2.0]]}
    text = page(made, tmp_path)
    section = text.split("<h2>Tables of the rounds</h2>")[1].split("<h2>")[0]
    assert "Tables of the rounds" in headings(text) and section.count("<figure>") == 2
    assert "<h3>&lt;u&gt; in phase train</h3>" in section and not any(tag in text for tag in ("<i>", "<u>", "<s>"))
    assert [type(each).__name__ for each in charts(made)][1:] == ["Column", "HeatMap", "HeatMap"]
