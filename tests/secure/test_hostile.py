"""Coordinators that lie and sites that cheat: a site's state machine refuses each, and says who is to be asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.low_order import LOW_ORDER
from tests.secure.play import PLACE, Play, changed, identity, names, pinned_key, plain_sum, stored, terms_of, values_of
from tideline.archive.sealing import box
from tideline.core.errors import Malformed, StorageFull
from tideline.secure.errors import (
    KeysRefused,
    MaskSpent,
    ParcelBroken,
    RoundReplayed,
    SharesRefused,
    SurvivorsRefused,
    TooFewSites,
    ValuesRefused,
)
from tideline.secure.keys import fresh, public
from tideline.secure.rounds.coordinator import delivered, gathered
from tideline.secure.rounds.messages import Advert, Agreement, Agreements, Delivery, Parcel, Revealed, Roll, Survivors
from tideline.secure.rounds.notebook import OVER, FolderNotebook, MemoryNotebook, Notebook, NotebookBroken
from tideline.secure.rounds.pairs import Pairs
from tideline.secure.rounds.site import Sharing, advertise, survivors_key
from tideline.secure.rounds.terms import Place
from tideline.secure.shamir import SHARE_BYTES, Share, combine

EIGHT = names(8)
ANNA, BERT, CARL = EIGHT[:3]


@pytest.fixture(scope="module")
def play() -> Play:
    made = Play(terms_of(EIGHT))
    assert len(made.masked) == 8
    return made


def swapped(roll: Roll, at: int, **fields: Any) -> Roll:
    """A roll with one advert changed."""
    adverts = [*roll.adverts]
    adverts[at] = changed(adverts[at], **fields)
    return Roll(roll.terms, tuple(adverts))


def forged(site: str) -> Advert:
    """A site of the coordinator's own making, signed by a key of its own."""
    bare = Advert(site, PLACE, public(fresh()), public(fresh()))
    return replace(bare, signature=pinned_key(site).sign(bare.words))


# What the coordinator shows a site in place of the keys of its round.
ROLLS: dict[str, tuple[Callable[[Roll], Roll], str]] = {
    "swaps a key for masks": (lambda r: swapped(r, 1, mask_key=public(fresh())), "site-001 has not signed the keys"),
    "swaps a key for shares": (lambda r: swapped(r, 1, share_key=public(fresh())), "site-001 has not signed the keys"),
    "gives a site another's keys": (lambda r: swapped(r, 1, **vars(r.adverts[2]) | {"site": BERT}), "site-001 has not signed"),
    "adds a site": (lambda r: Roll(r.terms, (*r.adverts, forged("site-999"))), "site-999 is shown with keys .* no site of"),
    "names a site twice": (lambda r: Roll(r.terms, (*r.adverts, r.adverts[-1])), "a site is shown twice"),
    "shows the site others of its own": (lambda r: Roll(r.terms, (forged(ANNA), *r.adverts[1:])), "site-000 is shown as sending"),
    "leaves the site out": (lambda r: Roll(r.terms, r.adverts[1:]), "site-000 is shown as sending other keys .* or none"),
    "shows other terms": (lambda r: Roll(terms_of(EIGHT, length=6), r.adverts), "other terms"),
    "shows keys of another round": (
        lambda r: Roll(r.terms, (r.adverts[0], *Play(terms_of(EIGHT, place=Place("run-1", "train", 2))).roll.adverts[1:])),
        "site-001 has not signed the keys that it is shown with for round 3 of train",
    ),
}


@pytest.mark.parametrize("what", ROLLS)
def test_the_coordinator(play: Play, what: str) -> None:
    change, words = ROLLS[what]
    with pytest.raises(KeysRefused, match=words):
        play.begun[ANNA][0].share(change(play.roll), play.who[ANNA])


def test_it_shows_too_few(play: Play) -> None:
    with pytest.raises(TooFewSites, match="5 of 8 sites have sent keys"):
        play.begun[ANNA][0].share(Roll(play.terms, play.roll.adverts[:5]), play.who[ANNA])


def test_a_site_that_this_one_does_not_know_is_refused(play: Play) -> None:
    """Though the terms name it: by pinned keys a site knows who is of the run."""
    knows = identity(ANNA, EIGHT[:7])
    with pytest.raises(KeysRefused, match="site-007 has not signed"):
        play.begun[ANNA][0].share(play.roll, knows)


@pytest.mark.parametrize("digits", LOW_ORDER, ids=lambda digits: digits[:6])
def test_keys_of_low_order_are_refused(play: Play, digits: str) -> None:
    """A site that signs such a key would have masks that anybody knows."""
    key, bad = bytes.fromhex(digits), []
    for fields in ({"share_key": key}, {"mask_key": key}):
        bare = changed(play.roll.adverts[1], **fields)
        bad.append(changed(bare, signature=pinned_key(BERT).sign(bare.words)))
    first, second = (Roll(play.terms, (play.roll.adverts[0], each, *play.roll.adverts[2:])) for each in bad)
    with pytest.raises(KeysRefused, match="Nothing can be sealed to site-001"):
        play.begun[ANNA][0].share(first, play.who[ANNA])
    state, _ = play.begun[ANNA][0].share(second, play.who[ANNA])
    sharing = [Sharing(play.terms, name, play.begun[name][0].root, second) for name in EIGHT]
    delivery = Delivery(second.digest, "b3-order", EIGHT, tuple(parcel(each, ANNA) for each in sharing))
    with pytest.raises(KeysRefused, match="site-001 is shown with a key for masks that is none, or of low order"):
        state.mask(delivery, values_of(play.terms, ANNA), play.who[ANNA], MemoryNotebook())


def parcel(sharing: Sharing, reader: str, **fields: Any) -> Parcel:
    """A parcel with something changed, and signed by its author."""
    bare = changed(next(p for p in sharing.parcels(identity(sharing.me, EIGHT)) if p.reader == reader), **fields)
    return changed(bare, signature=pinned_key(sharing.me).sign(bare.words))


def given(play: Play, at: int, **fields: Any) -> Delivery:
    """Anna's delivery with one parcel changed on its way."""
    good = play.delivery(ANNA)
    parcels = [*good.parcels]
    parcels[at] = changed(parcels[at], **fields)
    return changed(good, parcels=tuple(parcels))


def mask(play: Play, delivery: Delivery, notebook: Notebook | None = None) -> Any:
    return play.shared[ANNA][0].mask(delivery, values_of(play.terms, ANNA), play.who[ANNA], notebook or MemoryNotebook())


DELIVERIES: dict[str, tuple[Callable[[Play], Delivery], str]] = {
    "swaps a box": (lambda p: given(p, 1, box=p.delivery(ANNA).parcels[2].box), "is not signed by site-001"),
    "changes a mark": (lambda p: given(p, 1, key_mark=bytes(32)), "is not signed by site-001"),
    "gives one meant for another": (
        lambda p: changed(p.delivery(ANNA), parcels=(p.delivery(ANNA).parcels[0], *p.delivery(BERT).parcels[1:])),
        "is not signed by site-001, or is of other keys or another reader",
    ),
    "keeps a parcel back": (lambda p: changed(p.delivery(ANNA), parcels=p.delivery(ANNA).parcels[:-1]), "are not one of each"),
    "keeps the site's own back": (
        lambda p: changed(p.delivery(ANNA), authors=EIGHT[1:], parcels=p.delivery(ANNA).parcels[1:]),
        "are not one of each neighbour, and its own",
    ),
    "names an author who sent none": (lambda p: changed(p.delivery(ANNA), authors=(*EIGHT, "site-999")), "unknown sites"),
    "says they are of another round": (lambda p: changed(p.delivery(ANNA), roll="00" * 32), "of other keys"),
}


@pytest.mark.parametrize("what", DELIVERIES)
def test_the_coordinator_delivers(play: Play, what: str) -> None:
    make, words = DELIVERIES[what]
    with pytest.raises(ParcelBroken, match=words):
        mask(play, make(play))


def test_it_names_few_authors(play: Play) -> None:
    good = play.delivery(ANNA)
    with pytest.raises(TooFewSites, match="5 of 8 sites have sent shares"):
        mask(play, changed(good, authors=EIGHT[:5], parcels=good.parcels[:5]))


def test_few_neighbours_are_not_enough() -> None:
    """Though all sites together are: a coordinator that likes a site's other neighbours least names those who are none."""
    play = Play(terms_of(names(150)))
    state = Sharing(play.terms, ANNA, play.begun[ANNA][0].root, play.roll)
    near = Pairs(play.roll).neighbours[ANNA]
    far = [name for name in play.roll.sites if name not in near]
    authors = tuple(sorted((*far, *near[: 101 - len(far)])))
    blank = Parcel(play.roll.digest, "", ANNA, box=b"", key_mark=b"", self_mark=b"", seed_mark=b"")
    delivery = Delivery(
        play.roll.digest, play.order, authors, tuple(changed(blank, author=name) for name in sorted({ANNA, *near} & {*authors}))
    )
    with pytest.raises(TooFewSites, match="30 neighbours of site-000 have sent shares, and 35 are needed"):
        state.mask(delivery, values_of(play.terms, ANNA), play.who[ANNA], MemoryNotebook())


def test_a_share_that_does_not_open_is_its_authors_fault(play: Play) -> None:
    """It is signed, so nobody on the way has changed it."""
    good, bert = play.delivery(ANNA), play.shared[BERT][0]
    for shares in (box(bytes(66), public(fresh())), box(b"short", play.roll.advert[ANNA].share_key)):
        bad = parcel(bert, ANNA, box=shares)
        with pytest.raises(ParcelBroken, match=r"is signed by site-001 and does not open\. Ask site-001's owner"):
            mask(play, changed(good, parcels=(good.parcels[0], bad, *good.parcels[2:])))
    bad = parcel(bert, ANNA, box=box(bytes(66), play.roll.advert[ANNA].share_key))
    with pytest.raises(ParcelBroken, match="site-001 and holds other shares than it says"):
        mask(play, changed(good, parcels=(good.parcels[0], bad, *good.parcels[2:])))


def test_authors_that_send_badly_are_found_by_the_coordinator(play: Play) -> None:
    sent = {name: parcels.parcels for name, (_, parcels) in play.shared.items()}
    bare = changed(sent[BERT][0], signature=bytes(64))
    for wrong, words in (
        (sent[BERT][1:], "site-001's parcels for round 3 of train are not one for each"),
        ((bare, *sent[BERT][1:]), "site-001's parcel for site-000 at round 3 of train is not signed by it"),
        ((parcel(play.shared[BERT][0], ANNA, seed_mark=bytes(32)), *sent[BERT][1:]), "of another round or seed"),
    ):
        with pytest.raises(ParcelBroken, match=words):
            delivered(play.roll, sent | {BERT: wrong}, play.order, play.coordinator)
    with pytest.raises(ParcelBroken, match="site-999's parcels"):
        delivered(play.roll, sent | {"site-999": sent[BERT]}, play.order, play.coordinator)


def test_adverts_are_held_to_signatures_by_the_coordinator(play: Play) -> None:
    with pytest.raises(KeysRefused, match="site-999 is shown with keys"):
        gathered(play.terms, [*play.roll.adverts, forged("site-999")], play.coordinator)


LIES: dict[str, dict[str, Any]] = {"other authors": {"authors": EIGHT[:7]}, "another order": {"order": "b3-other"}}


@pytest.mark.parametrize("what", LIES)
def test_to_whom_something_else_is_said_other_masks_are_given(play: Play, what: str) -> None:
    """A coordinator that tells sites different things gets no sum of anything."""
    said = changed(play.delivery(ANNA), **LIES[what])
    parcels = tuple(each for each in said.parcels if each.author in said.authors)
    _, masked = mask(play, changed(said, parcels=parcels))
    summed = play.delivered.summed([masked, *(play.masked[name][1] for name in EIGHT[1:7])])
    opened = summed.opened(play.unmasked(summed, EIGHT[:7]))
    assert play.terms.grid.steps(opened.total).tolist() != plain_sum(play.terms, EIGHT[:7])


SURVIVORS: dict[str, tuple[tuple[str, ...], str]] = {
    "says that the site dropped out": (
        EIGHT[1:],
        "site-000 has sent its values for round 3 of train, and is named as dropped out",
    ),
    "names too few": (EIGHT[:5], "5 sites are named as survivors of round 3 of train, and 6 of 8 are needed"),
    "adds a site": ((*EIGHT, "site-999"), "site-999 is named as a survivor of round 3 of train, and has sent no shares"),
    "names one twice": ((ANNA, *EIGHT), "named twice"),
}


@pytest.mark.parametrize("what", SURVIVORS)
def test_the_coordinator_lies_about_survivors(play: Play, what: str) -> None:
    sites, words = SURVIVORS[what]
    notebook = MemoryNotebook()
    with pytest.raises(SurvivorsRefused, match=words):
        play.agree(ANNA, Survivors(play.roll.digest, sites), notebook)
    assert play.agree(ANNA, Survivors(play.roll.digest, EIGHT), notebook), "what was refused is not noted"


def test_survivors_of_another_round_are_refused(play: Play) -> None:
    with pytest.raises(SurvivorsRefused, match="of other keys"):
        play.agree(ANNA, Survivors("00" * 32, EIGHT))


@pytest.fixture(params=["memory", "folder"])
def notebook(request: pytest.FixtureRequest, tmp_path: Path) -> Notebook:
    return MemoryNotebook() if request.param == "memory" else FolderNotebook(tmp_path / "notes")


def test_one_set_of_survivors_is_signed(play: Play, notebook: Notebook) -> None:
    """A second one is refused, though the site was killed in between; the same may be asked for again."""
    first = play.agree(ANNA, Survivors(play.roll.digest, EIGHT[:7]), notebook)
    again = FolderNotebook(notebook._folder) if isinstance(notebook, FolderNotebook) else notebook
    for sites in (EIGHT, EIGHT[:6], (ANNA, *EIGHT[2:])):
        with pytest.raises(SurvivorsRefused, match="a second set of survivors"):
            play.agree(ANNA, Survivors(play.roll.digest, sites), again)
    assert play.agree(ANNA, Survivors(play.roll.digest, EIGHT[:7]), again) == first


def signatures(play: Play, survivors: Survivors, sites: Iterable[str]) -> tuple[Agreement, ...]:
    return tuple(Agreement(survivors.roll, name, pinned_key(name).sign(survivors.words)) for name in sites)


def test_what_few_have_signed_is_not_unmasked(play: Play) -> None:
    """A coordinator that shows different sets to different sites gets too few signatures under each of them."""
    ours, theirs = (Survivors(play.roll.digest, sites) for sites in (EIGHT[:7], EIGHT))
    state, _ = play.agree(ANNA, ours)
    good = signatures(play, ours, EIGHT[:6])
    for wrong, words in (
        (good[:5], "5 sites have signed the survivors of round 3 of train, and 6 are needed"),
        ((*good[:5], *signatures(play, theirs, EIGHT[5:6])), "site-005 has not signed the survivors of round 3 of train that"),
        ((*good[:5], changed(good[5], roll="00" * 32)), "site-005 has not signed"),
        ((*good[:5], changed(good[5], site=EIGHT[6])), "site-006 has not signed"),
        ((*good[:5], good[4]), "or twice of one"),
        ((*good[:5], *signatures(play, ours, EIGHT[7:])), "are of other sites"),
    ):
        with pytest.raises(SurvivorsRefused, match=words):
            state.unmask(Agreements(wrong), play.who[ANNA])
    assert state.unmask(Agreements(good), play.who[ANNA]).site == ANNA


def test_wrong_signatures_are_found_by_the_coordinator(play: Play) -> None:
    summed = play.summed(EIGHT)
    good = signatures(play, summed.survivors, EIGHT)
    with pytest.raises(TooFewSites, match="5 of 8 sites have signed the survivors"):
        summed.agreed(good[:5], play.coordinator)
    with pytest.raises(SurvivorsRefused, match="site-007 has not signed"):
        summed.agreed((*good[:7], changed(good[7], signature=bytes(64))), play.coordinator)


def test_a_site_gives_of_each_author_one_share_alone(play: Play) -> None:
    (answer,) = play.unmasked(play.summed(EIGHT[:7]), [ANNA])
    assert [each.author for each in answer.seeds] == list(EIGHT[:7]) and [each.author for each in answer.keys] == [EIGHT[7]]


class Full(MemoryNotebook):
    """Has no room for notes of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def note(self, key: Any, what: str) -> str:
        if key[0] == self.kind:
            raise StorageFull("no room")
        return super().note(key, what)


def test_what_cannot_be_written_down_is_not_answered(play: Play) -> None:
    with pytest.raises(StorageFull):
        advertise(play.terms, play.who[ANNA], Full("advert"))
    values = values_of(play.terms, ANNA)
    with pytest.raises(StorageFull):
        play.shared[ANNA][0].mask(play.delivery(ANNA), values, play.who[ANNA], Full("input"))
    assert values.tolist() == values_of(play.terms, ANNA).tolist(), "nothing was masked"
    with pytest.raises(StorageFull):
        play.agree(ANNA, Survivors(play.roll.digest, EIGHT), Full("survivors"))


def test_a_site_hides_one_message_under_its_masks(notebook: Notebook) -> None:
    """The same again, after a restart, gives the same bytes; another is refused, and the array is left as it was."""
    play = Play(terms_of(EIGHT))
    state, delivery, who = play.shared[ANNA][0], play.delivery(ANNA), play.who[ANNA]
    first = state.mask(delivery, values_of(play.terms, ANNA), who, notebook)[1]
    other = values_of(play.terms, BERT)
    with pytest.raises(MaskSpent, match="site-000 is to hide other values at round 3 of train"):
        state.mask(delivery, other, who, notebook)
    assert other.tolist() == values_of(play.terms, BERT).tolist()
    fewer = changed(delivery, authors=EIGHT[:7], parcels=delivery.parcels[:7])
    for another in (fewer, changed(delivery, order="b3-other")):
        with pytest.raises(MaskSpent, match="or for another order, or among other sites"):
            state.mask(another, values_of(play.terms, ANNA), who, notebook)
    again = stored(Sharing, state).mask(delivery, values_of(play.terms, ANNA), who, notebook)[1]
    assert again.values.tolist() == first.values.tolist()


def test_a_round_is_not_replayed(notebook: Notebook) -> None:
    """Neither with new keys at one attempt, nor as another attempt once its survivors were signed; before that, it may be."""
    play = Play(terms_of(EIGHT))
    play.__dict__["notebooks"] = {name: notebook if name == ANNA else MemoryNotebook() for name in EIGHT}
    again = terms_of(EIGHT, place=replace(PLACE, attempt=1))
    sent, root = play.masked[ANNA][0], play.begun[ANNA][0].root
    assert advertise(play.terms, play.who[ANNA], notebook, root)[1] == play.begun[ANNA][1], "it goes on after a restart"
    with pytest.raises(RoundReplayed, match="asked for new keys for attempt 0 at round 3 of train"):
        advertise(play.terms, play.who[ANNA], notebook)
    with pytest.raises(RoundReplayed, match="or for other terms"):
        advertise(terms_of(EIGHT, length=6), play.who[ANNA], notebook, root)
    assert advertise(again, play.who[ANNA], notebook)
    sent.agree(Survivors(play.roll.digest, EIGHT), play.who[ANNA], notebook)
    for terms in (play.terms, again, terms_of(EIGHT, place=replace(PLACE, attempt=2))):
        with pytest.raises(RoundReplayed, match="site-000 has already signed who remains of round 3 of train"):
            advertise(terms, play.who[ANNA], notebook, root)
    assert advertise(terms_of(EIGHT, place=Place("run-1", "train", 4)), play.who[ANNA], notebook)


def test_two_attempts_have_one_set_of_survivors() -> None:
    """Both may reach their end, and only one of them is signed."""
    plays = [Play(terms_of(EIGHT, place=replace(PLACE, attempt=attempt))) for attempt in (0, 1)]
    notebook = MemoryNotebook()
    for play in plays:
        play.__dict__["notebooks"] = {name: notebook if name == ANNA else MemoryNotebook() for name in EIGHT}
    assert [len(play.masked) for play in plays] == [8, 8]
    plays[0].agree(ANNA, Survivors(plays[0].roll.digest, EIGHT), notebook)
    with pytest.raises(SurvivorsRefused, match="second set"):
        plays[1].agree(ANNA, Survivors(plays[1].roll.digest, EIGHT), notebook)


def test_a_site_of_no_round_sends_no_keys() -> None:
    with pytest.raises(KeysRefused, match="site-007 is asked to join a sum that it is no site of"):
        advertise(terms_of(EIGHT[:7]), identity(EIGHT[7], EIGHT), MemoryNotebook())


def test_a_site_cannot_be_counted_twice(play: Play) -> None:
    masked = [play.masked[name][1] for name in EIGHT]
    with pytest.raises(MaskSpent, match="site-000 has sent its values for round 3 of train twice"):
        play.delivered.summed([*masked, masked[0]])
    with pytest.raises(Malformed, match="of other keys"):
        play.delivered.summed([*masked[1:], changed(masked[0], roll="00" * 32)])
    with pytest.raises(ValuesRefused, match="5 of uint32 are due"):
        play.delivered.summed([*masked[1:], changed(masked[0], values=np.zeros(4, np.uint32))])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(4, np.uint32), "4 values came, and 5 are to be summed"),
        (np.zeros(5, np.uint64), "1 axes of uint64"),
        (np.full(5, 2**31 - 1, np.uint32), "A value is 2147483647 steps, and 134217728 was agreed"),
        (np.full(5, 2**31, np.uint32), "A value is -2147483648 steps"),
        (np.zeros(10, np.uint32)[::2], "The values lie in pieces, or cannot be written to"),
        (np.frombuffer(bytes(20), np.uint32), "cannot be written to"),
    ],
    ids=["length", "type", "high", "low", "pieces", "read-only"],
)
def test_values_that_could_wrap_are_not_masked(values: Any, words: str) -> None:
    play = Play(replace(terms_of(EIGHT), exponent=25))
    with pytest.raises(ValuesRefused, match=words):
        play.mask(ANNA, values)


def test_shares_that_a_site_made_up_are_left_out(play: Play) -> None:
    """And named: the others make the sum, if they are enough."""
    summed = play.summed(EIGHT)
    answers = play.unmasked(summed, EIGHT)
    bad = changed(answers[0], seeds=tuple(Revealed(each.author, bytes(SHARE_BYTES)) for each in answers[0].seeds))
    odd = changed(answers[1], keys=(Revealed(CARL, bytes(SHARE_BYTES)), Revealed("site-999", b"")))
    opened = summed.opened([bad, odd, *answers[2:]])
    assert opened.wrong == (ANNA, BERT)
    assert play.terms.grid.steps(opened.total).tolist() == plain_sum(play.terms, EIGHT)
    with pytest.raises(TooFewSites, match="5 sites have given shares of site-000 at round 3 of train, and 6 are needed"):
        summed.opened([bad, *answers[1:6]])


def test_shares_that_nobody_asked_for_are_left_out(play: Play) -> None:
    """A site that gives both shares of a survivor breaks its word, and the coordinator does not take the second."""
    summed = play.summed(EIGHT)
    answers = play.unmasked(summed, EIGHT)
    held = next(each for each in play.masked[ANNA][0].shares if each.author == BERT)
    opened = summed.opened([changed(answers[0], keys=(Revealed(BERT, held.key),)), *answers[1:]])
    assert opened.wrong == (ANNA,)
    assert play.terms.grid.steps(opened.total).tolist() == plain_sum(play.terms, EIGHT)


def test_an_author_whose_shares_make_another_secret_is_named() -> None:
    """Each of its parcels is signed and marked well; together they are of another seed than the one it is known by."""
    play = Play(terms_of(EIGHT))
    sent = {name: parcels.parcels for name, (_, parcels) in play.shared.items()}
    sent[BERT] = tuple(parcel(play.shared[BERT][0], reader, seed_mark=bytes(32)) for reader in EIGHT)
    play.__dict__["delivered"] = delivered(play.roll, sent, play.order, play.coordinator)
    with pytest.raises(SharesRefused, match="The shares that site-001 sent at round 3 of train are of another secret"):
        play.opened(EIGHT)


def test_five_sites_that_collude_make_no_secret(play: Play) -> None:
    """One share less than the threshold: what they make of theirs is not the seed."""
    held = [
        Share(at, next(each.seed for each in play.masked[name][0].shares if each.author == ANNA))
        for at, name in enumerate(EIGHT, 1)
    ]
    seed = play.begun[ANNA][0].keys.self_seed
    assert combine(held[:6], 6) == combine(held[2:], 6) == seed
    with pytest.raises(SharesRefused, match="There are 5 shares of a secret that takes 6"):
        combine(held[:5], 6)
    try:
        made = combine(held[:5], 5)
    except SharesRefused:
        made = None  # a number beyond 2^256
    assert made != seed


def test_notes_that_cannot_be_read_end_it(tmp_path: Path) -> None:
    notebook = FolderNotebook(tmp_path)
    assert notebook.noted(("a", 1)) is None
    assert (notebook.note(("a", 1), "x"), notebook.note(("a", 1), "y"), notebook.noted(("a", 1))) == ("x", "x", "x")
    assert notebook.note(("a", 2), "y") == "y"
    (path,) = (each for each in tmp_path.rglob("*") if each.is_file() and json.loads(each.read_text())["what"] == "x")
    for broken in ("", "[]", '{"key": ["b"], "what": "x"}', '{"key": ["a", 1], "what": 3}'):
        path.write_text(broken)
        with pytest.raises(NotebookBroken, match=r"cannot be used: .*Leave the run with this site"):
            notebook.noted(("a", 1))


def test_of_a_run_that_is_over_one_note_is_left(notebook: Notebook) -> None:
    """And it answers for all: nothing of the run is begun, hidden or signed again, and other runs are as they were."""
    play, other = Play(terms_of(EIGHT)), Play(terms_of(EIGHT, place=replace(PLACE, run="run-2")))
    name = EIGHT[0]
    for each in (play, other):
        advertise(each.terms, each.who[name], notebook)
    notebook.close(play.terms.place.run)
    with pytest.raises(RoundReplayed):
        advertise(play.terms, play.who[name], notebook)
    assert notebook.note(("input", *play.terms.place.parts), "x") == OVER == notebook.noted(survivors_key(play.terms.place))
    assert notebook.noted(("advert", *other.terms.place.parts)) not in (None, OVER)
    if isinstance(notebook, FolderNotebook):
        assert len([each for each in notebook._folder.rglob("*") if each.is_file()]) == 2


def test_a_folder_that_takes_no_notes_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFull, match="Nothing can be written to"):
        FolderNotebook(tmp_path / "file" / "notes")
