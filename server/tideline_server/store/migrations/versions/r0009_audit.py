"""The audit log: entries that the database lets nobody change, and the tip of their chain."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
REFUSAL = "the audit log is only added to"
LITE = "CREATE TRIGGER audit_no_{0} BEFORE {0} ON audit BEGIN SELECT RAISE(ABORT, '" + REFUSAL + "'); END"
FUNCTION = (
    f"CREATE OR REPLACE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
)
LARGE = "CREATE TRIGGER audit_no_{0} BEFORE {0} ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_stays()"


def text(name: str) -> sa.Column[str]:
    """A column of text."""
    return sa.Column(name, TEXT, nullable=False)


def upgrade() -> None:
    """Make both tables and what guards them, and write the first entry: what is there by now was done before."""
    log = op.create_table(
        "audit",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        text("kind"),
        sa.Column("at", sa.Double, nullable=False),
        *(text(name) for name in ("by", "client", "run")),
        sa.Column("details", sa.JSON, nullable=True),
        text("hash"),
    )
    for name in ("run", "client", "kind"):
        op.create_index(f"audit_by_{name}", "audit", [name, "seq"])
    top = op.create_table(
        "audit_tip",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer, nullable=False),
        text("hash"),
    )
    entry = first(op.get_bind())
    op.bulk_insert(log, [entry])
    op.bulk_insert(top, [{"id": 1, "seq": 1, "hash": entry["hash"]}])
    guard()


def first(connection: sa.Connection) -> dict[str, Any]:
    """The entry that begins the chain."""
    tables = {"clients": "clients", "runs": "runs", "keys": "api_keys"}
    counts = {word: connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) for word, table in tables.items()}
    details = {"chain": secrets.token_hex(8), **counts}
    entry = {"seq": 1, "kind": "log_begun", "at": time.time(), "by": "", "client": "", "run": "", "details": details}
    said = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
    return entry | {"hash": hashlib.sha256(bytes(32) + said).hexdigest()}


def guard() -> None:
    """Let entries be added and nothing else."""
    if op.get_bind().dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(LITE.format(what))
        return
    op.execute(FUNCTION)
    for what in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(LARGE.format(what))
