"""How far each coordinator's audit log was verified from here: one file of this user, which nobody else may read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tideline.client import logins
from tideline.core.errors import IdentityRefused
from tideline.engine.audit.log import Tip


@dataclass(frozen=True)
class Verified:
    """The last entry that was good, and when that was seen."""

    seq: int
    hash: str
    at: float

    @property
    def tip(self) -> Tip:
        """The entry."""
        return Tip(self.seq, self.hash)


def place() -> Path:
    """Where it lies: beside the logins."""
    return logins.place().with_name("audit.json")


def tips() -> dict[str, Verified]:
    """What was verified, by address in its one form. Raises IdentityRefused for a file that is not ours alone or is damaged."""
    path = place()
    try:
        with path.open(encoding="utf-8") as file:
            logins.check_private(path, path.stat())
            found: dict[str, Any] = json.load(file)
        read = [
            (logins.address(url), Verified(int(told["seq"]), str(told["hash"]), float(told["at"]))) for url, told in found.items()
        ]
        return dict(sorted(read, key=lambda each: each[1].seq))  # of two spellings the one that was verified further
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as cause:
        raise IdentityRefused(
            f"{path} cannot be read ({type(cause).__name__})", "Put back a copy of it, or delete it and verify the log anew"
        ) from None


def keep(url: str, verified: Verified, forget: bool = False) -> None:
    """Remember how far a log was verified. Somebody may have come further meanwhile: that stays, unless it is to be forgotten."""
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with logins.turn(path.with_suffix(".lock")):
        known, at = tips(), logins.address(url)
        if forget or at not in known or known[at].seq <= verified.seq:
            known[at] = verified
        logins.written(path, json.dumps({url: asdict(told) for url, told in known.items()}, indent=1))
