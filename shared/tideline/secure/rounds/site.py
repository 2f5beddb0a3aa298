"""A site's half of a round. Each state is a frozen value, has the one call that may come next, and can be stored (`forms`).

What the coordinator says is believed only as far as sites have signed it. What it cannot be held to by signatures, it is held to
by notes: one advert, one input and one set of survivors for a place, written down before the answer goes out. Sites sign their
set, and unmask what enough of them have signed: so the coordinator cannot show different sets to different sites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from tideline.archive.digests import digest_of
from tideline.archive.sealing import box, unboxed
from tideline.secure import masks
from tideline.secure.errors import KeysRefused, MaskSpent, ParcelBroken, RoundReplayed, SurvivorsRefused, TooFewSites
from tideline.secure.fixed_point import Words
from tideline.secure.keys import RoundKeys, fresh, public
from tideline.secure.rounds.messages import (
    Advert,
    Agreement,
    Agreements,
    Delivery,
    Masked,
    Parcel,
    Revealed,
    Roll,
    Survivors,
    Unmasked,
)
from tideline.secure.rounds.notebook import Key, Notebook
from tideline.secure.rounds.pairs import KEY, SELF, Masking, Pairs
from tideline.secure.rounds.terms import Identity, Place, Terms, words
from tideline.secure.shamir import SHARE_BYTES, split

DISTRUST = "The coordinator is broken, or not to be trusted: ask its operator"
AGAIN = "Begin the round again, as another attempt; if it happens again, without that site"


def advertise(terms: Terms, who: Identity, notebook: Notebook, root: bytes | None = None) -> tuple[Keyed, Advert]:
    """Begin a round. root: of a round that this site has begun already and goes on with, after a restart."""
    if who.name not in terms.sites:
        raise KeysRefused(f"{who.name} is asked to join a sum that it is no site of", DISTRUST, peer=who.name)
    if notebook.noted(survivors_key(terms.place)) is not None:
        what = f"{who.name} has already signed who remains of {terms.place}, and is asked to begin it again"
        raise RoundReplayed(what, "Sum another round: two sums of one round would show what single sites sent")
    state = Keyed(terms, who.name, root or fresh())
    advert = signed_advert(state, who)
    sent = sha256(words("keys", terms.digest, advert.words.hex())).hexdigest()
    if notebook.note(("advert", *terms.place.parts), sent) != sent:
        already = "and has sent some already, or for other terms"
        what = f"{who.name} is asked for new keys for attempt {terms.place.attempt} at {terms.place}, {already}"
        raise RoundReplayed(what, "Begin another attempt, with another number")
    return state, advert


def signed_advert(state: Keyed, who: Identity) -> Advert:
    keys = state.keys
    bare = Advert(
        site=who.name, place=state.terms.place, mask_key=public(keys.mask_key), share_key=public(keys.share_key), signature=b""
    )
    return replace(bare, signature=who.sign(bare.words))


def survivors_key(place: Place) -> Key:
    """One set for all attempts at a place: another attempt sums the same values."""
    return ("survivors", place.run, place.phase, place.round)


@dataclass(frozen=True)
class Keyed:
    """A site that has sent its keys."""

    terms: Terms
    me: str
    root: bytes

    @property
    def keys(self) -> RoundKeys:
        return RoundKeys(self.root, (self.me, *self.terms.place.parts))

    def share(self, roll: Roll, who: Identity) -> tuple[Sharing, tuple[Parcel, ...]]:
        """Take the keys of all sites, and give each neighbour its shares. Raises KeysRefused, TooFewSites."""
        check_roll(roll, self.terms, who)
        mine = roll.advert.get(self.me)
        if mine is None or (mine.mask_key, mine.share_key) != (public(self.keys.mask_key), public(self.keys.share_key)):
            what = f"{self.me} is shown as sending other keys than it sent for {self.terms.place}, or none"
            raise KeysRefused(what, DISTRUST, peer=self.me)
        state = Sharing(self.terms, self.me, self.root, roll)
        return state, tuple(state.parcels(who))


def check_roll(roll: Roll, terms: Terms, who: Identity) -> None:
    """Enough of the round's sites, each once, with keys that it has signed for this place. Raises KeysRefused, TooFewSites."""
    if roll.terms != terms:
        raise KeysRefused(f"Keys are shown for other terms of {terms.place} than were asked for", DISTRUST)
    if roll.sites != tuple(sorted(set(roll.sites))):
        raise KeysRefused(f"The keys for {terms.place} are not sorted, or a site is shown twice", DISTRUST)
    check_enough(len(roll.sites), terms, "have sent keys")
    for advert in roll.adverts:
        check_advert(advert, terms, who)


def check_advert(advert: Advert, terms: Terms, who: Identity) -> None:
    if advert.site not in terms.sites:
        what = f"{advert.site} is shown with keys for {terms.place}, which it is no site of"
        raise KeysRefused(what, DISTRUST, peer=advert.site)
    if advert.place != terms.place or not who.verify(advert.site, advert.words, advert.signature):
        what = f"{advert.site} has not signed the keys that it is shown with for {terms.place}"
        todo = f"Somebody on the way changed or swapped them, or {advert.site} has other keys of its own than this site knows"
        raise KeysRefused(what, todo, peer=advert.site)


def check_enough(count: int, terms: Terms, have: str) -> None:
    if count < terms.enough:
        what = f"{count} of {len(terms.sites)} sites {have}, and {terms.enough} are needed for {terms.place}"
        raise TooFewSites(what, "Begin the round again when more sites are there")


@dataclass(frozen=True)
class Sharing:
    """A site that has sent its shares."""

    terms: Terms
    me: str
    root: bytes
    roll: Roll

    @property
    def keys(self) -> RoundKeys:
        return RoundKeys(self.root, (self.me, *self.terms.place.parts))

    def parcels(self, who: Identity) -> Iterable[Parcel]:
        """Shares of the key for masks and of the self mask's seed, for each neighbour and the site itself."""
        pairs, keys = Pairs(self.roll), self.keys
        readers = pairs.holders(self.me)
        places = [pairs.place(name) for name in readers]
        cut = [
            split(secret, pairs.design.threshold, places, keys.random(which, self.roll.digest))
            for which, secret in ((KEY, keys.mask_key), (SELF, keys.self_seed))
        ]
        for reader, key_share, self_share in zip(readers, *cut, strict=True):
            parcel = Parcel(
                roll=self.roll.digest,
                author=self.me,
                reader=reader,
                box=sealed(key_share.value + self_share.value, self.roll.advert[reader]),
                key_mark=pairs.mark(self.me, reader, KEY, key_share.value),
                self_mark=pairs.mark(self.me, reader, SELF, self_share.value),
                seed_mark=pairs.seed_mark(self.me, keys.self_seed),
            )
            yield replace(parcel, signature=who.sign(parcel.words))

    def mask(self, delivery: Delivery, values: Words, who: Identity, notebook: Notebook) -> tuple[Sent, Masked]:
        """Hide values, which have been encoded by the terms' grid, where they lie: the array is given away. Whoever calls
        has seen that the delivery names the order that the values are the answer to.

        Raises ParcelBroken, TooFewSites, ValuesRefused; MaskSpent for other values than those that were hidden before.
        """
        pairs = Pairs(self.roll)
        shares = tuple(self.opened(delivery, pairs, who))
        self.terms.grid.check(values, self.terms.length)
        what = digest_of([words("input", delivery.order, delivery.authors), values.data.cast("B")])
        if notebook.note(("input", *self.terms.place.parts), what) != what:
            raise MaskSpent(
                f"{self.me} is to hide other values at {self.terms.place} than it has hidden there, or for another order, or"
                " among other sites",
                "Begin another attempt, with new keys: the difference of two messages under one mask would show what it hides",
            )
        masking, keys = Masking(pairs, delivery.order, delivery.authors), self.keys
        masks.add(values, masking.own(self.me, keys.self_seed))
        masking.hide(self.me, keys.mask_key, values)
        sent = Sent(terms=self.terms, me=self.me, roll=self.roll.digest, authors=delivery.authors, shares=shares)
        return sent, Masked(self.roll.digest, self.me, values)

    def opened(self, delivery: Delivery, pairs: Pairs, who: Identity) -> Iterable[Held]:
        """The shares in parcels, which must be those of all authors whose shares this site is to hold."""
        place, known = self.terms.place, set(self.roll.sites)
        if delivery.roll != self.roll.digest or delivery.authors != tuple(sorted(known & set(delivery.authors))):
            raise ParcelBroken(
                f"Parcels for {self.me} are of other keys than were shown for {place}, or of unknown sites", DISTRUST
            )
        check_enough(len(delivery.authors), self.terms, "have sent shares")
        due = sorted(set(pairs.holders(self.me)) & set(delivery.authors))
        if [each.author for each in delivery.parcels] != due or self.me not in due:
            raise ParcelBroken(f"The parcels for {self.me} at {place} are not one of each neighbour, and its own", DISTRUST)
        if len(due) < pairs.design.threshold:
            what = f"{len(due)} neighbours of {self.me} have sent shares, and {pairs.design.threshold} are needed"
            raise TooFewSites(what, "Begin the round again when more sites are there")
        return (self.open(parcel, pairs, who) for parcel in delivery.parcels)

    def open(self, parcel: Parcel, pairs: Pairs, who: Identity) -> Held:
        """An author's shares. Raises ParcelBroken, which says whose fault it is: what is signed is the author's."""
        author, where = parcel.author, f"{parcel.author}'s parcel for {self.me} at {self.terms.place}"
        if (parcel.roll, parcel.reader) != (self.roll.digest, self.me) or not who.verify(author, parcel.words, parcel.signature):
            raise ParcelBroken(f"{where} is not signed by {author}, or is of other keys or another reader", DISTRUST)
        shares = unboxed(parcel.box, self.keys.share_key)
        todo = f"Ask {author}'s owner: its agent is broken, or not to be trusted. {AGAIN}"
        if shares is None or len(shares) != 2 * SHARE_BYTES:
            raise ParcelBroken(f"{where} is signed by {author} and does not open", todo)
        held = Held(author, shares[:SHARE_BYTES], shares[SHARE_BYTES:])
        marks = pairs.mark(author, self.me, KEY, held.key), pairs.mark(author, self.me, SELF, held.seed)
        if marks != (parcel.key_mark, parcel.self_mark):
            raise ParcelBroken(f"{where} is signed by {author} and holds other shares than it says", todo)
        return held


def sealed(shares: bytes, advert: Advert) -> bytes:
    try:
        return box(shares, advert.share_key)
    except ValueError as cause:
        what = f"Nothing can be sealed to {advert.site}: {cause}"
        raise KeysRefused(
            what, f"Ask {advert.site}'s owner: its agent is broken, or not to be trusted", peer=advert.site
        ) from None


@dataclass(frozen=True)
class Held:
    """The shares of one author at one site: of its key for masks, and of its self mask's seed."""

    author: str
    key: bytes
    seed: bytes


@dataclass(frozen=True)
class Sent:
    """A site that has sent its values. Of its own secrets it holds no more than its shares."""

    terms: Terms
    me: str
    roll: str
    authors: tuple[str, ...]
    shares: tuple[Held, ...]

    def agree(self, survivors: Survivors, who: Identity, notebook: Notebook) -> tuple[Agreed, Agreement]:
        """Know one set of survivors, ever, and sign that. Raises SurvivorsRefused."""
        self.check(survivors)
        what = sha256(survivors.words).hexdigest()
        if notebook.note(survivors_key(self.terms.place), what) != what:
            second = f"{self.me} is asked to sign a second set of survivors of {self.terms.place}"
            raise SurvivorsRefused(second, f"Two sums of one round show what single sites sent. {DISTRUST}")
        agreed = Agreed(terms=self.terms, me=self.me, survivors=survivors, shares=self.shares)
        return agreed, Agreement(self.roll, self.me, who.sign(survivors.words))

    def check(self, survivors: Survivors) -> None:
        place, named = self.terms.place, survivors.sites
        if survivors.roll != self.roll or named != tuple(sorted(set(named))):
            raise SurvivorsRefused(f"The survivors of {place} are of other keys, or named twice", DISTRUST)
        if odd := sorted(set(named) - set(self.authors)):
            raise SurvivorsRefused(f"{odd[0]} is named as a survivor of {place}, and has sent no shares", DISTRUST)
        if self.me not in named:
            raise SurvivorsRefused(f"{self.me} has sent its values for {place}, and is named as dropped out", DISTRUST)
        if len(named) < self.terms.enough:
            needed = f"{self.terms.enough} of {len(self.terms.sites)} are needed"
            what = f"{len(named)} sites are named as survivors of {place}, and {needed}"
            raise SurvivorsRefused(what, f"The sum of few sites shows much of each. {DISTRUST}")


@dataclass(frozen=True)
class Agreed:
    """A site that has signed a set of survivors."""

    terms: Terms
    me: str
    survivors: Survivors
    shares: tuple[Held, ...]

    def unmask(self, agreements: Agreements, who: Identity) -> Unmasked:
        """Of each survivor the share of its self mask, of each other author that of its key, once enough survivors have signed
        the same set: no two sets have so many signatures, as every honest site signs one. Raises SurvivorsRefused.
        """
        check_agreements(agreements, self.survivors, self.terms, who)
        remain = set(self.survivors.sites)
        return Unmasked(
            roll=self.survivors.roll,
            site=self.me,
            seeds=tuple(Revealed(each.author, each.seed) for each in self.shares if each.author in remain),
            keys=tuple(Revealed(each.author, each.key) for each in self.shares if each.author not in remain),
        )


def check_agreement(agreement: Agreement, survivors: Survivors, who: Identity, at: str = "this round") -> None:
    """Raises SurvivorsRefused unless a site has signed this set."""
    if agreement.roll != survivors.roll or not who.verify(agreement.site, survivors.words, agreement.signature):
        what = f"{agreement.site} has not signed the survivors of {at} that are shown"
        raise SurvivorsRefused(what, f"It was shown others, or somebody on the way changed its signature. {DISTRUST}")


def check_agreements(agreements: Agreements, survivors: Survivors, terms: Terms, who: Identity) -> None:
    """Raises SurvivorsRefused unless enough survivors, each once, have signed this set."""
    named = [each.site for each in agreements.agreements]
    if len(set(named)) != len(named) or not set(named) <= set(survivors.sites):
        raise SurvivorsRefused(
            f"The signatures under the survivors of {terms.place} are of other sites, or twice of one", DISTRUST
        )
    for each in agreements.agreements:
        check_agreement(each, survivors, who, str(terms.place))
    if len(named) < terms.enough:
        what = f"{len(named)} sites have signed the survivors of {terms.place}, and {terms.enough} are needed"
        raise SurvivorsRefused(what, "Ask the other survivors again: without so many, two sets could be unmasked")
