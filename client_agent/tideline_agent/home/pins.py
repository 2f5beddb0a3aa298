"""What a site knows its peers by: `peers.json` in the agent's home, replaced by one rename."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound
from tideline.core.run import ClientId
from tideline.core.settings import nearest
from tideline.core.signing import FINGERPRINT_DIGITS, in_fours
from tideline.engine.model.accounts import Keys
from tideline.engine.peers.peer_keys import Former, Known, Pin, shown
from tideline_agent.home.identity import write

PEERS = "peers.json"
SHORT_DIGITS = 16  # of a fingerprint, as it was
Met = Callable[[str, str, str], None]


class FolderPins:
    """Pins in an agent's home, for any number of processes.

    met: called for each new pin: name, fingerprint, and the fingerprint before, if any. now: seconds since the epoch.
    """

    def __init__(self, folder: Path, met: Met = lambda *pin: None, now: Callable[[], float] = time.time) -> None:
        self._path, self._met, self._now = folder / PEERS, met, now

    def read(self) -> Known:
        """Raises IdentityRefused for a file that is damaged: whom to trust must not be forgotten unseen."""
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8"))
            return {ClientId(name): pin_in(fields) for name, fields in raw.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError):
            todo = "Restore it; or delete it, compare each peer's fingerprint with its owner, and go on"
            raise IdentityRefused(f"{self._path} is damaged, so the keys of this site's peers are not known", todo) from None

    def change(self, work: Callable[[Known], Known]) -> Known:
        with alone(self._path.with_suffix(".lock")):
            before = self.read()
            changed = {name: self._since(pin, before.get(name)) for name, pin in work(before).items()}
            after = {**before, **changed}
            write(self._path, json.dumps({name: asdict(pin) for name, pin in sorted(after.items())}, indent=1).encode())
        for name, pin in sorted(changed.items()):
            was = before[name].fingerprint if name in before else ""
            if was != pin.fingerprint:
                self._met(name, pin.fingerprint, was)
        return after

    def _since(self, pin: Pin, before: Pin | None) -> Pin:
        same = before is not None and before.fingerprint == pin.fingerprint
        return replace(pin, since=before.since if before and same else moment(self._now()))


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time: the agent's, or that of an owner's command."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pin_in(fields: Mapping[str, Any]) -> Pin:
    """A pin from plain data. Raises KeyError, TypeError, ValueError. Fingerprints were shorter once: they are made anew."""
    keys = None if fields["keys"] is None else Keys(**fields["keys"])
    fingerprint = str(fields["fingerprint"]) if keys is None else shown(keys)
    former, trusted = tuple(map(former_in, fields["former"])), fields.get("trusted", False) is True
    return Pin(keys=keys, fingerprint=fingerprint, former=former, since=str(fields["since"]), trusted=trusted)


def former_in(fields: Mapping[str, Any]) -> Former:
    """A peer's former keys from plain data. Before, nobody noted when they were replaced."""
    if "keys" not in fields:
        return Former(Keys(**fields))
    return Former(Keys(**fields["keys"]), None if fields["replaced"] is None else float(fields["replaced"]))


def trust(folder: Path, name: str, fingerprint: str) -> Pin:
    """Know a peer by this fingerprint alone from now on; gives the pin before. Raises NotFound, ConfigRefused."""
    who, expected, before = ClientId(name), spelt(fingerprint), list[Pin]()

    def trusted(known: Known) -> Known:
        if who not in known:
            met = f"; it knows {', '.join(sorted(known))}" if known else ""
            todo = f"See `tideline site peers`{nearest(name, sorted(known))}"
            raise NotFound(f"This site has met no peer {name!r}{met}", todo)
        before.append(known[who])
        return {who: Pin(known[who].keys if known[who].fingerprint == expected else None, expected, trusted=True)}

    FolderPins(folder).change(trusted)
    return before[0]


def listed(folder: Path, now: float) -> list[dict[str, Any]]:
    """The peers that a site knows, by which keys and since when, whether its owner said so, and which former keys it still
    believes until when.
    """
    return [
        {"peer": name, "fingerprint": pin.fingerprint, "trusted": pin.trusted, "since": pin.since, "former": believed(pin, now)}
        for name, pin in sorted(FolderPins(folder).read().items())
    ]


def believed(pin: Pin, now: float) -> list[dict[str, str | None]]:
    """A peer's former keys that are believed still. until: None where the site has not been shown them since there is a limit."""
    return [
        {"fingerprint": shown(each.keys), "until": None if each.until is None else moment(each.until)}
        for each in pin.former
        if each.believed(now)
    ]


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def spelt(fingerprint: str) -> str:
    """A fingerprint as it is shown: digits in groups of four. Raises ConfigRefused."""
    digits = "".join(fingerprint.split()).lower()
    if len(digits) != FINGERPRINT_DIGITS or set(digits) - set("0123456789abcdef"):
        what = f"{fingerprint!r} is no fingerprint"
        old = "; its 16 are what older versions show: have its owner upgrade" if len(digits) == SHORT_DIGITS else ""
        example = in_fours("0a1b2c3d4e5f60718293a4b5c6d7e8f9")
        todo = f"Give its {FINGERPRINT_DIGITS} hexadecimal digits, such as '{example}'{old}"
        raise ConfigRefused(what, todo, path="fingerprint")
    return in_fours(digits)
