"""Cohorts: which of the sites that an exchange names are asked, where a run asks a part of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set

from tideline.core.asked.sampling import Draw, Sampling
from tideline.core.errors import ConfigRefused
from tideline.core.phase import AnyPhase, AnyPlan
from tideline.core.privacy import Audience
from tideline.core.record import leaves
from tideline.core.run import ClientId, Roster
from tideline.core.settings import nearest
from tideline.engine.compute.configured import Configured, scores
from tideline.engine.model.orders import Purpose, seed_for


def drawn(
    sampling: Sampling, named: Iterable[ClientId], *, least: int, seed: int, cursor: int, first: Set[ClientId]
) -> list[ClientId]:
    """Some of those that are named, without replacement: those with the smallest -log(u) / weight.

    So they are drawn one after the other with probabilities in proportion to the weights of those that are left (Efraimidis and
    Spirakis, "Weighted random sampling with a reservoir", 2006). u in (0, 1) is each site's own, hashed of the run's seed, the
    cursor and its name: who else is named does not change it. A site of weight 0 comes after all others. first: who comes before
    all others, where the sampling is by availability.
    """
    before = first if sampling.by is Draw.AVAILABILITY else frozenset()

    def place(client: ClientId) -> tuple[bool, bool, float, ClientId]:
        u = (seed_for(seed, Purpose.SAMPLE, cursor, client) + 0.5) / 2**63
        weight = sampling.weights[client] if sampling.by is Draw.WEIGHTS else 1.0
        return client not in before, weight == 0, -math.log(u) / (weight or 1.0), client

    ranked = sorted(named, key=place)
    return ranked[: sampling.size(len(ranked), least)]


def least_of(phase: AnyPhase) -> tuple[int, str]:
    """How few sites an exchange that is sampled may ask, and what needs so many: the phase's floor, or the contract.

    The mean of one reply is that reply: where replies are for the coordinator alone, a cohort of one would hand its reply on.
    """
    private = phase.step is not None and any(Audience.PEERS not in leaf.audience for leaf in leaves(phase.step.gives))
    if private and not scores(phase) and (phase.floor or 0) < 2:
        return 2, f"{phase.name}, whose single replies no other site may get,"
    return max(phase.floor or 0, 1), phase.needs or phase.name


def check_sampling(sampling: Sampling, method: Configured, roster: Roster, takers: Callable[[], Sequence[str]]) -> None:
    """Raises ConfigRefused for a sampling that the method or the roster cannot have. takers: the methods that have one."""
    if not method.sampled:
        what = f"{method.algorithm.name} takes no sample: its exchanges need everybody whom they ask"
        raise ConfigRefused(what, f"Leave sample out, or use one of: {', '.join(takers())}", path="sample")
    if isinstance(sampling.sites, int):
        check_number(sampling.sites, method.plan, len(roster))
    check_weights(sampling, sorted(m.id for m in roster))


def check_number(sites: int, plan: AnyPlan, members: int) -> None:
    path = "sample.sites"
    if sites > members:
        what = f"{path} is {sites}, and the roster has {members} sites"
        raise ConfigRefused(what, f"Give at most {members}, or leave sample out: then all are asked", path=path)
    for phase in plan:
        least, needs = least_of(phase)
        if phase.sampled and sites < least:
            what = f"{path} is {sites}; {needs} needs the replies of {least} sites"
            raise ConfigRefused(what, f"Give {least} or more", path=path)


def check_weights(sampling: Sampling, members: Sequence[ClientId]) -> None:
    """Raises ConfigRefused unless each member has a weight, one of them above 0, where sites are drawn by weights."""
    path, weights = "sample.weights", sampling.weights
    if sampling.by is not Draw.WEIGHTS:
        if weights:
            what = f"{path} names sites, but sample.by is {sampling.by.value}, which has no use for them"
            raise ConfigRefused(what, "Leave weights out, or set by to weights", path=path)
        return
    strange = sorted(set(weights) - set(members))
    if strange:
        what = f"{path} names {strange[0]!r}, which is no site of this run{nearest(strange[0], members)}"
        raise ConfigRefused(what, "Correct the name", path=f"{path}.{strange[0]}")
    without = [name for name in members if name not in weights]
    if without:
        raise ConfigRefused(f"{path} has no weight for {without[0]}", "Give each site of the roster one, 0 or more", path=path)
    if not any(weights.values()):
        raise ConfigRefused(f"{path} has no weight above 0", "Give one site at least a weight above 0", path=path)


def notes_of(sampling: Sampling, plan: AnyPlan) -> tuple[str, ...]:
    """Where a share of the sites is not what decides how many are asked."""
    if isinstance(sampling.sites, int):
        return ()
    floors = {p.name: (p.floor, p.needs or p.name) for p in plan if p.sampled and p.floor is not None and p.floor > 1}
    return tuple(
        f"sample: {name} asks {floor} sites or more, however small the share: {needs} needs them"
        for name, (floor, needs) in floors.items()
    )
