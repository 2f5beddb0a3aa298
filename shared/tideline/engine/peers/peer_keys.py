"""By which keys a site knows its peers, and its own: those of a peer are pinned when it is first met.

Others are taken only if the pinned ones handed over to them, by signature; else nothing is sealed to them and nothing of theirs
is opened, until the site's owner says so. What the keys before them signed is believed for a while still. Loads no torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tideline.archive import sealing
from tideline.core.errors import PeerRefused
from tideline.core.run import ClientId
from tideline.core.signing import FINGERPRINT_DIGITS, fingerprint, handover_bytes
from tideline.engine.model.accounts import Handover, Keys, Peer

MOST_FORMER = 8  # keys that are remembered beside those of today: a peer's to believe, a site's own to open with
FORMER_SECONDS = 7 * 86400.0  # for so long a peer's former keys are believed, from when others were first seen in their place


@dataclass(frozen=True)
class Former:
    """Keys that a peer had before. replaced: when this site first saw others in their place; None where nobody noted it."""

    keys: Keys
    replaced: float | None = None

    @property
    def until(self) -> float | None:
        """Until when they are believed; None where that time has not begun."""
        return None if self.replaced is None else self.replaced + FORMER_SECONDS

    def believed(self, now: float) -> bool:
        return self.replaced is None or abs(now - self.replaced) < FORMER_SECONDS


@dataclass(frozen=True)
class Pin:
    """What a site knows a peer by: its keys, or their fingerprint where the owner said which to trust.

    former: keys that the peer had before, the newest last, which handed over to these. since: for people. trusted: whether the
    owner said so; keys that trusted ones handed over to are.
    """

    keys: Keys | None
    fingerprint: str
    former: tuple[Former, ...] = ()
    since: str = ""
    trusted: bool = False

    def believed(self, now: float) -> tuple[Keys, ...]:
        return (*((self.keys,) if self.keys else ()), *(each.keys for each in self.former if each.believed(now)))


Known = Mapping[ClientId, Pin]


class Pins(Protocol):
    """Where a site keeps its pins."""

    def read(self) -> Known: ...
    def change(self, work: Callable[[Known], Known]) -> Known:
        """Know some peers by other pins from now on, those that `work` makes of all; these, as they are then.

        Nobody else changes any meanwhile. Where `work` raises, nothing is changed.
        """


class MemoryPins:
    """Pins in a dictionary."""

    def __init__(self, pins: Known | None = None) -> None:
        self._pins = dict(pins or {})
        self._lock = threading.Lock()

    def read(self) -> Known:
        return dict(self._pins)

    def change(self, work: Callable[[Known], Known]) -> Known:
        with self._lock:
            self._pins |= work(dict(self._pins))
            return dict(self._pins)


@dataclass(frozen=True)
class Own:
    """A site's private keys, raw: to sign, and to receive, the newest first; older ones open what was sealed before."""

    sign: bytes
    receive: tuple[bytes, ...]

    @property
    def public(self) -> Keys:
        return Keys(*(key.hex() for key in sealing.public_keys(self.sign, self.receive[0])))


def fresh() -> Own:
    sign, receive = sealing.new_keys()
    return Own(sign, (receive,))


class PeerKeys:
    """A site's own keys and its pins. `own` is asked each time: keys may be rotated. Any number of threads.

    now: a clock, in seconds since the epoch.
    """

    def __init__(self, own: Callable[[], Own], pins: Pins, now: Callable[[], float] = time.time) -> None:
        self.own, self.pins, self.now = own, pins, now

    def trust(self, peers: Mapping[ClientId, Peer]) -> Known:
        """What each peer is known by from now on. Keys of a new one are pinned as they come; others must be the pinned ones, or
        follow from them by handovers. Raises PeerRefused, and then nothing is pinned.
        """

        def followed(known: Known) -> Known:
            return {name: follow(name, known.get(name), peer, self.now()) for name, peer in peers.items()}

        known = self.pins.read()
        pins = followed(known)
        if all(known.get(name) == pin for name, pin in pins.items()):
            return pins
        known = self.pins.change(followed)  # worked out anew: the owner may have said otherwise just now
        return {name: known[name] for name in peers}


def follow(name: str, pin: Pin | None, peer: Peer, now: float) -> Pin:
    """A peer's pin, given the keys that it is shown with. Raises PeerRefused for keys that nobody vouches for."""
    if pin is not None and pin.keys == peer.keys:
        return replace(pin, former=dated(pin.former, now))
    if pin is None or (pin.keys is None and pin.fingerprint == shown(peer.keys)):
        return Pin(receiving(name, peer.keys), shown(peer.keys), trusted=pin is not None and pin.trusted)
    path = line(name, pin.keys, peer.handovers) if pin.keys else ()
    if not path or path[-1] != peer.keys:
        raise stranger(name, pin, peer.keys)
    former = (*dated(pin.former, now), *(Former(keys, now) for keys in path[:-1]))
    return Pin(receiving(name, peer.keys), shown(peer.keys), former[-MOST_FORMER:], trusted=pin.trusted)


def dated(former: Iterable[Former], now: float) -> tuple[Former, ...]:
    """Former keys, whose time begins now where nobody noted when they were replaced."""
    return tuple(Former(each.keys, now) if each.replaced is None else each for each in former)


def line(name: str, keys: Keys, handovers: Iterable[Handover]) -> tuple[Keys, ...]:
    """The keys that a client has had from these on, each handed over to by signature of those before."""
    path = [keys]
    for each in handovers:
        if sealing.signed(handover_bytes(name, *raw(each.keys)), hex_or_none(each.signature), raw(path[-1])[0]):
            path.append(each.keys)
    return tuple(path)


def receiving(name: str, keys: Keys) -> Keys:
    """Keys that something can be sealed to. Raises PeerRefused for others: everybody could open it."""
    if not sealing.receives(raw(keys)[1]):
        raise PeerRefused(
            f"{name} is shown with a key to receive ({shown(keys)}) that is none, or of low order: anybody could open what is"
            " sealed to it",
            f"Ask {name}'s owner; if it is its key, have it make new ones: tideline clients rotate {name}",
            peer=name,
            shown=shown(keys),
        )
    return keys


def stranger(name: str, pin: Pin, keys: Keys) -> PeerRefused:
    """The refusal of keys that do not follow from those pinned. A fingerprint of the old length may be of other keys, too."""
    digits = pin.fingerprint.replace(" ", "")
    if pin.keys is None and len(digits) < FINGERPRINT_DIGITS:
        what = f"This site trusts {name} by {len(digits)} digits ({pin.fingerprint}), which are too few by now"
    else:
        what = f"{name} is shown with other keys ({shown(keys)}) than this site knows it by ({pin.fingerprint})"
    todo = f"Ask {name}'s owner for its fingerprint; if it is the one shown: tideline site trust {name} '{shown(keys)}'"
    return PeerRefused(what, todo, peer=name, known=pin.fingerprint, shown=shown(keys))


def shown(keys: Keys) -> str:
    return fingerprint(*raw(keys))


def raw(keys: Keys) -> tuple[bytes, bytes]:
    return bytes.fromhex(keys.sign), bytes.fromhex(keys.receive)


def hex_or_none(text: str) -> bytes:
    """Bytes from hexadecimal; none from anything else."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
