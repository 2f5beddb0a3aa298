"""report.html: a result as one page that needs no network, with its charts and the contract in words."""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tideline.client.answers import RunResult, SiteResult
from tideline.client.output import counted, size
from tideline.core.errors import ConfigRefused
from tideline.core.settings import EMPTY
from tideline.engine.peers.relay import notes
from tideline.report.charts import Bars, Curves, accuracy_charts, family_charts, metric_charts
from tideline.report.confidences import Confidences, calibration, confidences
from tideline.report.figures import Chart, png, write_figures
from tideline.report.fold_tables import MOST_TABLES, Column, Series, table_charts, tables_of
from tideline.report.graphs import Graph
from tideline.report.maps import ClusterMap, HeatMap, cluster_map
from tideline.report.meaning import FEW, held_to, interval, reached, rows_of, trained, worth
from tideline.report.paper.parts import document, folded, items, line_of, listed, percent, section, wide_table
from tideline.report.score_rows import TITLES, class_rows, score_heads, selected, site_rows
from tideline.report.summary import Traffic, generalized, marks, score_bars, scores, traffic
from tideline.report.tables.methods import methods_table
from tideline.report.tables.sites import site_table
from tideline.report.tables.words import figure_line, mark_lines, metric_line, metric_lines
from tideline.report.verdict_rows import sentences_of, table_of

if TYPE_CHECKING:
    from tideline.core.privacy import Clause

RESULT, PAGE, FIGURES = "result.json", "report.html", "figures"
# What the charts of a heading are.
SCORES_NOTE = (
    "On held-out rows, from the last scoring, with 95\u00a0% intervals: Wilson's for accuracies and recalls, of resampled rows"
    " for the others."
)
SAYS: Mapping[type, str] = {
    Bars: "A bar is the share of held-out rows that are predicted right, by what its name says.",
    Confidences: "How sure predictions were, those that are right and those that are wrong: sure and wrong is what harms.",
    Traffic: "What one site receives and sends in one exchange of each phase, on average.",
    ClusterMap: "Sites of one colour are one group in that round: the method found them alike.",
}
OVER_ROUNDS = "A chart for each metric that sites reported more than once and that changed."
OVER_NUMBERS = "Metrics that differ by a number at their end, drawn over that number; each site's newest values."


DETAILS = "<h2>Details</h2><p class='facts'>How the run came to this. Open what you want to know; on paper all of it is open.</p>"
MOST_ROWS = 200  # of a chart's numbers on the page; figures/ has all


class ReportFiles(TypedDict):
    result: str
    report: str
    figures: list[str]


def write_report(result: RunResult, path: Path, pictures: Mapping[str, Path] = EMPTY) -> None:
    """Write the report of a result (docs/result.md). pictures: PNG files of the sites' own, by their captions."""
    plain = not score_bars(result)  # the table of sites has the two accuracies already
    inner = (
        folded(side_by_side(result) if plain else ""),
        folded(charts("Other metrics over the rounds", OVER_ROUNDS, metric_charts(result))),
        folded(charts("Families of metrics", OVER_NUMBERS, family_charts(result))),
        *map(folded, (confidence(result), marked(result), grouped(result), tabled(result), traffic_table(result))),
    )
    parts = (
        *(heading(result), methods_table(result), rehearsed(result), site_table(result), scored(result)),
        *("" if plain else side_by_side(result), curve(result)),
        *(site_pictures(pictures), contract(result), DETAILS if any(inner) else "", *inner, footer(result)),
    )
    body = "\n".join(filter(None, parts))
    path.write_text(document(f"Tideline: {result['name']}", body), encoding="utf-8")


def write_all(result: RunResult, folder: Path, pictures: Mapping[str, Path] = EMPTY) -> ReportFiles:
    """Write result.json, report.html and figures/; their paths. Raises ConfigRefused."""
    json_file, page = folder / RESULT, folder / PAGE
    make_room(folder)
    with refused_by_path(folder):
        json_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        write_report(result, page, pictures)
        drawn = write_figures(result, folder / FIGURES)
    return {"result": str(json_file), "report": str(page), "figures": [str(each) for each in drawn]}


def make_room(folder: Path) -> None:
    """Make the folders before anything is written, so that an obstacle leaves no half report. Raises ConfigRefused."""
    with refused_by_path(folder):
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        for file in (folder / RESULT, folder / PAGE):
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))


@contextmanager
def refused_by_path(folder: Path) -> Iterator[None]:
    """Turn an OSError below a folder into ConfigRefused, which names the path."""
    try:
        yield
    except OSError as cause:
        what = f"{cause.filename or folder} cannot be written: {cause.strerror or cause}"
        first = "Make room" if cause.errno in (errno.ENOSPC, errno.EDQUOT) else "Correct that path"
        raise ConfigRefused(what, f"{first}, or choose another folder with --out", path="out") from None


def figures(drawn: Iterable[Chart]) -> str:
    """Charts side by side, each with a sentence, its n and its unit; what needs no picture in words; empty if there are none."""
    made = [picture(chart) if pictured(chart) else unpictured(chart) for chart in drawn]
    return f"<div class='charts'>{''.join(made)}</div>" if made else ""


def pictured(chart: Chart) -> bool:
    """Whether a picture says more than words: not of one or two places on an axis, nor of weights that are about the same."""
    if isinstance(chart, Curves):
        return len({x for line in chart.lines for x, _ in line.points}) > 2
    return not (isinstance(chart, Graph) and chart.alike)


def picture(chart: Chart) -> str:
    seen, data = escape(chart.seen()), base64.b64encode(png(chart)).decode()
    caption = f"{seen} {escape(basis(chart))}"
    image = f"<img alt='{seen}' src='data:image/png;base64,{data}'>"
    return f"<figure>{says(chart)}{image}<figcaption>{caption}</figcaption>{numbers_of(chart)}</figure>"


def says(chart: Chart) -> str:
    """What the numbers of a chart say, where its heading has no line of it."""
    if isinstance(chart, Column | Series | HeatMap | Graph):
        return ""
    return f"<p class='says'>{escape(metric_line(chart.y) if isinstance(chart, Curves) else SAYS.get(type(chart), ''))}</p>"


def unpictured(chart: Chart) -> str:
    """A chart in words, with its numbers in a table; weights that are all about the same are one sentence, and folded numbers."""
    words = (
        f"<p>{escape(chart.even() if isinstance(chart, Graph) else chart.title)}</p><p class='facts'>{escape(basis(chart))}</p>"
    )
    return f"<div>{words}{says(chart)}{numbers_of(chart) if isinstance(chart, Graph) else few_points(chart)}</div>"


def few_points(chart: Chart) -> str:
    """One or two places of each line, as a table: a row for each line."""
    lines = chart.lines if isinstance(chart, Curves) else ()
    places = sorted({x for line in lines for x, _ in line.points})
    heads = [("line", ""), *((escape(f"{chart.at} {x:g}"), "n") for x in places)] if isinstance(chart, Curves) else []
    rows = []
    for line in lines:
        of = dict(line.points)
        cells = [escape(chart.words(of[x])) if isinstance(chart, Curves) and x in of else "–" for x in places]
        rows.append(line_of(line.site or line.label, line.role, line.role, cells))
    return wide_table(heads, rows)


def basis(chart: Chart) -> str:
    """What a chart's numbers are of: n and the unit."""
    if isinstance(chart, Curves):
        values = sum(len(line.points) for line in chart.lines)
        unit = "%" if chart.share else f"as the method reports {chart.y}"
        return f"n = {counted(len(chart.lines), 'line')}, {counted(values, 'value')}; unit: {unit}."
    if isinstance(chart, Bars):
        return f"n = {counted(len(chart.rows), 'site')}; unit: % of held-out rows."
    if isinstance(chart, Confidences):
        return f"n = {counted(chart.predictions, 'prediction')}; unit: % of predictions."
    if isinstance(chart, Traffic):
        return f"n = {counted(sum(row.exchanges for row in chart.rows), 'exchange')}; unit: bytes."
    if isinstance(chart, Graph):
        costs = ", and joules" if any(link.joules is not None for link in chart.links) else ""
        return f"n = {counted(len(chart.links), 'link')}; unit: shares of 1{costs}."
    if isinstance(chart, ClusterMap):
        return f"n = {counted(len(chart.rows), 'site')}; unit: groups."
    return f"n = {counted(len(chart.rows) * len(chart.columns), 'value')}; unit: as the method reports it."


def numbers_of(chart: Chart) -> str:
    """A chart's numbers as a folded table."""
    head, *rows = chart.numbers()
    more = len(rows) - MOST_ROWS
    lines = (
        "".join(f"<td>{escape(f'{c:.6g}' if isinstance(c, float) else str(c))}</td>" for c in row) for row in rows[:MOST_ROWS]
    )
    table = wide_table([(escape(str(each)), "") for each in head], (f"<tr>{line}</tr>" for line in lines))
    rest = f"<p>{more:,} more rows are in the file of this chart in figures/.</p>" if more > 0 else ""
    return f"<details class='numbers'><summary>Numbers of this chart</summary>{table}{rest}</details>"


def charts(title: str, note: str, drawn: Iterable[Chart]) -> str:
    """Charts under a heading; empty if there are none."""
    made = figures(drawn)
    return section(title, note, made) if made else ""


def site_pictures(pictures: Mapping[str, Path]) -> str:
    """Pictures that sites drew of their own points. Only the owner of those sites can make a page with them."""
    shown = (
        f"<p class='facts'>{escape(caption)}</p><img alt='{escape(caption)}'"
        f" src='data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}'>"
        for caption, file in pictures.items()
    )
    note = "Drawn from a site's own disk by its owner's command; it was never sent."
    return section("Seen at the sites", note, *shown) if pictures else ""


def heading(result: RunResult) -> str:
    """What ran, how it ended, its notes, and the accuracies of targets and of unseen targets."""
    seconds = "" if result["seconds"] is None else f", {result['seconds']:.1f} s"
    rounds = "no rounds" if result["rounds"] is None else counted(result["rounds"], "round")
    facts = f"{escape(result['method'])}, {rounds}, seed {result['seed']}{seconds}: {escape(result['status'])}"
    alarms = tuple(notes(result))
    lines = [("bad", result["cause"])] if result["cause"] else []
    lines += [("bad", each) for each in alarms]
    lines += [("facts", each) for each in result.get("notes", ()) if each not in alarms]
    body = "".join(f"<p class='{kind}'>{escape(each)}</p>" for kind, each in lines)
    targets = [c for c in result["clients"] if c["role"] == "target"]
    body += f"<p class='lead'>{escape(trained(result))}</p>"
    body += "".join(f"<p class='lead'>{lead(result, c)}</p>" for c in targets) if len(targets) <= FEW else spread_of(targets)
    said = (*worth(result), *held_to(result))
    body += "".join(f"<p class='{kind}'>{escape(words)}</p>" for kind, words in said)
    body += "".join(f"<p class='lead'>{what}: <b>{percent(accuracy)}</b></p>" for what, accuracy in generalized(result))
    return f"<h1>{escape(result['name'])}</h1><p class='facts'>{facts}</p>{body}"


def lead(result: RunResult, client: SiteResult) -> str:
    """A target's outcome in a sentence, with its interval where its scoring told one."""
    name = escape(client["name"] + (f" ({client['domain']})" if client["domain"] else ""))
    if client["accuracy"] is None:
        return f"{name}, whose labels nobody saw, could not be scored."
    text = f"{name}, whose labels nobody trained on: <b>{percent(client['accuracy'])}</b> of the held-out rows are recognised"
    if sure := reached(result, client):
        text += f" (95\u00a0% interval {interval(sure)}, n = {rows_of(result, client['name']):,} rows)"
    if client["source_only"] in (None, client["accuracy"]):
        return f"{text}."
    return f"{text}; the model of the labelled sites alone recognises {percent(client['source_only'])}."


def spread_of(targets: Sequence[SiteResult]) -> str:
    """The outcome of many targets in a sentence."""
    known = [c["accuracy"] for c in targets if c["accuracy"] is not None]
    if not known:
        return f"<p class='lead'>None of {counted(len(targets), 'target')} could be scored.</p>"
    mean = percent(sum(known) / len(known))
    text = f"At {len(known)} of {counted(len(targets), 'target')} on average <b>{mean}</b> of the held-out rows"
    return f"<p class='lead'>{text} are recognised, at single targets {percent(min(known))} to {percent(max(known))}.</p>"


def side_by_side(result: RunResult) -> str:
    """All accuracies of the scored sites, and their means over the targets."""
    table = scores(result)
    if table is None:
        return ""
    # A long name breaks after an underscore, so that a table of many fits.
    heads = [("site", ""), *((escape(metric).replace("_", "_<wbr>"), "n metric") for metric in table.metrics)]
    rows = [(site, ", ".join(filter(None, [domain, role])), role, values) for site, domain, role, values in table.rows]
    rows += [("mean", f"{domain}, {counted(n, 'target')}", "mean", values) for domain, n, values in table.domains]
    rows += [("mean", "over targets", "mean", table.means)] if table.means else []
    numbers = wide_table(heads, (line_of(name, words, kind, map(percent, values)) for name, words, kind, values in rows))
    note = (
        "<p class='facts'>Each column is a metric, on held-out rows, with its newest values. Targets are shaded; their mean is"
        " left out if one of them has no value.</p>"
    )
    return f"<h2>Accuracies side by side</h2>{listed(metric_lines(table.metrics))}{figures(score_bars(result))}{numbers}{note}"


def curve(result: RunResult) -> str:
    if not result["curve"]:
        return "<h2>Accuracy</h2><p>No site could be scored.</p>"
    note = "The share of the held-out rows that is recognised, at each scoring."
    return charts("Accuracy over the rounds", note, accuracy_charts(result))


def marked(result: RunResult) -> str:
    """How often folds did what with which site."""
    table = marks(result)
    if table is None:
        return ""
    heads = [("site", ""), *((escape(word), "n") for word in table.words)]
    roles = {client["name"]: client["role"] for client in result["clients"]}
    lines = (line_of(name, roles[name], "", map(str, counts)) for name, counts in table.rows)
    what = listed(mark_lines(table.words))
    return section("What was done with single sites", f"In how many of {table.rounds} rounds.", wide_table(heads, lines), what)


def grouped(result: RunResult) -> str:
    """Which site was in which group, drawn and in words, and how well the last groups fit the true domains."""
    groups = cluster_map(result)
    if groups is None:
        return ""
    shown = [groups.rounds[i] for i in groups.drawn]
    heads = ["site", "domain", *(f"{'round ' if each.isdigit() else ''}{escape(each)}" for each in shown)]
    cells = ((row.site, row.domain or "–", *(row.groups[i] or "–" for i in groups.drawn)) for row in groups.rows)
    lines = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    note = "A column for the first round with groups, and one for each in which they changed"
    all_shown = len(shown) == len(groups.rounds)
    note += "." if all_shown else f"; {len(shown)} of {len(groups.rounds)}, all of them are in figures/groups.csv."
    fit = ""
    if groups.agreement is not None:
        scale = "1 is the same partition; as many sites put together by chance have about 0"
        fit = f"<p>Adjusted Rand index of the last groups and the true domains: <b>{groups.agreement:.2f}</b> ({scale}).</p>"
    return section("Groups of sites", note, fit, figures([groups]), wide_table([(head, "") for head in heads], lines))


def tabled(result: RunResult) -> str:
    """The tables that folds reported: lines, arrows, or heat maps of the first, the middle and the last round of each."""
    drawn = table_charts(result)
    if not drawn:
        return ""
    more = len(tables_of(result)) - MOST_TABLES
    note = (
        "Tables of one column as lines over the rounds; of others the first, the middle and the last round: as arrows if they"
        " say who sends to whom, as lines if their rows are numbers, else in the same colours. Sites are ordered by their last"
        " groups, then by name."
    )
    note += f" {more} more tables are in {RESULT}." if more > 0 else ""
    names = [name for _, name in tables_of(result)]
    made = (
        f"<h3>{escape(title)}</h3><p class='says'>{escape(figure_line(name))}</p>{figures(each)}"
        for (title, each), name in zip(drawn, names, strict=False)
    )
    return section("Tables of the rounds", note, *made)


def scored(result: RunResult) -> str:
    """Scores of sites and classes with their intervals, and the best round."""
    best = f"<p>{escape(words[:1].upper() + words[1:])}.</p>" if (words := selected(result)) else ""
    # An interval stands below its score, so that five of them fit a page.
    cells = {r.name: [cell.replace(" (", "<br>(") for cell in r.cells] for r in site_rows(result)}
    sites = [line_of(r.name, r.role, r.role, [f"{r.rows:,}", *cells[r.name]]) for r in site_rows(result)]
    classes = [line_of(r.name, "", "", [f"{r.rows:,}", *r.cells]) for r in class_rows(result)]
    if not (best or sites or classes):
        return ""
    heads = [("site", ""), ("rows", "n"), *((TITLES[name], "n metric") for name in score_heads(result))]
    of_classes = [("class", ""), ("rows", "n"), ("recall, all sites together", "n metric")]
    tables = (wide_table(heads, sites) if sites else "", wide_table(of_classes, classes) if classes else "")
    lines = listed((TITLES[name], metric_line(name)) for name in score_heads(result))
    return section("Scores", SCORES_NOTE, lines, best, *tables)


def rehearsed(result: RunResult) -> str:
    """What a rehearsal came to: gains where it was made, what was chosen, what to expect and what was found."""
    table, lines = table_of(result), list(sentences_of(result))
    if table is None and not lines:
        return ""
    rows = [line_of(name, "", "", map(escape, cells)) for name, *cells in (table.rows if table else ())]
    heads = [(escape(head), "n" if i else "") for i, head in enumerate(table.heads if table else ())]
    words = "".join(f"<li>{escape(line)}</li>" for line in lines)
    note = escape(table.title) + "." if table else "Nothing could be rehearsed."
    return section("Verdict", note, wide_table(heads, rows) if table else "", f"<ul>{words}</ul>")


def confidence(result: RunResult) -> str:
    """How confident predictions were, right and wrong ones, and each site's calibration error."""
    table = calibration(result)
    if table is None:
        return ""
    heads = [("site", ""), *((words, "n") for words in ("predictions", "right", "expected calibration error"))]
    lines = (
        line_of(c.site, c.role, c.role, [f"{c.predictions:,}", percent(c.right), "–" if c.error is None else f"{c.error:.3f}"])
        for c in table.rows
    )
    note = (
        "Predictions for held-out rows, from the last scoring; where several models score a site, those of each. The"
        " expected calibration error is the mean distance between how sure predictions are and how often they are right, over"
        " the ranges of confidence: 0 where they are right as often as they are sure."
    )
    return section("Confidence", note, figures(confidences(result)), wide_table(heads, lines))


def traffic_table(result: RunResult) -> str:
    """The traffic of each phase, drawn and in numbers."""
    table = traffic(result)
    if table is None:
        return ""
    heads = [("phase", ""), ("to a site", "n"), ("from a site", "n")]
    heads += [("as a share of sending the model", "n metric")] if table.model else []
    lines = []
    for row in table.rows:
        cells = [size(round(row.down)), size(round(row.up)), *([] if row.share is None else [percent(row.share)])]
        lines.append(line_of(row.phase, f"{row.exchanges:,} {'exchange' if row.exchanges == 1 else 'exchanges'}", "", cells))
    note = "Means for one asked client and one exchange, failed attempts included; what a client has already is not sent again."
    if table.model:
        note += f" 100\u00a0% is what the first exchange of the phase {escape(table.model)} took, there and back."
    return section("Traffic", note, figures([table]), wide_table(heads, lines))


def contract(result: RunResult) -> str:
    """What left the sites: by phase, each thing once."""
    from tideline.core.privacy import from_json

    phases: dict[str, dict[Clause, None]] = {}
    for clause in from_json(result["contract"]):
        phases.setdefault(clause.phase, {})[clause] = None
    lists = "".join(f"<h3>Phase {escape(name)}</h3>{items(clauses)}" for name, clauses in phases.items())
    note = (
        "<p class='facts'>Nothing else can leave in a message: what is not listed has no way into one. Not claimed: that what is"
        " listed reveals nothing about the data. Weights can.</p>"
    )
    return f"<h2>What left the sites</h2>{lists}{note}"


def footer(result: RunResult) -> str:
    state = escape(result["state_digest"] or "none")
    return f"<footer class='facts'>State <code>{state}</code><br>Equal bytes depend on: {escape(result['fingerprint'])}</footer>"
