"""Rounds that tests play in one process. Every message travels as bytes, as it would over a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tideline.secure.fixed_point import Words, finest
from tideline.secure.rounds.coordinator import Delivered, Opened, Summed, delivered, gathered
from tideline.secure.rounds.forms import from_bytes, to_bytes
from tideline.secure.rounds.messages import Advert, Agreement, Agreements, Delivery, Masked, Parcels, Roll, Survivors, Unmasked
from tideline.secure.rounds.notebook import MemoryNotebook, Notebook
from tideline.secure.rounds.site import Agreed, Keyed, Sent, Sharing, advertise
from tideline.secure.rounds.terms import Identity, Place, Terms

T = TypeVar("T")
LENGTH = 5
PLACE = Place("run-1", "train", 3)


def names(n: int) -> tuple[str, ...]:
    return tuple(f"site-{i:03}" for i in range(n))


def terms_of(sites: Iterable[str], length: int = LENGTH, bits: int = 32, place: Place = PLACE) -> Terms:
    known = tuple(sites)
    grid = finest(4.0, len(known), bits)
    return Terms(place=place, sites=known, length=length, clip=4.0, bits=bits, exponent=grid.exponent)


@lru_cache(4096)
def pinned_key(site: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(site.encode()).digest())


def identity(name: str, known: Iterable[str]) -> Identity:
    """Signs as a site, and believes the pinned keys of those that are known."""
    names = frozenset(known)
    return Identity(name, pinned_key(name).sign, lambda *signed: signed[0] in names and verified(*signed))


@lru_cache(1 << 16)
def verified(site: str, words: bytes, signature: bytes) -> bool:
    """Whether a site's pinned key signed this. All sites of a play look at the same signatures: each is looked at once."""
    try:
        pinned_key(site).public_key().verify(signature, words)
    except InvalidSignature:
        return False
    return True


def sent(kind: type[T], message: T, most_values: int = 0) -> T:
    """A message, as it is read at the other end."""
    return from_bytes(kind, to_bytes(message), most_values)


def values_of(terms: Terms, site: str) -> Words:
    """A site's values on the grid."""
    rng = np.random.default_rng(int.from_bytes(sha256(site.encode()).digest()[:8]))
    return terms.grid.encode(rng.normal(size=terms.length) * 2).values


def plain_sum(terms: Terms, sites: Iterable[str]) -> list[int]:
    """The sum of whole numbers, by Python's own, which cannot wrap."""
    each = [terms.grid.steps(values_of(terms, site)).tolist() for site in sites]
    return [sum(column) for column in zip(*each, strict=True)]


@dataclass(frozen=True)
class Play:
    """A round of honest sites. Sites that are not in a step have dropped out before it."""

    terms: Terms
    keyed_by: tuple[str, ...] | None = None
    shared_by: tuple[str, ...] | None = None
    order: str = "b3-order"

    @cached_property
    def notebooks(self) -> dict[str, Notebook]:
        return {name: MemoryNotebook() for name in self.terms.sites}

    @cached_property
    def who(self) -> dict[str, Identity]:
        return {name: identity(name, self.terms.sites) for name in self.terms.sites}

    @cached_property
    def coordinator(self) -> Identity:
        return identity("coordinator", self.terms.sites)

    @cached_property
    def begun(self) -> dict[str, tuple[Keyed, Advert]]:
        roots = {name: sha256(b"root " + name.encode()).digest() for name in self.terms.sites}
        heard = sent(Terms, self.terms)
        return {
            name: advertise(heard, self.who[name], self.notebooks[name], roots[name])
            for name in self.keyed_by or self.terms.sites
        }

    @cached_property
    def roll(self) -> Roll:
        return gathered(self.terms, [sent(Advert, advert) for _, advert in self.begun.values()], self.coordinator)

    @cached_property
    def shared(self) -> dict[str, tuple[Sharing, Parcels]]:
        heard = sent(Roll, self.roll)
        made = {name: self.begun[name][0].share(heard, self.who[name]) for name in self.shared_by or self.roll.sites}
        return {name: (stored(Sharing, state), Parcels(parcels)) for name, (state, parcels) in made.items()}

    @cached_property
    def delivered(self) -> Delivered:
        came = {name: sent(Parcels, parcels).parcels for name, (_, parcels) in self.shared.items()}
        return delivered(self.roll, came, self.order, self.coordinator)

    def delivery(self, name: str) -> Delivery:
        return sent(Delivery, self.delivered.to(name))

    @cached_property
    def masked(self) -> dict[str, tuple[Sent, Masked]]:
        return {name: self.mask(name) for name in self.delivered.authors}

    def mask(self, name: str, values: Words | None = None) -> tuple[Sent, Masked]:
        given = values_of(self.terms, name) if values is None else values
        state, masked = self.shared[name][0].mask(self.delivery(name), given, self.who[name], self.notebooks[name])
        return stored(Sent, state), sent(Masked, masked, self.terms.length)

    def summed(self, survivors: Iterable[str]) -> Summed:
        return self.delivered.summed(self.masked[name][1] for name in survivors)

    def agree(self, name: str, survivors: Survivors, notebook: Notebook | None = None) -> tuple[Agreed, Agreement]:
        """Of a new notebook where none is named: one play may end in many ways."""
        state = self.masked[name][0]
        agreed, agreement = state.agree(sent(Survivors, survivors), self.who[name], notebook or MemoryNotebook())
        return stored(Agreed, agreed), sent(Agreement, agreement)

    def unmasked(self, summed: Summed, answering: Iterable[str]) -> list[Unmasked]:
        """What some sites answer, once all survivors have signed."""
        agreed = {name: self.agree(name, summed.survivors) for name in summed.sites}
        agreements = sent(Agreements, summed.agreed((each for _, each in agreed.values()), self.coordinator))
        return [sent(Unmasked, agreed[name][0].unmask(agreements, self.who[name])) for name in answering]

    def opened(self, survivors: Iterable[str], answering: Iterable[str] | None = None) -> Opened:
        summed = self.summed(survivors)
        return summed.opened(self.unmasked(summed, summed.sites if answering is None else answering))


def stored(kind: type[T], state: T) -> T:
    """A site's state, as it is after the site was killed and began again."""
    return from_bytes(kind, to_bytes(state))


def steps(play: Play, opened: Opened) -> list[int]:
    found: list[int] = play.terms.grid.steps(opened.total).tolist()
    return found


def changed(message: T, **fields: Any) -> T:
    """A message with other fields."""
    known: Any = message
    made: T = type(message)(**{**{name: getattr(message, name) for name in known.__dataclass_fields__}, **fields})
    return made
