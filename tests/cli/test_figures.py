"""Charts and clouds of points: which there are follows from the result alone; files with the numbers behind them."""

from __future__ import annotations

import csv
import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.cli.echo import told
from tideline.report.charts import Bar, Bars, Curves, Line, accuracy_charts, families, family_charts, metric_charts
from tideline.report.figures import COLOURS, LEGEND, Chart, figure_of, named, png, style_of, write_figures
from tideline.report.scatter import AXES, GREY, NAMED, clouds, colours_of, draw_clouds
from tideline.report.scatter import figure_of as figure_of_clouds
from tideline.report.score_rows import NOTHING, in_words
from tideline.report.summary import Exchange, Traffic, score_bars, scores, traffic


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """A run's result with its history."""
    return told()


def points(chart: Curves) -> dict[str, tuple[tuple[int, float], ...]]:
    return {line.site: line.points for line in chart.lines}


def words(chart: Chart) -> list[str]:
    (legend,) = figure_of(chart).legends
    return [text.get_text() for text in legend.get_texts()]


def read(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))


def curves(sites: int, targets: int = 0, **changed: Any) -> Curves:
    """A chart of so many lines, the last of which are targets."""
    roles = ["source"] * (sites - targets) + ["target"] * targets
    drawn = tuple(Line(f"s{i}", role, f"s{i} ({role})", ((1, 0.1), (2, 0.2)), i) for i, role in enumerate(roles))
    return replace(Curves("loss", "loss", "round", "round", "loss", drawn), **changed)


def test_metrics_that_changed_have_a_chart(result: dict[str, Any]) -> None:
    """A line per site over the rounds; what never changed, what was told once and families have none."""
    (loss,) = metric_charts(result)
    assert (loss.name, loss.title, loss.y, loss.share) == ("send-loss", "loss in phase send", "loss", False)
    assert points(loss) == dict.fromkeys(("anna", "bert", "carl"), ((1, 1.0), (2, 0.5), (3, 1 / 3)))
    assert loss.seen() == "loss in phase send: a line for each site; the mean of 2 targets has 1 at round 1 and 0.333 at round 3."


def test_accuracies_of_other_words_have_a_chart_too(result: dict[str, Any]) -> None:
    entries = [{"client": "anna", "phase": "p", "round": r, "cursor": r, "metrics": {"accuracy_x": r / 4}} for r in (1, 2)]
    (chart,) = metric_charts(result | {"history": entries})
    assert chart.share and chart.seen().endswith("the site has 25.0\u00a0% at round 1 and 50.0\u00a0% at round 2.")


def test_a_family_is_a_curve_over_its_number(result: dict[str, Any]) -> None:
    """Numbers in their own order, not that of letters; each site's newest values; one name alone is no family."""
    (line,) = family_charts(result)
    assert (line.name, line.title, line.at) == ("score-line", "line_N in phase score", "N in line_N")
    assert points(line) == dict.fromkeys(("bert", "carl"), ((0, 0.0), (2, 0.5), (10, 2.0)))
    assert list(figure_of(line).axes[0].get_xticks()) == [0, 2, 10]


def test_what_a_family_is() -> None:
    """Names that share a beginning and end in a number, at least two of them."""
    assert families(["line_0", "line_1", "loss"]) == {"line": {0: "line_0", 1: "line_1"}}
    distilled = {number: f"distilled_{number}" for number in (1, 5, 20)}
    assert families(["distilled_20", "distilled_1", "distilled_5"]) == {"distilled": distilled}
    assert families(["a_b_1", "a_b_2", "a_1", "a_2"]) == {"a_b": {1: "a_b_1", 2: "a_b_2"}, "a": {1: "a_1", 2: "a_2"}}
    assert families(["top_5", "accuracy_b", "v2", "_1", "x_"]) == {}


def test_families_of_two_phases_are_two(result: dict[str, Any]) -> None:
    entries = [
        {"client": "anna", "phase": phase, "round": 1, "cursor": 0, "metrics": {f"line_{n}": 1.0 for n in numbers}}
        for phase, numbers in (("p", (0, 1)), ("q", (2,)), ("r", (3, 4)))
    ]
    assert [chart.name for chart in family_charts(result | {"history": entries})] == ["p-line", "r-line"]


def test_accuracy_has_a_chart_for_each_phase_that_scores_often(result: dict[str, Any]) -> None:
    """One phase needs no name; of several each has its own, as their rounds are not the same."""
    (chart,) = accuracy_charts(result)
    assert isinstance(chart, Curves) and (chart.name, chart.title) == ("accuracy", "Accuracy")
    assert points(chart) == dict.fromkeys(("anna", "bert", "carl"), ((1, 0.25), (2, 0.5)))
    early = [dict(point, phase="early") for point in result["curve"]]
    once = [dict(point, phase="once") for point in result["curve"] if point["round"] == 1]
    both = accuracy_charts(result | {"curve": [*early, *once, *result["curve"]]})
    assert [c.name for c in both] == ["accuracy-early", "accuracy-score"]


def test_a_single_scoring_is_bars(result: dict[str, Any], tmp_path: Path) -> None:
    """One score a site, in whichever round: the result beside source-only, or alone where that is not known."""
    once = [dict(point) for point in result["curve"] if point["round"] == (2 if point["client"] == "anna" else 1)]
    (bars,) = accuracy_charts(result | {"curve": once})
    assert isinstance(bars, Bars) and bars.metrics == ("accuracy", "source_only")
    assert {row.site: row.values for row in bars.rows} == {"anna": (0.5, 0.25), "bert": (0.25, 0.25), "carl": (0.25, 0.25)}
    whose = "the mean of 2 targets has 25.0\u00a0% (accuracy) and 25.0\u00a0% (source_only)."
    assert bars.seen() == f"Accuracy: bars for each site; {whose}"
    clients = [dict(c, source_only=None) for c in result["clients"]]
    (alone,) = accuracy_charts(result | {"curve": once, "clients": clients})
    assert isinstance(alone, Bars) and alone.metrics == ("accuracy",)
    write_figures(result | {"curve": once}, tmp_path)
    assert read(tmp_path / "accuracy.csv")[:2] == [["site", "role", "accuracy", "source_only"], ["anna", "source", "0.5", "0.25"]]
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_means_are_one_line(result: dict[str, Any], tmp_path: Path) -> None:
    """Of a long run the curve has means alone: a line for all sites; of a single scoring the sites' own accuracies."""
    means = [{"client": None, "phase": "score", "round": r, "cursor": r, "accuracy": r / 4, "sites": 5000} for r in (1, 2)]
    (chart,) = accuracy_charts(result | {"curve": means})
    assert isinstance(chart, Curves) and [line.points for line in chart.lines] == [((1, 0.25), (2, 0.5))]
    assert chart.seen() == "Accuracy: the mean of 5000 sites is 25.0\u00a0% at first and 50.0\u00a0% at last."
    write_figures(result | {"curve": means}, tmp_path)
    head, *rows = read(tmp_path / "accuracy.csv")
    assert head == ["site", "role", "round", "accuracy"] and rows == [["", "", "1.0", "0.25"], ["", "", "2.0", "0.5"]]
    (bars,) = accuracy_charts(result | {"curve": means[1:]})
    assert isinstance(bars, Bars) and [row.site for row in bars.rows] == ["anna", "bert", "carl"]


def test_accuracies_of_other_words_are_bars_too(result: dict[str, Any], tmp_path: Path) -> None:
    """All accuracies of a site side by side; a cell is empty where a site has none. Nothing where there are no other words."""
    (bars,) = score_bars(result)
    assert bars.metrics == ("accuracy", "source_only", "accuracy_a", "accuracy_b")
    assert words(bars) == list(bars.metrics)
    write_figures(result, tmp_path)
    assert read(tmp_path / "accuracies.csv")[:3] == [
        ["site", "role", *bars.metrics],
        ["anna", "source", "0.5", "0.25", "", ""],
        ["bert", "target", "0.5", "0.25", "0.4", "0.5"],
    ]
    (axes,) = figure_of(bars).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["anna (source)", "bert (target)", "carl (target)"]
    assert sorted(bar.get_width() for bar in axes.patches) == pytest.approx([25.0] * 3 + [40.0] + [50.0] * 5 + [60.0])
    plain = [dict(c, metrics={"accuracy": 0.5}) for c in result["clients"]]
    assert score_bars(result | {"clients": plain}) == ()


def test_many_sites_have_no_room_for_bars() -> None:
    def bars(sources: int, targets: int) -> Bars:
        roles = ["source"] * sources + ["target"] * targets
        return Bars("a", "A", ("accuracy",), tuple(Bar(f"s{i}", role, f"s{i}", (0.5,)) for i, role in enumerate(roles)))

    few, many, more, none = bars(20, 4), bars(40, 3), bars(1, 30), bars(30, 0)
    assert [len(each.drawn) for each in (few, many, more, none)] == [24, 3, 24, 24]
    assert len(list(many.numbers())) == 44 and "bars for 3 of 43 sites" in many.seen()
    assert "the mean of 30 sites has 50.0\u00a0% (accuracy)." in none.seen()
    assert "has no value that all report" in replace(few, rows=(Bar("s", "target", "s", (None,)),)).seen()


def test_accuracies_stand_side_by_side(result: dict[str, Any]) -> None:
    """The two that all know first, then the others by their words; means over targets, where each target has a value."""
    found = scores(result)
    assert found is not None
    assert found.metrics == ("accuracy", "source_only", "accuracy_a", "accuracy_b")
    rows = {"anna": (0.5, 0.25, None, None), "bert": (0.5, 0.25, 0.4, 0.5), "carl": (0.5, 0.25, 0.5, 0.6)}
    assert {site: values for site, _, _, values in found.rows} == rows
    assert found.means == pytest.approx((0.5, 0.25, 0.45, 0.55))
    clients = [dict(c, metrics={} if c["name"] == "carl" else c["metrics"]) for c in result["clients"]]
    assert scores(result | {"clients": clients}).means == (0.5, 0.25, None, None)  # type: ignore[union-attr]
    assert scores(result | {"clients": clients[:1]}).means == ()  # type: ignore[union-attr]
    unscored = [dict(c, accuracy=None, source_only=None, metrics={}) for c in result["clients"]]
    assert scores(result | {"clients": unscored}) is None


def test_domains_of_several_targets_have_means(result: dict[str, Any]) -> None:
    """Where several targets share a domain and there is another; a source of it does not count."""

    def told(*domains: str | None) -> Any:
        clients = [
            {**result["clients"][0], "name": f"site-{i}", "role": "target" if i else "source", "domain": domain}
            | {"accuracy": i / 10, "source_only": 0.0, "metrics": {}}
            for i, domain in enumerate(domains)
        ]
        return scores(result | {"clients": clients})

    assert told("x", "x", "y", "x").domains == (("x", 2, (pytest.approx(0.2), 0.0)), ("y", 1, (0.2, 0.0)))
    assert told("x", "x", "y").domains == told("x", "y", "y").domains == told("x", None, None).domains == ()


def test_a_reference_gives_source_only(result: dict[str, Any]) -> None:
    clients = [dict(c, metrics={"accuracy": 0.5}, source_only=0.125) for c in result["clients"]]
    found = scores(result | {"clients": clients})
    assert found is not None and found.metrics == ("accuracy", "source_only") and found.means == (0.5, 0.125)


def test_traffic_is_the_mean_of_a_client_and_exchange(result: dict[str, Any]) -> None:
    """By phase, as counted, without phases that took no bytes.

    The first exchange of the first phase that sends weights is 100 %.
    """
    found = traffic(result)
    assert found is not None
    assert ([row.phase for row in found.rows], found.model) == (["send", "score"], "send")
    send, score = found.rows
    assert (send.exchanges, score.exchanges) == (3, 2)
    for row in found.rows:
        closed = [p for p in result["phases"] if p["name"] == row.phase]
        asked = 3 * len(closed)
        assert (row.down, row.up) == tuple(sum(p[way] for p in closed) / asked for way in ("bytes_down", "bytes_up"))
    (opening, *_) = (p for p in result["phases"] if p["name"] == "send")
    whole = (opening["bytes_down"] + opening["bytes_up"]) / 3
    assert whole > 800  # a hundred numbers there and back
    assert score.share == pytest.approx((score.down + score.up) / whole)
    assert 0.25 < score.share < 0.35  # the model one way, and the second time it is there already
    assert found.seen().endswith("the most is sent in the phase send.")


@pytest.mark.parametrize("asked", [0, 2])
def test_traffic_that_cannot_be_told(result: dict[str, Any], asked: int) -> None:
    """Without bytes there is none, without weights no share; a first phase of weights that has not been closed gives none."""
    empty = [dict(p, asked=asked, bytes_down=0, bytes_up=0) for p in result["phases"]]
    assert traffic(result | {"phases": empty}) is None
    for contract in ([], [c | {"phase": "later"} for c in result["contract"]]):
        found = traffic(result | {"contract": contract})
        assert found is not None and found.model is None and [row.share for row in found.rows] == [None, None]


def test_files_have_the_numbers_behind_them(result: dict[str, Any], tmp_path: Path) -> None:
    """Each chart is a PNG with a CSV of its name beside it; the numbers are whole, and repeat what is drawn."""
    written = write_figures(result, tmp_path / "new" / "figures")
    names = ["accuracy", "accuracies", "send-loss", "score-line", "traffic"]
    assert [path.name for path in written] == [f"{name}.{kind}" for name in names for kind in ("png", "csv")]
    for path in written[::2]:
        with Image.open(path) as image:
            assert image.format == "PNG" and image.width == 1200
    folder = written[0].parent
    head, *rows = read(folder / "score-line.csv")
    assert head == ["site", "role", "number", "line"]
    assert rows[:3] == [["bert", "target", "0", "0.0"], ["bert", "target", "2", "0.5"], ["bert", "target", "10", "2.0"]]
    loss = read(folder / "send-loss.csv")
    assert loss[0] == ["site", "role", "round", "loss"] and float(loss[3][3]) == 1 / 3
    assert (folder / "traffic.csv").read_text().splitlines()[0] == "phase,exchanges,bytes_down,bytes_up,share_of_model"
    assert write_figures(result, folder) == written


def test_a_result_without_history_has_fewer_charts(tmp_path: Path) -> None:
    names = ["accuracy.png", "accuracies.png", "traffic.png"]
    assert [path.name for path in write_figures(told(history=False), tmp_path)[::2]] == names


def test_names_of_files_are_safe_and_their_own() -> None:
    """Whatever a metric is called, its files lie in the folder, and no two charts share one."""
    charts = tuple(curves(1, name=name) for name in ("../../x", "Loss", "loss", "loss", "ü", ""))
    assert [name for name, _ in named(charts)] == ["x", "Loss", "loss-2", "loss-3", "chart", "chart-2"]


@pytest.mark.parametrize("odd", ["$x^$", "_hidden", "a & <b>", "\\frac"])
def test_names_are_drawn_as_they_are(odd: str) -> None:
    """No name is taken for a formula, and none is left out of the legend."""
    chart = curves(1, title=odd, at=odd, y=odd, lines=(Line(odd, "target", odd, ((1, 0.5),)),))
    assert words(chart) == [odd]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert png(chart).startswith(b"\x89PNG")
    assert png(Traffic((Exchange(odd, 1, 2.0, 3.0, None),), None)).startswith(b"\x89PNG")


def test_a_legend_that_can_be_read() -> None:
    """With few sites the legend names them all, with many only the targets, with many targets nobody."""
    assert words(curves(3, 1)) == ["s0 (source)", "s1 (source)", "s2 (target)"]
    assert words(curves(LEGEND + 1, 1)) == ["other sites", f"s{LEGEND} (target)"]
    assert words(curves(2 * LEGEND + 2, LEGEND + 1)) == ["other sites", "targets"]


def test_scales() -> None:
    """Shares are drawn from 0 to 100, so that noise is no leap; positive values that span much are on a logarithmic scale."""

    def axes(*ys: float, y: str = "loss") -> Any:
        lines = (Line("s", "source", "s", tuple(enumerate(ys))),)
        return figure_of(curves(1, y=y, lines=lines)).axes[0]

    assert axes(0.25, 0.75, y="accuracy_x").get_ylim() == (0, 100)
    for ys in ((0.501, 0.503), (0.99, 1.0), (0.0,), (0.0, 1.0)):
        assert axes(*ys, y="distilled").get_ylim() == (0, 100)
    assert [axes(*ys).get_yscale() for ys in ((0.01, 50.0), (1.0, 50.0), (-1.0, 50.0), (0.0, 50.0))] == ["log"] + 3 * ["linear"]


@pytest.mark.parametrize(
    ("y", "values", "axis"),
    [
        ("accuracy", (0.25, 1.0), "accuracy, %"),
        ("accuracy_r", (0.25, 1.0), "accuracy_r, %"),
        ("distilled", (0.25, 1.0), "accuracy (distilled), %"),
        ("accuracy_r", (0.25, 1.5), "accuracy_r"),
        ("loss", (0.25, 1.0), "loss"),
    ],
)
def test_accuracies_are_percents(y: str, values: tuple[float, ...], axis: str) -> None:
    """Shares whose name begins as an accuracy's are drawn in percent, and the axis says that they are accuracies."""
    chart = curves(1, y=y, lines=(Line("s", "target", "s", tuple(enumerate(values))),))
    (axes,) = figure_of(chart).axes
    assert axes.get_ylabel() == axis
    (line,) = axes.get_lines()
    assert list(line.get_ydata()) == [100 * v if "%" in axis else v for v in values]


def test_a_site_looks_the_same_in_every_chart(result: dict[str, Any]) -> None:
    """Colour and mark follow from its place in the run, not from who else is in the chart."""

    def looks(chart: Curves) -> dict[str, tuple[Any, Any]]:
        lines = figure_of(chart).axes[0].get_lines()
        return {each.site: (line.get_color(), line.get_marker()) for each, line in zip(chart.lines, lines, strict=True)}

    (loss,), (line,) = metric_charts(result), family_charts(result)
    whole, part = looks(loss), looks(line)
    assert list(whole) == ["anna", "bert", "carl"] and list(part) == ["bert", "carl"]
    assert part.items() <= whole.items() and len(set(whole.values())) == 3
    assert len({tuple(style_of(place).values()) for place in range(88)}) == 88
    unnamed = looks(curves(2 * LEGEND + 2, LEGEND + 1))
    assert not {colour for colour, _ in unnamed.values()} & set(COLOURS)


def test_rounds_are_whole_numbers() -> None:
    """A few places have a mark each, a single one too; many have some, none between two rounds."""

    def marks(*xs: int) -> list[float]:
        lines = (Line("s", "source", "s", tuple((x, 1.0 + x) for x in xs)),)
        return list(figure_of(curves(1, lines=lines)).axes[0].get_xticks())

    assert (marks(3), marks(1, 2), marks(1, 5, 20)) == ([3], [1, 2], [1, 5, 20])
    assert marks(*range(1, 500)) == [1, 100, 200, 300, 400]
    assert marks(*range(1, 21)) == [1, 5, 10, 15, 20]
    assert marks(*range(1, 15)) == [1, 2, 4, 6, 8, 10, 12, 14]


def test_rounds_begin_at_one() -> None:
    def limits(at: str, *xs: int) -> tuple[float, float]:
        lines = (Line("s", "source", "s", tuple((x, 1.0 + x) for x in xs)),)
        return figure_of(curves(1, x=at, at=at, lines=lines)).axes[0].get_xlim()

    assert (limits("round", 5, 10), limits("round", 1), limits("N", 5, 10)) == ((1, 10), (1, 2), (5, 10))


def test_drawing_leaves_no_trace(result: dict[str, Any]) -> None:
    """A figure is drawn on a canvas without a window, and matplotlib's own settings and list of figures stay as they were."""
    import matplotlib as mpl
    from matplotlib import _pylab_helpers

    before = dict(mpl.rcParams)
    (chart,) = metric_charts(result)
    image = Image.open(io.BytesIO(png(replace(chart, title="once more"))))
    assert image.height > 600
    assert dict(mpl.rcParams) == before
    assert _pylab_helpers.Gcf.get_all_fig_managers() == []


def picture(classes: int) -> dict[str, Tensor]:
    """A site's rows and the points that stand for them."""
    y = torch.arange(5 * classes) % classes
    z = torch.stack([y.float(), torch.arange(len(y)) / len(y)], 1)
    return {"site": z, "site_class": y, "barycenter": z[:classes] + 0.1, "barycenter_class": y[:classes]}


def texts(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def test_a_picture_says_what_it_is() -> None:
    """Whose it is, along which axes, what colours mean, what marks are, and which colour is which class."""
    figure = figure_of_clouds(clouds(picture(3)), "Run 5f0c, seen at this site")
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
    drawn = figure_of_clouds(clouds(arrays), "a").axes[0].collections
    colours = list(map(tuple, colours_of(clouds(arrays)).values()))
    assert len(set(colours)) == 4
    assert [tuple(c)[:3] for c in drawn[2].get_facecolors()] == [colours[i][:3] for i in (3, 3, 3, 0)]


@pytest.mark.parametrize(("classes", "named"), [(NAMED, 1), (NAMED + 1, 0)])
def test_many_classes_are_not_named(classes: int, named: int) -> None:
    arrays = picture(classes)
    assert len(figure_of_clouds(clouds(arrays), "a").legends) == named
    assert len(set(colours_of(clouds(arrays)).values())) == classes


def test_clouds_without_classes(tmp_path: Path) -> None:
    arrays = {"site": torch.rand(5, 2), "others": torch.rand(3, 2)}
    figure = figure_of_clouds(clouds(arrays), "$x^$")
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
