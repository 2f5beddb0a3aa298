"""The journal: all that a coordinator must not forget."""

from __future__ import annotations

from typing import Protocol

from tideline.engine.ports.accounts import Accounts
from tideline.engine.ports.audit import AuditLog
from tideline.engine.ports.idempotency import Idempotency
from tideline.engine.ports.parts import PartRecords
from tideline.engine.ports.runs import Runs


class Journal(Runs, Accounts, PartRecords, Idempotency, AuditLog, Protocol):
    """The truth. Each method is one transaction; a value that it returns is a snapshot.

    What is done by a method stands in the audit log, written in the same transaction. `by` and `now` are for the log: the name
    of who asked, and when.
    """
