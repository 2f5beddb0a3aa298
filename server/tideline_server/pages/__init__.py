"""The dashboard: static files that a browser runs, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.pages import files


def table() -> Mapping[str, files.StaticFile]:
    """The dashboard's files and those that it shares with other pages, by path."""
    return files.table(__name__)
