"""A row for each site: what it has, what it reached, what it sent."""

from __future__ import annotations

from html import escape

from tideline.client.answers import RunResult, SiteResult
from tideline.client.output import size
from tideline.core.asked.private import ROW
from tideline.report.paper.parts import percent, wide_table


def site_table(result: RunResult) -> str:
    """A row per site. Accuracy is on rows that training never saw."""
    note = (
        "<p class='facts'>Result and source-only are accuracies on held-out rows. Source-only: the model of the"
        " labelled sites alone. A target's labels (shaded) are used for this score and for nothing else.</p>"
    )
    numbers = ("training rows", "source-only", "result", "sent", "received", "failures")
    heads = [*((words, "") for words in ("site", "domain", "role")), *((words, "n") for words in numbers)]
    private = result.get("privacy")
    if private:
        heads.append(("epsilon", "n"))
        whose = escape(str(private.get("unit") or ROW))
        note += f"<p class='facts'>Epsilon: what the run cost a {whose} of the site at most, at delta {private['delta']}.</p>"
    return f"<h2>Sites</h2>{wide_table(heads, (site_line(each, bool(private)) for each in result['clients']))}{note}"


def site_line(client: SiteResult, private: bool = False) -> str:
    cells = (
        *(("", client["name"]), ("name", client["domain"] or ""), ("", client["role"])),
        ("n", "–" if client["samples"] is None else f"{client['samples']:,}"),
        *(("n", percent(client["source_only"])), ("n result", percent(client["accuracy"]))),
        *(("n", size(client[way]).replace(" ", "\u00a0")) for way in ("bytes_up", "bytes_down")),
        ("n", str(len(client["failures"]))),
        *((("n", spent_in(client.get("epsilon"))),) if private else ()),
    )
    row = "".join(f"<td class='{kind}'>{escape(words)}</td>" for kind, words in cells)
    return f"<tr class='{escape(client['role'])}'>{row}</tr>"


def spent_in(epsilon: float | None) -> str:
    """An epsilon, rounded up."""
    return "–" if epsilon is None else f"{epsilon + 0.0005:.3f}" if epsilon else "0"
