"""A site's half of secure sums: its answers to the exchanges around values, and the masks of these. Loads no torch.

What may come next is a state of `tideline.secure.rounds.site`, which lies in the vault, in the same commit as the answer. Keys
stay here: the trainer gives a row of whole numbers, and never learns what hides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tideline.archive import plain
from tideline.archive.parts import Parts
from tideline.archive.plain import Files, Plainly
from tideline.archive.sealing import sign_words, signed
from tideline.core.algorithm import SUM_KEYS, SUM_SHARES, SUM_STEPS, SUM_SURVIVORS, SUM_UNMASK, summed_by
from tideline.core.errors import Malformed, MemoryLost, Refused
from tideline.core.privacy import Audience
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.settings import plain as to_plain
from tideline.engine.model.brief import DISTRUST, Brief
from tideline.engine.model.orders import Order, hashed
from tideline.engine.peers.peer_keys import Known, PeerKeys, raw
from tideline.engine.site.rules import Least
from tideline.secure.fixed_point import Words, finest
from tideline.secure.keys import fresh
from tideline.secure.rounds.forms import from_bytes, to_bytes
from tideline.secure.rounds.messages import Advert, Agreements, Ahead, Asking, Delivery, Parcels, Survivors
from tideline.secure.rounds.notebook import FolderNotebook, MemoryNotebook, Notebook
from tideline.secure.rounds.site import Agreed, Keyed, Sent, Sharing, advertise
from tideline.secure.rounds.terms import Identity, Place, Terms

NONE = Least(rows=1, sites=1, rows_per_class=1)
DTYPE, KINDS = "I32", {32: np.uint32, 64: np.uint64}  # of a row as it travels, and of its whole numbers
FILE, VALUES, ORDER = "file", "values", "order"  # fields of the messages around a sum


def summed(order: Order, brief: Brief) -> bool:
    """Whether an order's reply is one of values that nobody is to see."""
    asked = (order.phase, order.step)
    return any((clause.phase, clause.step) == asked and Audience.SUM in clause.audience for clause in brief.contract)


def around(order: Order) -> bool:
    """Whether an order is one of the exchanges around values, which the agent answers itself."""
    return order.step in SUM_STEPS


@dataclass(frozen=True)
class Answer:
    """What leaves, and the file of the state that may come next."""

    reply: Files
    state: Files


class SiteSums:
    """One site's. masks: False in simulations, where sums are added up plainly."""

    def __init__(self, name: ClientId, peer_keys: PeerKeys, notebook: Notebook | None = None, masks: bool = True) -> None:
        self.name, self.peer_keys, self.notebook, self.masks = name, peer_keys, notebook or MemoryNotebook(), masks

    def hold(self, run: RunId, brief: Brief) -> None:
        """Hold a run to the sums that it has begun with here: without them, or with other noise, it would be another run. Raises
        Refused.
        """
        asked = "" if brief.secure_sums is None else hashed(to_plain(brief.secure_sums))
        stands = self.notebook.noted(("asked", run))
        if stands is None and asked:
            stands = self.notebook.note(("asked", run), asked)
        if stands not in (None, asked):
            what = f"The run {run} has begun with secure sums here, and is asked to go on {'with others' if asked else 'without'}"
            raise Refused(what, DISTRUST)

    def answer(self, order: Order, brief: Brief, state: Files, parts: Parts, least: Least = NONE) -> Answer:
        """Answer an exchange around values. state: the file of this site's last state. least: what its owner wants of a sum.
        Raises FederationError.
        """
        asked = bytes(plain.held_to(plain.tensor_at(parts, order.files[0][0], FILE), "U8", "What the sum asks").data)
        who, here = self.identity(brief), self.place(order)
        work = {SUM_KEYS: self.keys, SUM_SHARES: self.shares, SUM_SURVIVORS: self.survivors, SUM_UNMASK: self.unmask}[order.step]
        answered, then = work(asked, standing(state, parts, here), Run(here, brief, least), who)
        return Answer(plain.write_record(parts, {FILE: Plainly("U8", to_bytes(answered))}), stored(then, parts))

    def keys(self, asked: bytes, state: Standing, run: Run, who: Identity) -> tuple[Any, Standing]:
        """Keys for each of the rounds to come."""
        made, adverts = list[Keyed](), list[Advert]()
        self.forget(state)
        due = from_bytes(Asking, asked).terms
        check_rounds(due, run)
        for terms in due:
            self.check_terms(terms, run)
            root = bytes.fromhex(self.notebook.note(root_key(terms.place), fresh().hex()))  # the same after a restart
            keyed, advert = advertise(terms, who, self.notebook, root)
            made.append(keyed)
            adverts.append(advert)
        return Ahead(adverts=tuple(adverts)), replace(state.without(run.place.phase), keyed=tuple(made))

    def shares(self, asked: bytes, state: Standing, run: Run, who: Identity) -> tuple[Any, Standing]:
        rolls = {each.terms.place: each for each in from_bytes(Asking, asked).rolls}
        if rolls.keys() != {each.terms.place for each in state.keyed}:
            raise lost(run.place)
        shared = [each.share(rolls[each.terms.place], who) for each in state.keyed]
        sharing, parcels = tuple(each for each, _ in shared), tuple(Parcels(each) for _, each in shared)
        return Ahead(parcels=parcels), replace(state, keyed=(), sharing=(*state.sharing, *sharing))

    def survivors(self, asked: bytes, state: Standing, run: Run, who: Identity) -> tuple[Any, Standing]:
        agreed, agreement = at(state.sent, run.place).agree(from_bytes(Survivors, asked), who, self.notebook)
        self.notebook.forget(root_key(run.place))  # whoever takes this home from here on opens none of its values
        return agreement, replace(state, sent=(), agreed=(agreed,))

    def unmask(self, asked: bytes, state: Standing, run: Run, who: Identity) -> tuple[Any, Standing]:
        return at(state.agreed, run.place).unmask(from_bytes(Agreements, asked), who), state

    def hide(self, order: Order, brief: Brief, state: Files, message: Files, parts: Parts, least: Least = NONE) -> Answer:
        """Mask the values of a message that the trainer has made. Keys may have been asked for in a brief of its own: their terms
        are held to this one, which the trainer has looked at. least: as in `answer`. Raises Refused where no masks are asked
        for, and FederationError.
        """
        asked = plain.tensor_at(parts, order.files[0][0], "sum_asked", "delivery")
        if asked is None:
            if self.masks:
                raise Refused("The coordinator asks for values of a secure sum without masks", DISTRUST)
            return Answer(message, ())
        assert brief.secure_sums is not None, "the contract has sums"
        delivery, kind = from_bytes(Delivery, asked.data), KINDS[brief.secure_sums.bits]
        root = message[0][0]
        tree = plain.structure_of(parts, root)
        if tree.get(ORDER) != delivery.order:
            what = f"{self.name} was asked for something else than the other sites of {self.place(order)}, or its trainer was"
            raise Malformed(what, DISTRUST)
        given = plain.held_to(plain.tensor_at(parts, root, VALUES), DTYPE, "What the trainer gives")
        values: Words = np.frombuffer(given.data, kind).copy()
        here = self.place(order)
        was = standing(state, parts, here)
        terms = at(was.sharing, here).terms
        self.check_terms(terms, Run(here, brief, least))
        check_grid(plain.structure_of(parts, order.files[0][0]), terms)
        self.forget(was)
        sent, masked = at(was.sharing, here).mask(delivery, values, self.identity(brief), self.notebook)
        then = replace(was, sharing=tuple(each for each in was.sharing if each.terms.place != here), sent=(sent,), agreed=())
        fields: Mapping[str, Any] = {VALUES: Plainly(DTYPE, masked.values.data.cast("B")), ORDER: str(tree[ORDER])}
        for digest, _ in message:  # of which nothing may be left: beside what leaves, it would show the mask
            parts.drop(digest)
        return Answer(plain.write_record(parts, fields), stored(then, parts))

    def forget(self, state: Standing) -> None:
        """The roots of earlier rounds whose values were sent: their survivors were signed by others, who were enough."""
        for each in state.sent:
            self.notebook.forget(root_key(each.terms.place))

    def place(self, order: Order) -> Place:
        return Place(order.run, summed_by(order.phase, order.step), order.round)

    def identity(self, brief: Brief) -> Identity:
        """This site's own, and those of the run's sites by the keys that are pinned here."""
        known = self.peer_keys.trust(brief.peers)
        sign = partial(sign_words, sign_key=self.peer_keys.own().sign)
        return Identity(self.name, sign, verifying(known, self.peer_keys.now()))

    def check_terms(self, terms: Terms, run: Run) -> None:
        """Hold what is to be summed to the run that this site has joined, and to its owner's word. Raises Malformed, Refused."""
        asked, brief, place = run.brief.secure_sums, run.brief, terms.place
        if asked is None or (place.run, place.phase, place.attempt) != (run.place.run, run.place.phase, 0):
            raise Malformed(f"Keys are asked for {place} in an order for {run.place}", DISTRUST)
        if odd := sorted(set(terms.sites) - set(brief.peers)):
            raise Malformed(f"{odd[0]} is to be in the sum of {place}, and is no site of the run", DISTRUST)
        if len(terms.sites) < asked.sites:
            what = f"{len(terms.sites)} sites are to be summed in {place}, and the run says {asked.sites} at least"
            raise Refused(what, "The sum of few sites shows much of each")
        if len(terms.sites) < run.least.sites:
            what = f"{len(terms.sites)} sites are to be summed in {place}, and this site's owner wants {run.least.sites} at least"
            raise Refused(what, "Ask the owner: [least] sites in the site's policy")
        pins = self.peer_keys.pins.read() if run.least.trusted else {}
        trusted = [name for name in terms.sites if name != self.name and (pin := pins.get(ClientId(name))) and pin.trusted]
        if len(trusted) < run.least.trusted:
            what = f"Of the sites to be summed in {place}, this one's owner has confirmed the keys of {len(trusted)}"
            todo = f"The owner wants {run.least.trusted}: compare fingerprints, then `tideline site trust PEER FINGERPRINT`"
            raise Refused(what, todo)
        grid = finest(1.0, len(terms.sites), asked.bits)
        if (terms.clip, terms.bits, terms.exponent) != (grid.clip, grid.bits, grid.exponent):
            raise Malformed(f"The sum of {place} is to be made on another grid than the run's", DISTRUST)


@dataclass(frozen=True)
class Run:
    """The run of a sum, the place of the order at hand, and which sites the owner wants in a sum at least."""

    place: Place
    brief: Brief
    least: Least


@dataclass(frozen=True)
class Standing:
    """Where a site stands: in rounds to come, whose keys it has sent, or shares; in the one at hand, whose values it has sent, or
    whose survivors it has signed. Of several phases at once, where they take turns.
    """

    keyed: tuple[Keyed, ...] = ()
    sharing: tuple[Sharing, ...] = ()
    sent: tuple[Sent, ...] = ()
    agreed: tuple[Agreed, ...] = ()

    def without(self, phase: str) -> Standing:
        """Nothing of a phase's earlier rounds any more."""
        return Standing(sharing=tuple(each for each in self.sharing if each.terms.place.phase != phase))


def standing(files: Files, parts: Parts, place: Place) -> Standing:
    """Raises MemoryLost where it is gone."""
    if not files:
        return Standing()
    try:
        return from_bytes(Standing, parts.view(files[0][0]))
    except Malformed as cause:
        raise lost(place) from cause


class Placed(Protocol):
    """A state of one round."""

    @property
    def terms(self) -> Terms: ...


P = TypeVar("P", bound=Placed)


def at(states: tuple[P, ...], place: Place) -> P:
    """The state of a round. Raises MemoryLost."""
    found = next((each for each in states if each.terms.place == place), None)
    if found is None:
        raise lost(place)
    return found


def check_grid(asked: Mapping[str, Any], terms: Terms) -> None:
    """The trainer was told of the sites and the grid of the keys: for more sites it adds less noise. Raises Malformed."""
    how = plain.within(dict(asked), "sum_asked")
    given = plain.within(how, "sites"), plain.within(how, "exponent")
    if given != (len(terms.sites), terms.exponent):
        what = f"Values of {terms.place} are asked for a sum of other sites, or on another grid, than keys were"
        raise Malformed(what, DISTRUST)


def check_rounds(terms: Sequence[Terms], run: Run) -> None:
    """Raises Malformed unless these are rounds that follow each other, of the same sites, and no more than the run says: notes
    are made of each.
    """
    first = terms[0] if terms else None
    if first is None or any(
        (each.place.round, each.sites) != (first.place.round + i, first.sites) for i, each in enumerate(terms)
    ):
        raise Malformed("Keys are asked for rounds that do not follow each other, or of other sites", DISTRUST)
    ahead = run.brief.secure_sums.ahead if run.brief.secure_sums else 0
    if len(terms) > ahead:
        raise Malformed(f"Keys are asked for {len(terms)} rounds at once, and the run says {ahead} at most", DISTRUST)


def lost(place: Place) -> MemoryLost:
    what = f"This site has not taken part in what comes before it in {place}, or has lost it"
    return MemoryLost(what, "The round goes on without it, if enough others remain; else begin the run again")


def stored(state: Any, parts: Parts) -> Files:
    file = to_bytes(state)
    return ((Digest(parts.put([file])), len(file)),)


def close_notes(folder: Path, run: RunId) -> None:
    """Of a run that a site forgets, one note is left: that it asks for nothing more."""
    if folder.exists():
        FolderNotebook(folder).close(run)


def notebook_in(folder: Path) -> Notebook:
    """A site's notes of what it has answered, which outlive the runs that they are of."""
    return FolderNotebook(folder)


def root_key(place: Place) -> tuple[str | int, ...]:
    return ("root", *place.parts)


def verifying(known: Known, now: float) -> Callable[[str, bytes, bytes], bool]:
    """Whether a pinned key of a site signed some words, or one that the site handed over from lately."""

    def verify(site: str, words: bytes, signature: bytes) -> bool:
        pin = known.get(ClientId(site))
        return pin is not None and any(signed(words, signature, raw(keys)[0]) for keys in pin.believed(now))

    return verify
