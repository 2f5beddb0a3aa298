"""Values that the journal's tests write: small, whole, and different wherever the journal could mix them up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from journal_names import ANN, RUN, TEAM

from tideline.archive.digests import digest_of
from tideline.core.asked.sampling import Draw, Sampling
from tideline.core.asked.world import World
from tideline.core.phase import Table
from tideline.core.privacy import TO_COORDINATOR, Clause, Exposure
from tideline.core.run import ClientId, Digest, OrderId, Role, RunId, RunSpec, Waiting
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.access.spending import Spent, month
from tideline.engine.model.accounts import Client, Invite
from tideline.engine.model.orders import Files, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, PhaseFact, RoundRow, RunRow, Status
from tideline.engine.ports.journal import Advance, Journal


def digest(name: object) -> Digest:
    """A digest that stands for a part of this name."""
    return digest_of([repr(name).encode()])


def files(*names: object) -> Files:
    """Files whose parts have these names; sizes differ."""
    return tuple((digest(name), 100 + at) for at, name in enumerate(names))


def invite(token: str = "token", **changes: Any) -> Invite:
    """An unused invite."""
    return Invite(**{"token_hash": token, "name": "", "labels": {"site": "north"}, "expires": 99.5, **changes})


def client(name: str = ANN, **changes: Any) -> Client:
    """An enrolled client."""
    given = {"roles": ("source", "peer"), "labels": {"site": "north"}, "sign_key": "aa", "receive_key": "bb"}
    return Client(**{"name": ClientId(name), **given, "version": "1", "enrolled": 1.0, "seen": 1.0, **changes})


def run_row(run: RunId = RUN, **changes: Any) -> RunRow:
    """A run that waits for its sites."""
    given: dict[str, Any] = {
        "name": f"name of {run}",
        "method": "fedavg",
        "spec": RunSpec(
            id=run,
            method="fedavg",
            config={"rounds": 6},
            world=World((1, 8, 8)),
            seed=7,
            contract=Digest("c"),
            keeps=True,
            waiting=Waiting(deadline=60.0),
            sampling=Sampling(1.0, Draw.WEIGHTS, dict.fromkeys(TEAM, 0.5)),
        ),
        "roster": dict.fromkeys(TEAM, Role.PEER),
        "plan": tuple(PhaseFact("train", "train", at + 1, None if at % 2 else 2) for at in range(6)),
        "contract": (Clause("train", "train", "model", "n d", Exposure.WEIGHTS, TO_COORDINATOR),),
        "created": 1.5,
        "deadline_at": 61.5,
        "opened": 1.5,
    }
    return RunRow(run, **{**given, **changes})


def order_row(cursor: int, who: ClientId, sent: Files = (), run: RunId = RUN, **changes: Any) -> OrderRow:
    """An open order."""
    attempt = changes.pop("attempt", 1)
    name = OrderId(f"{run}/{cursor}/{who}/{attempt}")
    given = {"seed": 2**62 + cursor, "after": cursor - 1, "created": 10.0 + cursor}
    return OrderRow(name, run, cursor, attempt, who, sent, **{**given, **changes})


def joins(run: RunId = RUN) -> list[OrderRow]:
    """The orders with which a run begins."""
    return [order_row(JOIN, who, run=run) for who in TEAM]


def advance(cursor: int, sent: Files = (), state: Files = (), run: RunId = RUN, **changes: Any) -> Advance:
    """Close the round at `cursor` and send the same to everybody in the next."""
    now = changes.pop("now", 20.0 + cursor)
    asked = {who: digest(("asked", cursor)) for who in TEAM}
    marks = {"chosen": TEAM[:1], "left out": TEAM[1:2]} if cursor % 2 else {}
    groups = {"two": TEAM[1:], "one": TEAM[:1]} if cursor % 2 else {}
    every = {"weight, %": Table(TEAM, ("one", "twö"), ((0.1, -2.0), (1e-300, 1 / 3), (0.0, 7.0)))}
    hidden = {"for admins": Table(("a",), ("x",), ((0.25,),), admins=True, drawn="graph")}
    tables = every | hidden if cursor % 3 else {}
    told = {"marks": marks, "groups": groups, "tables": tables}
    closed = RoundRow(run, cursor, "train", cursor + 2, now - 1.0, now, TEAM[:2], cursor + 1, state, asked, **told)
    final = changes.get("status") in (Status.COMPLETED, Status.FAILED)
    orders = () if final else tuple(order_row(cursor + 1, who, sent, run, created=now) for who in TEAM)
    given: dict[str, Any] = {"orders": orders, "cursor": cursor + 1, "deadline_at": now + 60.0, "status": Status.RUNNING}
    given["retain_from"] = JOIN
    return Advance(run, cursor, closed, **{**given, **changes})


def began(journal: Journal, run: RunId = RUN) -> None:
    """A run that has just been started."""
    journal.create([run_row(run)], joins(run))


def push(journal: Journal, sent: Files, who: ClientId = ANN, run: RunId = RUN, now: float = 15.0) -> None:
    """A client pushes parts."""
    journal.add_parts([part for part, _ in sent], run, who, now)


def reply(order: OrderId, sent: Files = (), **changes: Any) -> Reply:
    """A reply with metrics and what its step took."""
    took = Spent(0.25, 0.5, 1, 2)
    return Reply(order, sent, **{"metrics": {"loss": 0.25, "rows": 3}, "spent": took, **changes})


def answer(journal: Journal, order: OrderId, sent: Files = (), now: float = 30.0) -> OrderStatus | None:
    """Answer an order."""
    return journal.answer(order, reply(order, sent), OrderStatus.ANSWERED, now, 11, 12)


def visible(journal: Journal) -> dict[str, Any]:
    """All that can be seen of a journal without changing it."""
    each = journal.run_ids()
    return {
        "runs": each,
        "headlines": journal.headlines(),
        "current": (journal.current(), journal.current(each)),
        "recent orders": {r: journal.recent_orders(r, 3) for r in each},
        "one by one": [journal.run(r) for r in each],
        "orders": {r: journal.orders(r) for r in each},
        "of each round": {r: [journal.orders(r, at) for at in range(JOIN, 8)] for r in each},
        "rounds": {r: journal.rounds(r) for r in each},
        "events": {r: journal.events(r) for r in each},
        "open": {who: journal.open_orders(who) for who in TEAM},
        "last": {r: journal.last_answers(r, TEAM) for r in each},
        "lines": {r: [journal.order_lines(r, at) for at in range(JOIN, 8)] for r in each},
        "round": {r: [journal.round(r, at) for at in range(JOIN, 8)] for r in each},
        "recent": {r: journal.recent_rounds(r) for r in each},
        "missed": {r: journal.missed(r) for r in each},
        "totals": {r: (journal.round_totals(r), journal.site_totals(r), journal.scores(r)) for r in each},
        "spent": ({r: journal.spent_by_run(r) for r in each}, journal.spent_by_day(DEFAULT, month(1970, 1))),
        "barred": {r: journal.barred(r) for r in each},
        "seen": journal.last_seen(TEAM),
        "clients": journal.clients(),
    }


def together(*calls: Callable[[], object]) -> list[object]:
    """The results of calls that begin at the same moment, each in a thread of its own."""
    results: list[object] = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def play(at: int) -> None:
        gate.wait()
        results[at] = calls[at]()

    threads = [threading.Thread(target=play, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def first(who: str = ANN, cursor: int = JOIN) -> OrderId:
    """The first order of a client in a round."""
    return OrderId(f"{RUN}/{cursor}/{who}/1")


def two_rounds_old(journal: Journal) -> None:
    """A run whose join and first round are closed."""
    began(journal)
    journal.advance(advance(JOIN, files("m"), files("s")))
    push(journal, files("r"))
    answer(journal, OrderId(f"{RUN}/0/{ANN}/1"), files("r"))
    journal.advance(advance(0, files("m2"), files("s2")))
