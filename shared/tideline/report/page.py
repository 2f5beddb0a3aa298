"""report.html: a result as one page that needs no network, with its charts and the contract in words."""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tideline.client.answers import RunResult, SiteResult
from tideline.client.output import counted, size
from tideline.core.errors import ConfigRefused
from tideline.core.settings import EMPTY
from tideline.engine.peers.relay import notes
from tideline.report.charts import accuracy_charts, family_charts, metric_charts
from tideline.report.confidences import calibration, confidences
from tideline.report.figures import Chart, png, write_figures
from tideline.report.fold_tables import MOST_TABLES, table_charts, tables_of
from tideline.report.maps import cluster_map
from tideline.report.score_rows import TITLES, class_rows, score_heads, selected, site_rows
from tideline.report.summary import generalized, marks, score_bars, scores, traffic
from tideline.report.verdict_rows import sentences_of, table_of

if TYPE_CHECKING:
    from tideline.core.privacy import Clause

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 58rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1rem; margin: 1rem 0 0.2rem; }
p { margin: 0.4rem 0; } .facts { color: #51606f; } .lead { font-size: 1.1rem; } .bad { color: #a8321f; }
code { font-size: 0.85em; overflow-wrap: anywhere; } .wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th, td { padding: 0.35rem 0.5rem; border-bottom: 1px solid #d5dde5; }
th { text-align: left; font-weight: 600; vertical-align: bottom; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } td.result { font-weight: 600; }
tr.target td { background: #eef6f1; } tr.mean td { font-weight: 600; } ul { margin: 0.2rem 0; padding-left: 1.4rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.2rem; }
td:first-child { white-space: nowrap; } th.n { white-space: normal; } th.metric { min-width: 5.4em; }
figure { margin: 0; max-width: 40rem; } img { width: 100%; display: block; } figcaption { color: #51606f; font-size: 0.9em; }
.tag { color: #51606f; font-size: 0.9em; } footer { margin-top: 2.5rem; border-top: 1px solid #d5dde5; padding-top: 0.6rem; }
.charts + .wide { margin-top: 1rem; } @media (max-width: 32rem) { th, td { font-size: 0.85rem; padding: 0.3rem 0.25rem; } }
"""
META = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
RESULT, PAGE, FIGURES = "result.json", "report.html", "figures"
AUDIENCES = {"coordinator": "the coordinator", "peers": "other sites"}
# What the charts of a heading are.
SCORES_NOTE = (
    "On held-out rows, from the last scoring, with 95\u00a0% intervals: Wilson's for accuracies and recalls, of resampled rows"
    " for the others. Balanced accuracy is the mean recall of the classes; AUROC is of each class against the rest; ECE is how"
    " far confidences are from being right."
)
OVER_ROUNDS = "A chart for each metric that sites reported more than once and that changed."
OVER_NUMBERS = "Metrics that differ by a number at their end, drawn over that number; each site's newest values."


class ReportFiles(TypedDict):
    result: str
    report: str
    figures: list[str]


def write_report(result: RunResult, path: Path, pictures: Mapping[str, Path] = EMPTY) -> None:
    """Write the report of a result (docs/result.md). pictures: PNG files of the sites' own, by their captions."""
    parts = (
        *(heading(result), rehearsed(result), site_table(result), scored(result), side_by_side(result), curve(result)),
        charts("Other metrics over the rounds", OVER_ROUNDS, metric_charts(result)),
        charts("Families of metrics", OVER_NUMBERS, family_charts(result)),
        *(confidence(result), site_pictures(pictures), marked(result), grouped(result), tabled(result), traffic_table(result)),
        *(contract(result), footer(result)),
    )
    body = "\n".join(filter(None, parts))
    head = f"{META}<title>Tideline: {escape(result['name'])}</title><style>{STYLE}</style>"
    path.write_text(f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n", encoding="utf-8")


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


def section(title: str, note: str, *parts: str) -> str:
    """A heading, a note below it, and what follows."""
    return f"<h2>{title}</h2><p class='facts'>{note}</p>{''.join(parts)}"


def wide_table(heads: Iterable[tuple[str, str]], lines: Iterable[str]) -> str:
    """A table that scrolls in a narrow window. heads: (HTML, class) of each column; lines: its rows."""
    head = "".join(f"<th class='{kind}'>{words}</th>" if kind else f"<th>{words}</th>" for words, kind in heads)
    return f"<div class='wide'><table><tr>{head}</tr>{''.join(lines)}</table></div>"


def figures(drawn: Iterable[Chart]) -> str:
    """Charts side by side, each with a sentence that says what it shows; empty if there are none."""
    made = []
    for chart in drawn:
        seen, data = escape(chart.seen()), base64.b64encode(png(chart)).decode()
        made.append(f"<figure><img alt='{seen}' src='data:image/png;base64,{data}'><figcaption>{seen}</figcaption></figure>")
    return f"<div class='charts'>{''.join(made)}</div>" if made else ""


def charts(title: str, note: str, drawn: Iterable[Chart]) -> str:
    """Charts under a heading; empty if there are none."""
    made = figures(drawn)
    return section(title, note, made) if made else ""


def line_of(name: str, words: str, kind: str, cells: Iterable[str]) -> str:
    """A row of numbers after a name with words below it, so that it fits a narrow window."""
    numbers = "".join(f"<td class='n'>{cell}</td>" for cell in cells)
    return f"<tr class='{escape(kind)}'><td>{escape(name)}<br><span class='tag'>{escape(words)}</span></td>{numbers}</tr>"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}\u00a0%"


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
    body += "".join(f"<p class='lead'>{lead(c)}</p>" for c in result["clients"] if c["role"] == "target")
    body += "".join(f"<p class='lead'>{what}: <b>{percent(accuracy)}</b></p>" for what, accuracy in generalized(result))
    return f"<h1>{escape(result['name'])}</h1><p class='facts'>{facts}</p>{body}"


def lead(client: SiteResult) -> str:
    """A target's outcome in a sentence."""
    name = escape(client["name"] + (f" ({client['domain']})" if client["domain"] else ""))
    if client["accuracy"] is None:
        return f"{name}, whose labels nobody saw, could not be scored."
    text = f"{name}, whose labels nobody trained on: <b>{percent(client['accuracy'])}</b> of the held-out rows are recognised"
    if client["source_only"] in (None, client["accuracy"]):
        return f"{text}."
    return f"{text}; the model of the labelled sites alone recognises {percent(client['source_only'])}."


def site_table(result: RunResult) -> str:
    """A row per site. Accuracy is on rows that training never saw."""
    note = (
        "<p class='facts'>Result and source-only are accuracies on held-out rows. Source-only: the model of the"
        " labelled sites alone. A target's labels (shaded) are used for this score and for nothing else.</p>"
    )
    numbers = ("training rows", "source-only", "result", "sent", "received", "failures")
    heads = [*((words, "") for words in ("site", "domain", "role")), *((words, "n") for words in numbers)]
    return f"<h2>Sites</h2>{wide_table(heads, map(site_line, result['clients']))}{note}"


def site_line(client: SiteResult) -> str:
    cells = (
        *(("", client["name"]), ("", client["domain"] or ""), ("", client["role"])),
        ("n", "–" if client["samples"] is None else f"{client['samples']:,}"),
        *(("n", percent(client["source_only"])), ("n result", percent(client["accuracy"]))),
        *(("n", size(client["bytes_up"])), ("n", size(client["bytes_down"])), ("n", str(len(client["failures"])))),
    )
    row = "".join(f"<td class='{kind}'>{escape(words)}</td>" for kind, words in cells)
    return f"<tr class='{escape(client['role'])}'>{row}</tr>"


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
    return f"<h2>Accuracies side by side</h2>{figures(score_bars(result))}{numbers}{note}"


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
    return section("What was done with single sites", f"In how many of {table.rounds} rounds.", wide_table(heads, lines))


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
    return section("Tables of the rounds", note, *(f"<h3>{escape(title)}</h3>{figures(each)}" for title, each in drawn))


def scored(result: RunResult) -> str:
    """Scores of sites and classes with their intervals, and the best round."""
    best = f"<p>{escape(words[:1].upper() + words[1:])}.</p>" if (words := selected(result)) else ""
    sites = [line_of(r.name, r.role, r.role, [f"{r.rows:,}", *r.cells]) for r in site_rows(result)]
    classes = [line_of(r.name, "", "", [f"{r.rows:,}", *r.cells]) for r in class_rows(result)]
    if not (best or sites or classes):
        return ""
    heads = [("site", ""), ("rows", "n"), *((TITLES[name], "n metric") for name in score_heads(result))]
    of_classes = [("class", ""), ("rows", "n"), ("recall, all sites together", "n metric")]
    tables = (wide_table(heads, sites) if sites else "", wide_table(of_classes, classes) if classes else "")
    return section("Scores", SCORES_NOTE, best, *tables)


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


def items(clauses: Iterable[Clause]) -> str:
    """A phase's clauses: a line per field, and one for all numbers that go to the same audience."""
    lines: list[str] = []
    metrics: dict[str, list[str]] = {}
    for clause in clauses:
        to = " and ".join(AUDIENCES[audience.value] for audience in sorted(clause.audience))
        tag = f"<span class='tag'>({escape(clause.exposure.value)}, to {to})</span>"
        if clause.field.startswith("metrics."):
            metrics.setdefault(tag, []).append(clause.field.removeprefix("metrics."))
        else:
            lines.append(f"<b>{escape(clause.field)}</b>: {escape(clause.doc)} {tag}")
    for tag, names in metrics.items():
        lines.append(f"one number each for {', '.join(f'<b>{escape(n)}</b>' for n in names)} {tag}")
    return "<ul>" + "".join(f"<li>{each}</li>" for each in lines) + "</ul>" if lines else ""


def footer(result: RunResult) -> str:
    state = escape(result["state_digest"] or "none")
    return f"<footer class='facts'>State <code>{state}</code><br>Equal bytes depend on: {escape(result['fingerprint'])}</footer>"
