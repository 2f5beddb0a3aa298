"""What a site answers to a join: whether it has labels; of a network that is not built in what it is there; if the run says how
to compute, how the site does; and, if the run asks for more than every agent can do, what this one can.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from tideline.archive.errors import Undeclared
from tideline.core.asked.abilities import ABILITIES, Asking, abilities_for
from tideline.core.asked.computing import Computed
from tideline.core.errors import AgentTooOld, ConfigRefused, NetworkDiffers
from tideline.core.run import NetworkPrint, RunSpec
from tideline.core.settings import Plain, parse
from tideline.engine.model.orders import Reply

LABELLED, NETWORK, COMPUTED, CAN = "labelled", "network", "computed", "abilities"
DEVICE = re.compile(r"[a-z]{1,16}")  # a kind of device
MOST_ABILITIES = 256  # that a site may name
SHOWN = 200  # characters of a site's line
TOLERANCE = 1e-3  # of the largest output: other processors round otherwise


def check_join(spec: RunSpec, reply: Reply, version: str = "") -> None:
    """Raises Undeclared for more than a join tells, NetworkDiffers where the site's network is not the coordinator's, AgentTooOld
    where its agent lacks what the run asks for. version: of the agent.
    """
    facts = dict(reply.facts)
    given = facts.pop(NETWORK, None) if spec.network else None
    computed = facts.pop(COMPUTED, None) if spec.computing else None
    asked = abilities_for(spec)
    can = facts.pop(CAN, None) if asked else None
    if reply.files or reply.sealed or set(facts) != {LABELLED} or not isinstance(facts[LABELLED], bool):
        raise Undeclared("The answer to a join holds more than whether the site has labels")
    if asked:
        check_abilities(asked, can, version)
    if spec.network:
        check_network(spec, spec.network, given)
    if spec.computing:
        check_computed(computed)


def check_abilities(asked: Sequence[str], given: Plain, version: str) -> None:
    """Raises AgentTooOld for an agent that lacks what a run asks for. One that names nothing has none of it."""
    given = [] if given is None else given
    if not isinstance(given, (list, tuple)) or len(given) > MOST_ABILITIES or not all(isinstance(each, str) for each in given):
        raise Undeclared("The answer to a join names no abilities")
    if lacking := ", ".join(name for name in asked if name not in given):
        agent = f"The site's agent (tideline {shown(version)})" if version else "The site's agent"
        can = shown(", ".join(map(str, given))) or "none of the abilities that runs may ask for"
        what = f"{agent} lacks what the run asks for: {lacking}; it has {can}"
        raise AgentTooOld(what, f"Upgrade the agent to the coordinator's version, or take out of the experiment: {lacking}")


def own_abilities(run: Asking) -> dict[str, Plain]:
    """What a site adds to its answer to a join, if the run asks for any: all abilities of its agent."""
    return {CAN: list(ABILITIES)} if abilities_for(run) else {}


def check_computed(given: Plain) -> None:
    """Raises Undeclared for what is no account of how a site computes: an agent from before there was a choice gives none."""
    if given is None:
        raise Undeclared("The site does not say how it computes, which the run's section computing asks for; upgrade its agent")
    try:
        device = parse(Computed, given if isinstance(given, Mapping) else {}, COMPUTED).device
    except ConfigRefused as error:
        raise Undeclared(f"The answer to a join tells of its computing what cannot be: {error.what}") from None
    if not DEVICE.fullmatch(device):
        raise Undeclared("The answer to a join names no kind of device")


def computed_in(facts: Mapping[str, Plain]) -> Mapping[str, Plain] | None:
    """How a site computes, by the facts of its join that were checked; None where it was not asked."""
    found = facts.get(COMPUTED)
    return found if isinstance(found, Mapping) else None


def check_network(spec: RunSpec, ours: NetworkPrint, given: Plain) -> None:
    """Raises NetworkDiffers, with the first difference, and Undeclared for what is no account of a network."""
    todo = "Install the same code and versions at both ends: what --networks names, torch, and the packages that it uses"
    if given is None:
        raise NetworkDiffers(f"The site does not say what its network {spec.world.model} is", "Upgrade its agent")
    try:
        theirs = parse(NetworkPrint, given if isinstance(given, Mapping) else {}, NETWORK)
    except ConfigRefused as error:
        raise Undeclared(f"The answer to a join tells of its network what cannot be: {error.what}") from None
    if differs := difference(ours, theirs):
        raise NetworkDiffers(f"The site builds another {spec.world.model} than the coordinator: {differs}", todo)


def difference(ours: NetworkPrint, theirs: NetworkPrint) -> str:
    """The first difference in words, with what is there and what is here; nothing if there is none."""
    for here, there in zip_longest(ours.lines, theirs.lines):
        if here != there:
            return f"it has {shown(there) or 'nothing'} where the coordinator has {here or 'nothing'}"
    if len(ours.outputs) != len(theirs.outputs):
        return f"it gives {len(theirs.outputs)} finite outputs where the coordinator has {len(ours.outputs)}"
    allowed = TOLERANCE * max(map(abs, ours.outputs), default=0.0)
    for mine, its in zip(ours.outputs, theirs.outputs, strict=True):
        if not abs(mine - its) <= allowed:
            return f"with the same weights it gives {its:.6g} where the coordinator has {mine:.6g}"
    return ""


def shown(line: str | None) -> str:
    """What a site says, as far as a sentence has room: it may send any text."""
    return "".join(filter(str.isprintable, line[:SHOWN])) if line else ""


def kept(reply: Reply) -> Reply:
    """A join's answer as it is written down: what was compared is not."""
    if not {NETWORK, CAN} & reply.facts.keys():
        return reply
    return replace(reply, facts={name: value for name, value in reply.facts.items() if name not in (NETWORK, CAN)})
