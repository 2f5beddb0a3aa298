"""Where a home's ledger ended when it was last written: `ledger.head`, beside it.

A chain shows what was changed within it, and nothing of what was cut off its end; nor does an older copy that is put back. By the
head both show, to whoever has not cut the head as well.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tideline.core.errors import ChainBroken
from tideline.engine.audit.log import Tip

HEAD, KNOWN, REPORTED = "ledger.head", "ledger.known", "ledger.reported"
TODO = (
    "Look who has had access to the agent's home, and bring the ledger back as it was. If it is lost, go on without it: "
    "tideline site ledger accept --home DIR"
)


@dataclass(frozen=True)
class Cut:
    """What a ledger ends with, and what it ended with before."""

    path: Path
    now: Tip
    before: Tip
    whose: str = ""  # who remembers it, beside the home itself

    def error(self) -> ChainBroken:
        """What an owner is told."""
        if self.now.seq < self.before.seq:
            what = f"{self.path} was cut: it ends with entry {self.now.seq}, and it had {self.before.seq}"
        else:
            what = f"{self.path} is not the one that was written here: its entry {self.before.seq} is another"
        what += f", {self.whose}" if self.whose else ""
        return ChainBroken(what, TODO, entry=self.before.seq, expected=self.before.hash)


def remembered(home: Path) -> Tip:
    """The newest end of the ledger that the home remembers, in its head or in the summary of the last start."""
    return max(read(home / HEAD), read(home / KNOWN, "tip"), key=lambda tip: tip.seq)


def read(path: Path, name: str = "") -> Tip:
    """A tip in a file; the beginning where there is none, or what a power cut has left of one."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        raw = raw[name] if name else raw
        return Tip(int(raw["seq"]), str(raw["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Tip()


def remember(home: Path, tip: Tip, name: str = HEAD) -> None:
    """Note an end that is on the disk. Not flushed: after a power cut the head may be an older one, which fits as well."""
    temporary = home / f"{name}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(asdict(tip)).encode())
    temporary.replace(home / name)
