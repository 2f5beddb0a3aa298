"""How calls end that do not end well, whatever they travelled over."""

from __future__ import annotations

from typing import Any

from tideline.core.errors import FederationError, IdentityRefused, StorageFull, Unreachable
from tideline.engine.process.pipe import from_plain


class NotSpoken(IdentityRefused):
    """The other end does not know the call: it is an older coordinator, or none."""

    @property
    def kind(self) -> str:
        """Known by its base to whoever is told."""
        return IdentityRefused.__name__


class Absent(Unreachable):
    """Nobody listens at the other end."""

    @property
    def kind(self) -> str:
        """Known by its base to whoever is told."""
        return Unreachable.__name__


class FullThere(Unreachable):
    """The coordinator has no room. Like an outage, it is waited out: nothing was acknowledged, nothing is lost."""


def error_of(plain: Any) -> FederationError:
    """The error that a coordinator sent, as it matters here. Raises LookupError, TypeError and others for what is none."""
    there = from_plain(plain)
    return FullThere(there.what, there.todo) if isinstance(there, StorageFull) else there
