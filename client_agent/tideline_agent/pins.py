"""What a site knows its peers by: `peers.json` in the agent's home, replaced by one rename."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound
from tideline.core.run import ClientId
from tideline.core.settings import nearest
from tideline.engine.peers import Pin
from tideline.engine.rows import Keys
from tideline_agent.identity import write

PEERS = "peers.json"
DIGITS = 16  # of a fingerprint
Met = Callable[[str, str, str], None]


def silently(name: str, fingerprint: str, before: str) -> None:
    """Nobody is told whom the site has met."""


class FolderPins:
    """Pins in an agent's home. `met` is told of each new one: a peer's name, its fingerprint, and the one before, if any."""

    def __init__(self, folder: Path, met: Met = silently) -> None:
        self._path, self._met = folder / PEERS, met

    def read(self) -> Mapping[ClientId, Pin]:
        """Raises IdentityRefused for a file that is damaged: whom to trust must not be forgotten unseen."""
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8"))
            return {ClientId(name): pin_in(told) for name, told in raw.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise IdentityRefused(
                f"{self._path} is damaged, so nobody knows which keys this site's peers have",
                "Restore it; or delete it, compare each peer's fingerprint with its owner, and go on",
            ) from None

    def write(self, pins: Mapping[ClientId, Pin]) -> None:
        with alone(self._path.with_suffix(".lock")):
            self._write(pins)

    def _write(self, pins: Mapping[ClientId, Pin]) -> None:
        known, now = dict(self.read()), datetime.now(UTC).isoformat(timespec="seconds")
        for name, pin in sorted(pins.items()):
            before = known.get(name)
            known[name] = Pin(pin.keys, pin.fingerprint, pin.former, now)
            if before is None or before.fingerprint != pin.fingerprint:
                self._met(name, pin.fingerprint, before.fingerprint if before else "")
        write(self._path, json.dumps({name: asdict(pin) for name, pin in sorted(known.items())}, indent=1).encode())


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time: the agent's, or that of an owner's command."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pin_in(told: Mapping[str, Any]) -> Pin:
    """A pin from plain data. Raises KeyError and TypeError for what is none."""
    keys = None if told["keys"] is None else Keys(**told["keys"])
    return Pin(keys, str(told["fingerprint"]), tuple(Keys(**each) for each in told["former"]), str(told["since"]))


def trust(folder: Path, name: str, fingerprint: str) -> Pin:
    """Know a peer by the keys of this fingerprint from now on, whatever it was known by; the pin before.

    Raises NotFound for one that the site has not met, ConfigRefused for what is no fingerprint.
    """
    pins, who = FolderPins(folder), ClientId(name)
    known = pins.read()
    if who not in known:
        met = f"; it knows {', '.join(sorted(known))}" if known else ""
        raise NotFound(f"This site has met no peer {name!r}{met}", f"See `tideline site peers`{nearest(name, sorted(known))}")
    pins.write({who: Pin(None, spelt(fingerprint))})
    return known[who]


def spelt(fingerprint: str) -> str:
    """A fingerprint as it is shown: digits in groups of four. Raises ConfigRefused."""
    digits = "".join(fingerprint.split()).lower()
    if len(digits) != DIGITS or set(digits) - set("0123456789abcdef"):
        what = f"{fingerprint!r} is no fingerprint"
        raise ConfigRefused(what, "Give its 16 hexadecimal digits, such as '0a1b 2c3d 4e5f 6071'", path="fingerprint")
    return " ".join(digits[at : at + 4] for at in range(0, DIGITS, 4))
