"""An agent's home: one process at a time, and keys that only its owner can read.

keys.pem         the keys that sign
keys.next.pem    while they are rotated: the new ones. Which of the two the coordinator knows, it says itself
keys.former.pem  keys to receive of before, the newest first: what was sealed to them may still be on its way
coordinator.json where the coordinators are, and who vouches for them
noise.key        what all noise of runs that protect rows comes from; made when the first of them comes
session          how many times an agent has started with this home
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tideline.archive.folder import sync
from tideline.core.asked.private import KEY_BYTES
from tideline.core.errors import IdentityRefused, Refused
from tideline.core.signing import bulk_bytes, call_bytes, fingerprint, handover_bytes, rotation_bytes
from tideline.engine.model.accounts import Session
from tideline.engine.peers.peer_keys import MOST_FORMER, Own
from tideline.engine.process.private import close_home

T = TypeVar("T")

KEYS, NEXT, FORMER, COORDINATOR = "keys.pem", "keys.next.pem", "keys.former.pem", "coordinator.json"
SESSION, NOISE = "session", "noise.key"
RESTORE = "Restore the file, or delete it and enrol with a new token"
END = b"-----END PRIVATE KEY-----\n"
PEM = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Keys:
    """Ed25519 to sign, X25519 to receive."""

    sign_key: Ed25519PrivateKey
    receive_key: X25519PrivateKey

    @classmethod
    def made(cls) -> Keys:
        return cls(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def of(cls, pem: bytes) -> Keys:
        """Keys from their file. Raises ValueError for anything else."""
        first, _, second = pem.partition(END)
        sign, receive = load_pem_private_key(first + END, None), load_pem_private_key(second, None)
        if not isinstance(sign, Ed25519PrivateKey) or not isinstance(receive, X25519PrivateKey):
            raise ValueError("other kinds of keys")
        return cls(sign, receive)

    @property
    def pem(self) -> bytes:
        return self.sign_key.private_bytes(*PEM) + self.receive_key.private_bytes(*PEM)

    @property
    def public(self) -> tuple[bytes, bytes]:
        """The public keys, raw: to sign, to receive."""
        return self.sign_key.public_key().public_bytes_raw(), self.receive_key.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        return fingerprint(*self.public)

    def signature(self, method: str, client: str, time_ms: int, request: bytes, session: str = "") -> str:
        """What proves a call, in base64."""
        return base64.b64encode(self.sign_key.sign(call_bytes(method, client, time_ms, request, session))).decode()

    def bulk_signature(self, ticket: str, up: bool, client: str, nbytes: int) -> str:
        """What proves a transfer over the bulk lane, in base64."""
        return base64.b64encode(self.sign_key.sign(bulk_bytes(ticket, up, client, nbytes))).decode()

    def hands_over(self, client: str, fresh: Keys) -> bytes:
        """What proves to who knows these keys that the client has others now."""
        return self.sign_key.sign(handover_bytes(client, *fresh.public))

    @property
    def private(self) -> tuple[bytes, bytes]:
        """The private keys, raw: to sign, to receive."""
        return self.sign_key.private_bytes_raw(), self.receive_key.private_bytes_raw()

    def takes_over(self, client: str) -> bytes:
        """What proves that these keys are to take the place of a client's old ones."""
        return self.sign_key.sign(rotation_bytes(client, *self.public))


def receive_pem(receive: bytes) -> bytes:
    """A private X25519 key, raw, as it stands in a file."""
    return X25519PrivateKey.from_private_bytes(receive).private_bytes(*PEM)


def receive_keys(pem: bytes) -> tuple[bytes, ...]:
    """The private X25519 keys of a file, raw, in order; others may stand between them. Raises ValueError for anything else."""
    *blocks, rest = pem.split(END)
    if rest or not blocks:
        raise ValueError("a file that is cut")
    found = [load_pem_private_key(block + END, None) for block in blocks]
    return tuple(key.private_bytes_raw() for key in found if isinstance(key, X25519PrivateKey))


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two agents on one home would answer for each other. Raises IdentityRefused."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            todo = "Stop it, or choose another --name or --home"
            raise IdentityRefused(f"Another agent runs with the home {folder}", todo) from None
        close_home(folder)
        yield


def new_session(folder: Path) -> Session:
    """A session of its own for this start. Its count is on the disk before anybody hears of it, so it only grows."""
    path = folder / SESSION
    try:
        before = int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        before = 0  # where coordinators know a later one, this one is held until somebody has seen to it
    write(path, str(before + 1).encode())
    return Session(before + 1, secrets.token_hex(4))


def keys(folder: Path) -> Keys:
    """The agent's keys, made before it enrols, so that a killed agent starts again with the same command."""
    return held(folder / KEYS)


def noise_secret(folder: Path) -> bytes:
    """What the noise of private runs comes from, made once: with another one, an order that comes again would get other noise,
    and two noises on one answer tell more than was charged for.
    """
    found = read(folder / NOISE, noise_in, "Restore it from a backup. If there is none, delete it and charge your budget anew")
    if found is None:
        found = secrets.token_bytes(KEY_BYTES)
        write(folder / NOISE, found.hex().encode())
    return found


def noise_in(text: bytes) -> bytes:
    """Raises ValueError for what is no such key."""
    found = bytes.fromhex(text.decode("ascii"))
    if len(found) != KEY_BYTES:
        raise ValueError("another length")
    return found


def next_keys(folder: Path) -> Keys:
    """The keys that are to take over: those of a rotation that was not finished, or new ones."""
    return held(folder / NEXT)


def unfinished(folder: Path) -> Keys | None:
    return load(folder / NEXT)


def take_over(folder: Path) -> None:
    """The next keys become the agent's keys, by one rename; first the old one to receive is kept aside with those before it."""
    aside = dict.fromkeys((keys(folder).private[1], *former(folder)))
    write(folder / FORMER, b"".join(map(receive_pem, list(aside)[:MOST_FORMER])))
    (folder / NEXT).replace(folder / KEYS)
    sync(folder)


def own(folder: Path) -> Own:
    """The agent's keys as what is sealed for its peers, and by them, needs them: of those to receive, also the former ones."""
    sign, receive = keys(folder).private
    return Own(sign, (receive, *former(folder)))


def former(folder: Path) -> tuple[bytes, ...]:
    """The private keys to receive of before, raw, the newest first. A file of older versions holds one, beside one to sign."""
    return read(folder / FORMER, receive_keys, "Restore the file, or delete it: what was sealed to them opens no more then") or ()


def held(path: Path) -> Keys:
    """The keys in a file; new ones, if it is not there."""
    keys = load(path)
    if keys is None:
        keys = Keys.made()
        write(path, keys.pem)
    return keys


def load(path: Path) -> Keys | None:
    """The keys in a file, if it is there. Raises IdentityRefused for one that others can read or that holds something else."""
    return read(path, Keys.of)


def read(path: Path, parse: Callable[[bytes], T], todo: str = RESTORE) -> T | None:
    """What a file of private keys holds, if it is there. Raises IdentityRefused; `parse` raises ValueError for what is none."""
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None
    if mode & 0o077:
        what = f"Others may read the keys in {path} (mode {mode:04o})"
        ways = "if they may have been read, have them rotated: tideline clients rotate NAME"
        raise IdentityRefused(what, f"chmod 600 {path}; {ways}")
    try:
        return parse(path.read_bytes())
    except ValueError:
        raise IdentityRefused(f"{path} does not hold an agent's keys", todo) from None


@dataclass(frozen=True)
class Memo:
    """What a home remembers of the coordinators.

    addresses  that are called: what the agent was started with, and what has answered since
    trust      plain, pinned (by `ca`, PEM) or system
    given      those of them that the owner gave by hand, which stay
    announced  those that the coordinators announced last; heard: the id of that; declined: it was not taken up
    token      of which token the home knows all that there is (SHA-256)
    """

    name: str
    addresses: tuple[str, ...]
    trust: str
    ca: str = ""
    given: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()
    heard: str = ""
    declined: bool = False
    token: str = ""

    @property
    def others(self) -> tuple[str, ...]:
        """Addresses that were announced, and have not answered yet."""
        return tuple(each for each in self.announced if each not in self.addresses)

    def settled(self, current: str) -> Memo:
        """As it is once this address has answered: others that nobody gave, and nobody announces any more, are forgotten."""
        staying = (*self.given, *self.announced, current) if self.announced else (*self.addresses, current)
        there = dict.fromkeys((*self.given, *(each for each in self.addresses if each in staying), current))
        return replace(self, addresses=tuple(there))


def recall(folder: Path) -> Memo | None:
    """What the home remembers. Raises Refused for a file that is damaged."""
    path = folder / COORDINATOR
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        addresses = tuple(map(str, raw["addresses"]))
        return Memo(
            name=str(raw["name"]),
            addresses=addresses,
            trust=str(raw["trust"]),
            ca=str(raw["ca"]),
            given=tuple(map(str, raw.get("given", addresses))),  # an older version does not say which were given
            announced=tuple(map(str, raw.get("announced", ()))),
            heard=str(raw.get("heard", "")),
            declined=bool(raw.get("declined", False)),
            token=str(raw.get("token", "")),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused(f"{path} is damaged", "Delete it, and give --coordinator and --ca once") from None


def remember(folder: Path, memo: Memo) -> None:
    """Keep what was found, so that the agent starts again without a token."""
    if recall(folder) != memo:
        write(folder / COORDINATOR, json.dumps(asdict(memo)).encode())


def write(path: Path, content: bytes) -> None:
    """A file that only its owner can read, whole or not at all, also after a power cut."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)
