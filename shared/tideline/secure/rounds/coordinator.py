"""The coordinator's half of a round: it relays, adds up, and takes off the masks that sites give it the shares for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tideline.core.errors import Malformed
from tideline.secure import masks
from tideline.secure.errors import MaskSpent, ParcelBroken, SharesRefused, TooFewSites, ValuesRefused
from tideline.secure.fixed_point import Words
from tideline.secure.keys import public
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
from tideline.secure.rounds.pairs import KEY, SELF, Masking, Pairs
from tideline.secure.rounds.site import check_agreements, check_enough, check_roll
from tideline.secure.rounds.terms import Identity, Terms
from tideline.secure.shamir import Share, combine

BROKEN = "Ask its owner: its agent is broken, or not to be trusted. Begin the round again, without it"


def gathered(terms: Terms, adverts: Iterable[Advert], who: Identity) -> Roll:
    """The keys of all sites that have sent some. Raises KeysRefused, TooFewSites."""
    roll = Roll(terms, tuple(sorted(adverts, key=lambda each: each.site)))
    check_roll(roll, terms, who)
    return roll


def delivered(roll: Roll, parcels: Mapping[str, tuple[Parcel, ...]], order: str, who: Identity) -> Delivered:
    """The parcels of all authors that have sent some, all of their own. Raises ParcelBroken, TooFewSites.

    order: the digest of what sites are asked for, beside their share of the sum.
    """
    pairs = Pairs(roll)
    check_enough(len(parcels), roll.terms, "have sent shares")
    for author, sent in sorted(parcels.items()):
        check_parcels(sent, author, roll, who, pairs)
    by_reader = {(each.author, each.reader): each for sent in parcels.values() for each in sent}
    return Delivered(pairs, order, tuple(sorted(parcels)), by_reader)


def check_parcels(sent: tuple[Parcel, ...], author: str, roll: Roll, who: Identity, pairs: Pairs | None = None) -> None:
    """Raises ParcelBroken unless these are an author's own, one for each site that is to have some."""
    if author not in roll.advert or tuple(each.reader for each in sent) != (pairs or Pairs(roll)).holders(author):
        what = f"{author}'s parcels for {roll.terms.place} are not one for each neighbour and itself"
        raise ParcelBroken(what, BROKEN)
    for each in sent:
        check_parcel(each, author, sent[0].seed_mark, roll, who)


def check_parcel(parcel: Parcel, author: str, seed_mark: bytes, roll: Roll, who: Identity) -> None:
    said = (parcel.author, parcel.roll, parcel.seed_mark)
    if said != (author, roll.digest, seed_mark) or not who.verify(author, parcel.words, parcel.signature):
        what = f"{author}'s parcel for {parcel.reader} at {roll.terms.place} is not signed by it, or is of another round or seed"
        raise ParcelBroken(what, BROKEN)


@dataclass(frozen=True)
class Delivered:
    """All parcels, by author and reader."""

    pairs: Pairs
    order: str
    authors: tuple[str, ...]
    parcels: Mapping[tuple[str, str], Parcel] = field(repr=False)

    def to(self, site: str) -> Delivery:
        """What one site is sent."""
        holds = [name for name in self.pairs.holders(site) if name in set(self.authors)]
        return Delivery(self.pairs.roll.digest, self.order, self.authors, tuple(self.parcels[name, site] for name in holds))

    def summed(self, came: Iterable[Masked]) -> Summed:
        """The sum of masked values, one after the other. Raises Malformed errors, TooFewSites."""
        terms = self.pairs.roll.terms
        total, sites = terms.grid.zeros(terms.length), set[str]()
        for each in came:
            self.check(each, sites)
            total += each.values
            sites.add(each.site)
        check_enough(len(sites), terms, "have sent values")
        total.flags.writeable = False
        return Summed(self, tuple(sorted(sites)), total)

    def check(self, each: Masked, sites: set[str]) -> None:
        terms = self.pairs.roll.terms
        if each.roll != self.pairs.roll.digest or each.site not in self.authors:
            raise Malformed(
                f"{each.site}'s values are of other keys than those for {terms.place}, or it has sent no shares", BROKEN
            )
        if each.site in sites:
            raise MaskSpent(f"{each.site} has sent its values for {terms.place} twice", BROKEN)
        if each.values.shape != (terms.length,) or each.values.dtype != terms.grid.dtype:
            what = f"{each.site} has sent {each.values.shape} values of {each.values.dtype} for {terms.place}"
            raise ValuesRefused(what, f"{terms.length} of {terms.grid.dtype} are due. {BROKEN}")


@dataclass(frozen=True)
class Summed:
    """The sum of the survivors' values, under masks."""

    delivered: Delivered
    sites: tuple[str, ...]
    total: Words = field(repr=False, compare=False)

    @property
    def survivors(self) -> Survivors:
        return Survivors(self.delivered.pairs.roll.digest, self.sites)

    def agreed(self, agreements: Iterable[Agreement], who: Identity) -> Agreements:
        """The survivors' signatures under their set. Raises SurvivorsRefused for wrong ones, TooFewSites."""
        signed = Agreements(tuple(sorted(agreements, key=lambda each: each.site)))
        check_enough(len(signed.agreements), self.delivered.pairs.roll.terms, "have signed the survivors")
        check_agreements(signed, self.survivors, self.delivered.pairs.roll.terms, who)
        return signed

    def opened(self, answers: Iterable[Unmasked]) -> Opened:
        """The sum of the survivors' values, of which everything comes off, or nothing. Raises TooFewSites, SharesRefused.

        A share that is not the one that its author sent is left out, and whoever gave it is named.
        """
        shares, wrong = self.sorted_out(answers)
        secrets = {author: self.secret(author, shares.get(author, {})) for author in self.delivered.authors}
        total, masking = self.total.copy(), self.masking
        for author, secret in secrets.items():
            if author in self.sites:
                masks.subtract(total, masking.own(author, secret))
            else:
                masking.bare(author, secret, self.sites, total)
        return Opened(self.sites, wrong, total)

    @cached_property
    def masking(self) -> Masking:
        return Masking(self.delivered.pairs, self.delivered.order, self.delivered.authors)

    def sorted_out(self, answers: Iterable[Unmasked]) -> tuple[dict[str, dict[str, bytes]], tuple[str, ...]]:
        """The good shares, by author and reader; and who gave others, or such as nobody asked for."""
        good: dict[str, dict[str, bytes]] = {}
        wrong = set[str]()
        for answer in answers:
            given = [(each, SELF) for each in answer.seeds] + [(each, KEY) for each in answer.keys]
            for each, which in given if answer.roll == self.survivors.roll and answer.site in self.sites else ():
                if self.belongs(each, answer.site, which):
                    good.setdefault(each.author, {})[answer.site] = each.share
                else:
                    wrong.add(answer.site)
        return good, tuple(sorted(wrong))

    def belongs(self, each: Revealed, reader: str, which: str) -> bool:
        """Whether a share is the one that its author marked, and that of the secret which is asked for."""
        parcel = self.delivered.parcels.get((each.author, reader))
        if parcel is None or which != (SELF if each.author in self.sites else KEY):
            return False
        mark = parcel.self_mark if which == SELF else parcel.key_mark
        return self.delivered.pairs.mark(each.author, reader, which, each.share) == mark

    def secret(self, author: str, shares: Mapping[str, bytes]) -> bytes:
        """A survivor's seed, or another author's key."""
        pairs, dropped = self.delivered.pairs, author not in self.sites
        threshold, place = pairs.design.threshold, pairs.roll.terms.place
        if len(shares) < threshold:
            what = f"{len(shares)} sites have given shares of {author} at {place}, and {threshold} are needed"
            raise TooFewSites(what, "Ask the same survivors again; if they are gone, this round's sum cannot be made")
        made = combine([Share(pairs.place(reader), shares[reader]) for reader in sorted(shares)[:threshold]], threshold)
        if dropped:
            right = public(made) == pairs.roll.advert[author].mask_key
        else:
            right = pairs.seed_mark(author, made) == self.delivered.parcels[author, author].seed_mark
        if not right:
            raise SharesRefused(f"The shares that {author} sent at {place} are of another secret than it says", BROKEN)
        return made


@dataclass(frozen=True)
class Opened:
    """The sum of the survivors' values. wrong: sites that gave shares which are not those they were sent."""

    sites: tuple[str, ...]
    wrong: tuple[str, ...]
    total: Words = field(repr=False, compare=False)
