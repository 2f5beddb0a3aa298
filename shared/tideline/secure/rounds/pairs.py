"""Which masks hide a site's values, who holds its shares, and how shares are marked: what both halves of a round agree on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from tideline.secure import masks
from tideline.secure.fixed_point import Words
from tideline.secure.graph import Design, design, neighbours
from tideline.secure.keys import agreeing
from tideline.secure.masks import Part, key_of
from tideline.secure.rounds.messages import Roll
from tideline.secure.rounds.terms import words

KEY, SELF = "key", "self"  # the two secrets of a site that others hold shares of


@dataclass(frozen=True)
class Pairs:
    """Who is whose neighbour among the sites of a roll. The graph's seed is the roll's digest, which no single site chooses."""

    roll: Roll

    @cached_property
    def design(self) -> Design:
        return design(len(self.roll.sites), len(self.roll.terms.sites))

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        return neighbours(self.roll.sites, self.design.neighbours, bytes.fromhex(self.roll.digest))

    def holders(self, site: str) -> tuple[str, ...]:
        """Who holds shares of a site: its neighbours, and itself."""
        return tuple(sorted((site, *self.neighbours[site])))

    def place(self, site: str) -> int:
        """The place of a site's shares on everybody's polynomials."""
        return self._places[site]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.roll.terms.sites, 1)}

    def mark(self, author: str, reader: str, which: str, share: bytes) -> bytes:
        """A share's hash. A share has 256 bits that nobody can guess, so its hash tells nothing of it."""
        return mark_of(self.roll.digest, author, reader, which, share)

    def seed_mark(self, author: str, seed: bytes) -> bytes:
        return sha256(words("seed", self.roll.digest, author, seed.hex())).digest()


def mark_of(roll: str, author: str, reader: str, which: str, share: bytes) -> bytes:
    """The same, of the keys with this digest."""
    return sha256(words("share", roll, author, reader, which, share.hex())).digest()


@dataclass(frozen=True)
class Masking:
    """The masks of sites that were asked this order, where parcels came of these authors. They are bound to run, place, order,
    all keys and the authors: to whom another order or other authors are named, other masks are given.
    """

    pairs: Pairs
    order: str
    authors: tuple[str, ...]

    @cached_property
    def use(self) -> tuple[Part, ...]:
        roll, authors = self.pairs.roll, sha256(words("authors", self.authors)).hexdigest()
        return (*roll.terms.place.parts, self.order, roll.digest, authors)

    def partners(self, site: str, among: Iterable[str] | None = None) -> tuple[str, ...]:
        """The neighbours with whom a site has a pair mask; those among some."""
        wanted = set(self.authors) if among is None else set(among) & set(self.authors)
        return tuple(name for name in self.pairs.neighbours[site] if name in wanted)

    def own(self, site: str, seed: bytes) -> bytes:
        """The key of a site's self mask."""
        return key_of(seed, *self.use, SELF, site)

    def pairs_of(self, site: str, key: bytes, others: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Of a site, by its private key, the keys of the masks that it has with others: each of two sites gets the same."""
        agreed, adverts = agreeing(key), self.pairs.roll.advert
        for other in others:
            secret = agreed(other, adverts[other].mask_key)
            yield other, key_of(secret, *self.use, "pair", *sorted((site, other)))

    def hide(self, site: str, key: bytes, values: Words) -> None:
        """Put a site's values, where they lie, under its pair masks: the first name of a pair adds, the second subtracts."""
        for other, mask in self.pairs_of(site, key, self.partners(site)):
            (masks.add if site < other else masks.subtract)(values, mask)

    def bare(self, site: str, key: bytes, remaining: Iterable[str], total: Words) -> None:
        """Take from a sum what remains in it of the pair masks with a site that has dropped out."""
        for other, mask in self.pairs_of(site, key, self.partners(site, remaining)):
            (masks.subtract if other < site else masks.add)(total, mask)
