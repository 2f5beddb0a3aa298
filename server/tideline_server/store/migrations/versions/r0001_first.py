"""The first tables, and the first entry of the audit log."""

from __future__ import annotations

import hashlib
import json
import secrets
import time

import sqlalchemy as sa
from alembic import op

from tideline_server.store.columns import COUNTED, TEXT, flag, large, plain, seconds, text, whole

revision = "0001"
down_revision = None

VALID = sa.text("revoked IS NULL")
MISSED = sa.text("status IN ('failed', 'expired')")

# The triggers that protect the audit log. SQLite's INSERT OR REPLACE passes the trigger of a deletion; in Postgres what
# replaces a row is an update.
REFUSAL = "the audit log is only added to"
ABORT = f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
SQLITE_TRIGGERS = (
    *(f"CREATE TRIGGER audit_no_{what} BEFORE {what} ON audit {ABORT}" for what in ("UPDATE", "DELETE")),
    f"CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN NEW.seq <= (SELECT max(seq) FROM audit) {ABORT}",
)
REFUSE = f"BEGIN RAISE EXCEPTION '{REFUSAL}'; END"
EACH = "FOR EACH STATEMENT EXECUTE FUNCTION audit_stays()"
POSTGRES_TRIGGERS = (
    f"CREATE OR REPLACE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$ {REFUSE} $$",
    *(f"CREATE TRIGGER audit_no_{what} BEFORE {what} ON audit {EACH}" for what in ("UPDATE", "DELETE", "TRUNCATE")),
)


def upgrade() -> None:
    """Make every table, and begin the audit log."""
    accounts()
    runs()
    exchanges()
    totals()
    parts()
    audit()
    witness()


def accounts() -> None:
    op.create_table(
        "invites",
        text("token_hash", key=True),
        text("name"),
        plain("labels"),
        seconds("expires"),
        text("used_by"),
        flag("hold"),
        text("project"),
    )
    op.create_table(
        "projects",
        text("name", key=True),
        seconds("created"),
        text("created_by"),
        *(whole(name, null=True) for name in ("most_runs", "most_members")),
        large("most_bytes", null=True),
        seconds("ended", null=True),
    )
    op.create_table(
        "api_keys",
        text("id", key=True),
        *map(text, ("name", "key_hash", "role")),
        seconds("created"),
        text("created_by"),
        *(seconds(name, null=True) for name in ("last_used", "expires", "revoked")),
        text("project"),
    )
    op.create_index("api_keys_by_name", "api_keys", ["name"], unique=True, sqlite_where=VALID, postgresql_where=VALID)
    op.create_table(
        "idempotency_records",
        text("key", key=True),
        *map(text, ("asked", "seed")),
        seconds("made"),
        text("worker"),
        *map(plain, ("chosen", "answer")),
    )
    op.create_index("idempotency_records_by_age", "idempotency_records", ["made"])
    op.create_table(
        "clients",
        text("name", key=True),
        *map(plain, ("roles", "labels")),
        text("version"),
        *map(seconds, ("enrolled", "seen")),
        *map(text, ("sign_key", "receive_key", "standing")),
        seconds("revoked", null=True),
        text("reason"),
        flag("rotate"),
        plain("handovers"),
        whole("session"),
        text("session_id"),
        seconds("session_began"),
        *map(plain, ("doubles", "shut", "projects")),
    )
    op.create_index("clients_by_standing", "clients", ["standing", "name"])


def runs() -> None:
    op.create_table(
        "runs",
        text("id", key=True),
        *map(text, ("name", "method")),
        *map(seconds, ("created", "deadline_at")),
        *map(text, ("status", "cause")),
        whole("cursor"),
        seconds("opened"),
        seconds("started", null=True),
        seconds("ended", null=True),
        text("state_digest", null=True),
        text("fingerprint"),
        text("reference", null=True),
        text("parent", null=True),
        whole("best", null=True),
        text("project"),
    )
    op.create_index("runs_by_project", "runs", ["project", "created", "id"])
    op.create_table(
        "drafts", text("run", sa.ForeignKey("runs.id"), key=True), *map(plain, ("spec", "roster", "plan", "contract"))
    )
    op.create_table("rosters", text("run", sa.ForeignKey("runs.id"), key=True), plain("members"))
    op.create_index("runs_by_age", "runs", ["created", "id"])
    op.create_index("runs_by_end", "runs", ["ended"])
    op.create_table(
        "tombstones",
        text("run", key=True),
        *map(text, ("name", "method", "status")),
        seconds("created"),
        seconds("ended", null=True),
        *(text(name, null=True) for name in ("state_digest", "parent")),
        text("project"),
        seconds("deleted"),
        *map(text, ("by", "rule")),
    )
    op.create_table(
        "leases",
        text("run", sa.ForeignKey("runs.id"), key=True),
        text("holder"),
        *map(whole, ("token", "beats")),
        seconds("seconds"),
    )
    op.create_table("events", text("run", key=True), whole("seq", key=True), seconds("at"), text("kind"), plain("data"))


def exchanges() -> None:
    counted = sa.Column("id", sa.Integer, primary_key=True)
    name = sa.Column("name", TEXT, unique=True, nullable=False)
    op.create_table("listings", counted, name, flag("kept"), plain("files"), sqlite_autoincrement=True)
    op.create_table(
        "rounds",
        text("run", sa.ForeignKey("runs.id"), key=True),
        whole("cursor", key=True),
        text("phase"),
        whole("round"),
        *map(seconds, ("opened", "closed")),
        plain("folded"),
        whole("next_cursor"),
        whole("state", sa.ForeignKey("listings.id"), null=True),
        *map(plain, ("asked", "marks", "groups", "tables")),
    )
    op.create_index("rounds_of_state", "rounds", ["state"])
    op.create_table(
        "orders",
        text("id", key=True),
        text("run", sa.ForeignKey("runs.id")),
        *map(whole, ("cursor", "attempt")),
        text("client"),
        whole("message", sa.ForeignKey("listings.id"), null=True),
        large("seed"),
        whole("after"),
        seconds("created"),
        text("status"),
        text("held"),
        *map(seconds, ("progress", "beat")),
        whole("reply", sa.ForeignKey("listings.id"), null=True),
        *map(plain, ("metrics", "facts", "failure")),
        seconds("answered", null=True),
        *map(large, ("bytes_down", "bytes_up")),
        plain("sealed"),
    )
    op.create_index("orders_of_round", "orders", ["run", "cursor"])
    op.create_index("orders_of_message", "orders", ["message"])
    op.create_index("orders_of_reply", "orders", ["reply"])
    op.create_index("orders_of_client", "orders", ["client", "status", "run"])
    op.create_index("orders_of_member", "orders", ["run", "client", "cursor", "attempt"])
    place = ["run", "cursor", "client", "attempt"]
    op.create_index("orders_missed", "orders", place, sqlite_where=MISSED, postgresql_where=MISSED)
    op.create_table(
        "sealed",
        text("run", sa.ForeignKey("runs.id"), key=True),
        text("holder", key=True),
        text("phase", key=True),
        whole("round", key=True),
        text("digest", key=True),
        large("size"),
        whole("needed"),
        text("cipher"),
        large("bytes"),
        *map(plain, ("keys", "signatures")),
    )


def totals() -> None:
    op.create_table(
        "round_totals",
        text("run", sa.ForeignKey("runs.id"), key=True),
        whole("cursor", key=True),
        *map(whole, ("open", "answered", "failed")),
        *map(large, ("bytes_down", "bytes_up")),
        whole("scored"),
        seconds("accuracy", null=True),
        plain("scores"),
    )
    op.create_table(
        "site_totals",
        text("run", sa.ForeignKey("runs.id"), key=True),
        text("client", key=True),
        *map(large, ("bytes_down", "bytes_up")),
        plain("metrics"),
        *map(whole, ("answered", "scored", "last")),
    )


def parts() -> None:
    op.create_table("parts", text("digest", key=True), seconds("touched"), flag("once_referred"))
    op.create_index("parts_by_age", "parts", ["once_referred", "touched"])
    op.create_table("loose", sa.Column("id", COUNTED, primary_key=True), text("digest"))
    op.create_table("dropped", text("digest", key=True), seconds("at"))
    op.create_index("dropped_by_age", "dropped", ["at"])
    op.create_table("marker", whole("id", key=True), text("digest"))
    op.create_table("members", whole("listing", sa.ForeignKey("listings.id"), key=True), text("digest", key=True))
    op.create_index("members_of_digest", "members", ["digest"])
    op.create_table(
        "refs",
        text("run", key=True),
        whole("cursor", key=True),
        text("kind", key=True),
        text("owner", key=True),
        whole("listing", sa.ForeignKey("listings.id")),
        text("client"),
    )
    op.create_index("refs_of_listing", "refs", ["listing"])
    op.create_index("refs_of_client", "refs", ["run", "client", "listing"])
    op.create_table("pushed", text("digest", key=True), text("run", key=True), text("client", key=True))
    op.create_index("pushed_by_client", "pushed", ["run", "client"])


def audit() -> None:
    """The audit log with its first entry, the tip of its chain, and the triggers that refuse changes."""
    log = op.create_table(
        "audit",
        whole("seq", key=True),
        text("kind"),
        seconds("at"),
        *map(text, ("by", "client", "run")),
        plain("details"),
        text("hash"),
    )
    for name in ("run", "client", "kind"):
        op.create_index(f"audit_by_{name}", "audit", [name, "seq"])
    tip = op.create_table("audit_tip", whole("id", key=True), whole("seq"), text("hash"))
    details = {"chain": secrets.token_hex(8)}
    entry = {"seq": 1, "kind": "log_begun", "at": time.time(), "by": "", "client": "", "run": "", "details": details}
    content = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
    entry["hash"] = hashlib.sha256(bytes(32) + content).hexdigest()
    op.bulk_insert(log, [entry])
    op.bulk_insert(tip, [{"id": 1, "seq": 1, "hash": entry["hash"]}])
    for statement in SQLITE_TRIGGERS if op.get_bind().dialect.name == "sqlite" else POSTGRES_TRIGGERS:
        op.execute(statement)


def witness() -> None:
    """What a restore must not forget, and the secret by which tips are known that agents show."""
    op.create_table("witness", whole("seq", key=True), text("kind"), text("line"))
    op.create_index("witness_by_kind", "witness", ["kind", "seq"])
    secret = op.create_table("witness_secret", whole("id", key=True), text("secret"))
    op.bulk_insert(secret, [{"id": 1, "secret": secrets.token_hex(32)}])
