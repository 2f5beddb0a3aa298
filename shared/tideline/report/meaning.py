"""What a run means, in plain sentences with intervals: what was trained where, what it reached, and whether adaptation paid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tideline.client.answers import RunResult, SiteResult
from tideline.client.output import counted

Z = 1.959964  # of a 95 % interval
FEW = 4  # targets that have sentences of their own, and sites that are named
PAID, HARMED, OPEN = "paid", "harmed", "open"


@dataclass(frozen=True)
class Estimate:
    """A share, or a difference of shares, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Of a gain: whether its interval is above zero, below it, or holds it."""
        return PAID if self.low > 0 else HARMED if self.high < 0 else OPEN


def wilson(share: float, rows: int) -> Estimate:
    """A share of so many rows with Wilson's interval."""
    middle, root = share + Z**2 / (2 * rows), Z * math.sqrt(share * (1 - share) / rows + Z**2 / (4 * rows**2))
    scale = 1 + Z**2 / rows
    return Estimate(share, max((middle - root) / scale, 0.0), min((middle + root) / scale, 1.0))


def gain(after: Estimate, before: Estimate) -> Estimate:
    """The difference of two shares (method 10 of Newcombe, 1998). Of the same rows the interval is rather too wide."""
    value = after.value - before.value
    low = value - math.hypot(after.value - after.low, before.high - before.value)
    return Estimate(value, low, value + math.hypot(after.high - after.value, before.value - before.low))


def rows_of(result: RunResult, site: str) -> int | None:
    """The held-out rows that a site's accuracy is of; None where no scoring told it."""
    score = ((result.get("scores") or {}).get(site) or {}).get("accuracy")
    return score["rows"] if score and score["rows"] else None


def reached(result: RunResult, client: SiteResult) -> Estimate | None:
    """A site's accuracy with the interval that its scoring told; None where there is none of this very accuracy."""
    score = ((result.get("scores") or {}).get(client["name"]) or {}).get("accuracy")
    if score is None or client["accuracy"] is None or abs(score["value"] - client["accuracy"]) > 1e-6:
        return None
    return Estimate(score["value"], score["low"], score["high"])


def gained(result: RunResult, client: SiteResult) -> Estimate | None:
    """What a site's accuracy is above source-only; None where one of them, or the number of rows, is not known."""
    after, before, rows = reached(result, client), client["source_only"], rows_of(result, client["name"])
    return gain(after, wilson(before, rows)) if after and before is not None and rows else None


def trained(result: RunResult) -> str:
    """What was trained where, and whether it came to its end."""
    of = {role: [c["name"] for c in result["clients"] if c["role"] == role] for role in ("source", "target", "peer")}
    rounds = "" if result["rounds"] is None else f" in {counted(result['rounds'], 'round')}"
    where = [named(of["source"], "site with labels", "sites with labels")] if of["source"] or not of["peer"] else []
    where += [named(of["peer"], "peer", "peers")] if of["peer"] else []
    text = f"{result['method']} trained{rounds} at {' and '.join(where)}"
    if of["target"]:
        text += f", for {named(of['target'], 'target', 'targets')} whose labels nobody trained on"
    ended = {"completed": ""}.get(result["status"], f" It has not come to its end: it is {result['status']}.")
    return f"{text}.{ended}"


def named(names: Sequence[str], one: str, many: str) -> str:
    count = f"{len(names)} {one if len(names) == 1 else many}"
    return f"{count} ({', '.join(names)})" if 0 < len(names) <= FEW else count


def interval(of: Estimate) -> str:
    return f"{100 * of.low:.1f}\u00a0% to {100 * of.high:.1f}\u00a0%"


def points(of: Estimate) -> str:
    return f"{100 * of.value:+.1f} points (95\u00a0% interval {100 * of.low:+.1f} to {100 * of.high:+.1f})"


def worth(result: RunResult) -> Iterator[tuple[str, str]]:
    """Whether adaptation paid, against the model of the labelled sites alone: (kind, sentence)."""
    targets = [c for c in result["clients"] if c["role"] == "target" and c["accuracy"] is not None]
    known = [(c, each) for c in targets if (each := gained(result, c))]
    if len(targets) > FEW and known:
        yield overall([each for _, each in known])
        return
    yield from (judged(client, each) for client, each in known)
    if targets and not known:
        missing = "no model of the labelled sites alone was scored"
        if any(c["source_only"] is not None for c in targets):
            missing = "the number of held-out rows is not known"
        yield "facts", f"Whether adaptation paid cannot be said: {missing}."


def judged(client: SiteResult, each: Estimate) -> tuple[str, str]:
    """One target's verdict."""
    name = client["name"]
    if each.verdict == PAID:
        return "lead", f"Adaptation paid at {name}: {points(each)} over source-only."
    if each.verdict == HARMED:
        return "lead bad", f"Negative transfer at {name}: adaptation did harm, {points(each)} against source-only."
    return "lead", f"Whether adaptation paid at {name} is open: {points(each)} against source-only, which chance may explain."


def overall(gains: Sequence[Estimate]) -> tuple[str, str]:
    """The verdicts of many targets, counted."""
    of = Counter(each.verdict for each in gains)
    mean = 100 * sum(each.value for each in gains) / len(gains)
    text = f"Against source-only, adaptation paid at {of[PAID]} of {counted(len(gains), 'target')}, "
    text += f"did harm (negative transfer) at {of[HARMED]}, and is open at {of[OPEN]}; the mean gain is {mean:+.1f} points."
    return ("lead bad" if of[HARMED] > of[PAID] else "lead"), text


def held_to(result: RunResult) -> Iterator[tuple[str, str]]:
    """Whether a target's accuracy is what its rehearsal let expect: (kind, sentence)."""
    verdict, found = result.get("verdict"), {c["name"]: c["accuracy"] for c in result["clients"]}
    for each in verdict["targets"] if verdict else ():
        band, reality = each["accuracy"], found.get(each["name"])
        if band is None or reality is None:
            continue
        where = "below" if reality < band["low"] else "above" if reality > band["high"] else "within"
        expected = interval(Estimate(band["value"], band["low"], band["high"]))
        kind = "bad" if where == "below" else "facts"
        yield kind, f"The rehearsal let expect {expected} at {each['name']}: {100 * reality:.1f}\u00a0% is {where} that."
