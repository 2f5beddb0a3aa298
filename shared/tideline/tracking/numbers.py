"""Events of a run, and its result, as points.

METRIC            the mean over the sites of a round; step: the round
METRIC/SITE       one site's
PHASE.METRIC      where several phases of the run tell the same metric, whose rounds would be mixed up
PHASE.bytes_up, bytes_down, seconds, replies      of each closed round
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tideline.client.answers import ClauseData, ClosedRound, Event, RunResult
from tideline.core.errors import Malformed

METRIC = "metrics."
STRANGE = re.compile(r"[^\w. -]", re.ASCII)  # in no part of a name that every tracker takes
LONGEST = 80  # characters of a part; of three no tracker takes more than 250
OF_ROUNDS = ("bytes_up", "bytes_down", "seconds", "replies")
OF_SITES = ("bytes_up", "bytes_down")
Rounds = Mapping[tuple[str, int], ClosedRound]


def plain_name(name: str) -> str:
    """A part of a point's name, of characters that every tracker takes."""
    plain = STRANGE.sub("_", name)[:LONGEST].strip()
    return plain if plain.strip(".") else "_" * max(len(plain), 1)


def rounds_in(result: RunResult) -> Rounds:
    """The closed rounds of a result by phase and round."""
    return {(each["name"], each["round"]): each for each in result["phases"]}


class Numbers:
    """Hears the events of one run in order, and tells their points."""

    def __init__(self, contract: Sequence[ClauseData]) -> None:
        phases: defaultdict[str, set[str]] = defaultdict(set)
        for clause in contract:
            if clause["field"].startswith(METRIC):
                phases[clause["field"].removeprefix(METRIC)].add(clause["phase"])
        self.declared = frozenset(phases)
        self._several = frozenset(metric for metric, of in phases.items() if len(of) > 1)
        self._replies: dict[
            tuple[str, int], dict[str, dict[str, float]]
        ] = {}  # by phase and round: of a metric each site's number

    def key(self, phase: str, metric: str) -> str:
        name = plain_name(metric)
        return f"{plain_name(phase)}.{name}" if metric in self._several else name

    def answered(self, event: Event) -> Iterator[tuple[str, int, float]]:
        """What a site reported: key, round, value. Numbers that are none are left out."""
        data = event["data"]
        site, phase, number = data["client"], data["phase"], data["round"]
        for metric, value in sorted(data.get("metrics", {}).items()):
            if is_number(value):
                key = self.key(phase, metric)
                self._replies.setdefault((phase, number), {}).setdefault(key, {})[site] = float(value)
                yield f"{key}/{plain_name(site)}", number, float(value)

    def closed(self, event: Event, rounds: Rounds) -> Iterator[tuple[str, int, float]]:
        """The means over a round's sites, and what it cost."""
        data = event["data"]
        phase, number = data["phase"], data["round"]
        for key, of in sorted(self._replies.pop((phase, number), {}).items()):
            yield key, number, math.fsum(of.values()) / len(of)
        if (phase, number) in rounds:
            yield from costs(rounds[phase, number])


def costs(closed: ClosedRound) -> Iterator[tuple[str, int, float]]:
    """What a closed round cost."""
    for name in OF_ROUNDS:
        yield f"{plain_name(closed['name'])}.{name}", closed["round"], float(closed[name])  # type: ignore[literal-required]


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def events_in(result: RunResult) -> Iterator[Event]:
    """The events that a result with its history stands for, where those of the run are gone: replies, and closed rounds."""
    found = defaultdict[int, list[Event]](list)
    for each in result["history"] or ():
        data = {name: each[name] for name in ("client", "phase", "round", "cursor")}
        metrics = {name: value for name, value in each["metrics"].items() if value is not None}
        found[each["cursor"]].append({"seq": 0, "kind": "answered", "data": {**data, "metrics": metrics}})  # type: ignore[typeddict-item]
    for cursor, replies in sorted(found.items()):
        yield from replies
        place = replies[0]["data"]
        data = {"phase": place["phase"], "round": place["round"], "cursor": cursor}
        yield {"seq": 0, "kind": "closed", "data": data}  # type: ignore[typeddict-item]


def totals(result: RunResult, declared: frozenset[str]) -> Iterator[tuple[str, int, float]]:
    """What is known at the end alone: scores that no site tells as a metric, the accuracy without adaptation, and all bytes."""
    last = max((each["round"] for each in result["phases"]), default=1)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for site, scores in result.get("scores", {}).items():
        for name, score in scores.items():
            found[name][site] = score["value"]
    for client in result["clients"]:
        if client["source_only"] is not None:
            found["source_only"][client["name"]] = client["source_only"]
    for name, of in sorted(found.items()):
        good = {site: value for site, value in of.items() if is_number(value)}
        if name in declared or not good:
            continue
        yield from ((f"{plain_name(name)}/{plain_name(site)}", last, value) for site, value in sorted(good.items()))
        yield plain_name(name), last, math.fsum(good.values()) / len(good)
    for name in OF_SITES:
        each = {client["name"]: float(client[name]) for client in result["clients"]}  # type: ignore[literal-required]
        yield from ((f"{name}/{plain_name(site)}", last, value) for site, value in sorted(each.items()))
        yield name, last, math.fsum(each.values())


def check_order(events: Sequence[Event], after: int) -> bool:
    """Whether no event is missing behind one. Raises Malformed for events that are out of order."""
    numbers = [each["seq"] for each in events]
    if sorted(set(numbers)) != numbers or (numbers and numbers[0] <= after):
        raise Malformed("The coordinator's events are out of order", "Check that nothing between changes its answers")
    return not numbers or numbers[0] == after + 1
