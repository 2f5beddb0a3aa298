"""Columns of tables and migrations. Existing stores have them, so change none: another type is another function."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, ForeignKey, Integer, String

from tideline_server.store.database.postgres import Text

TEXT = String().with_variant(Text(), "postgresql")
COUNTED = BigInteger().with_variant(Integer(), "sqlite")


def text(name: str, *more: ForeignKey, key: bool = False, null: bool = False) -> Column[str]:
    return Column(name, TEXT, *more, primary_key=key, nullable=null)


def whole(name: str, *more: ForeignKey, key: bool = False, null: bool = False) -> Column[int]:
    """A column of whole numbers. A key is counted up by nobody but us."""
    return Column(name, Integer, *more, primary_key=key, nullable=null, autoincrement=False)


def large(name: str, null: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=null)


def flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def seconds(name: str, null: bool = False) -> Column[float]:
    return Column(name, Double, nullable=null)


def plain(name: str) -> Column[object]:
    """A column of plain data. None is no value."""
    return Column(name, JSON(none_as_null=True), nullable=True)
