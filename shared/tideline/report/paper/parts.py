"""What pages for paper and screens are made of: their style, sections, tables, and a contract in words. Nothing here draws."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tideline.core.privacy import Clause

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5a6673; --paper: #fff; --rule: #d3d9df; --bad: #a3260f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaee; --soft: #a5b0bb; --paper: #14191f; --rule: #38434e; --bad: #ff9a86; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 58rem; margin: 2rem auto;
  padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1rem; margin: 1rem 0 0.2rem; }
p { margin: 0.4rem 0; } .facts { color: var(--soft); } .lead { font-size: 1.1rem; } .bad { color: var(--bad); }
code { font-size: 0.85em; } ul { margin: 0.2rem 0; padding-left: 1.4rem; }
.wide { overflow-x: auto; background: linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, #7788998c, transparent) right / 1rem 100% no-repeat scroll; }
table { border-collapse: collapse; width: 100%; overflow-wrap: normal; }
th, td { padding: 0.35rem 0.5rem; border-bottom: 1px solid var(--rule); }
th { text-align: left; font-weight: 600; vertical-align: bottom; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } td.result { font-weight: 600; }
tr.target td { box-shadow: inset 0 0 0 99rem #0072b21a; } tr.mean td { font-weight: 600; }
td:first-child { min-width: 6rem; max-width: 18rem; overflow-wrap: anywhere; }
th.n { white-space: normal; } th.metric { min-width: 5.4em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.2rem; }
figure { margin: 0; min-width: 0; max-width: 40rem; } img { width: 100%; display: block; background: #fff; border-radius: 4px; }
figcaption { color: var(--soft); font-size: 0.9em; } .says { font-size: 0.92em; margin: 0.3rem 0; }
.tag { color: var(--soft); font-size: 0.9em; }
summary { cursor: pointer; } summary h2 { display: inline; font-size: 1.05rem; } details.inner { margin: 0.6rem 0; }
details.numbers { font-size: 0.85em; color: var(--soft); }
footer { margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: 0.6rem; } .charts + .wide { margin-top: 1rem; }
@media (max-width: 32rem) { th, td { font-size: 0.85rem; padding: 0.3rem 0.25rem; } }
@page { size: A4; margin: 14mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --paper: #fff; --rule: #bbb; --bad: #8a1f0c; }
  body { font-size: 10.5pt; margin: 0; max-width: none; padding: 0; } .wide { overflow: visible; background: none; }
  table { font-size: 8pt; table-layout: auto; } th, td, .n { padding: 2pt 3pt; white-space: normal; }
  td:first-child, td.name, table.many th, table.many td { overflow-wrap: anywhere; }
  td:first-child { min-width: 40mm; }
  td.name { min-width: 20mm; }
  table.many td:first-child, th.metric { min-width: 0; } footer { margin-top: 5mm; }
  figure, tr, li, p, summary { break-inside: avoid; }
  h2, h3, summary, .facts:has(+ *), p.says { break-after: avoid; } .lead + .facts { break-after: auto; }
  .charts { grid-template-columns: repeat(auto-fit, minmax(80mm, 1fr)); gap: 4mm; } figure { max-width: 125mm; }
  img { width: auto; max-width: 100%; max-height: 225mm; }
  details.inner::details-content { content-visibility: visible; } details.numbers { display: none; } summary { list-style: none; }
}
"""
META = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
MANY = 10  # columns from which on, on paper, words may be broken anywhere
AUDIENCES = {"coordinator": "the coordinator", "peers": "other sites", "sum": "nobody: its sum over sites to the coordinator"}


def document(title: str, body: str, more_style: str = "", policy: str = "") -> str:
    """A whole page. policy: a content security policy, for a page that is to load and run nothing, wherever it is opened."""
    confined = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">' if policy else ""
    head = f"{META}{confined}<title>{escape(title)}</title><style>{STYLE}{more_style}</style>"
    whole = f"<html lang='en'><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>"
    return f"<!doctype html>\n{whole}\n"


def folded(part: str) -> str:
    """A section whose heading opens it; empty if there is none."""
    head, end, rest = part.partition("</h2>")
    return f"<details class='inner'><summary>{head}{end}</summary>{rest}</details>" if part else ""


def section(title: str, note: str, *parts: str) -> str:
    """A heading, a note below it, and what follows."""
    return f"<h2>{title}</h2><p class='facts'>{note}</p>{''.join(parts)}"


def listed(lines: Iterable[tuple[str, str]]) -> str:
    """What names say, a line each; empty if there are none."""
    each = "".join(f"<li><b>{escape(name)}</b>: {escape(words)}</li>" for name, words in lines)
    return f"<ul class='says'>{each}</ul>" if each else ""


def wide_table(heads: Iterable[tuple[str, str]], lines: Iterable[str]) -> str:
    """A table that scrolls in a narrow window. heads: (HTML, class) of each column; lines: its rows."""
    head = "".join(f"<th class='{kind}'>{words}</th>" if kind else f"<th>{words}</th>" for words, kind in heads)
    kind = " class='many'" if head.count("<th") > MANY else ""
    table = f"<table{kind}><thead><tr>{head}</tr></thead>{''.join(lines)}</table>"  # paper repeats its head on each page
    return f"<div class='wide' tabindex='0' role='group' aria-label='Table; it scrolls sideways where it is wide'>{table}</div>"


def line_of(name: str, words: str, kind: str, cells: Iterable[str]) -> str:
    """A row of numbers after a name with words below it, so that it fits a narrow window."""
    numbers = "".join(f"<td class='n'>{cell}</td>" for cell in cells)
    return f"<tr class='{escape(kind)}'><td>{escape(name)}<br><span class='tag'>{escape(words)}</span></td>{numbers}</tr>"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}\u00a0%"


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
