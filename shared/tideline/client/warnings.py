"""What a coordinator warns of, for those who look after it."""

from __future__ import annotations

from tideline.client.http import Client
from tideline.client.output import clean, warn
from tideline.core.errors import FederationError


def show_warnings(client: Client) -> None:
    """Write the warnings of `GET /ready` to stderr. A coordinator that is not ready says so where it is asked for more."""
    try:
        found = client.get("/ready")["warnings"]
    except (FederationError, KeyError, TypeError):
        return
    for each in found:
        warn(f"Note: {clean(str(each))}")
