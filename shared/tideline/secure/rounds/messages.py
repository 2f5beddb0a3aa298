"""What sites and the coordinator send each other in a round, and what of it is signed or hashed.

roll: the digest of terms and adverts. Each later message names it, so that none is of another round, or of other keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from tideline.secure.fixed_point import Words
from tideline.secure.rounds.terms import Place, Terms, words


@dataclass(frozen=True)
class Advert:
    """A site's public X25519 keys for one place, signed by its own pinned key."""

    site: str
    place: Place
    mask_key: bytes
    share_key: bytes
    signature: bytes = b""

    @property
    def words(self) -> bytes:
        return words("advert", self.site, *self.place.parts, self.mask_key.hex(), self.share_key.hex())


@dataclass(frozen=True)
class Roll:
    """The terms, and the adverts of all sites that have sent one, by name."""

    terms: Terms
    adverts: tuple[Advert, ...]

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(each.site for each in self.adverts)

    @cached_property
    def advert(self) -> dict[str, Advert]:
        return {each.site: each for each in self.adverts}

    @cached_property
    def digest(self) -> str:
        return sha256(words("roll", self.terms.digest, *(each.words.hex() for each in self.adverts))).hexdigest()


@dataclass(frozen=True)
class Parcel:
    """An author's two shares for one reader, sealed to it: of its key for masks, and of the seed of its self mask.

    Marks are hashes of the shares, and of the seed, by which the coordinator knows the right ones. A parcel is signed whole.
    """

    roll: str
    author: str
    reader: str
    box: bytes
    key_mark: bytes
    self_mark: bytes
    seed_mark: bytes
    signature: bytes = b""

    @property
    def words(self) -> bytes:
        marks = (each.hex() for each in (self.key_mark, self.self_mark, self.seed_mark))
        return words("parcel", self.roll, self.author, self.reader, sha256(self.box).hexdigest(), *marks)


@dataclass(frozen=True)
class Parcels:
    """All that one author sends: a parcel for each of its neighbours, and for itself."""

    parcels: tuple[Parcel, ...]


@dataclass(frozen=True)
class Ahead:
    """What one author sends for several rounds at once, the same number of each as of terms."""

    adverts: tuple[Advert, ...] = ()
    parcels: tuple[Parcels, ...] = ()


@dataclass(frozen=True)
class Asking:
    """What sites are asked for several rounds at once: terms, or rolls."""

    terms: tuple[Terms, ...] = ()
    rolls: tuple[Roll, ...] = ()


@dataclass(frozen=True)
class Delivery:
    """What one site is sent: the digest of what all are asked, who has sent parcels, and those for it."""

    roll: str
    order: str
    authors: tuple[str, ...]
    parcels: tuple[Parcel, ...]


@dataclass(frozen=True)
class Masked:
    """A site's values under its masks."""

    roll: str
    site: str
    values: Words = field(repr=False, compare=False)


@dataclass(frozen=True)
class Survivors:
    """Whose masked values are in the sum."""

    roll: str
    sites: tuple[str, ...]

    @property
    def words(self) -> bytes:
        return words("survivors", self.roll, self.sites)


@dataclass(frozen=True)
class Agreement:
    """A survivor's word, signed, that it knows this set of survivors, and will know no other."""

    roll: str
    site: str
    signature: bytes


@dataclass(frozen=True)
class Agreements:
    """The words of enough of the survivors."""

    agreements: tuple[Agreement, ...]


@dataclass(frozen=True)
class Revealed:
    """One share of an author."""

    author: str
    share: bytes


@dataclass(frozen=True)
class Unmasked:
    """A site's shares of the self masks of survivors, and of the keys of the others. No author is in both."""

    roll: str
    site: str
    seeds: tuple[Revealed, ...]
    keys: tuple[Revealed, ...]
