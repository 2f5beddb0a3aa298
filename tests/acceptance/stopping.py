"""A coordinator whose journal waits at a gate in the file system, so that a test can choose the moment at which it dies.

TIDELINE_TEST_GATE=FOLDER python -m tests.acceptance.stopping coordinator ...

A call of the journal that has a file `stop-NAME` in the folder is done, then says so (`at-NAME`) and never returns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tideline.__main__ import main
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.accounts import Invite
from tideline_server import main as server
from tideline_server.store import SqlJournal


def stop(name: str) -> None:
    """Wait here for the end, if a test wants it."""
    gate = Path(os.environ["TIDELINE_TEST_GATE"])
    while (gate / f"stop-{name}").exists():
        (gate / f"at-{name}").touch()
        time.sleep(0.01)


class StoppingJournal(SqlJournal):
    """The journal; what it has committed is told later, or never."""

    def reserve(self, idempotency_record: IdempotencyRecord, over: str = "") -> IdempotencyRecord:
        done = super().reserve(idempotency_record, over)
        stop("reserve")
        return done

    def create_once(self, key: str, worker: str, runs: Iterable[Any], orders: Iterable[Any], *more: Any) -> None:
        super().create_once(key, worker, runs, orders, *more)
        stop("create_once")

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        super().add_invite(invite, by, now)
        stop("add_invite")

    def set_status(self, *args: Any, **more: Any) -> bool:
        done = super().set_status(*args, **more)
        stop("set_status")
        return done

    def reopen(self, *args: Any, **more: Any) -> bool:
        done = super().reopen(*args, **more)
        stop("reopen")
        return done

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        done = super().conclude(key, worker, answer)
        stop("conclude")
        return done


if __name__ == "__main__":
    server.SqlJournal = StoppingJournal  # type: ignore[attr-defined,misc]
    main()
