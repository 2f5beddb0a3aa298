"""A run's accuracies as one figure, for a program: with the unit and the number of held-out rows on the axes."""

from __future__ import annotations

from matplotlib.figure import Figure as Figure

from tideline.client.answers import RunResult
from tideline.core.errors import NotFound
from tideline.report.charts import Curves, accuracy_charts
from tideline.report.figures import figure_of
from tideline.report.style import WORDS, cut

FEW = 6  # sites whose numbers of rows stand one by one
UNIT = "accuracy, % of held-out rows"


def plotted(result: RunResult) -> Figure:
    """The first chart of accuracies. Raises NotFound where no site was scored."""
    drawn = accuracy_charts(result)
    if not drawn:
        what = f"Run {result['run']} has no accuracy to plot: it is {result['status']}, and no site was scored"
        raise NotFound(what, "Wait for its first scoring, or give sites held-out rows with labels")
    chart = drawn[0]
    figure = figure_of(chart)
    (axes,) = figure.axes
    rows = rows_in(result)
    if isinstance(chart, Curves):
        axes.set_ylabel(UNIT, fontsize=WORDS)
        axes.set_xlabel(f"round{rows}", fontsize=WORDS, parse_math=False)
    else:
        axes.set_xlabel(f"{UNIT}{rows}", fontsize=WORDS, parse_math=False)
    return figure


def rows_in(result: RunResult) -> str:
    """How many held-out rows each site has, in words; nothing where that is not known."""
    scores = result.get("scores", {})
    known = {site: each["accuracy"]["rows"] for site, each in scores.items() if "accuracy" in each}
    if not known:
        return ""
    if len(known) > FEW:
        return f"; n = {min(known.values())} to {max(known.values())} rows a site"
    return "; n = " + ", ".join(f"{rows} ({cut(site)})" for site, rows in known.items())
