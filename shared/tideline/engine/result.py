"""What a person reads: one schema for `simulate --json`, `run show --json` and the demonstration's result.json."""

from __future__ import annotations

from typing import Any

from tideline.core.run import ClientId, RunId
from tideline.engine.conductor import waiting_of
from tideline.engine.ports import Journal
from tideline.engine.progress import newest, progress_of, waits_for
from tideline.engine.rows import OPEN, OrderRow, OrderStatus, RunRow, Status


def result_of(journal: Journal, run_id: RunId, now: float) -> dict[str, Any]:
    """A run's result, or as much as there is of it. Keys: docs/result.md."""
    run = journal.run(run_id)
    assert run is not None
    orders = journal.orders(run.id)
    sibling = journal.run(run.reference) if run.reference else None
    reference = orders if sibling is None else compared(journal, sibling)
    return {
        "run": run.id,
        "name": run.name,
        "method": run.method,
        "config": dict(run.spec["config"]),
        "world": dict(run.spec["world"]),
        "seed": run.spec["seed"],
        "rounds": run.spec["config"].get("rounds"),
        "status": run.status.value,
        "cause": run.cause,
        "waits_for": waits(journal, run, now) or (waits(journal, sibling, now) if sibling else ""),
        "seconds": None if run.started is None else (now if run.ended is None else run.ended) - run.created,
        "state_digest": run.state_digest,
        "fingerprint": run.fingerprint,
        "reference": run.reference,
        "reference_status": sibling.status.value if sibling else None,
        "clients": [client(run, c, orders, reference) for c in run.roster],
        "phases": phases(journal, run),
        "curve": curve(run, orders),
        "contract": list(run.contract),
    }


def compared(journal: Journal, sibling: RunRow) -> tuple[OrderRow, ...]:
    """The reference's orders, once it has completed: before that its scores are those of another round."""
    return journal.orders(sibling.id) if sibling.status is Status.COMPLETED else ()


def client(run: RunRow, name: ClientId, orders: tuple[OrderRow, ...], reference: tuple[OrderRow, ...]) -> dict[str, Any]:
    """One site's line."""
    own = [o for o in orders if o.client == name]
    theirs = [o for o in reference if o.client == name]
    key = "accuracy" if run.reference else "source_only"
    return {
        "name": name,
        "domain": None,
        "role": run.roster[name],
        "samples": last_metric(own, "samples"),
        "accuracy": last_metric(own, "accuracy"),
        "source_only": last_metric(theirs, key),
        "bytes_up": sum(o.bytes_up for o in own),
        "bytes_down": sum(o.bytes_down for o in own),
        "metrics": last_metrics(own),
        "failures": [failure(run, o) for o in own if o.failure or o.status is OrderStatus.EXPIRED],
    }


def failure(run: RunRow, order: OrderRow) -> dict[str, Any]:
    """Why an order has no reply in the fold."""
    fact = run.plan[order.cursor] if order.cursor >= 0 else None
    return {
        "phase": fact.phase if fact else "join",
        "round": fact.round if fact else 1,
        "attempt": order.attempt,
        "kind": order.failure.kind if order.failure else "Late" if order.answered is not None else "Silent",
        "what": order.failure.what if order.failure else "no answer before the round closed",
    }


def last_metric(orders: list[OrderRow], name: str) -> float | int | None:
    """A metric's newest value, or None if it was never told. Whole numbers of things are shown whole."""
    value = last_metrics(orders).get(name)
    return int(value) if name == "samples" and value is not None else value


def last_metrics(orders: list[OrderRow]) -> dict[str, float]:
    """The newest value of each metric."""
    found: dict[str, float] = {}
    for order in sorted(orders, key=lambda o: (o.cursor, o.attempt)):
        if order.status is OrderStatus.ANSWERED:
            found |= order.metrics
    return found


def phases(journal: Journal, run: RunRow) -> list[dict[str, Any]]:
    """The closed rounds."""
    rounds = journal.rounds(run.id)
    return [
        {"name": r.phase, "round": r.round, "seconds": r.closed - r.opened, "replies": len(r.folded), "clients": list(r.folded)}
        for r in rounds
    ]


def curve(run: RunRow, orders: tuple[OrderRow, ...]) -> list[dict[str, Any]]:
    """Accuracy over the rounds, a point per site and scoring."""
    return [
        {"client": o.client, "phase": fact.phase, "round": fact.round, "cursor": o.cursor, "accuracy": o.metrics["accuracy"]}
        for o in orders
        if o.status is OrderStatus.ANSWERED and "accuracy" in o.metrics
        for fact in [run.plan[o.cursor]]
    ]


def waits(journal: Journal, run: RunRow, now: float) -> str:
    """What an open run waits for, in words."""
    if run.status not in OPEN:
        return ""
    latest = newest(journal.orders(run.id, run.cursor))
    return waits_for(progress_of(latest), waiting_of(run), run.deadline_at - now)
