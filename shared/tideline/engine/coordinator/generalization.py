"""What was learnt, on rows of the sites that taught it and on targets that nothing was learnt from.

In-distribution (id) and out-of-distribution (ood) accuracy, as federated domain generalization tells them (Bartholet, Kim,
Beuret, Yun, Buhmann: Non-linear Fusion in Federated Learning, 2024, section 4). Methods that adapt have targets too, which
train without labels: of those the words would be wrong. So no method says what it is; the journal has what sites were asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tideline.core.privacy import Clause, Contract, Exposure
from tideline.core.run import ClientId, Role
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN, RunRow

ACCURACY = re.compile(r"accuracy(_\w+)?|source_only")  # metrics that a site tells only of rows whose labels it has
METRIC = "metrics."
SCORES = (Exposure.METRIC, Exposure.COUNT)  # all that a scoring sends: accuracies, and counts of rows by confidence
Step = tuple[str, str]  # of a phase of this name, the step of that name


def generalization(
    run: RunRow, clients: Iterable[Mapping[str, Any]], orders: Mapping[ClientId, tuple[OrderRow, ...]]
) -> dict[str, Any] | None:
    """Mean accuracies in [0, 1] over the scored sites that taught, and over the unseen targets; None unless there are both.

    clients: the result's lines. orders: of each site.
    """
    labelled = {m.id for m in run.members if m.labelled}
    scorings = scorings_of(run.contract)
    own, unseen = [], []
    for client in clients:
        name, asked = client["name"], orders.get(client["name"], ())
        if client["accuracy"] is None:
            continue
        if client["role"] == Role.TARGET:
            unseen += [client["accuracy"]] if only_scored(run, asked, scorings) else []
        elif name in labelled and taught(run, asked, scorings):
            own.append(client["accuracy"])
    return {"id": mean(own), "ood": mean(unseen)} if own and unseen else None


def mean(accuracies: list[float]) -> dict[str, Any]:
    """The mean of so many sites."""
    return {"accuracy": sum(accuracies) / len(accuracies), "sites": len(accuracies)}


def scorings_of(contract: Contract) -> frozenset[Step]:
    """The steps whose replies hold scores and nothing else."""
    fields: dict[Step, list[Clause]] = {}
    for clause in contract:
        fields.setdefault((clause.phase, clause.step), []).append(clause)
    return frozenset(step for step, clauses in fields.items() if scores_alone(clauses))


def scores_alone(clauses: Sequence[Clause]) -> bool:
    """Whether a step declares an accuracy, and nothing that is more than a number or a count."""
    names = [c.field.removeprefix(METRIC) for c in clauses if c.field.startswith(METRIC)]
    return any(map(ACCURACY.fullmatch, names)) and all(c.exposure in SCORES for c in clauses)


def only_scored(run: RunRow, orders: Iterable[OrderRow], scorings: frozenset[Step]) -> bool:
    """Whether a target was asked for scores alone, and gave some each time.

    An accuracy needs labels, and a target sees none of its training rows: a step that tells one looked at held-out rows.
    """
    asked = [o for o in orders if o.cursor != JOIN]
    told = [o for o in asked if o.status is OrderStatus.ANSWERED]
    return all(step_of(run, o) in scorings for o in asked) and all(any(map(ACCURACY.fullmatch, o.metrics)) for o in told)


def taught(run: RunRow, orders: Iterable[OrderRow], scorings: frozenset[Step]) -> bool:
    """Whether a site gave something beside scores."""
    given = (o for o in orders if o.cursor != JOIN and o.status is OrderStatus.ANSWERED)
    return any(step_of(run, o) not in scorings for o in given)


def step_of(run: RunRow, order: OrderRow) -> Step:
    """What was asked."""
    fact = run.plan[order.cursor]
    return fact.phase, fact.step
