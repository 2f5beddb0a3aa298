"""Results as rich tables. Texts from elsewhere are shown as plain text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tideline.client.answers import RunLine, RunResult, SiteResult, SpentData
from tideline.client.output import clean, day, size

if TYPE_CHECKING:
    from tideline.core.privacy import Contract
    from tideline.core.settings import Plain
    from tideline.engine.ports.compute import SettingFacts

# Without a terminal, nothing is cut to a window's width.
WIDTH_WITHOUT_TERMINAL = 200
NOTHING = "–"
MOST_CLASSES = 30  # whose recalls are shown


class Stdout(Console):
    """Rich's console, which leaves it to the guard to end the process when the reader of stdout has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError from None


def show(what: RenderableType) -> None:
    console = Stdout()
    if not console.is_terminal:
        console = Stdout(width=WIDTH_WITHOUT_TERMINAL, file=sys.stdout)
    console.print(what)


def show_item(text: str) -> None:
    """A line of a list; a long one continues below the text, not below the dash."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("-", Text(clean(text), overflow="fold"))
    show(grid)


def result_tables(result: RunResult) -> Iterator[Table]:
    """A run's result: its verdict if it rehearsed, its sites, what its folds did with them, and their groups."""
    from tideline.cli.verdicts import verdict_table

    tables = (verdict_table(result), result_table(result), *intervals_tables(result), marks_table(result), groups_table(result))
    return (each for each in tables if each is not None)


def result_table(result: RunResult) -> Table:
    from tideline.report.score_rows import selected
    from tideline.report.summary import generalized

    columns = ["site", "domain", "role", "samples", "source-only", "result", "bytes up", "bytes down", "failures"]
    rows = [site_row(result, client) for client in result["clients"]]
    if all(client["domain"] is None for client in result["clients"]):  # a coordinator does not know domains
        columns, *rows = ([first, *rest] for first, _, *rest in (columns, *rows))
    made = table(title(result), columns, rows, right=range(len(columns) - 6, len(columns) - 1))
    captions = [f"{what}: {share(accuracy)}" for what, accuracy in generalized(result)]
    if captions := [*captions, *filter(None, [selected(result), hours(result.get("spent")), spent_epsilon(result)])]:
        made.caption = Text("\n".join(captions))
    return made


def spent_epsilon(result: RunResult) -> str:
    """What a private run has cost its sites' rows so far."""
    found = [epsilon for each in result["clients"] if (epsilon := each.get("epsilon")) is not None]
    privacy = result.get("privacy")
    return f"epsilon spent so far: {max(found) + 0.0005:.3f} at most, at delta {privacy['delta']}" if found and privacy else ""


def hours(spent: SpentData | None) -> str:
    """What steps took, where sites say so."""
    if spent is None:
        return ""
    silent = f"; {spent['unreported']} replies do not say" if spent["unreported"] else ""
    return f"computed: {spent['gpu_hours']:.3f} GPU hours, {spent['cpu_hours']:.3f} CPU hours{silent}"


def title(result: RunResult) -> str:
    seconds, digest, weights = result.get("seconds"), result.get("state_digest"), result.get("weights")
    words = [f"Run {result['run']}", result["method"], result["status"]]
    words += [] if seconds is None else [f"{seconds:.1f} s"]
    words += [f"state {digest[:12]}"] if digest else []
    words += [f"from weights {weights[:12]}"] if weights else []
    return ", ".join(words)


def site_row(result: RunResult, client: SiteResult) -> list[str]:
    kinds = [each["kind"] for each in client["failures"]]
    failures = f"{len(kinds)} ({', '.join(sorted(set(kinds)))})" if kinds else "0"
    ended = result["status"] == "completed"
    return [
        client["name"],
        client["domain"] or NOTHING,
        client["role"],
        NOTHING if client["samples"] is None else str(client["samples"]),
        share(client["source_only"]),
        "no labels" if client["accuracy"] is None and ended and client["role"] != "source" else share(client["accuracy"]),
        size(client["bytes_up"]),
        size(client["bytes_down"]),
        "its owner declined" if client.get("declined") else failures,
    ]


def scores_table(result: RunResult) -> Table | None:
    """All accuracies side by side, and their means over targets; None if there is only one metric."""
    from tideline.report.summary import scores

    found = scores(result)
    if found is None or len(found.metrics) < 2:
        return None
    rows = [[name, role, *map(share, values)] for name, _, role, values in found.rows]
    rows += [["mean", domain, *map(share, values)] for domain, _, values in found.domains]
    rows += [["mean", "targets", *map(share, found.means)]] if found.means else []
    columns = ["site", "role", *(m.removeprefix("accuracy_") for m in found.metrics)]
    return table("Accuracies on held-out rows", columns, rows, right=range(2, len(columns)))


def intervals_tables(result: RunResult) -> Iterator[Table]:
    """Scores of sites, and recalls of classes where there are few, with 95 % intervals; none where no scoring told them."""
    from tideline.report.score_rows import TITLES, class_rows, score_heads, site_rows

    if sites := [[each.name, each.role, str(each.rows), *each.cells] for each in site_rows(result)]:
        columns = ["site", "role", "rows", *(TITLES[name] for name in score_heads(result))]
        yield table("Scores on held-out rows, with 95 % intervals", columns, sites, right=range(2, len(columns)))
    classes = [[each.name, str(each.rows), *each.cells] for each in class_rows(result)]
    if 0 < len(classes) <= MOST_CLASSES:
        yield table("Recall of each class, all sites together", ["class", "rows", "recall"], classes, right=(1, 2))


def marks_table(result: RunResult) -> Table | None:
    """How often folds did what with which site; None if they did nothing with single sites."""
    from tideline.report.summary import marks

    found = marks(result)
    if found is None:
        return None
    rows = [[name, *(f"{count} of {found.rounds}" for count in counts)] for name, counts in found.rows]
    return table("Rounds in which a site was", ["site", *found.words], rows, right=range(1, len(found.words) + 1))


def groups_table(result: RunResult) -> Table | None:
    """The last grouping of the sites, a line per group; None if there is none."""
    from tideline.report.maps import natural

    if not (groups := result.get("groups")):  # older coordinators have none
        return None
    last = groups["last"]
    rows = ([group, ", ".join(sorted(last[group], key=natural))] for group in sorted(last, key=natural))
    return table("Groups", ["group", "sites"], rows)


def runs_table(rows: Iterable[RunLine]) -> Table:
    """The list of runs. Progress: exchanges closed, of all."""
    columns = ("run", "name", "method", "status", "progress", "started", "cause")
    cells = (
        [r["id"], r["name"], r["method"], r["status"], f"{max(r['cursor'], 0)} of {r['of']}", day(r["created"]), r["cause"]]
        for r in rows
    )
    return table("", columns, cells, whole=("run", "progress", "started"))


def contract_table(clauses: Contract) -> Table:
    columns = ("phase", "step", "field", "dims", "exposure", "audience")
    rows = ([c.phase, c.step, c.field, c.dims, c.exposure, ", ".join(sorted(c.audience))] for c in clauses)
    return table("", columns, rows)


def settings_table(settings: Iterable[SettingFacts], preset: Mapping[str, Plain] | None = None) -> Table:
    """A method's settings, a line each; with a preset, its values beside the defaults."""
    values = {} if preset is None else {name: word(value) for name, value in preset.items()}
    rows = ((s.name, word(s.default), values.get(s.name, ""), allowed(s), s.doc) for s in settings)
    columns = ("setting", "default", "preset", "allowed", "meaning")
    if preset is None:
        return table("Settings", columns[:2] + columns[3:], (row[:2] + row[3:] for row in rows))
    return table("Settings", columns, rows)


def allowed(setting: SettingFacts) -> str:
    if setting.choices:
        return ", ".join(map(str, setting.choices))
    low, high = setting.low, setting.high
    return " ".join(([] if low is None else [f"≥ {low:g}"]) + ([] if high is None else [f"≤ {high:g}"]))


def word(value: Plain) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def table(
    heading: str, columns: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[int] = (), whole: Iterable[str] = ()
) -> Table:
    """A table of plain texts. right: the columns of numbers; whole: those that are never broken."""
    heading_text = Text(clean(heading)) if heading else None
    # Narrow gaps, so that a result fits a window of 80 columns.
    made = Table(title=heading_text, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    made.caption_justify, made.caption_style = "left", "none"
    lines, to_the_right, unbroken = [[clean(each) for each in row] for row in rows], set(right), set(whole)
    for i, column in enumerate(columns):
        words = [line[i] for line in lines] if column in unbroken else column.split()
        least = max(map(len, [*words, *column.split()]))
        made.add_column(column, justify="right" if i in to_the_right else "left", overflow="fold", min_width=least)
    for line in lines:
        made.add_row(*map(Text, line))
    return made


def share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"
