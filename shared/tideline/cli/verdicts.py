"""A rehearsal's verdict as a table and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table

from tideline.cli.tables import NOTHING, share, table
from tideline.client.answers import ExpectedAt, Interval, RunResult

FEW = 4  # sites that have a column each


def verdict_table(result: RunResult) -> Table | None:
    """What each candidate gained where it was rehearsed, and how much it counts at each target; None of other runs."""
    said = result.get("verdict")
    if not said or not said["sites"]:
        return None
    sites = said["sites"] if len(said["sites"]) <= FEW else []
    targets = said["targets"][:FEW]
    columns = [
        "candidate",
        *(each["name"] for each in sites),
        "mean gain",
        "95 % interval",
        *(f"for {t['name']}" for t in targets),
    ]
    rows = [
        [
            name,
            *(signed(each["gain"].get(name)) for each in sites),
            signed(gain["value"]),
            f"{signed(gain['low'])} to {signed(gain['high'])}",
            *(weight(each["chosen"], name) for each in targets),
        ]
        for name, gain in said["gains"].items()
    ]
    title = f"Rehearsed at {len(said['rehearsed_at'])} sites: gains over no adaptation, in points of accuracy"
    return table(title, columns, rows, right=range(1, len(columns)))


def weight(chosen: Mapping[str, float], name: str) -> str:
    return f"{100 * chosen[name]:.0f} %" if name in chosen else NOTHING


def signed(value: float | None) -> str:
    """A difference of accuracies in points."""
    return NOTHING if value is None else f"{100 * value + 0.0:+.1f}"


def verdict_lines(result: RunResult) -> Iterator[str]:
    """For each target what was chosen, what to expect of it, and what was found."""
    said = result.get("verdict")
    if not said:
        return
    found = {each["name"]: each for each in result["clients"]}
    for each in said["targets"]:
        yield f"{each['name']}: {', '.join(sentences(each))}"
        client = found.get(each["name"])
        if client is not None and client["accuracy"] is not None:
            before = client["source_only"]
            gain = "" if before is None else f", {signed(client['accuracy'] - before)} points over no adaptation"
            yield f"{each['name']}: found {share(client['accuracy'])}{gain}, on held-out rows"
    if runs := said["runs"]:
        yield from (run_line(each, runs) for each in said["targets"])


def run_line(target: ExpectedAt, runs: Mapping[str, str]) -> str:
    first = next(iter(target["chosen"]), "")
    return f"The model of {first} for {target['name']} is in the run {runs.get(first, '')}"


def sentences(target: ExpectedAt) -> Iterator[str]:
    yield f"take {' and '.join(target['chosen'])}"
    if target["gain"]:
        yield f"expect {signed(target['gain']['value'])} points ({ends(target['gain'])})"
    if sure := target["accuracy"]:
        yield f"accuracy {share(sure['value'])} ({share(sure['low'])} to {share(sure['high'])})"
    if target["trust"] != "rehearsed":
        yield target["trust"]


def ends(of: Interval) -> str:
    return f"{signed(of['low'])} to {signed(of['high'])}"
