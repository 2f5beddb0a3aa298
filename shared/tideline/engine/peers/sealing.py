"""What a site seals for its peers, and what it opens of theirs, by the keys of its peer keys. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from tideline.archive import sealing
from tideline.archive.digests import check_digest
from tideline.archive.errors import SealBroken
from tideline.archive.layout import parse
from tideline.archive.parts import Parts
from tideline.archive.sealing import About, Handed
from tideline.core.errors import Malformed, PeerRefused
from tideline.core.handle import AnyHandle, Handle
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.model.accounts import Peer
from tideline.engine.model.brief import DISTRUST
from tideline.engine.model.orders import Envelope, Files, Order
from tideline.engine.peers.peer_keys import Known, Own, PeerKeys, Pin, hex_or_none, raw

UNSIGNED = "An older version sealed it, or somebody on the way took that out. Begin the run again, with one version at all sites"


def about(run: RunId, handle: AnyHandle) -> About:
    return About(run=run, holder=handle.holder, phase=handle.phase, round=handle.round, digest=handle.digest, size=handle.size)


def seal(
    run: RunId, peers: Mapping[ClientId, Peer], made: Iterable[AnyHandle], parts: Parts, peer_keys: PeerKeys
) -> tuple[Envelope, ...]:
    """Seal what a step made for peers: each value's file lies in `parts`, where its sealed file is put. Raises PeerRefused."""
    values = tuple(made)
    if not values:
        return ()
    readers = {handle: addressed(handle, peers) for handle in values}
    peer_keys.trust(peers)
    return tuple(seal_one(run, handle, {n: peers[n] for n in readers[handle]}, parts, peer_keys.own()) for handle in values)


def addressed(handle: AnyHandle, peers: Mapping[ClientId, Peer]) -> tuple[ClientId, ...]:
    """Who is to read a value. Raises PeerRefused for who is none of the run's sites."""
    readers = tuple(sorted(peers)) if handle.to is None else handle.to
    odd = [name for name in readers if name not in peers]
    if odd or not readers:
        what = f"A value of {handle.phase} is for {odd[0] if odd else 'nobody'}, who is no peer of this run"
        raise PeerRefused(what, DISTRUST)
    return readers


def seal_one(run: RunId, handle: AnyHandle, readers: Mapping[ClientId, Peer], parts: Parts, own: Own) -> Envelope:
    what, key = about(run, handle), sealing.new_key()
    cipher = parts.put(sealing.Sealing(parts.view(Digest(handle.digest)), key, what))
    keys = {name: sealed_to(name, key, peer).hex() for name, peer in sorted(readers.items())}
    return signed(
        run, Envelope(handle=handle.bare(), cipher=cipher, bytes=sealing.sealed_size(handle.size), keys=keys, signatures={}), own
    )


def signed(run: RunId, envelope: Envelope, own: Own) -> Envelope:
    """A site's own envelope, with its signature of what each reader is handed."""
    given = {name: sealing.sign(handed(run, envelope, name), own.sign).hex() for name in envelope.keys}
    return replace(envelope, signatures=given)


def signed_since(run: RunId, envelopes: Iterable[Envelope], peer_keys: PeerKeys) -> tuple[Envelope, ...]:
    """A site's own envelopes as it remembers them. Those of a record from before readers had signatures are signed now."""
    return tuple(each if each.signatures else signed(run, each, peer_keys.own()) for each in envelopes)


def sealed_to(name: ClientId, key: bytes, peer: Peer) -> bytes:
    """A content key in a box for a reader. Raises PeerRefused, with its name, for a key to receive that is none."""
    try:
        return sealing.seal_key(key, raw(peer.keys)[1])
    except ValueError as cause:
        what = f"Nothing can be sealed to {name}: {cause}"
        raise PeerRefused(what, f"Have it make new keys: tideline clients rotate {name}") from None


def ciphers(envelopes: Iterable[Envelope]) -> Files:
    return tuple(dict.fromkeys((each.cipher, each.bytes) for each in envelopes))


def plaintexts(envelopes: Iterable[Envelope]) -> Files:
    return tuple(dict.fromkeys((Digest(each.handle.digest), each.handle.size) for each in envelopes))


def handed(run: RunId, envelope: Envelope, reader: ClientId) -> Handed:
    return Handed(about(run, envelope.handle), envelope.cipher, reader, hex_or_none(envelope.keys.get(reader, "")))


def complete(order: Order, root: memoryview) -> None:
    """An order brings an envelope for each handle that its message names, and no others. Raises SealBroken, Malformed."""
    named, given = set(parse(root).handles), {each.handle for each in order.sealed}
    if lacking := sorted(named - given, key=str):
        raise sealing.on_the_way(about(order.run, lacking[0]), "the order names it and does not bring it")
    if more := sorted(given - named, key=str):
        raise Malformed(f"The order brings a value of {more[0].holder} that it does not name", DISTRUST)


def vouched(order: Order, envelope: Envelope, me: ClientId, peer_keys: PeerKeys, known: Known) -> bytes:
    """The content key of a value that is for this site. Raises SealBroken, PeerRefused.

    Its holder must be known, and must have signed it for this run, exchange and site: whatever lies here already by its digest.
    known: the order's peers as the site trusts them, once for all of its values, since to look at all peers takes a while.
    """
    handle = envelope.handle
    if handle.holder not in known:
        raise PeerRefused(f"The order brings a value of {handle.holder}, who is no peer of this run", DISTRUST)
    pin, mine = known[handle.holder], handed(order.run, envelope, me)
    if not mine.box:
        raise sealing.on_the_way(mine.about, f"it came without a key for {me}, or {handle.holder} has sealed it to others alone")
    check_signed(mine, hex_or_none(envelope.signatures.get(me, "")), pin, peer_keys.now())
    if envelope.bytes != sealing.sealed_size(handle.size):
        raise sealing.on_the_way(mine.about, f"its file is said to have {envelope.bytes} bytes, which is not what was signed")
    return content_key(mine, peer_keys.own())


def check_signed(mine: Handed, signature: bytes, pin: Pin, now: float) -> None:
    """Raises SealBroken unless a value's holder signed what is handed to this site, by keys that are believed."""
    if sealing.signed_by(mine, signature, [raw(keys)[0] for keys in pin.believed(now)]):
        return
    for each in pin.former:
        if sealing.signed_by(mine, signature, [raw(each.keys)[0]]):
            raise too_old(mine.about, each.until or now)
    if not signature:
        what = mine.about
        whose = f"The value {what.digest[:12]} that {what.holder} sealed {sealing.place(what)}"
        words = f"{whose}: {what.holder} has not signed it for {mine.reader}"
        raise sealing.broken(what, words, UNSIGNED)
    raise sealing.on_the_way(mine.about, f"{mine.about.holder} has not signed it for {mine.reader}")


def too_old(what: About, until: float) -> SealBroken:
    """The error for a value that was signed by keys that its holder gave up long ago: whoever found them may have signed it."""
    day = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
    words = f"The value {what.digest[:12]} that {what.holder} sealed {sealing.place(what)} is signed by keys that it has replaced"
    todo = "Begin the run again: its sites then sign with their keys of today"
    return sealing.broken(what, f"{words}; they were believed until {day}", todo)


def unseal(order: Order, envelope: Envelope, key: bytes, parts: Parts) -> None:
    """Open a value that is vouched for, whose sealed file lies in `parts`, and put its own file there.

    Raises SealBroken where its holder sealed something else than it named.
    """
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
        raise sealing.by_holder(what, "what its file holds has another digest") from None


def content_key(mine: Handed, own: Own) -> bytes:
    """The content key in a box that its holder signed. Raises SealBroken where no key of this site opens it."""
    found = (sealing.open_key(mine.box, key) for key in own.receive)
    key = next((each for each in found if each is not None), None)
    if key is None:
        why = f"the key to it that it signed for {mine.reader} opens with none of {mine.reader}'s keys"
        raise sealing.by_holder(mine.about, f"{why}, unless {mine.reader}'s home was set back since")
    return key


M = TypeVar("M")


def sealed_out(envelope: Envelope, message: M) -> M:
    """A sealed value in a new message, which has the fields of federation.proto's Sealed."""
    made: Any = message
    handle = envelope.handle
    made.digest, made.size, made.holder = handle.digest, handle.size, handle.holder
    made.phase, made.round = handle.phase, handle.round
    made.cipher.digest, made.cipher.size = envelope.cipher, envelope.bytes
    made.keys.update({name: bytes.fromhex(key) for name, key in envelope.keys.items()})
    made.signatures.update({name: bytes.fromhex(signature) for name, signature in envelope.signatures.items()})
    return message


def sealed_in(message: Any) -> Envelope:
    handle: Handle[Any] = Handle(
        digest=message.digest,
        size=int(message.size),
        holder=ClientId(message.holder),
        phase=message.phase,
        round=int(message.round),
    )
    keys, signatures = (
        {ClientId(name): text.hex() for name, text in by_reader.items()} for by_reader in (message.keys, message.signatures)
    )
    return Envelope(
        handle=handle, cipher=Digest(message.cipher.digest), bytes=int(message.cipher.size), keys=keys, signatures=signatures
    )
