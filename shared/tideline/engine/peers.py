"""A site among its peers: it seals what it makes for them, opens what they made for it, and knows them by their keys.

A peer's keys are pinned when they are first met. Others are taken only if the pinned ones handed over to them, by signature; else
nothing is sealed to them and nothing of theirs is opened, until the site's owner says so. Loads no torch.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tideline.archive import sealing
from tideline.archive.errors import Missing, SealBroken
from tideline.archive.layout import check_digest, named_handles, parse
from tideline.archive.parts import Parts
from tideline.archive.sealing import About
from tideline.core.errors import Malformed, PeerRefused
from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.signing import KEY_BYTES, fingerprint, handover_bytes
from tideline.engine.entries import MOST_HANDOVERS
from tideline.engine.rows import Envelope, Files, Handover, Keys, Order, Peer

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
MOST_FORMER = 8  # keys of a peer that are remembered: what they signed may still be on its way
DISTRUST = "The coordinator is of another version, or is not to be trusted"


@dataclass(frozen=True)
class Pin:
    """What a site knows a peer by: its keys, or their fingerprint where the owner said which to trust.

    former: keys that the peer had before, the newest last, which handed over to these. since: for people.
    """

    keys: Keys | None
    fingerprint: str
    former: tuple[Keys, ...] = ()
    since: str = ""


class Pins(Protocol):
    """Where a site keeps its pins."""

    def read(self) -> Mapping[ClientId, Pin]: ...
    def write(self, pins: Mapping[ClientId, Pin]) -> None:
        """Know these peers by these pins from now on."""
        ...


class MemoryPins:
    """Pins in a dictionary."""

    def __init__(self) -> None:
        self._pins: dict[ClientId, Pin] = {}

    def read(self) -> Mapping[ClientId, Pin]:
        return dict(self._pins)

    def write(self, pins: Mapping[ClientId, Pin]) -> None:
        self._pins |= pins


@dataclass(frozen=True)
class Own:
    """A site's private keys, raw: to sign, and to receive, the newest first; older ones open what was sealed before."""

    sign: bytes
    receive: tuple[bytes, ...]

    @property
    def public(self) -> Keys:
        """What others know it by."""
        return Keys(*(key.hex() for key in sealing.public_keys(self.sign, self.receive[0])))


def fresh() -> Own:
    """New keys."""
    sign, receive = sealing.new_keys()
    return Own(sign, (receive,))


class Ring:
    """A site's own keys and its pins. `own` is asked each time: keys may be rotated. Any number of threads."""

    def __init__(self, own: Callable[[], Own], pins: Pins) -> None:
        self.own, self.pins = own, pins
        self._lock = threading.Lock()

    def trust(self, peers: Mapping[ClientId, Peer]) -> Mapping[ClientId, Pin]:
        """What each peer is known by from now on. Keys of a new one are pinned as they come; others must be the pinned ones, or
        follow from them by handovers. Raises PeerRefused, and then nothing is pinned.
        """
        with self._lock:
            known = self.pins.read()
            pins = {name: follow(name, known.get(name), peer) for name, peer in peers.items()}
            if changed := {name: pin for name, pin in pins.items() if known.get(name) != pin}:
                self.pins.write(changed)
            return pins


def follow(name: str, pin: Pin | None, peer: Peer) -> Pin:
    """A peer's pin, given the keys that it is shown with. Raises PeerRefused for keys that nobody vouches for."""
    if pin is None or (pin.keys is None and pin.fingerprint == shown(peer.keys)):
        return Pin(peer.keys, shown(peer.keys))
    if pin.keys == peer.keys:
        return pin
    path = line(name, pin.keys, peer.handovers) if pin.keys else ()
    if not path or path[-1] != peer.keys:
        raise stranger(name, pin, peer.keys)
    return Pin(peer.keys, shown(peer.keys), (*pin.former, *path[:-1])[-MOST_FORMER:])


def line(name: str, keys: Keys, handovers: Iterable[Handover]) -> tuple[Keys, ...]:
    """The keys that a client has had from these on, each handed over to by signature of those before."""
    path = [keys]
    for each in handovers:
        if sealing.signed(handover_bytes(name, *raw(each.keys)), hex_or_none(each.signature), raw(path[-1])[0]):
            path.append(each.keys)
    return tuple(path)


def stranger(name: str, pin: Pin, keys: Keys) -> PeerRefused:
    """The refusal of keys that nobody vouches for."""
    return PeerRefused(
        f"{name} is shown with other keys ({shown(keys)}) than this site knows it by ({pin.fingerprint})",
        f"Ask {name}'s owner for its fingerprint; if it is the new one: tideline site trust {name} '{shown(keys)}'",
        peer=name,
        known=pin.fingerprint,
        shown=shown(keys),
    )


def shown(keys: Keys) -> str:
    """The fingerprint of public keys."""
    return fingerprint(*raw(keys))


def raw(keys: Keys) -> tuple[bytes, bytes]:
    """Public keys as bytes: to sign, to receive."""
    return bytes.fromhex(keys.sign), bytes.fromhex(keys.receive)


def peers_in(brief: Mapping[str, Any]) -> dict[ClientId, Peer]:
    """The peers that an order tells of. Raises Malformed."""
    try:
        return {ClientId(named(name)): peer_in(told) for name, told in dict(brief.get("peers", {})).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        raise Malformed(
            f"The order tells of peers in a way that cannot be understood ({type(cause).__name__})", DISTRUST
        ) from None


def named(name: str) -> str:
    """A client's name, as the coordinator lets clients have. Raises ValueError: it is shown to people, in a command too."""
    if not NAME.fullmatch(name):
        raise ValueError("no name of a client")
    return name


def peer_in(told: Mapping[str, Any]) -> Peer:
    """One peer. Raises ValueError and the like for what is none."""
    handovers = told["handovers"][-MOST_HANDOVERS:]
    return Peer(keys_in(told), tuple(Handover(keys_in(each), str(each["signature"])) for each in handovers))


def keys_in(told: Mapping[str, Any]) -> Keys:
    """Public keys. Raises ValueError for others."""
    return Keys(hexadecimal(told["sign"], KEY_BYTES), hexadecimal(told["receive"], KEY_BYTES))


def hexadecimal(text: str, size: int) -> str:
    """So many bytes in hexadecimal. Raises ValueError."""
    found = bytes.fromhex(text)
    if len(found) != size:
        raise ValueError(f"{size} bytes are wanted")
    return found.hex()


def about(run: RunId, handle: Handle[Any]) -> About:
    """What a handle's value is, for who seals, signs or opens it."""
    return About(run, handle.holder, handle.phase, handle.round, handle.digest, handle.size)


def seal(order: Order, made: Iterable[Handle[Any]], parts: Parts, ring: Ring) -> tuple[Envelope, ...]:
    """Seal what a step made for peers: each value's file lies in `parts`, where its sealed file is put. Raises PeerRefused."""
    values = tuple(made)
    if not values:
        return ()
    peers = peers_in(order.brief)
    readers = {handle: addressed(handle, peers) for handle in values}
    ring.trust(peers)
    return tuple(seal_one(order.run, handle, {n: peers[n] for n in readers[handle]}, parts, ring.own()) for handle in values)


def addressed(handle: Handle[Any], peers: Mapping[ClientId, Peer]) -> tuple[ClientId, ...]:
    """Who is to read a value. Raises PeerRefused for who is none of the run's sites."""
    readers = tuple(sorted(peers)) if handle.to is None else handle.to
    odd = [name for name in readers if name not in peers]
    if odd or not readers:
        what = f"A value of {handle.phase} is for {odd[0] if odd else 'nobody'}, who is no peer of this run"
        raise PeerRefused(what, DISTRUST)
    return readers


def seal_one(run: RunId, handle: Handle[Any], readers: Mapping[ClientId, Peer], parts: Parts, own: Own) -> Envelope:
    """Seal one value."""
    what, key = about(run, handle), sealing.new_key()
    cipher = parts.put(sealing.Sealing(parts.view(Digest(handle.digest)), key, what))
    keys = {name: sealed_to(name, key, peer) for name, peer in sorted(readers.items())}
    signature = sealing.sign(what, cipher, own.sign).hex()
    return Envelope(bare(handle), cipher, sealing.sealed_size(handle.size), keys, signature)


def sealed_to(name: ClientId, key: bytes, peer: Peer) -> str:
    """A content key for a reader. Raises PeerRefused, with its name, for a key to receive that is none."""
    try:
        return sealing.seal_key(key, raw(peer.keys)[1]).hex()
    except ValueError as cause:
        raise PeerRefused(
            f"Nothing can be sealed to {name}: {cause}", f"Have it make new keys: tideline clients rotate {name}"
        ) from None


def bare(handle: Handle[Any]) -> Handle[Any]:
    """A handle as others know it."""
    return replace(handle, value=None, to=None, kind=None)


def ciphers(envelopes: Iterable[Envelope]) -> Files:
    """The sealed files of envelopes."""
    return tuple(dict.fromkeys((each.cipher, each.bytes) for each in envelopes))


def plaintexts(envelopes: Iterable[Envelope]) -> Files:
    """The values' own files, as they lie at who has opened them."""
    return tuple(dict.fromkeys((Digest(each.handle.digest), each.handle.size) for each in envelopes))


def complete(order: Order, root: memoryview) -> None:
    """An order brings an envelope for each handle that its message names, and no others. Raises Missing, Malformed."""
    named, brought = set(named_handles(parse(root))), {each.handle for each in order.sealed}
    if lacking := sorted(named - brought, key=str):
        raise Missing(f"The order names a value of {lacking[0].holder} and does not bring it", DISTRUST)
    if more := sorted(brought - named, key=str):
        raise Malformed(f"The order brings a value of {more[0].holder} that it does not name", DISTRUST)


def vouched(order: Order, envelope: Envelope, me: ClientId, ring: Ring) -> bytes:
    """The content key of a value that is for this site. Raises SealBroken, PeerRefused.

    Its holder must be known, and must have signed it for this run and exchange: whatever lies here already under its digest.
    """
    handle, peers = envelope.handle, peers_in(order.brief)
    if handle.holder not in peers:
        raise PeerRefused(f"The order brings a value of {handle.holder}, who is no peer of this run", DISTRUST)
    pin, what = ring.trust(peers)[handle.holder], about(order.run, handle)
    signers = [raw(keys)[0] for keys in (pin.keys, *pin.former) if keys]
    sealing.verify(what, envelope.cipher, hex_or_none(envelope.signature), signers)
    return content_key(envelope, me, ring.own(), what)


def unseal(order: Order, envelope: Envelope, key: bytes, parts: Parts) -> None:
    """Open a value whose sealed file lies in `parts`, and put its own file there. Raises SealBroken unless all is as sealed."""
    handle, what = envelope.handle, about(order.run, envelope.handle)
    with_bytes = parts.view(envelope.cipher)
    upload = parts.upload(Digest(check_digest(handle.digest)), handle.size)
    try:
        if upload.offset:  # what an earlier try left may be another's
            upload.discard()
            upload = parts.upload(Digest(handle.digest), handle.size)
        for chunk in sealing.opened(with_bytes, key, what):
            upload.write(chunk)
        commit(upload, what)
    except BaseException:
        upload.discard()
        raise


def commit(upload: Any, what: About) -> None:
    """Keep a value. Raises SealBroken where its holder sealed other bytes than it named."""
    try:
        upload.commit()
    except Malformed:
        raise sealing.broken(what, "it is not what its holder named") from None


def content_key(envelope: Envelope, me: ClientId, own: Own, what: About) -> bytes:
    """The content key of a value that is for this site. Raises SealBroken."""
    sealed = hex_or_none(envelope.keys.get(me, ""))
    found = (sealing.open_key(sealed, key) for key in own.receive)
    key = next((each for each in found if each is not None), None)
    if key is None:
        raise sealing.broken(what, f"it is not sealed to {me}, or to keys that {me} has no more")
    return key


def hex_or_none(text: str) -> bytes:
    """Bytes from hexadecimal; none from anything else."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


__all__ = ["MemoryPins", "Own", "Pin", "Pins", "Ring", "SealBroken", "fresh", "seal", "unseal"]
