"""The tables as they were when migrations began."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def text(name: str, *more: sa.ForeignKey, key: bool = False, null: bool = False) -> sa.Column[str]:
    """A column of text."""
    return sa.Column(name, TEXT, *more, primary_key=key, nullable=null)


def whole(name: str, *more: sa.ForeignKey, key: bool = False, null: bool = False) -> sa.Column[int]:
    """A column of whole numbers that nobody counts up."""
    return sa.Column(name, sa.Integer, *more, primary_key=key, nullable=null, autoincrement=False)


def large(name: str) -> sa.Column[int]:
    """A column of whole numbers up to 64 bits."""
    return sa.Column(name, sa.BigInteger, nullable=False)


def seconds(name: str, null: bool = False) -> sa.Column[float]:
    """A column of real numbers."""
    return sa.Column(name, sa.Double, nullable=null)


def flag(name: str) -> sa.Column[bool]:
    """A column of yes or no."""
    return sa.Column(name, sa.Boolean, nullable=False)


def plain(name: str) -> sa.Column[Any]:
    """A column of plain data."""
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def upgrade() -> None:
    """Make every table, and say in `meta` what this is to a Tideline from before there were migrations."""
    people()
    runs()
    exchanges()
    parts()
    made = op.create_table("meta", text("name", key=True), text("value"))
    op.bulk_insert(made, [{"name": "schema", "value": "1"}])


def people() -> None:
    """Invites and clients."""
    op.create_table("invites", text("token_hash", key=True), text("name"), plain("labels"), seconds("expires"), text("used_by"))
    op.create_table(
        "clients",
        text("name", key=True),
        text("credential_hash"),
        plain("roles"),
        plain("labels"),
        text("version"),
        seconds("enrolled"),
        seconds("seen"),
    )


def runs() -> None:
    """Runs, and what never changes in them."""
    op.create_table(
        "runs",
        text("id", key=True),
        text("name"),
        text("method"),
        seconds("created"),
        seconds("deadline_at"),
        text("status"),
        text("cause"),
        whole("cursor"),
        plain("members"),
        seconds("opened"),
        seconds("started", null=True),
        seconds("ended", null=True),
        text("state_digest", null=True),
        text("fingerprint"),
        text("reference", null=True),
        text("reference_of", null=True),
    )
    op.create_table(
        "drafts",
        text("run", sa.ForeignKey("runs.id"), key=True),
        plain("spec"),
        plain("roster"),
        plain("plan"),
        plain("contract"),
    )
    op.create_table("events", text("run", key=True), whole("seq", key=True), seconds("at"), text("kind"), plain("data"))


def exchanges() -> None:
    """Listings of files, and the rounds and orders that name them."""
    counted = sa.Column("id", sa.Integer, primary_key=True)
    name = sa.Column("name", TEXT, unique=True, nullable=False)
    op.create_table("listings", counted, name, flag("kept"), plain("files"))
    op.create_table(
        "rounds",
        text("run", sa.ForeignKey("runs.id"), key=True),
        whole("cursor", key=True),
        text("phase"),
        whole("round"),
        seconds("opened"),
        seconds("closed"),
        plain("folded"),
        whole("next_cursor"),
        whole("state", sa.ForeignKey("listings.id"), null=True),
        plain("asked"),
    )
    op.create_table(
        "orders",
        text("id", key=True),
        text("run", sa.ForeignKey("runs.id")),
        whole("cursor"),
        whole("attempt"),
        text("client"),
        whole("message", sa.ForeignKey("listings.id"), null=True),
        large("seed"),
        whole("after"),
        seconds("created"),
        text("status"),
        seconds("progress"),
        seconds("beat"),
        whole("reply", sa.ForeignKey("listings.id"), null=True),
        plain("metrics"),
        plain("facts"),
        plain("failure"),
        seconds("answered", null=True),
        large("bytes_down"),
        large("bytes_up"),
    )
    op.create_index("orders_of_round", "orders", ["run", "cursor"])
    op.create_index("orders_of_client", "orders", ["client", "status"])
    op.create_index("orders_of_member", "orders", ["run", "client", "cursor"])


def parts() -> None:
    """Parts, and what keeps them."""
    op.create_table("parts", text("digest", key=True), seconds("touched"), flag("once_referred"))
    op.create_table("members", whole("listing", sa.ForeignKey("listings.id"), key=True), text("digest", key=True))
    op.create_index("members_of_digest", "members", ["digest"])
    op.create_table(
        "refs",
        text("run", key=True),
        whole("cursor", key=True),
        text("kind", key=True),
        text("owner", key=True),
        whole("listing", sa.ForeignKey("listings.id")),
    )
    op.create_index("refs_of_listing", "refs", ["listing"])
    op.create_table("pushed", text("digest", key=True), text("run", key=True), text("client", key=True))
