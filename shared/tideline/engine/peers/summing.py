"""What sites send around a secure sum, held to their keys as it comes: a fault is reported where it is, and no fold meets it."""

from __future__ import annotations

from collections.abc import Callable, Sized

from tideline.archive import plain
from tideline.archive.parts import Parts
from tideline.archive.sealing import signed
from tideline.core.algorithm import SUM_KEYS, SUM_SHARES, SUM_STEPS, SUM_SURVIVORS, SUM_UNMASK
from tideline.core.errors import FederationError, Malformed
from tideline.core.run import Digest
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import OrderRow, Reply
from tideline.engine.model.runs import RunRow
from tideline.engine.peers.peer_keys import hex_or_none
from tideline.engine.ports.journal import Journal
from tideline.secure.keys import usable
from tideline.secure.rounds.coordinator import check_parcels
from tideline.secure.rounds.forms import from_bytes
from tideline.secure.rounds.messages import Agreement, Ahead, Asking, Delivery, Survivors, Unmasked
from tideline.secure.rounds.pairs import KEY, SELF, mark_of
from tideline.secure.rounds.site import check_advert, check_agreement
from tideline.secure.rounds.terms import Identity

FILE, ORDER = "file", "order"


class SumBroken(Malformed):
    """A site's answer around a secure sum is not what was asked, or not signed by it."""


def check_sum(row: OrderRow, run: RunRow, reply: Reply, journal: Journal, parts: Parts) -> None:
    """Raises Malformed for an answer that others could not use. Of exchanges of no sum, nothing."""
    step = run.fact(row.cursor).step
    assert row.message is not None, "orders after the join have a message"
    if step not in SUM_STEPS:
        if step_behind(run, row) == SUM_SURVIVORS:
            check_order(row, row.message, reply, parts)
        return
    asked, sent = (plain.held_to(plain.tensor_at(parts, of, FILE), "U8", "The message").data for of in (row.message, root(reply)))
    try:
        CHECKS.get(step, check_unmasked)(row, bytes(asked), bytes(sent), as_known(journal.client(row.client)))
    except Malformed:
        raise
    except FederationError as error:
        raise SumBroken(error.what, error.todo) from error
    if step == SUM_UNMASK:
        check_shown(row, from_bytes(Unmasked, bytes(sent)), journal, parts)


def step_behind(run: RunRow, row: OrderRow) -> str:
    return run.plan[row.cursor + 1].step if row.cursor + 1 < len(run.plan) else ""


def check_order(row: OrderRow, asked: Digest, reply: Reply, parts: Parts) -> None:
    """The masks of an answer to another order do not cancel: it would be left out of a sum that may need it."""
    delivery = plain.tensor_at(parts, asked, "sum_asked", "delivery")  # none where nothing is masked
    if delivery is not None and plain.structure_of(parts, root(reply)).get(ORDER) != from_bytes(Delivery, delivery.data).order:
        what = f"{row.client} answers another order than it was given"
        raise SumBroken(what, f"Upgrade the agent of {row.client}, or ask its owner: it is broken, or not to be trusted")


def root(reply: Reply) -> Digest:
    return reply.files[0][0]


def as_known(client: Client | None) -> Identity:
    """A site as the coordinator knows it: by the keys that it has, or had before."""
    known = [client.keys, *(each.keys for each in client.handovers)] if client else []
    keys = [hex_or_none(each.sign) for each in known if each]
    name = client.name if client else ""

    def verify(site: str, words: bytes, signature: bytes) -> bool:
        return site == name and any(signed(words, signature, key) for key in keys)

    return Identity("coordinator", no_sign, verify)


def no_sign(words: bytes) -> bytes:
    raise AssertionError("the coordinator signs nothing in a sum")


def mine(row: OrderRow, site: str) -> None:
    if site != row.client:
        what = f"{row.client} answers in the name of {site[:64]!r}"
        raise SumBroken(what, f"The agent of {row.client} is broken, or not to be trusted")


def check_keys_sent(row: OrderRow, asked: bytes, sent: bytes, who: Identity) -> None:
    terms, adverts = from_bytes(Asking, asked).terms, from_bytes(Ahead, sent).adverts
    as_many(row, terms, adverts)
    for each, advert in zip(terms, adverts, strict=True):
        mine(row, advert.site)
        check_advert(advert, each, who)
        if not (usable(advert.mask_key) and usable(advert.share_key)):
            what = f"{row.client} sends keys for {each.place} that nobody can agree on anything with"
            raise SumBroken(what, f"Ask the owner of {row.client}: its agent is broken, or not to be trusted")


def check_shares_sent(row: OrderRow, asked: bytes, sent: bytes, who: Identity) -> None:
    rolls, parcels = from_bytes(Asking, asked).rolls, from_bytes(Ahead, sent).parcels
    as_many(row, rolls, parcels)
    for roll, each in zip(rolls, parcels, strict=True):
        check_parcels(each.parcels, row.client, roll, who)


def as_many(row: OrderRow, due: Sized, came: Sized) -> None:
    if len(due) != len(came):
        raise SumBroken(f"{row.client} answers for {len(came)} rounds, and {len(due)} were asked", "Upgrade its agent")


def check_agreed(row: OrderRow, asked: bytes, sent: bytes, who: Identity) -> None:
    agreement, survivors = from_bytes(Agreement, sent), from_bytes(Survivors, asked)
    mine(row, agreement.site)
    check_agreement(agreement, survivors, who)


def check_unmasked(row: OrderRow, asked: bytes, sent: bytes, who: Identity) -> None:
    """Of its own name; its shares are held to what it was sent (`check_shown`)."""
    mine(row, from_bytes(Unmasked, sent).site)


def check_shown(row: OrderRow, answer: Unmasked, journal: Journal, parts: Parts) -> None:
    """All shares that are due, by the marks of the parcels that the site was sent with its values' order: an exchange that closes
    with the first sites that are enough can spare none.
    """
    values, asked = (journal.round(row.run, row.cursor - back) for back in (2, 1))
    if values is None or asked is None:
        return
    sealed = plain.tensor_at(parts, values.asked[row.client], "sum_asked", "delivery")
    named = plain.tensor_at(parts, asked.asked[row.client], FILE)
    assert sealed is not None and named is not None, "the coordinator asked so"
    delivery, remain = from_bytes(Delivery, sealed.data), set(from_bytes(Survivors, named.data).sites)
    due = {
        (each.author, SELF if each.author in remain else KEY): each.self_mark if each.author in remain else each.key_mark
        for each in delivery.parcels
    }
    given = [(each, SELF) for each in answer.seeds] + [(each, KEY) for each in answer.keys]
    shown = {(each.author, which): mark_of(delivery.roll, each.author, row.client, which, each.share) for each, which in given}
    if answer.roll != delivery.roll or len(given) != len(due) or shown != due:
        what = f"The shares that {row.client} shows are not those that it was sent, or not all"
        raise SumBroken(what, f"Ask the owner of {row.client}: its agent is broken, or not to be trusted")


Check = Callable[[OrderRow, bytes, bytes, Identity], None]
CHECKS: dict[str, Check] = {SUM_KEYS: check_keys_sent, SUM_SHARES: check_shares_sent, SUM_SURVIVORS: check_agreed}
