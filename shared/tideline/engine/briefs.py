"""What an order says of its run, as plain data: an agent reads no more than MOST_BRIEF characters of it.

Where sites seal for each other it tells each of all the others: their keys, and by which signatures they came to them. These
handovers are what grows, with each rotation of each site. Of all clients the newest are told, as many of each as fit for all; who
has not looked at a peer for so many rotations asks its owner.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tideline.core.errors import RosterRefused
from tideline.core.run import Role
from tideline.engine.entries import MOST_HANDOVERS
from tideline.engine.rows import Client, Handover, RunRow

MOST_BRIEF = 1 << 20  # characters; read, they take twenty times as much
MOST_SITES = 3500  # that a value can be sealed to: their keys and signatures, by the longest names, are a reply of a MiB
SPARE = 4096  # of them, for what an order says beside what a run's row tells
HEX_KEY, HEX_SIGNATURE = "0" * 64, "0" * 128
BARE = {"sign": HEX_KEY, "receive": HEX_KEY, "handovers": []}
HANDOVER_CHARS = len(json.dumps({"sign": HEX_KEY, "receive": HEX_KEY, "signature": HEX_SIGNATURE})) + len(", ")


def brief_of(run: RunRow, role: str, version: str = "") -> dict[str, Any]:
    """What an order says of its run to a site with this role."""
    keys = ("method", "world", "threads", "keeps")
    return {key: run.spec[key] for key in keys} | {
        "config": for_sites(run.spec),
        "contract": list(run.contract),
        "role": role,
        "version": version,
    }


def for_sites(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings without those that stay here. Runs from before there were any have none."""
    return {name: value for name, value in spec["config"].items() if name not in spec.get("kept", ())}


def with_peers(brief: Mapping[str, Any], clients: Iterable[Client]) -> dict[str, Any]:
    """A brief that tells of the run's sites too, as far as they have keys."""
    known = [each for each in clients if each.keys is not None]
    room = MOST_BRIEF - chars({**brief, "peers": {}})
    most = most_handovers(known, room)
    return {**brief, "peers": {each.name: told_of(each, most) for each in known}}


def most_handovers(clients: Sequence[Client], room: int) -> int:
    """How many handovers of each client fit into so many characters, if all have as many; no less than 0."""
    names = sum(bare_chars(each.name) for each in clients)
    counts = [len(handed_over(each)) for each in clients]

    def too_many(most: int) -> bool:
        return names + HANDOVER_CHARS * sum(min(most, count) for count in counts) > room

    return max(bisect.bisect_left(range(MOST_HANDOVERS + 1), True, key=too_many) - 1, 0)


def told_of(client: Client, most: int = MOST_HANDOVERS) -> dict[str, Any]:
    """What peers are told of a client that has keys: these, and so many of its newest handovers, the newest last."""
    assert client.keys is not None
    newest = handed_over(client)[-most:] if most else ()
    handovers = [{**asdict(each.keys), "signature": each.signature} for each in newest]
    return {**asdict(client.keys), "handovers": handovers}


def handed_over(client: Client) -> tuple[Handover, ...]:
    """A client's handovers that are signed: the first keys that it had follow from none."""
    return tuple(each for each in client.handovers if each.signature)


def check_room(run: RunRow) -> None:
    """Raises RosterRefused for more sites than an order can tell each other's bare keys of, or a reply can seal one value to."""
    room = MOST_BRIEF - chars({**brief_of(run, max(Role, key=len)), "peers": {}}) - SPARE
    sizes = list(itertools.accumulate(map(bare_chars, sorted(run.roster))))
    fits = min(bisect.bisect_right(sizes, room), MOST_SITES)
    if fits < len(sizes):
        raise RosterRefused(
            f"The keys of {len(sizes)} sites, which seal for each other, do not fit into an order: {fits} of them do",
            f"Name at most {fits} sites",
            path="roster",
        )


def bare_chars(name: str) -> int:
    """The characters that a client's keys take, without its handovers."""
    return len(json.dumps(name)) + len(": ") + chars(BARE) + len(", ")


def chars(told: Mapping[str, Any]) -> int:
    """The characters of plain data, as they are sent."""
    return len(json.dumps(told))
