"""What users read: one schema for `simulate --json`, `run show --json` and the demonstration's result.json."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tideline.core.privacy import Clause, Contract, Exposure, to_json
from tideline.core.run import ClientId, Role, RunId, plain_world
from tideline.core.settings import plain
from tideline.engine.coordinator.scheduler import newest, progress_of, waiting_of, waits_for
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, RoundRow, RunRow, Status
from tideline.engine.peers.relay import notes
from tideline.engine.ports.journal import Journal

Orders = tuple[OrderRow, ...]


def result_of(journal: Journal, run_id: RunId, now: float, history: bool = False, admins: bool = True) -> dict[str, Any]:
    """A run's result, or as much as there is of it. Keys: docs/result.md.

    history: with every metric that sites reported. admins: with the tables that are for admins; who owns the journal sees all.
    """
    run = journal.run(run_id)
    assert run is not None
    orders = journal.orders(run.id)
    own = grouped(orders, lambda o: o.client)
    sibling = journal.run(run.reference) if run.reference else None
    theirs = own if sibling is None else grouped(compared(journal, sibling), lambda o: o.client)
    clients = [client(run, c, own.get(c, ()), theirs.get(c, ())) for c in run.roster]
    closed = phases(journal, run, grouped(orders, lambda o: o.cursor), admins)
    return {
        "run": run.id,
        "name": run.name,
        "method": run.method,
        "config": dict(run.spec.config),
        "world": plain_world(run.spec.world),
        "seed": run.spec.seed,
        "weights": run.spec.initial_weights,
        "sample": plain(run.spec.sampling),
        "rounds": run.spec.config.get("rounds"),
        "notes": [*run.spec.notes, *notes({"phases": closed, "clients": clients})],
        "status": run.status.value,
        "cause": run.cause,
        "waits_for": waits(journal, run, now) or (waits(journal, sibling, now) if sibling else ""),
        "awaited": awaited(journal, run, now),
        "seconds": None if run.started is None else (now if run.ended is None else run.ended) - run.created,
        "state_digest": run.state_digest,
        "fingerprint": run.fingerprint,
        "reference": run.reference,
        "reference_status": sibling.status.value if sibling else None,
        "clients": clients,
        "generalization": generalization(run, clients, own),
        "phases": closed,
        "groups": groups(closed),
        "curve": curve(run, orders),
        "history": measured(run, orders) if history else None,
        "contract": to_json(run.contract),
    }


def grouped(orders: Iterable[OrderRow], key: Callable[[OrderRow], Any]) -> dict[Any, Orders]:
    """Orders by what they have in common, in one pass: a run may have a hundred thousand."""
    groups: defaultdict[Any, list[OrderRow]] = defaultdict(list)
    for order in orders:
        groups[key(order)].append(order)
    return {name: tuple(group) for name, group in groups.items()}


def compared(journal: Journal, sibling: RunRow) -> Orders:
    """The reference's orders, once it has completed: before that its scores are those of another round."""
    return journal.orders(sibling.id) if sibling.status is Status.COMPLETED else ()


def client(run: RunRow, name: ClientId, own: Orders, theirs: Orders) -> dict[str, Any]:
    """One site's line, from its own orders and those of the run that it is compared with."""
    metrics = last_metrics(own)
    compared_with = metrics if theirs is own else last_metrics(theirs)
    samples = metrics.get("samples")
    return {
        "name": name,
        "domain": None,
        "role": run.roster[name].value,
        "samples": None if samples is None else int(samples),
        "accuracy": metrics.get("accuracy"),
        "source_only": compared_with.get("accuracy" if run.reference else "source_only"),
        "bytes_up": sum(o.bytes_up for o in own),
        "bytes_down": sum(o.bytes_down for o in own),
        "metrics": metrics,
        "failures": [failure(run, o) for o in own if o.failure or o.status is OrderStatus.EXPIRED],
    }


def failure(run: RunRow, order: OrderRow) -> dict[str, Any]:
    fact = run.fact(order.cursor)
    return {
        "phase": fact.phase,
        "round": fact.round,
        "attempt": order.attempt,
        "kind": order.failure.kind if order.failure else "Late" if order.answered is not None else "Silent",
        "what": order.failure.what if order.failure else "no answer before the round closed",
    }


def last_metrics(orders: Orders) -> dict[str, float]:
    found: dict[str, float] = {}
    for order in sorted(orders, key=lambda o: (o.cursor, o.attempt)):
        if order.status is OrderStatus.ANSWERED:
            found |= order.metrics
    return found


def phases(journal: Journal, run: RunRow, orders: Mapping[int, Orders], admins: bool) -> list[dict[str, Any]]:
    """The closed rounds, with the traffic of all attempts. orders: by cursor; admins: with the tables that are for them."""
    return [
        {"name": r.phase, "round": r.round, "seconds": r.closed - r.opened, "replies": len(r.folded), "clients": list(r.folded)}
        | {"marks": plain(r.marks), "groups": plain(r.groups), "tables": tables_for(r, admins)}
        | traffic(orders.get(r.cursor, ()))
        for r in journal.rounds(run.id)
    ]


def tables_for(closed: RoundRow, admins: bool) -> dict[str, Any]:
    """The tables of a round that are shown: to admins, all of them. `admins` and `drawn` are there where they say something."""
    shown = {name: plain(table) for name, table in closed.tables.items() if admins or not table.admins}
    return {name: {key: value for key, value in table.items() if value not in (False, "")} for name, table in shown.items()}


def groups(closed: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The last grouping that a closed round reported; None where none did. Whoever knows the domains adds how well it fits."""
    groupings = [phase["groups"] for phase in closed if phase["groups"]]
    return {"last": groupings[-1], "adjusted_rand_index": None} if groupings else None


def traffic(orders: Orders) -> dict[str, int]:
    return {
        "asked": len({o.client for o in orders}),
        "bytes_down": sum(o.bytes_down for o in orders),
        "bytes_up": sum(o.bytes_up for o in orders),
    }


def curve(run: RunRow, orders: Orders) -> list[dict[str, Any]]:
    return [
        place(run, o) | {"accuracy": o.metrics["accuracy"]}
        for o in orders
        if o.status is OrderStatus.ANSWERED and "accuracy" in o.metrics
    ]


def measured(run: RunRow, orders: Orders) -> list[dict[str, Any]]:
    """Everything that sites measured, an entry per answered order."""
    return [place(run, o) | {"metrics": dict(o.metrics)} for o in orders if o.status is OrderStatus.ANSWERED and o.metrics]


def place(run: RunRow, order: OrderRow) -> dict[str, Any]:
    fact = run.plan[order.cursor]
    return {"client": order.client, "phase": fact.phase, "round": fact.round, "cursor": order.cursor}


def awaited(journal: Journal, run: RunRow, now: float) -> list[dict[str, Any]]:
    """Each site that an open run waits for, and for how many seconds nothing was heard of it; null: it never enrolled."""
    if run.status not in OPEN:
        return []
    clients = {each.name: each for each in journal.clients()}
    found = []
    for order in newest(journal.orders(run.id, run.cursor)):
        known = clients.get(order.client)
        if order.status is OrderStatus.OPEN:
            seen = None if known is None else max(known.seen, order.beat)
            silent = None if seen is None else max(now - seen, 0.0)
            found.append({"client": order.client, "silent_seconds": silent, "progress": order.progress})
    return found


def waits(journal: Journal, run: RunRow, now: float) -> str:
    if run.status not in OPEN:
        return ""
    latest = newest(journal.orders(run.id, run.cursor))
    return waits_for(progress_of(latest), waiting_of(run), run.deadline_at - now)


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
    return {"accuracy": sum(accuracies) / len(accuracies), "sites": len(accuracies)}


def scorings_of(contract: Contract) -> frozenset[Step]:
    """The steps that declare an accuracy, and nothing that is more than a number or a count."""
    fields: dict[Step, list[Clause]] = {}
    for clause in contract:
        fields.setdefault((clause.phase, clause.step), []).append(clause)
    scored = {step for step, clauses in fields.items() if any(map(tells_accuracy, clauses))}
    return frozenset(step for step in scored if all(c.exposure in SCORES for c in fields[step]))


def tells_accuracy(clause: Clause) -> bool:
    """Whether a clause is of a metric that needs labels."""
    return clause.field.startswith(METRIC) and ACCURACY.fullmatch(clause.field.removeprefix(METRIC)) is not None


def only_scored(run: RunRow, orders: Iterable[OrderRow], scorings: frozenset[Step]) -> bool:
    """Whether a target was asked for scores alone, and gave some each time.

    An accuracy needs labels, and a target sees none of its training rows: a step that tells one looked at held-out rows.
    """
    asked = [o for o in orders if o.cursor != JOIN]
    answered = [o for o in asked if o.status is OrderStatus.ANSWERED]
    return all(step_of(run, o) in scorings for o in asked) and all(any(map(ACCURACY.fullmatch, o.metrics)) for o in answered)


def taught(run: RunRow, orders: Iterable[OrderRow], scorings: frozenset[Step]) -> bool:
    """Whether a site gave something beside scores."""
    given = (o for o in orders if o.cursor != JOIN and o.status is OrderStatus.ANSWERED)
    return any(step_of(run, o) not in scorings for o in given)


def step_of(run: RunRow, order: OrderRow) -> Step:
    fact = run.plan[order.cursor]
    return fact.phase, fact.step
