"""report.html: the table, the accuracy curve, the contract in words. One file that needs no network."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
p.facts { color: #51606f; margin-top: 0; } code { font-size: 0.85em; word-break: break-all; }
table { border-collapse: collapse; width: 100%; } th, td { padding: 0.35rem 0.6rem; border-bottom: 1px solid #d5dde5; }
th { text-align: left; font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.target td { background: #eef6f1; } img { max-width: 100%; } li { margin: 0.2rem 0; } .bad { color: #a8321f; }
"""


def write_report(result: dict[str, Any], path: Path) -> None:
    """Write the report of a result (docs/result.md)."""
    body = "\n".join([heading(result), table(result), curve(result), contract(result)])
    head = f"<meta charset='utf-8'><title>Tideline: {escape(result['name'])}</title><style>{STYLE}</style>"
    path.write_text(f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n")


def heading(result: dict[str, Any]) -> str:
    """What ran, how it ended, and the digest that repeats it."""
    seconds = "" if result["seconds"] is None else f", {result['seconds']:.1f} s"
    facts = f"{escape(result['method'])}, seed {result['seed']}, {result['rounds']} rounds{seconds}: {escape(result['status'])}"
    cause = f"<p class='bad'>{escape(result['cause'])}</p>" if result["cause"] else ""
    digest = (
        f"<p class='facts'>state <code>{escape(result['state_digest'] or 'none')}</code><br>{escape(result['fingerprint'])}</p>"
    )
    return f"<h1>{escape(result['name'])}</h1><p class='facts'>{facts}</p>{cause}{digest}"


def table(result: dict[str, Any]) -> str:
    """A line per site. Accuracy is on rows that training never saw."""
    heads = [("site", ""), ("domain", ""), ("role", ""), ("training rows", "n"), ("source-only", "n"), ("result", "n")]
    heads += [("bytes up", "n"), ("bytes down", "n"), ("failures", "n")]
    row = "".join(f"<th class='{c}'>{h}</th>" for h, c in heads)
    lines = "".join(line(client) for client in result["clients"])
    note = (
        "<p class='facts'>Accuracy on held-out rows. Source-only: federated averaging over the labelled sites alone."
        " A target's labels (shaded) are used for this score and for nothing else.</p>"
    )
    return f"<h2>Sites</h2><table><tr>{row}</tr>{lines}</table>{note}"


def line(client: dict[str, Any]) -> str:
    """One site."""
    cells = [
        ("", client["name"]),
        ("", client["domain"] or ""),
        ("", client["role"]),
        ("n", "not told" if client["samples"] is None else f"{client['samples']:,}"),
        ("n", percent(client["source_only"])),
        ("n", percent(client["accuracy"])),
        ("n", f"{client['bytes_up']:,}"),
        ("n", f"{client['bytes_down']:,}"),
        ("n", str(len(client["failures"]))),
    ]
    row = "".join(f"<td class='{c}'>{escape(str(v))}</td>" for c, v in cells)
    return f"<tr class='{escape(client['role'])}'>{row}</tr>"


def percent(share: float | None) -> str:
    """An accuracy for people."""
    return "no labels" if share is None else f"{100 * share:.1f} %"


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

    with mpl.rc_context({"svg.hashsalt": "tideline", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
        for client in result["clients"]:
            points = [(p["round"], 100 * p["accuracy"]) for p in result["curve"] if p["client"] == client["name"]]
            if points:
                label = f"{client['name']} {client['domain'] or ''} ({client['role']})"
                style = "-o" if client["role"] == "target" else "--"
                axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
        axes.set(xlabel="scored after round", ylabel="held-out accuracy, %", ylim=(0, 100))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=9)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        plt.close(figure)
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue()).decode()


def contract(result: dict[str, Any]) -> str:
    """What left the sites, in words."""
    from tideline.core.privacy import from_json

    items = "".join(f"<li>{escape(clause.sentence())}</li>" for clause in from_json(result["contract"]))
    note = (
        "<p>Nothing else can leave: a field that is not listed has no way into a message. Not claimed: that what is listed tells"
        " nothing about the data. Weights can.</p>"
    )
    return f"<h2>What left the sites</h2><ul>{items}</ul>{note}"
