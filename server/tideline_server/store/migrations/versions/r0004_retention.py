"""From where on the audit log lies in the database: triggers let entries go before that, and no others. Ages of projects."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tideline_server.store.columns import seconds, text, whole

revision = "0004"
down_revision = "0003"

REFUSAL = "the audit log is only added to"
ABORT = f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
KNOWN = "(SELECT hash FROM audit WHERE seq = NEW.seq)"
AHEAD = f"NEW.seq <= OLD.seq OR NEW.chain <> OLD.chain OR NEW.hash IS NOT {KNOWN}"
SQLITE_TRIGGERS = (
    "DROP TRIGGER audit_no_DELETE",
    f"CREATE TRIGGER audit_no_DELETE BEFORE DELETE ON audit WHEN OLD.seq > (SELECT seq FROM audit_base) {ABORT}",
    "DROP TRIGGER audit_no_replace",
    "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit"
    f" WHEN NEW.seq <= max((SELECT max(seq) FROM audit), (SELECT seq FROM audit_base)) {ABORT}",
    f"CREATE TRIGGER audit_base_ahead BEFORE UPDATE ON audit_base WHEN {AHEAD} {ABORT}",
    *(f"CREATE TRIGGER audit_base_no_{what} BEFORE {what} ON audit_base {ABORT}" for what in ("INSERT", "DELETE")),
)
RAISE = f"RAISE EXCEPTION '{REFUSAL}'"
FUNCTION = "CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
GONE = f"IF EXISTS (SELECT 1 FROM gone WHERE gone.seq > (SELECT seq FROM audit_base)) THEN {RAISE}; END IF; RETURN NULL;"
MOVED = f"IF {AHEAD.replace('IS NOT', 'IS DISTINCT FROM')} THEN {RAISE}; END IF; RETURN NEW;"
POSTGRES_TRIGGERS = (
    FUNCTION.format(name="audit_trimmed", body=GONE),
    FUNCTION.format(name="audit_base_ahead", body=MOVED),
    "DROP TRIGGER audit_no_DELETE ON audit",
    "CREATE TRIGGER audit_no_DELETE AFTER DELETE ON audit REFERENCING OLD TABLE AS gone"
    " FOR EACH STATEMENT EXECUTE FUNCTION audit_trimmed()",
    "CREATE TRIGGER audit_base_ahead BEFORE UPDATE ON audit_base FOR EACH ROW EXECUTE FUNCTION audit_base_ahead()",
    *(
        f"CREATE TRIGGER audit_base_no_{what} BEFORE {what} ON audit_base FOR EACH STATEMENT EXECUTE FUNCTION audit_stays()"
        for what in ("INSERT", "DELETE", "TRUNCATE")
    ),
)


def upgrade() -> None:
    """Note that the log lies here from its first entry on, and let projects have rules of age."""
    for name in ("retain_runs_days", "retain_events_days"):
        op.add_column("projects", seconds(name, null=True))
    base = op.create_table("audit_base", whole("id", key=True), whole("seq"), text("hash"), text("chain"))
    first = op.get_bind().scalar(sa.text("SELECT hash FROM audit ORDER BY seq LIMIT 1"))
    op.bulk_insert(base, [{"id": 1, "seq": 0, "hash": "0" * 64, "chain": first or ""}])
    for statement in SQLITE_TRIGGERS if op.get_bind().dialect.name == "sqlite" else POSTGRES_TRIGGERS:
        op.execute(statement)
