"""The tables, which mean the same in SQLite and Postgres. A change here needs a migration (docs/operating.md).

A listing is a message's files, stored once for all orders that name it. Listings never change, and stay as long as an order
or a round names them. `members` says what a listing keeps alive: its rows are there (`kept`) from the first reference
until one of its parts is collected. The same files sent again refill it.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table
from sqlalchemy import text as sql

from tideline_server.store.columns import COUNTED, TEXT, flag, large, plain, seconds, text, whole

metadata = MetaData()

invites = Table(
    "invites",
    metadata,
    text("token_hash", key=True),
    text("name"),
    plain("labels"),
    seconds("expires"),
    text("used_by"),
    flag("hold"),
    text("project"),
)

# Projects that somebody made, and the default one once it has a quota.
projects = Table(
    "projects",
    metadata,
    text("name", key=True),
    seconds("created"),
    text("created_by"),
    *(whole(name, null=True) for name in ("most_runs", "most_members")),
    large("most_bytes", null=True),
    seconds("ended", null=True),
    *(seconds(name, null=True) for name in ("retain_runs_days", "retain_events_days", "most_gpu_hours", "most_cpu_hours")),
)

# Keys of the HTTP API. A name is free again once its key is revoked.
api_keys = Table(
    "api_keys",
    metadata,
    text("id", key=True),
    *map(text, ("name", "key_hash", "role")),
    seconds("created"),
    text("created_by"),
    seconds("last_used", null=True),
    seconds("expires", null=True),
    seconds("revoked", null=True),
    text("project"),
)
GOOD = api_keys.c.revoked.is_(None)
Index("api_keys_by_name", api_keys.c.name, unique=True, sqlite_where=GOOD, postgresql_where=GOOD)

# Sessions of users who signed in with a browser.
user_sessions = Table(
    "user_sessions",
    metadata,
    text("id", key=True),
    *map(text, ("token_hash", "state_hash", "issuer", "subject", "name")),
    plain("claimed"),
    *map(seconds, ("created", "expires")),
    seconds("last_used", null=True),
    seconds("ended", null=True),
    Index("user_sessions_by_token", "token_hash", unique=True),
    Index("user_sessions_by_state", "state_hash", unique=True),
)

# What people asked for under a key (engine.coordinator.idempotency).
idempotency_records = Table(
    "idempotency_records",
    metadata,
    text("key", key=True),
    *map(text, ("asked", "seed")),
    seconds("made"),
    text("worker"),
    *map(plain, ("chosen", "answer")),
    Index("idempotency_records_by_age", "made"),
)

clients = Table(
    "clients",
    metadata,
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
    whole("ledger_entries", null=True),
    text("ledger_hash", null=True),
    whole("ledger_now", null=True),
    whole("charged", null=True),
    seconds("charged_at", null=True),
    text("device", null=True),
    Index("clients_by_standing", "standing", "name"),
)

runs = Table(
    "runs",
    metadata,
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
    whole("quorum", null=True),
    Index("runs_by_age", "created", "id"),
    Index("runs_by_project", "project", "created", "id"),
    Index("runs_by_end", "ended"),
)

# What remains of deleted runs.
tombstones = Table(
    "tombstones",
    metadata,
    text("run", key=True),
    *map(text, ("name", "method", "status")),
    seconds("created"),
    seconds("ended", null=True),
    text("state_digest", null=True),
    text("parent", null=True),
    text("project"),
    seconds("deleted"),
    *map(text, ("by", "rule")),
)

# What never changes in a run: a round must not rewrite a plan of thousands of phases.
drafts = Table(
    "drafts", metadata, text("run", ForeignKey("runs.id"), key=True), *map(plain, ("spec", "roster", "plan", "contract"))
)

# Who joined a run, written once. The run's own row is read for every reply, so it is short.
rosters = Table("rosters", metadata, text("run", ForeignKey("runs.id"), key=True), plain("members"))

# Who conducts a run. Every run has a row.
leases = Table(
    "leases",
    metadata,
    text("run", ForeignKey("runs.id"), key=True),
    text("holder"),
    *map(whole, ("token", "beats")),
    seconds("seconds"),
)

listings = Table(
    "listings",
    metadata,
    Column("id", Integer, primary_key=True),  # never used again: readers remember listings
    Column("name", TEXT, unique=True, nullable=False),
    flag("kept"),
    plain("files"),
    sqlite_autoincrement=True,
)

rounds = Table(
    "rounds",
    metadata,
    text("run", ForeignKey("runs.id"), key=True),
    whole("cursor", key=True),
    text("phase"),
    whole("round"),
    *map(seconds, ("opened", "closed")),
    plain("folded"),
    whole("next_cursor"),
    whole("state", ForeignKey("listings.id"), null=True),
    *map(plain, ("asked", "marks", "groups", "tables")),
    Index("rounds_of_state", "state"),
)

orders = Table(
    "orders",
    metadata,
    text("id", key=True),
    text("run", ForeignKey("runs.id")),
    *map(whole, ("cursor", "attempt")),
    text("client"),
    whole("message", ForeignKey("listings.id"), null=True),
    large("seed"),
    whole("after"),
    seconds("created"),
    text("status"),
    text("held"),
    *map(seconds, ("progress", "beat")),
    whole("reply", ForeignKey("listings.id"), null=True),
    *map(plain, ("metrics", "facts", "failure")),
    seconds("answered", null=True),
    *map(large, ("bytes_down", "bytes_up")),
    plain("sealed"),
    Index("orders_of_round", "run", "cursor"),
    Index("orders_of_message", "message"),
    Index("orders_of_reply", "reply"),
    Index("orders_of_client", "client", "status", "run"),
    Index("orders_of_member", "run", "client", "cursor", "attempt"),
)
MISSED = sql("orders.status IN ('failed', 'expired')")  # in so many words, as SQLite takes an index only for its own condition
Index(
    "orders_missed",
    orders.c.run,
    orders.c.cursor,
    orders.c.client,
    orders.c.attempt,
    sqlite_where=sql("status IN ('failed', 'expired')"),
    postgresql_where=sql("status IN ('failed', 'expired')"),
)

# What orders come to, kept as replies come (engine.model.totals): nobody reads all orders to count them.
round_totals = Table(
    "round_totals",
    metadata,
    text("run", ForeignKey("runs.id"), key=True),
    whole("cursor", key=True),
    *map(whole, ("open", "answered", "failed")),
    *map(large, ("bytes_down", "bytes_up")),
    whole("scored"),
    seconds("accuracy", null=True),
    plain("scores"),
)
site_totals = Table(
    "site_totals",
    metadata,
    text("run", ForeignKey("runs.id"), key=True),
    text("client", key=True),
    *map(large, ("bytes_down", "bytes_up")),
    plain("metrics"),
    *map(whole, ("answered", "scored", "last")),
)

# What steps spend on computing (engine.model.access.spending). By day it stays when a run is deleted; by run it goes with it.
spent_by_day = Table(
    "spent_by_day",
    metadata,
    text("project", key=True),
    whole("day", key=True),
    text("client", key=True),
    *map(seconds, ("gpu", "cpu")),
    *map(whole, ("reported", "unreported")),
)
spent_by_run = Table(
    "spent_by_run",
    metadata,
    text("run", ForeignKey("runs.id"), key=True),
    text("client", key=True),
    *map(seconds, ("gpu", "cpu")),
    *map(whole, ("reported", "unreported")),
)

# What sites sealed for each other. `needed`: the last cursor whose reply brought it, or whose state names it.
sealed = Table(
    "sealed",
    metadata,
    text("run", ForeignKey("runs.id"), key=True),
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

events = Table("events", metadata, text("run", key=True), whole("seq", key=True), seconds("at"), text("kind"), plain("data"))

parts = Table(
    "parts",
    metadata,
    text("digest", key=True),
    seconds("touched"),
    flag("once_referred"),
    Index("parts_by_age", "once_referred", "touched"),
)

# The part that marks the store of parts as this journal's own; at most one row.
store_marker = Table("marker", metadata, whole("id", key=True), text("digest"))

# A note for each part of a reference that ended, until a collection has looked at the part. Notes never change, and a part may
# have several, so that their writers wait for nobody.
loose = Table("loose", metadata, Column("id", COUNTED, primary_key=True), text("digest"))

# Parts that were dropped within the last day. Whoever refers to one first looks whether it is there.
dropped = Table("dropped", metadata, text("digest", key=True), seconds("at"), Index("dropped_by_age", "at"))

members = Table(
    "members",
    metadata,
    whole("listing", ForeignKey("listings.id"), key=True),
    text("digest", key=True),
    Index("members_of_digest", "digest"),
)

# What keeps a listing alive. `kind`: order, reply, state, best (the state of the best round) or sealed (files that a reply
# brought, or a state names); `owner`: the order's id; `client`: whose it is, or empty.
refs = Table(
    "refs",
    metadata,
    text("run", key=True),
    whole("cursor", key=True),
    text("kind", key=True),
    text("owner", key=True),
    whole("listing", ForeignKey("listings.id")),
    text("client"),
    Index("refs_of_listing", "listing"),
    Index("refs_of_client", "run", "client", "listing"),
)

# What was done, chained by hashes (engine.audit). Triggers refuse to change or remove an entry. A transaction that adds one
# locks the row of the tip last.
audit = Table(
    "audit",
    metadata,
    whole("seq", key=True),
    text("kind"),
    seconds("at"),
    *map(text, ("by", "client", "run")),
    plain("details"),
    text("hash"),
    *(Index(f"audit_by_{name}", name, "seq") for name in ("run", "client", "kind")),
)
audit_tip = Table("audit_tip", metadata, whole("id", key=True), whole("seq"), text("hash"))
# From where on the chain lies here: the last entry that went into the archive (0: none), and the hash of the very first one.
audit_base = Table("audit_base", metadata, whole("id", key=True), whole("seq"), *map(text, ("hash", "chain")))

# The witness (engine.audit.witness): its records as they also lie beside the parts, and by what coordinators know its tips.
witness = Table("witness", metadata, whole("seq", key=True), text("kind"), text("line"), Index("witness_by_kind", "kind", "seq"))
witness_secret = Table("witness_secret", metadata, whole("id", key=True), text("secret"))

# What a client pushed for the answer that it is sending.
pushed = Table(
    "pushed",
    metadata,
    *(text(name, key=True) for name in ("digest", "run", "client")),
    Index("pushed_by_client", "run", "client"),
)

# Who is notified (engine.model.notices), and the notices that wait or were sent lately. `content`: the notice; `due`: when it is
# tried next, none where it is over.
notice_targets = Table(
    "notice_targets",
    metadata,
    text("id", key=True),
    *map(text, ("name", "project", "url", "form")),
    plain("kinds"),
    text("secret"),
    seconds("created"),
    text("created_by"),
    seconds("ended", null=True),
    text("reason"),
    seconds("last_sent", null=True),
    seconds("tested"),
    whole("left_out"),
    Index("notice_targets_by_name", "project", "name", unique=True),
)
notices = Table(
    "notices",
    metadata,
    text("id", key=True),
    text("target", ForeignKey("notice_targets.id")),
    *map(text, ("cause", "run")),
    plain("content"),
    whole("more"),
    seconds("slot"),
    seconds("due", null=True),
    whole("attempts"),
    text("claim"),
    Index("notices_due", "due"),
    Index("notices_of_cause", "target", "cause", "slot"),
    Index("notices_of_run", "run"),
)
# How far the audit log was read for notices. Who changes targets or queues notices locks its one row first.
notice_mark = Table("notice_mark", metadata, whole("id", key=True), whole("seq"))

# Which version of Tideline brought the store to which revision: for the message of an older one that cannot read it.
upgrades = Table("upgrades", metadata, text("revision", key=True), text("version"), seconds("at"))
