"""report.html: the table, the accuracy curve, the contract in words. One file that needs no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tideline.cli.tables import size

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
tr.target td { background: #eef6f1; } img { width: 100%; } ul { margin: 0.2rem 0; padding-left: 1.4rem; }
.tag { color: #51606f; font-size: 0.9em; } footer { margin-top: 2.5rem; border-top: 1px solid #d5dde5; padding-top: 0.6rem; }
"""
HEADS = (
    *(("site", ""), ("domain", ""), ("role", ""), ("training rows", "n"), ("source-only", "n"), ("result", "n")),
    *(("sent", "n"), ("received", "n"), ("failures", "n")),
)
WHO = {"coordinator": "the coordinator", "peers": "other sites"}
# With more sites than this the legend names the targets only.
LEGEND = 12


def write_report(result: dict[str, Any], path: Path) -> None:
    """Write the report of a result (docs/result.md)."""
    body = "\n".join([heading(result), table(result), curve(result), contract(result), footer(result)])
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Tideline: {escape(result['name'])}</title><style>{STYLE}</style>"
    )
    path.write_text(f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n", encoding="utf-8")


def heading(result: dict[str, Any]) -> str:
    """What ran, how it ended, and what came of it where nobody had labels."""
    seconds = "" if result["seconds"] is None else f", {result['seconds']:.1f} s"
    facts = f"{escape(result['method'])}, {result['rounds']} rounds, seed {result['seed']}{seconds}: {escape(result['status'])}"
    cause = f"<p class='bad'>{escape(result['cause'])}</p>" if result["cause"] else ""
    leads = "".join(f"<p class='lead'>{lead(c)}</p>" for c in result["clients"] if c["role"] == "target")
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
        "<p class='facts'>Result and source-only are accuracies on held-out rows. Source-only: federated averaging over the"
        " labelled sites alone. A target's labels (shaded) are used for this score and for nothing else.</p>"
    )
    return f"<h2>Sites</h2><div class='wide'><table><tr>{row}</tr>{lines}</table></div>{note}"


def line(client: dict[str, Any]) -> str:
    """One site."""
    cells = [
        ("", client["name"]),
        ("", client["domain"] or ""),
        ("", client["role"]),
        ("n", "not told" if client["samples"] is None else f"{client['samples']:,}"),
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


def curve(result: dict[str, Any]) -> str:
    """Accuracy over the rounds."""
    if not result["curve"]:
        return "<h2>Accuracy</h2><p>No site could be scored.</p>"
    return f"<h2>Accuracy over the rounds</h2><img alt='accuracy of each site over the rounds' src='{picture(result)}'>"


def picture(result: dict[str, Any]) -> str:
    """The curve as a data URL. Fixed ids and no date, so that the same result gives the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context({"svg.hashsalt": "tideline", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
        draw(axes, result)
        axes.set(xlabel="scored after round", ylabel="held-out accuracy, %", ylim=(0, 102))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        # Below the axes, where no line can run.
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        plt.close(figure)
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue()).decode()


def draw(axes: Any, result: dict[str, Any]) -> None:
    """A line per site; targets stand out."""
    few = len(result["clients"]) <= LEGEND
    for client in result["clients"]:
        points = [(p["round"], 100 * p["accuracy"]) for p in result["curve"] if p["client"] == client["name"]]
        if not points:
            continue
        target = client["role"] == "target"
        label = " ".join(filter(None, [client["name"], client["domain"], f"({client['role']})"]))
        style: dict[str, Any] = {"linewidth": 2.2, "zorder": 3} if target else {"linestyle": "--", "linewidth": 1.4}
        if few or target:
            style["label"] = label
        else:
            style["color"] = "0.75"
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, **style)


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
