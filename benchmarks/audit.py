"""What the audit log costs: rounds of many sites in a database, with the log and without it, in turns.

    python -m benchmarks.audit [--database URL] [--sites 16] [--rounds 40] [--parts 20]

Nothing but the journal works here: a real round also computes and sends, so this is the most that can be felt.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.model.orders import Files, OrderRow, OrderStatus, Reply, order_id
from tideline.engine.model.runs import JOIN, PhaseFact, RoundRow, RunRow, Status
from tideline.engine.ports.journal import Advance
from tideline_server.store import SqlJournal, audit

TURNS = 5


def files(name: object, count: int) -> Files:
    """So many parts that nobody else has."""
    return tuple((Digest(hashlib.sha256(f"{name} {at}".encode()).hexdigest()), 1000) for at in range(count))


def order(run: RunId, cursor: int, client: ClientId, sent: Files) -> OrderRow:
    """A site's order."""
    return OrderRow(order_id(run, cursor, client, 1), run, cursor, 1, client, sent, 1, cursor - 1, 1.0)


def play(journal: SqlJournal, sites: int, rounds: int, parts: int) -> float:
    """One run, its sites answering at once; seconds a round."""
    run, clients = RunId(uuid.uuid4().hex[:12]), [ClientId(f"site-{at}") for at in range(sites)]
    plan = tuple(PhaseFact("train", "train", at + 1) for at in range(rounds))
    roster = dict.fromkeys(clients, "source")
    asked = [order(run, JOIN, client, ()) for client in clients]
    journal.create([RunRow(run, "bench", "bench", {"contract": ""}, roster, plan, (), 1.0, 1e9)], asked)
    began = time.perf_counter()
    with ThreadPoolExecutor(sites) as threads:
        for cursor in range(JOIN, rounds):

            def answer(client: ClientId, cursor: int = cursor) -> None:
                sent = files((run, client, cursor), parts)
                journal.add_parts([digest for digest, _ in sent], run, client, 1.0)
                name = order_id(run, cursor, client, 1)
                journal.answer(name, Reply(name, sent), OrderStatus.ANSWERED, 1.0, 1, 1)

            list(threads.map(answer, clients))
            state = files((run, cursor), parts)
            new = tuple(order(run, cursor + 1, client, state) for client in clients)
            closed = RoundRow(run, cursor, "train", cursor + 2, 1.0, 2.0, tuple(clients), cursor + 1, state)
            journal.advance(Advance(run, cursor, closed, new, cursor + 1, 1e9, Status.RUNNING, retain_from=cursor))
    return (time.perf_counter() - began) / (rounds + 1)


@contextmanager
def unlogged() -> Iterator[None]:
    """As long as the block lasts, nothing is written into the log."""
    write: Callable[..., None] = audit.append
    audit.append = lambda connection, events: None
    try:
        yield
    finally:
        audit.append = write


def main() -> None:
    """Both, in turns; the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database")
    parser.add_argument("--sites", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--parts", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, closing(SqlJournal(asked.database or Path(folder) / "bench.db")) as journal:
        size = (asked.sites, asked.rounds, asked.parts)
        play(journal, *size)
        logged, bare = [], []
        for _ in range(TURNS):
            logged.append(play(journal, *size))
            with unlogged():
                bare.append(play(journal, *size))
    with_log, without = statistics.median(logged), statistics.median(bare)
    print(f"with the log {1000 * with_log:.1f} ms a round, without {1000 * without:.1f} ms: {with_log / without:.2f}")
    print(f"an answer more: {1000 * (with_log - without) / (asked.sites + 1):.2f} ms")


if __name__ == "__main__":
    main()
