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
from typing import TypedDict, cast

from tideline.core.errors import Malformed, RosterRefused
from tideline.core.privacy import from_json, to_json
from tideline.core.run import MOST_THREADS, Role, plain_world, world_in
from tideline.core.settings import Plain
from tideline.engine.model.brief import Brief
from tideline.engine.model.clients import Client, Handover
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import JOIN, RunRow
from tideline.engine.model.transitions import MOST_HANDOVERS
from tideline.engine.peers.sealing import DISTRUST, peers_in


class PlainBrief(TypedDict):
    """A brief as plain data, beside `version` and `peers`."""

    method: str
    config: Mapping[str, Plain]
    world: Mapping[str, Plain]
    threads: int
    keeps: bool
    contract: list[Mapping[str, Plain]]
    role: str


# As what its keys are held to.
KINDS: Mapping[str, type] = {"method": str, "config": dict, "world": dict, "threads": int, "keeps": bool, "contract": list}
MOST_BRIEF = 1 << 20  # characters; read, they take twenty times as much
MOST_SITES = 3500  # that a value can be sealed to: their keys and signatures, by the longest names, are a reply of a MiB
SPARE = 4096  # of them, for what an order says beside what a run's row tells
HEX_KEY, HEX_SIGNATURE = "0" * 64, "0" * 128
BARE = {"sign": HEX_KEY, "receive": HEX_KEY, "handovers": []}
HANDOVER_CHARS = len(json.dumps({"sign": HEX_KEY, "receive": HEX_KEY, "signature": HEX_SIGNATURE})) + len(", ")


def brief_of(run: RunRow, role: Role, version: str = "") -> dict[str, Plain]:
    """What an order says of its run to a site with this role."""
    return {
        "method": run.spec.method,
        "world": plain_world(run.spec.world),
        "threads": run.spec.threads,
        "keeps": run.spec.keeps,
        "config": {name: value for name, value in run.spec.config.items() if name not in run.spec.kept},
        "contract": to_json(run.contract),
        "role": role.value,
        "version": version,
    }


def brief_in(order: Order) -> Brief:
    """What an order says of its run. Raises Malformed for what no coordinator of ours says; ContractRefused, ConfigRefused."""
    told = order.brief
    odd = [key for key, kind in KINDS.items() if type(told.get(key)) is not kind]
    if told.get("role") not in tuple(Role):
        odd.append("role")
    said = cast(PlainBrief, told)
    if "threads" not in odd and not 1 <= said["threads"] <= MOST_THREADS:
        odd.append("threads")
    if order.cursor < JOIN:
        odd.append("place")
    if odd:
        raise Malformed(f"Order {order.id[:8]} does not say what it asks for: its {odd[0]} is missing or wrong", DISTRUST)
    return Brief(
        method=said["method"],
        config=said["config"],
        world=world_in(said["world"]),
        threads=said["threads"],
        keeps=said["keeps"],
        contract=from_json(said["contract"]),
        role=Role(said["role"]),
        version=str(told.get("version", "?")),
        peers=peers_in(told),
    )


def with_peers(brief: Mapping[str, Plain], clients: Iterable[Client]) -> dict[str, Plain]:
    """A brief that tells of the run's sites too."""
    known = list(clients)
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


def told_of(client: Client, most: int = MOST_HANDOVERS) -> dict[str, Plain]:
    """What peers are told of a client: its keys, and so many of its newest handovers, the newest last."""
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


def chars(told: Mapping[str, Plain]) -> int:
    """The characters of plain data, as they are sent."""
    return len(json.dumps(told))
