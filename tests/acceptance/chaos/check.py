"""Holds a recorded history to what Tideline promises. It needs the history alone: python -m tests.acceptance.chaos.check FILE"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

Lines = list[dict[str, Any]]
Rule = Callable[[Lines], Iterator[str]]
RULES: list[Rule] = []
FINAL = ("completed", "failed", "cancelled")


def rule(check: Rule) -> Rule:
    RULES.append(check)
    return check


def check(history: Lines) -> list[str]:
    """Everything that is wrong, each run by itself."""
    wrong = [f"{run}: a run that was acknowledged is not there" for run in lost(history)]
    for run in sorted({line["run"] for line in history if line["kind"] == "run"}):
        own = [line for line in history if line.get("run") == run]
        wrong += [f"{run}: {check.__name__.replace('_', ' ')}: {what}" for check in RULES for what in check(own)]
    return wrong


def lost(history: Lines) -> set[str]:
    """Runs that somebody was told of and that are nowhere."""
    return {line["run"] for line in of(history, "started")} - {line["run"] for line in of(history, "run")}


def of(own: Lines, kind: str) -> Lines:
    return [line for line in own if line["kind"] == kind]


@rule
def the_run_ends_as_in_peace(own: Lines) -> Iterator[str]:
    """Completed, with the state of the undisturbed run, bit for bit (R5, R6)."""
    [end] = of(own, "run")
    if end["status"] != "completed":
        yield f"{end['status']}: {end['cause']}"
    elif any(line["digest"] != end["digest"] for line in of(own, "expected")):
        yield f"its state is {end['digest'][:12]}"


@rule
def no_round_is_lost_or_closed_twice(own: Lines) -> Iterator[str]:
    """Each closed round leads to the next, from the first to the end of the plan (R5)."""
    rounds = sorted(of(own, "round"), key=lambda line: int(line["cursor"]))
    if not rounds or rounds[0]["cursor"] != -1:
        yield "the first round is not there"
    for one, two in pairwise(rounds):
        if one["next"] != two["cursor"]:
            yield f"round {one['cursor']} leads to {one['next']}, and {two['cursor']} is there"
    if rounds and rounds[-1]["next"] != of(own, "run")[0]["cursor"]:
        yield f"the last round leads to {rounds[-1]['next']}"


@rule
def each_reply_counts_once(own: Lines) -> Iterator[str]:
    """Of each client in each round at most one order is answered in time, and exactly those are folded (R1, R8)."""
    answered = Counter((o["cursor"], o["client"]) for o in of(own, "order") if o["status"] == "answered")
    for (cursor, client), times in answered.items():
        if times > 1:
            yield f"{client} has {times} replies in round {cursor}"
    for closed in of(own, "round"):
        folded = closed["folded"]
        if len(folded) != len(set(folded)):
            yield f"round {closed['cursor']} folded a client twice"
        counted = {client for cursor, client in answered if cursor == closed["cursor"]}
        if set(folded) != counted:
            yield f"round {closed['cursor']} folded {sorted(folded)}, and {sorted(counted)} had answered"


@rule
def what_was_acknowledged_is_kept(own: Lines) -> Iterator[str]:
    """A reply that its agent was told is accepted stands in the journal, and was accepted once (R1, R4)."""
    status = {order["order"]: order["status"] for order in of(own, "order")}
    accepted = Counter(line["order"] for line in of(own, "verdict") if line["verdict"] == "accepted")
    for order, times in accepted.items():
        if times > 1:
            yield f"order {order[:8]} was accepted {times} times"
        if status.get(order) not in ("answered", "failed"):
            yield f"order {order[:8]} was accepted and is {status.get(order, 'nowhere')}"


@rule
def nobody_looks_back_in_time(own: Lines) -> Iterator[str]:
    """Whoever looks, wherever: the cursor never falls, and an end is the end (R5)."""
    for one, two in pairwise(of(own, "seen")):
        if two["cursor"] < one["cursor"]:
            yield f"at {one['cursor']} by {one['by']}, then at {two['cursor']} by {two['by']}"
        if one["status"] in FINAL and two["status"] != one["status"]:
            yield f"{one['status']}, then {two['status']}"
    if any(line["cursor"] > of(own, "run")[0]["cursor"] for line in of(own, "seen")):
        yield "somebody saw more than there is"


@rule
def tokens_never_fall(own: Lines) -> Iterator[str]:
    """A round is closed by a scheduler whose token is no older than that of the round before (R2)."""
    tokens = [event["data"].get("token") for event in of(own, "event") if event["event"] == "closed"]
    if None in tokens:
        yield "a round was closed without a token"
    for one, two in pairwise(token for token in tokens if token is not None):
        if two < one:
            yield f"token {two} after token {one}"


@rule
def events_have_no_gap(own: Lines) -> Iterator[str]:
    """They are numbered from 1, and each closed round has one."""
    if [event["seq"] for event in of(own, "event")] != list(range(1, len(of(own, "event")) + 1)):
        yield "a number is missing or there twice"
    if sum(event["event"] == "closed" for event in of(own, "event")) != len(of(own, "round")):
        yield "there are more or fewer closings told than rounds"


if __name__ == "__main__":
    from tests.acceptance.chaos.history import read_history

    found = check(read_history(Path(sys.argv[1])))
    print("\n".join(found) or "nothing is wrong")
    sys.exit(bool(found))
