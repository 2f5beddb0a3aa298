"""A rehearsal's verdict in rows and sentences, for pages and terminals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tideline.client.answers import ExpectedAt, Interval, RunResult, Verdict
from tideline.core.phase import ACCURACIES, EXPECTED, GAIN_OF, GAINS, WEIGHT_OF

NOTHING = "–"
FEW = 4  # sites, and targets, that have a column each
TABLES = frozenset((ACCURACIES, GAINS, GAIN_OF, EXPECTED, WEIGHT_OF))  # of rounds, which the verdict tells
REHEARSED = "rehearsed"


@dataclass(frozen=True)
class VerdictTable:
    """Gains over no adaptation in points of accuracy: a row for each candidate."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def verdict_of(result: RunResult) -> Verdict | None:
    return result.get("verdict")


def table_of(result: RunResult) -> VerdictTable | None:
    """What each candidate gained where it was rehearsed, and how much it counts at each target; None of other runs."""
    said = verdict_of(result)
    if said is None or not said["sites"]:
        return None
    sites, targets = said["sites"] if len(said["sites"]) <= FEW else [], said["targets"][:FEW]
    rows = tuple(
        (
            name,
            *(signed(each["gain"].get(name)) for each in sites),
            signed(gain["value"]),
            ends(gain),
            *(weight(each["chosen"], name) for each in targets),
        )
        for name, gain in said["gains"].items()
    )
    heads = ("candidate", *(at["name"] for at in sites), "mean", "95 % interval", *(f"weight for {at['name']}" for at in targets))
    n = len(said["rehearsed_at"])
    return VerdictTable(f"Rehearsed at {n} site{'s' if n > 1 else ''}: gains over no adaptation, in points", heads, rows)


def weight(chosen: Mapping[str, float], name: str) -> str:
    return f"{100 * chosen[name]:.0f} %" if name in chosen else NOTHING


def signed(value: float | None) -> str:
    """A difference of accuracies in points."""
    return NOTHING if value is None else f"{round(100 * value, 1) + 0.0:+.1f}"


def ends(of: Interval) -> str:
    return f"{signed(of['low'])} to {signed(of['high'])}"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def sentences_of(result: RunResult) -> Iterator[str]:
    """For each target what was chosen, what to expect, and what was found."""
    said = verdict_of(result)
    found = {each["name"]: each for each in result["clients"]}
    for each in said["targets"] if said else ():
        yield f"{each['name']}: {', '.join(expected(each))}"
        client = found.get(each["name"])
        if client is not None and client["accuracy"] is not None:
            before = client["source_only"]
            gain = "" if before is None else f", {signed(client['accuracy'] - before)} points over no adaptation"
            yield f"{each['name']}: found {percent(client['accuracy'])}{gain}, on held-out rows"


def expected(target: ExpectedAt) -> Iterator[str]:
    *others, last = target["chosen"]
    yield f"let {', '.join(others)} and {last} vote" if others else f"take {last}"
    if target["gain"]:
        yield f"expect {signed(target['gain']['value'])} points ({ends(target['gain'])})"
    if sure := target["accuracy"]:
        yield f"and an accuracy of {percent(sure['value'])} ({percent(sure['low'])} to {percent(sure['high'])})"
    if target["trust"] != REHEARSED:
        yield target["trust"]
