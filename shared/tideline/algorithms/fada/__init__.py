"""FADA: labelled sources teach an unlabelled target whose features are aligned with theirs, by adversaries; and f-DANN beside it.

Peng, Huang, Zhu, Saenko, "Federated Adversarial Domain Adaptation", ICLR 2020 (arXiv 1911.02054). Each round: identify, improve,
follow. The identifier of each pair of a source and a target travels, so that features stay (variant A); sources' models go to
targets sealed, and a target's own stays with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tideline.algorithms.averaging import scored
from tideline.algorithms.fada import client, critic, server, source, target
from tideline.algorithms.fada.client import IMPROVE, SOURCE
from tideline.algorithms.fada.messages import Mine, State
from tideline.algorithms.fada.settings import FADA, FDANN, FEATURES, LEAST, PRESETS, Either, aligns, fits, notes, sizes
from tideline.algorithms.source_free.source import end_counts
from tideline.core.algorithm import Algorithm, SiteModels
from tideline.core.phase import Phase, Plan, to, to_all
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.learning.evaluate import evaluate


def plan(c: Either) -> Plan[Either, State]:
    """Begin alike, then rounds; scored before them, now and then, and at the end."""
    to_targets = server.to_present(Nothing, Role.TARGET)
    for_all = to(Role.SOURCE, lambda state, turn: server.common(state, turn.members()))
    first = Phase(SOURCE, source.begin, ask=for_all, fold=server.gathered)
    share = Phase("share", client.share, ask=to_all(lambda state, turn: server.common(state)), fold=server.begun)
    grade: Phase[Either, State] = evaluate(to_targets, client.predict, keeps=Mine)
    before: Phase[Either, State] = evaluate(to_targets, client.predict, keeps=Mine, metrics=("source_only",))
    counts = end_counts(c, client.predict, Mine, targets=to_targets, everybody=server.to_present(Nothing))
    rounds = scored(c, one_round(c), grade)
    return (*(first,) * c.source_rounds, share, *(replace(before, name="source_only"),) * (c.source_rounds > 0), *rounds, *counts)


def one_round(c: Either) -> Plan[Either, State]:
    """Step 2's identifiers, steps 1 to 4 at the sources, steps 5 and 6 at the targets."""
    improving = replace(source.improve, metrics=source.improve_metrics(c))
    improve = Phase(IMPROVE, improving, ask=server.to_improve, fold=server.improved)
    following = replace(target.follow, metrics=target.follow_metrics(c))
    follow = Phase("follow", following, ask=server.to_follow, fold=server.followed)
    return (*identify(c) * c.identify_steps, improve, follow) if aligns(c) else (improve, follow)


def identify(c: Either) -> Plan[Either, State]:
    """One step of the identifiers: by halves of a gradient, or by features."""
    if c.critic == FEATURES:
        expose = Phase("expose", critic.expose, ask=server.to_present(Nothing), fold=critic.criticised)
        return expose, Phase("pull", critic.pull, ask=critic.gradients)
    return (Phase("identify", client.identify, ask=server.identifiers, fold=server.stepped),)


PAPER = "Peng, Huang, Zhu, Saenko: Federated Adversarial Domain Adaptation, 2020"
CLAIMS = (
    "A source's model goes sealed to the other sites of the run; the coordinator hands it on, and cannot open it.",
    "A target's model is sent to nobody. Batch norm's statistics leave no site.",
    f"A half of DI's gradient is of {LEAST} rows or more. Not claimed: that nothing of their features can be told from it.",
    "The weights, gains and errors tell which source's data are like which target's.",
)
WITH_FEATURES = (
    "With critic: features, each exchange shows the coordinator a mini-batch's features, clipped and noised.",
    "The run's notes then tell the (epsilon, delta) of a row through its own features.",
    "Not claimed: that what a row taught the network, and so the features of others, is hidden.",
)

C = TypeVar("C", FADA, FDANN)


def method(name: str, paper: str, summary: str, config: type[C], claims: tuple[str, ...]) -> Algorithm[C, State, Mine]:
    return Algorithm(
        name=name,
        paper=paper,
        summary=summary,
        config=config,
        state=State,
        begin=server.begin,
        plan=plan,
        memory=Mine,
        prepare=client.prepare,
        fits=fits,
        sizes=sizes,
        notes=notes,
        keepsakes=client.keepsakes,
        claims=claims,
        unprotected="adversaries learn from mini-batches whose rows pull at each other, a few at each of very many exchanges",
        presets=PRESETS,
        cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
        network="lenet_bn",
        own_loop=True,
        # A source has a network of its own as well, which no target is scored with.
        result=(SiteModels(lambda config, world, memory: memory.model, roles=(Role.SOURCE, Role.TARGET)),),
    )


SUMMARY = "Sites without labels are aligned with labelled ones by adversaries; features stay, models travel sealed"
fada = method("fada", PAPER, SUMMARY, FADA, CLAIMS + WITH_FEATURES)
fdann = method(
    "fdann", f"f-DANN, as named in {PAPER}", "The same with all sources alike, and nothing disentangled", FDANN, CLAIMS
)
