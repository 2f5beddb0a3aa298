"""ST-LF: who should teach whom, over which links, at what cost.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422). Devices measure how far apart their data lie (algorithm 1); the problem (P) says which of them are sources,
which are targets, and which source's model, weighed how, goes to which target; models travel sealed from device to device.
"""

from __future__ import annotations

import torch
from torch import Generator

from tideline import nets
from tideline.algorithms.averaging import mean_as
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.averaging.sums import mean_of
from tideline.algorithms.stlf import client, server
from tideline.algorithms.stlf.client import OFFERS
from tideline.algorithms.stlf.linking import formed, joules, numpy_rng, size_in_bits
from tideline.algorithms.stlf.messages import Mine, State
from tideline.algorithms.stlf.settings import ALONE, PRESETS, STLF, fits, notes
from tideline.core.algorithm import Algorithm, SiteModels, Unlike
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Turn, to, to_all
from tideline.core.record import Nothing
from tideline.core.rows import ANYTHING, Takes
from tideline.core.run import Role, Roster
from tideline.learning.scoring.judging import judged


def plan(c: STLF) -> Plan[STLF, State]:
    """Warm up, train alone, tell apart, link, offer, transfer, score."""
    warm = Phase("warm", client.warm, ask=to(Turn.labelled, Model), fold=server.averaged, sums=mean_of(server.by_count))
    train = Phase("train", client.train, ask=to_all(Model), fold=server.store_profiles)
    link = Phase("link", None, fold=formed)
    offer = Phase("offer", client.offer, ask=server.unsealed, fold=server.sealed)
    transfer = Phase("transfer", client.transfer, ask=server.assignments, fold=server.linked)
    others = tuple(client.named(c.compare).values())
    score: Phase[STLF, State] = judged(
        client.judge, server.to_present, takes=Nothing, keeps=Mine, others=others, fold=server.scored
    )
    return ((warm,) * c.rounds) + (train,) + separating(c) + (link,) + (offer,) * OFFERS + (transfer, score)


def separating(c: STLF) -> Plan[STLF, State]:
    """How divergences are measured."""
    if c.divergence == "statistics":
        return (Phase("describe", client.describe, ask=server.to_present, fold=server.store_moments),)
    if c.divergence == "shared":
        # By the plain mean no device's rows count more than another's.
        apart: Phase[STLF, State] = Phase("separate", client.train_shared, ask=server.classifier_to_all, fold=mean_as("start"))
        last = Phase("measure", client.measure_all, ask=server.classifier_to_all, fold=server.store_shared_errors)
        return (apart,) * c.exchanges + (last,)
    separate = Phase("separate", client.separate, ask=server.halves, fold=server.store_halves)
    measure = Phase("measure", client.measure, ask=server.finished, fold=server.store_errors)
    return ((separate,) * c.exchanges + (measure,)) * c.blocks


def begin(config: STLF, world: World, roster: Roster, rng: Generator) -> State:
    """The common model, the start of classifiers, and what links cost."""
    model = nets.weights_of(nets.build(world))
    start = nets.weights_of(client.telling(len(roster) if config.divergence == "shared" else 2)(world))
    watts, K = joules(config, roster, config.bits or size_in_bits(model), numpy_rng(rng))
    names = tuple(str(member.id) for member in roster)
    return State(
        model=model,
        start=start,
        K=K,
        watts=watts,
        roster=names,
        count={},
        labelled={},
        error={},
        h={},
        readers={},
        separators={},
        errors={},
        rates={},
        sent={},
        moments={},
        lost=(),
        names=(),
        d=torch.zeros(0, 0, dtype=torch.float64),
    )


def takes(c: STLF) -> Takes:
    """Moments are of numbers."""
    return Takes(why="compares moments of rows (config.divergence: pairs does not)") if c.divergence == "statistics" else ANYTHING


stlf = Algorithm(
    name="stlf",
    paper="Wang, Hosseinalipour, Brinton: Multi-Source to Multi-Target Decentralized Federated Domain Adaptation, 2024",
    summary="Sources, targets and the links between them, chosen by errors, divergences and energy; models travel sealed",
    config=STLF,
    state=State,
    begin=begin,
    plan=plan,
    memory=Mine,
    prepare=client.prepare,
    fits=fits,
    takes=takes,
    presets=PRESETS,
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET, Role.TARGET),
    unlike=Unlike.TURNED,
    extra_rounds=ALONE,
    keepsakes=client.keepsakes,
    result=(SiteModels(client.own_model, roles=tuple(Role)),),
    notes=notes,
    unprotected="each pair of sites learns to tell its rows apart, and each of these exchanges would cost what a round costs",
    claims=(
        "A source's model is sealed to the targets of its links alone, once there are links; nobody else can open it.",
        "The coordinator says who those targets are, among the sites that the run began with.",
        "The warm-up (rounds above 0) shows the coordinator each labelled device's model.",
        "With divergence: pairs, each half of a pair's classifier goes to that partner alone."
        " With shared the coordinator reads each device's classifier, with statistics moments of its rows.",
        "Not claimed: that counts, errors and divergences tell nothing. They say who has labels, and whose data are alike.",
    ),
)
