"""Which formats a home is written in, and by which version, so that an older one refuses with words what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

from tideline import __version__
from tideline.core.errors import IdentityRefused
from tideline.engine.formats import LEDGER, VAULT

FILE = "format.json"
HERE = {"vault": VAULT, "ledger": LEDGER}


def check(home: Path) -> None:
    """Raises IdentityRefused for a home in a newer format than this version reads. A home without the file is an older one."""
    said = read(home)
    for name, number in HERE.items():
        found = said.get(name, 0)
        if isinstance(found, int) and found > number:
            who = f"tideline {said.get('version', 'of a newer version')}"
            what = f"The home {home} was written by {who}: its {name} is of format {found}"
            what += f"; tideline {__version__} reads up to {number}"
            raise IdentityRefused(what, f"Install {who} or newer, or restore the home from before the upgrade")


def content(home: Path) -> bytes | None:
    """What this version writes into the file; None where it stands there."""
    ours = {**HERE, "version": __version__}
    return None if read(home) == ours else json.dumps(ours).encode()


def read(home: Path) -> dict[str, object]:
    """What the file says; nothing where there is none, or none that can be read."""
    try:
        found = json.loads((home / FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
