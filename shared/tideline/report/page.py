"""report.html: what a result has to show, and the contract in words. One file that needs no network."""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tideline.cli.tables import size
from tideline.core.errors import ConfigRefused
from tideline.core.run import EMPTY
from tideline.engine.peers.relay import notes
from tideline.report.charts import accuracy_charts, family_charts, metric_charts
from tideline.report.confidences import calibration, confidences
from tideline.report.figures import Chart, png, write_figures
from tideline.report.fold_tables import MOST_TABLES, table_charts, told_tables
from tideline.report.maps import cluster_map
from tideline.report.summary import generalized, marks, score_bars, scores, traffic

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
HEADS = (
    *(("site", ""), ("domain", ""), ("role", ""), ("training rows", "n"), ("source-only", "n"), ("result", "n")),
    *(("sent", "n"), ("received", "n"), ("failures", "n")),
)
RESULT, PAGE, FIGURES = "result.json", "report.html", "figures"
WHO = {"coordinator": "the coordinator", "peers": "other sites"}
# What the charts of a heading are.
OVER_ROUNDS = "A chart for each metric that sites told more than once and that changed."
OVER_NUMBERS = "Metrics that differ by a number at their end, drawn over that number; each site's newest values."


def write_report(result: dict[str, Any], path: Path, pictures: Mapping[str, Path] = EMPTY) -> None:
    """Write the report of a result (docs/result.md). pictures: PNG files of the sites' own, by their captions."""
    parts = [heading(result), table(result), side_by_side(result), curve(result)]
    parts += [charts("Other metrics over the rounds", OVER_ROUNDS, metric_charts(result))]
    parts += [
        charts("Families of metrics", OVER_NUMBERS, family_charts(result)),
        confidence(result),
        drawn_there(pictures),
        marked(result),
        grouped(result),
        tabled(result),
        sent(result),
        contract(result),
        footer(result),
    ]
    body = "\n".join(filter(None, parts))
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Tideline: {escape(result['name'])}</title><style>{STYLE}</style>"
    )
    path.write_text(f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n", encoding="utf-8")


def write_all(result: dict[str, Any], folder: Path, pictures: Mapping[str, Path] = EMPTY) -> dict[str, Any]:
    """Write result.json, report.html and figures/; their paths. Raises ConfigRefused."""
    json_file, page = folder / RESULT, folder / PAGE
    make_room(folder)
    with told_by_path(folder):
        json_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        write_report(result, page, pictures)
        drawn = write_figures(result, folder / FIGURES)
    return {"result": str(json_file), "report": str(page), "figures": [str(each) for each in drawn]}


def make_room(folder: Path) -> None:
    """Make the folders before anything is written, so that what is in the way leaves nothing half. Raises ConfigRefused."""
    with told_by_path(folder):
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        for file in (folder / RESULT, folder / PAGE):
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))


@contextmanager
def told_by_path(folder: Path) -> Iterator[None]:
    """What cannot be written below a folder is told by its own path. Raises ConfigRefused."""
    try:
        yield
    except OSError as cause:
        what = f"{cause.filename or folder} cannot be written: {cause.strerror or cause}"
        first = "Make room" if cause.errno in (errno.ENOSPC, errno.EDQUOT) else "Correct that path"
        raise ConfigRefused(what, f"{first}, or choose another folder with --out", path="out") from None


def drawn_there(pictures: Mapping[str, Path]) -> str:
    """Pictures that sites drew of their own points; whoever writes this page owns those sites."""
    shown = (
        f"<p class='facts'>{escape(caption)}</p><img alt='{escape(caption)}' src='data:image/png;base64,{inlined(file)}'>"
        for caption, file in pictures.items()
    )
    note = "<p class='facts'>Drawn from a site's own disk by its owner's command; it was never sent.</p>"
    return f"<h2>Seen at the sites</h2>{note}{''.join(shown)}" if pictures else ""


def inlined(file: Path) -> str:
    """A file's bytes as text."""
    return base64.b64encode(file.read_bytes()).decode()


def heading(result: dict[str, Any]) -> str:
    """What ran, how it ended, its notes, and what came of it where nobody had labels, and on targets nothing was learnt from."""
    seconds = "" if result["seconds"] is None else f", {result['seconds']:.1f} s"
    facts = f"{escape(result['method'])}, {result['rounds']} rounds, seed {result['seed']}{seconds}: {escape(result['status'])}"
    cause = f"<p class='bad'>{escape(result['cause'])}</p>" if result["cause"] else ""
    above = tuple(notes(result))
    cause += "".join(f"<p class='bad'>{escape(each)}</p>" for each in above)
    cause += "".join(f"<p class='facts'>{escape(each)}</p>" for each in result.get("notes", ()) if each not in above)
    leads = "".join(f"<p class='lead'>{lead(c)}</p>" for c in result["clients"] if c["role"] == "target")
    leads += "".join(f"<p class='lead'>{what}: <b>{percent(accuracy)}</b></p>" for what, accuracy in generalized(result))
    return f"<h1>{escape(result['name'])}</h1><p class='facts'>{facts}</p>{cause}{leads}"


def lead(client: dict[str, Any]) -> str:
    """A target's outcome in a sentence."""
    name = escape(client["name"] + (f" ({client['domain']})" if client["domain"] else ""))
    if client["accuracy"] is None:
        return f"{name}, whose labels nobody saw, could not be scored."
    told = f"{name}, whose labels nobody trained on: <b>{percent(client['accuracy'])}</b> of the held-out rows are recognised"
    if client["source_only"] in (None, client["accuracy"]):
        return f"{told}."
    return f"{told}; the model of the labelled sites alone recognises {percent(client['source_only'])}."


def table(result: dict[str, Any]) -> str:
    """A line per site. Accuracy is on rows that training never saw."""
    row = "".join(f"<th class='{c}'>{h}</th>" for h, c in HEADS)
    lines = "".join(line(client) for client in result["clients"])
    note = (
        "<p class='facts'>Result and source-only are accuracies on held-out rows. Source-only: the model of the"
        " labelled sites alone. A target's labels (shaded) are used for this score and for nothing else.</p>"
    )
    return f"<h2>Sites</h2><div class='wide'><table><tr>{row}</tr>{lines}</table></div>{note}"


def line(client: dict[str, Any]) -> str:
    """One site."""
    cells = [
        ("", client["name"]),
        ("", client["domain"] or ""),
        ("", client["role"]),
        ("n", "–" if client["samples"] is None else f"{client['samples']:,}"),
        ("n", percent(client["source_only"])),
        ("n result", percent(client["accuracy"])),
        ("n", size(client["bytes_up"])),
        ("n", size(client["bytes_down"])),
        ("n", str(len(client["failures"]))),
    ]
    row = "".join(f"<td class='{c}'>{escape(str(v))}</td>" for c, v in cells)
    return f"<tr class='{escape(client['role'])}'>{row}</tr>"


def percent(share: float | None) -> str:
    """An accuracy for people."""
    return "–" if share is None else f"{100 * share:.1f}\u00a0%"


def side_by_side(result: dict[str, Any]) -> str:
    """All accuracies of the scored sites, and their means over the targets."""
    told = scores(result)
    if told is None:
        return ""
    # A long name breaks after an underscore, so that a table of many fits.
    heads = "".join(f"<th class='n metric'>{escape(metric).replace('_', '_<wbr>')}</th>" for metric in told.metrics)
    rows = [(site, ", ".join(filter(None, [domain, role])), role, values) for site, domain, role, values in told.rows]
    rows += [("mean", f"{domain}, {n} {'target' if n == 1 else 'targets'}", "mean", values) for domain, n, values in told.domains]
    rows += [("mean", "over targets", "mean", told.means)] if told.means else []
    lines = "".join(line_of(who, what, kind, map(percent, values)) for who, what, kind, values in rows)
    note = (
        "<p class='facts'>Each column is a metric, on held-out rows, as it was told last. Targets are shaded; their mean is"
        " left out where one of them has no value.</p>"
    )
    drawn = "".join(map(figure, score_bars(result)))
    drawn = f"<div class='charts'>{drawn}</div>" if drawn else ""
    numbers = f"<div class='wide'><table><tr><th>site</th>{heads}</tr>{lines}</table></div>"
    return f"<h2>Accuracies side by side</h2>{drawn}{numbers}{note}"


def line_of(who: str, what: str, kind: str, cells: Iterable[str]) -> str:
    """A line of numbers, with two words before them: one below the other, so that it fits a narrow window."""
    numbers = "".join(f"<td class='n'>{cell}</td>" for cell in cells)
    return f"<tr class='{escape(kind)}'><td>{escape(who)}<br><span class='tag'>{escape(what)}</span></td>{numbers}</tr>"


def marked(result: dict[str, Any]) -> str:
    """How often folds did what with which site."""
    found = marks(result)
    if found is None:
        return ""
    head = "".join(f"<th class='n'>{escape(word)}</th>" for word in found.words)
    roles = {client["name"]: client["role"] for client in result["clients"]}
    lines = "".join(line_of(name, roles[name], "", map(str, counts)) for name, counts in found.rows)
    note = f"<p class='facts'>In how many of {found.rounds} rounds.</p>"
    table = f"<div class='wide'><table><tr><th>site</th>{head}</tr>{lines}</table></div>"
    return f"<h2>What was done with single sites</h2>{note}{table}"


def grouped(result: dict[str, Any]) -> str:
    """Which site was in which group, drawn and in words, and how well the last groups fit the true domains."""
    found = cluster_map(result)
    if found is None:
        return ""
    shown = [found.rounds[i] for i in found.drawn]
    head = "<th>site</th><th>domain</th>" + "".join(
        f"<th>{'round ' if each.isdigit() else ''}{escape(each)}</th>" for each in shown
    )
    lines = ""
    for row in found.rows:
        cells = (row.site, row.domain or "–", *(row.groups[i] or "–" for i in found.drawn))
        lines += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    note = "<p class='facts'>A column for the first round that told groups, and one for each in which they changed"
    note += (
        f"; {len(shown)} of {len(found.rounds)}, all of them are in figures/groups.csv.</p>"
        if len(shown) < len(found.rounds)
        else ".</p>"
    )
    if found.agreement is not None:
        fit = "1 is the same partition; as many sites put together by chance have about 0"
        note += f"<p>Adjusted Rand index of the last groups and the true domains: <b>{found.agreement:.2f}</b> ({fit}).</p>"
    table = f"<div class='wide'><table><tr>{head}</tr>{lines}</table></div>"
    return f"<h2>Groups of sites</h2>{note}<div class='charts'>{figure(found)}</div>{table}"


def tabled(result: dict[str, Any]) -> str:
    """The tables that folds told: lines, arrows, or heat maps of the first, the middle and the last round of each."""
    drawn = table_charts(result)
    if not drawn:
        return ""
    told = "".join(f"<h3>{escape(title)}</h3><div class='charts'>{''.join(map(figure, each))}</div>" for title, each in drawn)
    more = len(told_tables(result)) - MOST_TABLES
    rest = f" {more} more tables are in {RESULT}." if more > 0 else ""
    note = (
        "Tables of one column as lines over the rounds; of others the first, the middle and the last round: as arrows where they"
        " say who sends to whom, as lines where their rows are numbers, else in the same colours. Sites stand by their last"
        " groups, then by name."
    )
    return f"<h2>Tables that the rounds told</h2><p class='facts'>{note}{rest}</p>{told}"


def confidence(result: dict[str, Any]) -> str:
    """How sure predictions were, right and wrong ones, and each site's calibration error."""
    found = calibration(result)
    if found is None:
        return ""
    lines = ""
    for each in found.rows:
        error = "–" if each.error is None else f"{each.error:.3f}"
        lines += line_of(each.site, each.role, each.role, [f"{each.predictions:,}", percent(each.right), error])
    heads = ("predictions", "right", "expected calibration error")
    head = "".join(f"<th class='n'>{words}</th>" for words in heads)
    note = (
        "Predictions for held-out rows, as the last scoring told them; where several models score a site, those of each. The"
        " expected calibration error is the mean distance between how sure predictions are and how often they are right, over"
        " the ranges of confidence: 0 where they are right as often as they are sure."
    )
    drawn = f"<div class='charts'>{''.join(map(figure, confidences(result)))}</div>"
    numbers = f"<div class='wide'><table><tr><th>site</th>{head}</tr>{lines}</table></div>"
    return f"<h2>Confidence</h2><p class='facts'>{note}</p>{drawn}{numbers}"


def curve(result: dict[str, Any]) -> str:
    """Accuracy over the rounds."""
    if not result["curve"]:
        return "<h2>Accuracy</h2><p>No site could be scored.</p>"
    note = "The share of the held-out rows that is recognised, at each scoring."
    return charts("Accuracy over the rounds", note, accuracy_charts(result))


def charts(heading: str, note: str, drawn: Iterable[Chart]) -> str:
    """Charts under a heading; nothing where there are none."""
    told = "".join(map(figure, drawn))
    return f"<h2>{heading}</h2><p class='facts'>{note}</p><div class='charts'>{told}</div>" if told else ""


def figure(chart: Chart) -> str:
    """A chart with the sentence of what is seen, for those who see it and those who do not."""
    seen, data = escape(chart.seen()), base64.b64encode(png(chart)).decode()
    return f"<figure><img alt='{seen}' src='data:image/png;base64,{data}'><figcaption>{seen}</figcaption></figure>"


def sent(result: dict[str, Any]) -> str:
    """The traffic of each phase, drawn and in numbers."""
    told = traffic(result)
    if told is None:
        return ""
    heads = [("phase", ""), ("to a site", "n"), ("from a site", "n")]
    heads += [("as a share of sending the model", "n metric")] if told.model else []
    head = "".join(f"<th class='{kind}'>{words}</th>" for words, kind in heads)
    lines = ""
    for row in told.rows:
        cells = [size(round(row.down)), size(round(row.up))] + ([] if row.share is None else [percent(row.share)])
        lines += line_of(row.phase, f"{row.exchanges:,} {'exchange' if row.exchanges == 1 else 'exchanges'}", "", cells)
    note = "Means for one asked client and one exchange, failed attempts included; what a client holds already is not sent again."
    if told.model:
        note += f" 100\u00a0% is what the first exchange of the phase {escape(told.model)} took, there and back."
    body = f"<div class='charts'>{figure(told)}</div><div class='wide'><table><tr>{head}</tr>{lines}</table></div>"
    return f"<h2>Traffic</h2><p class='facts'>{note}</p>{body}"


def contract(result: dict[str, Any]) -> str:
    """What left the sites: by phase, each thing once."""
    from tideline.core.privacy import from_json

    phases: dict[str, dict[Clause, None]] = {}
    for clause in from_json(result["contract"]):
        phases.setdefault(clause.phase, {})[clause] = None
    told = "".join(f"<h3>Phase {escape(name)}</h3>{items(clauses)}" for name, clauses in phases.items())
    note = (
        "<p class='facts'>Nothing else can leave in a message: what is not listed has no way into one. Not claimed: that what is"
        " listed tells nothing about the data. Weights can.</p>"
    )
    return f"<h2>What left the sites</h2>{told}{note}"


def items(clauses: Iterable[Clause]) -> str:
    """A phase's clauses: a line per field, and one for all numbers that go to the same place."""
    lines: list[str] = []
    metrics: dict[str, list[str]] = {}
    for clause in clauses:
        to = " and ".join(WHO[audience.value] for audience in sorted(clause.audience))
        tag = f"<span class='tag'>({escape(clause.exposure.value)}, to {to})</span>"
        if clause.field.startswith("metrics."):
            metrics.setdefault(tag, []).append(clause.field.removeprefix("metrics."))
        else:
            lines.append(f"<b>{escape(clause.field)}</b>: {escape(clause.doc)} {tag}")
    for tag, names in metrics.items():
        lines.append(f"one number each for {', '.join(f'<b>{escape(n)}</b>' for n in names)} {tag}")
    return "<ul>" + "".join(f"<li>{each}</li>" for each in lines) + "</ul>" if lines else ""


def footer(result: dict[str, Any]) -> str:
    """The digest that repeats it, and on what it depends."""
    state = escape(result["state_digest"] or "none")
    return f"<footer class='facts'>State <code>{state}</code><br>Equal bytes depend on: {escape(result['fingerprint'])}</footer>"
