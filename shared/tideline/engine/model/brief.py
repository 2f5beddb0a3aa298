"""What an order says of its run: a Brief, and the same as plain data, of which an agent reads no more than MOST_BRIEF characters.

Where sites seal for each other it names all of them: their keys, and the signatures by which they came to them. These handovers
are what grows, with each rotation of each site. Of all clients the newest are named, as many of each as fit for
all; a site that has not seen a peer for so many rotations asks its owner.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict, cast

from tideline.core.asked.computing import Computing
from tideline.core.asked.private import Privacy
from tideline.core.asked.scoring import NO_MORE, Scoring
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import NO_WIRE, Wire, wire_of
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import Malformed, RosterRefused
from tideline.core.privacy import Contract, from_json, to_json
from tideline.core.recent import Recent
from tideline.core.rows import NO_AUGMENT, Augment
from tideline.core.run import MOST_THREADS, ClientId, Digest, Role, RunId
from tideline.core.settings import EMPTY, Plain, parse, plain
from tideline.core.signing import KEY_BYTES
from tideline.engine.model.accounts import NAME, Client, Handover, Keys, Peer
from tideline.engine.model.experiment import base_digest
from tideline.engine.model.intent import NO_INTENT, Intent, intent_in, intent_of
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import JOIN, RunRow
from tideline.engine.model.transitions import MOST_HANDOVERS


@dataclass(frozen=True)
class Brief:
    """A run as one of its sites knows it, in its role there.

    config    the method's settings, without those that stay at the coordinator
    keeps     whether sites keep a memory
    version   of the coordinator
    peers     the run's sites and their keys, where they seal for each other
    scoring   what the run asks of its scorings
    best      the place in the plan of its best scoring so far, if it selects
    children  of a rehearsal: the runs whose predictions here it compares
    rehearses    the site that plays the target, though it has labels
    augment   how images are changed at random where sites train on them
    base      the file with the frozen part of the network, which every order brings; None: all of it trains
    intent    who asks for what in the run
    computing how steps compute, if the run says so: then the site tells how it does
    wire      in which numbers weights travel; where not all are float32 the site tells what its agent can do
    privacy   how the run protects rows, if it does
    secure_sums  how values are added up so that nobody sees a single one, if they are
    """

    method: str
    config: Mapping[str, Plain]
    world: World
    threads: int
    keeps: bool
    contract: Contract
    role: Role
    version: str = ""
    peers: Mapping[ClientId, Peer] = field(default_factory=lambda: EMPTY)
    scoring: Scoring = NO_MORE
    augment: Augment = NO_AUGMENT
    best: int | None = None
    base: Digest | None = None
    children: tuple[RunId, ...] = ()
    rehearses: ClientId | None = None
    intent: Intent = NO_INTENT
    computing: Computing | None = None
    wire: Wire = NO_WIRE
    privacy: Privacy | None = None
    secure_sums: SecureSums | None = None


DISTRUST = "The coordinator is of another version, or is not to be trusted"


def peers_in(brief: Mapping[str, Plain]) -> dict[ClientId, Peer]:
    try:
        return {ClientId(client_name(name)): peer_in(peer) for name, peer in dict(brief.get("peers", {})).items()}  # type: ignore[arg-type]
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        raise Malformed(f"The order's peers cannot be understood ({type(cause).__name__})", DISTRUST) from None


def client_name(name: str) -> str:
    """A name that clients can have. Raises ValueError for others: it is shown to users, in a command too."""
    if not NAME.fullmatch(name):
        raise ValueError("no name of a client")
    return name


def peer_in(peer: Mapping[str, Any]) -> Peer:
    handovers = peer["handovers"][-MOST_HANDOVERS:]
    return Peer(keys_in(peer), tuple(Handover(keys_in(each), str(each["signature"])) for each in handovers))


def keys_in(pair: Mapping[str, Any]) -> Keys:
    """Public keys. Raises ValueError for what is none."""
    sign, receive = (bytes.fromhex(pair[name]) for name in ("sign", "receive"))
    if len(sign) != KEY_BYTES or len(receive) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    return Keys(sign.hex(), receive.hex())


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
BRIEFS: Recent[Mapping[str, Plain]] = Recent(64)
READ: Recent[Brief] = Recent(8)
HANDOVER_CHARS = len(json.dumps({"sign": HEX_KEY, "receive": HEX_KEY, "signature": HEX_SIGNATURE})) + len(", ")


def brief_of(run: RunRow, role: Role, version: str = "") -> Mapping[str, Plain]:
    """What an order says of its run to a site with this role. The same for all of them: nobody changes it."""
    return BRIEFS.of(run.contract, lambda: plain_brief(run, role, version), run.id, role, version, run.best)


def plain_brief(run: RunRow, role: Role, version: str) -> Mapping[str, Plain]:
    scoring = run.spec.scoring
    return {
        "method": run.spec.method,
        "world": plain_world(run.spec.world),
        "threads": run.spec.threads,
        "keeps": run.spec.keeps,
        "config": {name: value for name, value in run.spec.config.items() if name not in run.spec.kept},
        "contract": to_json(run.contract),
        "role": role.value,
        "version": version,
        **({} if scoring == NO_MORE else {"scoring": plain(scoring)}),
        **({"augment": plain(run.spec.augment)} if run.spec.augment.on else {}),
        **({} if run.best is None else {"best": run.best}),
        **({} if run.spec.computing is None else {"computing": plain(run.spec.computing)}),
        **({"wire": plain(run.spec.wire)} if run.spec.wire.on else {}),
        **({} if run.spec.privacy is None else {"privacy": plain(run.spec.privacy)}),
        **({} if run.spec.secure_sums is None else {"secure_sums": plain(run.spec.secure_sums)}),
        **({"base": digest} if (digest := base_digest(run.spec)) else {}),
        **({"children": list(run.spec.children)} if run.spec.children else {}),
        **({"rehearses": run.spec.rehearses} if run.spec.rehearses else {}),
        "intent": intent_of(run).plain(),
    }


def brief_in(order: Order) -> Brief:
    """What an order says of its run. Raises Malformed for what no coordinator of ours says; ContractRefused, ConfigRefused."""
    # One that names peers is as large as an order may be, and another for each order.
    again = order.cursor >= JOIN and "peers" not in order.brief
    return READ.of(order.brief, lambda: read_brief(order)) if again else read_brief(order)


def read_brief(order: Order) -> Brief:
    odd = [key for key, kind in KINDS.items() if type(order.brief.get(key)) is not kind]
    if order.brief.get("role") not in tuple(Role):
        odd.append("role")
    brief = cast(PlainBrief, order.brief)
    if "threads" not in odd and not 1 <= brief["threads"] <= MOST_THREADS:
        odd.append("threads")
    # A coordinator from before there were such settings asks for no more than an accuracy.
    scoring = order.brief.get("scoring", plain(NO_MORE))
    if not isinstance(scoring, dict):
        odd.append("scoring")
    augment = order.brief.get("augment", {})
    if not isinstance(augment, dict):
        odd.append("augment")
    best = order.brief.get("best")
    if best is not None and (type(best) is not int or not 0 <= best < order.cursor):
        odd.append("best")
    computing = order.brief.get("computing")
    if computing is not None and not isinstance(computing, dict):
        odd.append("computing")
    wire = order.brief.get("wire", {})
    if not isinstance(wire, dict):
        odd.append("wire")
    privacy = order.brief.get("privacy")
    if privacy is not None and not isinstance(privacy, dict):
        odd.append("privacy")
    sums = order.brief.get("secure_sums")
    if sums is not None and not isinstance(sums, dict):
        odd.append("secure_sums")
    if order.cursor < JOIN:
        odd.append("place")
    base = order.brief.get("base")
    if base is not None and not isinstance(base, str):
        odd.append("base")
    children, rehearses = order.brief.get("children", []), order.brief.get("rehearses")
    if not isinstance(children, list) or not all(isinstance(each, str) for each in children):
        odd.append("children")
    if rehearses is not None and not isinstance(rehearses, str):
        odd.append("rehearses")
    intent = NO_INTENT
    try:
        intent = intent_in(order.brief.get("intent", {}))
    except ValueError:
        odd.append("intent")
    if odd:
        raise Malformed(f"Order {order.id[:8]} does not say what it asks for: its {odd[0]} is missing or wrong", DISTRUST)
    world = world_in(brief["world"])
    if world.frozen == (base is None):
        what = (
            f"Order {order.id[:8]} brings no frozen weights" if base is None else f"Order {order.id[:8]} brings weights to freeze"
        )
        raise Malformed(f"{what}, and world.trains is {' '.join(world.trains)}", DISTRUST)
    return Brief(
        method=brief["method"],
        config=brief["config"],
        world=world,
        threads=brief["threads"],
        keeps=brief["keeps"],
        contract=from_json(brief["contract"]),
        role=Role(brief["role"]),
        version=str(order.brief.get("version", "?")),
        peers=peers_in(order.brief),
        scoring=parse(Scoring, cast(Mapping[str, Plain], scoring), "scoring"),
        augment=parse(Augment, cast(Mapping[str, Plain], augment), "augment"),
        best=cast("int | None", best),
        computing=None if computing is None else parse(Computing, cast(Mapping[str, Plain], computing), "computing"),
        wire=wire_of(parse(Wire, cast(Mapping[str, Plain], wire), "wire")),
        privacy=None if privacy is None else parse(Privacy, cast(Mapping[str, Plain], privacy), "privacy"),
        secure_sums=None if sums is None else parse(SecureSums, cast(Mapping[str, Plain], sums), "secure_sums"),
        base=None if base is None else Digest(str(base)),
        children=tuple(map(RunId, cast("list[str]", children))),
        rehearses=None if rehearses is None else ClientId(str(rehearses)),
        intent=intent,
    )


def with_peers(brief: Mapping[str, Plain], clients: Iterable[Client]) -> dict[str, Plain]:
    known = list(clients)
    room = MOST_BRIEF - chars({**brief, "peers": {}})
    most = most_handovers(known, room)
    return {**brief, "peers": {each.name: plain_peer(each, most) for each in known}}


def most_handovers(clients: Sequence[Client], room: int) -> int:
    """How many handovers of each client fit into so many characters, if all have as many; no less than 0."""
    names = sum(bare_chars(each.name) for each in clients)
    counts = [len(handed_over(each)) for each in clients]

    def too_many(most: int) -> bool:
        return names + HANDOVER_CHARS * sum(min(most, count) for count in counts) > room

    return max(bisect.bisect_left(range(MOST_HANDOVERS + 1), True, key=too_many) - 1, 0)


def plain_peer(client: Client, most: int = MOST_HANDOVERS) -> dict[str, Plain]:
    """A client that has keys, as its peers know it: these, and so many of its newest handovers, the newest last."""
    newest = handed_over(client)[-most:] if most else ()
    handovers = [{**asdict(each.keys), "signature": each.signature} for each in newest]
    return {**asdict(client.keys), "handovers": handovers}


def handed_over(client: Client) -> tuple[Handover, ...]:
    """A client's handovers that are signed: the first keys that it had follow from none."""
    return tuple(each for each in client.handovers if each.signature)


def check_room(run: RunRow) -> None:
    """Raises RosterRefused for more sites than an order can tell each other's bare keys of, or a reply can seal one value to."""
    # Not one that is remembered: of a run that is not written yet, more is to be told.
    room = MOST_BRIEF - chars({**plain_brief(run, max(Role, key=len), ""), "peers": {}}) - SPARE
    sizes = list(itertools.accumulate(map(bare_chars, sorted(run.roster))))
    fits = min(bisect.bisect_right(sizes, room), MOST_SITES)
    if fits < len(sizes):
        what = f"The keys of {len(sizes)} sites, which seal for each other, do not fit into an order: {fits} of them do"
        raise RosterRefused(what, f"Name at most {fits} sites", path="roster")


def bare_chars(name: str) -> int:
    return len(json.dumps(name)) + len(": ") + chars(BARE) + len(", ")


def chars(data: Mapping[str, Plain]) -> int:
    return len(json.dumps(data))
