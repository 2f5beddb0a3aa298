"""A coordinator that lies to an agent in a run: what it is asked is held to what the site knows by itself, and to its notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.present import present
from tests.laws.stage import Stage
from tests.secure.runs.played import KEYS, PATIENT, SURVIVORS, UNMASK, VALUES, asked, client_of, ended, missing, stage
from tideline.archive import plain
from tideline.archive.checks import LAX
from tideline.archive.plain import Plainly
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.asked.secure import SecureSums
from tideline.core.errors import Refused
from tideline.core.run import ClientId, RunId
from tideline.core.settings import plain as plain_of
from tideline.engine.compute.configured import configured
from tideline.engine.model.brief import Brief, brief_in
from tideline.engine.model.orders import Files, Order, OrderStatus
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest
from tideline.engine.site.rules import FREE, Least
from tideline.engine.site.summing import Answer, SiteSums, root_key
from tideline.secure.fixed_point import finest
from tideline.secure.rounds.forms import from_bytes, to_bytes
from tideline.secure.rounds.messages import Asking, Survivors
from tideline.secure.rounds.notebook import OVER
from tideline.secure.rounds.terms import Identity, Place

ANNA, OTHERS = ClientId("anna"), ("bert", "carl", "dora", "emil")
Lie = Callable[[Any], Any]


def before(found: Stage, run: RunId, phase: str) -> Order:
    """Anna's order of an exchange, which nobody has answered yet."""
    for action in found.actions(run):
        for order in found.waiting():
            if order.phase == phase and order.round == 1 and owner(found, order) == ANNA:
                return order
        action()
    raise AssertionError("the run ends before that exchange")


def owner(found: Stage, order: Order) -> ClientId:
    row = present(found.journal.order(order.id))
    return row.client


def answer(found: Stage, order: Order, file: tuple[Any, ...]) -> str:
    """What becomes of an order that brings another file: the words of its failure, or nothing."""
    receipt = found.agents[ANNA].handle(replace(order, files=file))
    row = found.journal.order(order.id)
    assert receipt is not None and row is not None
    return "" if row.failure is None else f"{row.failure.kind}: {row.failure.what}"


def changed(found: Stage, order: Order, kind: type[Any], lie: Lie) -> tuple[Any, ...]:
    """The order's file with another message in it, as the site would have got it."""
    message = present(plain.tensor_at(found.parts, order.files[0][0], "file"))
    made = to_bytes(lie(from_bytes(kind, message.data)))
    return plain.write_record(found.vaults[ANNA].parts(order.run), {"file": Plainly("U8", made)})


def begun(**more: Any) -> tuple[Stage, RunId]:
    found = stage()
    return found, found.start(asked(**more))


def other_terms(**change: Any) -> Lie:
    return lambda asking: replace(asking, terms=tuple(replace(each, **change) for each in asking.terms))


def following(asking: Asking, many: int) -> Asking:
    """Of so many rounds."""
    first = asking.terms[0]
    return Asking(terms=tuple(replace(first, place=replace(first.place, round=1 + i)) for i in range(many)))


def other_place(**change: Any) -> Lie:
    return lambda asking: replace(asking, terms=tuple(replace(t, place=replace(t.place, **change)) for t in asking.terms))


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (other_terms(sites=("anna", "bert", "carl", "zoe")), "zoe is to be in the sum of round 1 of train, and is no site"),
        (other_terms(exponent=3), "on another grid than the run's"),
        (other_place(run="another"), "Keys are asked for round 1 of train in an order for round 1"),
        (other_place(phase="score"), "Keys are asked for round 1 of score in an order for round 1 of train"),
        (other_place(round=1), "rounds that do not follow each other"),
        (lambda asking: Asking(), "rounds that do not follow each other"),
        (lambda asking: following(asking, 5), "Keys are asked for 5 rounds at once, and the run says 4 at most"),
        (other_terms(sites=OTHERS, exponent=finest(1.0, 4).exponent), "is asked to join a sum that it is no site of"),
    ],
    ids=["a stranger", "a grid", "a run", "a phase", "a round twice", "nothing", "many", "without it"],
)
def test_keys_are_asked_for_what_is_not_the_runs(lie: Lie, words: str) -> None:
    found, run = begun()
    order = before(found, run, KEYS)
    assert words in answer(found, order, changed(found, order, Asking, lie))


def test_a_sum_of_few_is_refused_by_the_run_and_by_the_owner() -> None:
    """The run says how many it needs; an owner may want more."""
    found, run = begun(secure_sums={"sites": 5})
    order = before(found, run, KEYS)
    few = other_terms(sites=("anna", "bert", "carl", "dora"))
    assert "the run says 5 at least" in answer(found, order, changed(found, order, Asking, few))
    found, run = begun()
    found.agents[ANNA].owner.rules = replace(FREE, least=Least(sites=5))  # type: ignore[attr-defined]
    order = before(found, run, KEYS)
    assert "this site's owner wants 5 at least" in answer(found, order, changed(found, order, Asking, few))


def test_an_owner_wants_sites_that_it_trusts() -> None:
    """Whose keys the owner has confirmed: that some are shown is no reason to trust them."""
    found, run = begun()
    found.agents[ANNA].owner.rules = replace(FREE, least=Least(trusted=2))  # type: ignore[attr-defined]
    pins = found.peer_keys_of[ANNA].pins
    order = before(found, run, KEYS)
    assert "has confirmed the keys of 0" in answer(found, order, order.files)
    found, run = begun()
    found.agents[ANNA].owner.rules = replace(FREE, least=Least(trusted=2))  # type: ignore[attr-defined]
    pins = found.peer_keys_of[ANNA].pins
    order = before(found, run, KEYS)
    found.peer_keys_of[ANNA].trust(brief_in(order).peers)
    pins.change(lambda known: {name: replace(known[name], trusted=True) for name in ("bert", "carl")})  # type: ignore[misc, index]
    assert answer(found, order, order.files) == ""


@pytest.mark.nightly(job="numbers")
def test_a_second_set_of_survivors_is_not_signed() -> None:
    """Not after a restart either: the first was written down."""
    found, run = begun()
    order = before(found, run, SURVIVORS)
    assert answer(found, order, order.files) == ""
    found.rebuild()
    other = changed(found, order, Survivors, lambda shown: replace(shown, sites=("anna", "bert", "carl", "dora")))
    receipt = found.agents[ANNA].handle(replace(order, files=other))
    assert receipt is None or receipt.verdict != "accepted"


def test_two_sites_are_not_asked_for_different_things() -> None:
    """A model of its own for one site, whose masks would stand out of the sum: the agent gives no values."""
    found, run = begun()
    order = before(found, run, VALUES)
    takes = present(configured(found.methods, "fedavg", found.row(run).spec.config, sums=SecureSums()).plan[2].step)
    record = decode(takes.takes, order.files[0][0], found.parts, LAX)
    own = replace(record, model={name: w + 1 for name, w in record.model.items()})  # type: ignore[type-var]
    file = encode(own, found.vaults[ANNA].parts(run), LAX).files
    assert "was asked for something else than the other sites of round 1 of train" in answer(found, order, file)


def test_an_owner_approves_how_values_are_added_up() -> None:
    """Word for word: with another clip, or without sums, a run asks for something else; and an owner reads it."""
    found, run = begun()
    brief = brief_in(before(found, run, KEYS))
    assert brief.secure_sums == SecureSums()
    others = (brief, replace(brief, secure_sums=None), replace(brief, secure_sums=SecureSums(clip=1.0)))
    assert len({intent_digest(each) for each in others}) == 3
    assert facts_of(brief)["secure_sums"] == plain_of(SecureSums()) and "secure_sums" not in facts_of(others[1])
    said = " ".join(brief_in_words(brief))
    assert "values are added up under masks: clip: 4.0" in said and "as WEIGHTS to a sum over sites" in said


# Orders that lie about their place, or of how many a sum is: no row leaves without masks, or with less noise than was said.


@pytest.mark.parametrize("place", [("score", "score"), ("train", "score"), ("elsewhere", "train")])
def test_values_are_asked_for_by_another_name(place: tuple[str, str]) -> None:
    """By the name of an exchange that is not summed: then the agent would mask nothing."""
    found, run = begun()
    order = before(found, run, VALUES)
    found.agents[ANNA].handle(replace(order, phase=place[0], step=place[1]))
    row = found.journal.order(order.id)
    assert row is not None and row.failure is not None and "which the run's plan has not" in row.failure.what
    head = found.vaults[ANNA].head(run)
    assert head is not None and head.cursor < order.cursor


@pytest.mark.parametrize("lie", [{"sites": 3000, "exponent": 19}, {"sites": 4}, {"exponent": 20}], ids=str)
def test_values_are_asked_for_a_sum_of_other_sites(lie: dict[str, int]) -> None:
    """Of 3000 sites each would add a twentieth of the noise that it owes among five."""
    noise = SecureSums(norm=1.0, noise=1.0)
    found, run = begun(secure_sums={"norm": 1.0, "noise": 1.0})
    order = before(found, run, VALUES)
    takes = present(configured(found.methods, "fedavg", found.row(run).spec.config, sums=noise).plan[2].step)
    record = decode(takes.takes, order.files[0][0], found.parts, LAX)
    other = replace(record, sum_asked=replace(record.sum_asked, **lie))  # type: ignore[attr-defined,type-var]
    words = answer(found, order, encode(other, found.vaults[ANNA].parts(run), LAX).files)
    assert words.startswith("malformed") or "another grid" in words
    head = found.vaults[ANNA].head(run)
    assert head is not None and head.cursor < order.cursor


def test_keys_were_asked_for_in_a_brief_of_their_own() -> None:
    """One of a project whose runs the owner lets sum fewer, say: values are held to what holds where they are asked for."""
    found, run = begun()
    order = before(found, run, VALUES)
    found.agents[ANNA].owner.rules = replace(FREE, least=Least(sites=9))  # type: ignore[attr-defined]
    silent = {**order.brief, "intent": {**order.brief["intent"], "sites": 0}}  # type: ignore[dict-item]
    assert "this site's owner wants 9 at least" in answer(found, replace(order, brief=silent), order.files)


@pytest.mark.parametrize("sums", [None, {"clip": 1.0}, {"norm": 1.0, "noise": 0.01}])
def test_a_run_goes_on_with_the_sums_that_it_began_with(sums: dict[str, float] | None) -> None:
    """Its brief comes with every order. Without sums the same run would send its model; the site remembers, also later."""
    found, run = begun()
    order = before(found, run, VALUES)
    other = stage()
    twin = other.start(asked(secure_sums=sums or False))
    brief = brief_in(before(other, twin, KEYS if sums else VALUES))
    found.rebuild()
    with pytest.raises(Refused, match="has begun with secure sums here"):
        found.agents[ANNA].sums.hold(run, brief)
    assert "asked to go on" in answer(
        found, replace(order, brief=before(other, twin, KEYS if sums else VALUES).brief), order.files
    )


def test_no_root_stays_where_others_have_signed() -> None:
    """A round closes with the first signatures that are enough: who comes too late forgets the root with its next values, or with
    the run's end.
    """
    found, run = begun(waiting=PATIENT)
    found.play(run, missing(found, "carl", SURVIVORS, (1, 2)))
    ended(found, run)
    for name, notes in found.notebooks.items():
        for number in (1, 2):
            assert notes.noted(root_key(Place(run, "train", number))) in (None, OVER), name


# A site that would spoil a run: what it sends is refused as it comes, and the run goes on without it.
BERT = ClientId("bert")


class Spoiler(SiteSums):
    """A site's half, whose answers are spoilt in one exchange."""

    spoils = ""
    key = bytes(32)

    def keys(self, asked: bytes, state: Any, run: Any, who: Identity) -> Any:
        made, then = super().keys(asked, state, run, who)
        if self.spoils != KEYS:
            return made, then
        bare = [replace(each, mask_key=self.key) for each in made.adverts]
        return replace(made, adverts=tuple(replace(each, signature=who.sign(each.words)) for each in bare)), then

    def unmask(self, asked: bytes, state: Any, run: Any, who: Identity) -> Any:
        made, then = super().unmask(asked, state, run, who)
        few = replace(made, seeds=(replace(made.seeds[0], share=bytes(len(made.seeds[0].share))), *made.seeds[1:]))
        return (few if self.spoils == UNMASK else made), then

    def hide(self, order: Order, brief: Brief, state: Files, message: Files, parts: Any, least: int = 1) -> Answer:
        made = super().hide(order, brief, state, message, parts, least)
        values = plain.tensor_at(parts, made.reply[0][0], "values")
        other = plain.write_record(parts, {"values": values, "order": "f" * 64})
        return replace(made, reply=other) if self.spoils == VALUES else made


def spoilt(phase: str, key: bytes = bytes(32)) -> tuple[Stage, RunId]:
    found = stage()
    bert = found.agents[BERT]
    bert.sums = Spoiler(BERT, bert.sums.peer_keys, bert.sums.notebook)
    bert.sums.spoils, bert.sums.key = phase, key
    return found, found.start(asked(waiting={"min_replies": 4, "deadline": 10.0}))


@pytest.mark.parametrize(
    ("phase", "key", "words"),
    [
        (KEYS, bytes(32), "nobody can agree on anything with"),
        pytest.param(KEYS, b"short", "nobody can agree on anything with", marks=pytest.mark.nightly(job="numbers")),
        (VALUES, b"", "bert answers another order than it was given"),
        (UNMASK, b"", "not those that it was sent, or not all"),
    ],
    ids=["a key of low order", "no key", "another order", "wrong shares"],
)
def test_it_is_named_and_left_out(phase: str, key: bytes, words: str) -> None:
    """Of five sites four suffice."""
    found, run = spoilt(phase, key)
    found.play(run)
    ended(found, run)
    failed = [
        o for o in found.journal.orders(run) if o.status is OrderStatus.FAILED and found.row(run).fact(o.cursor).phase == phase
    ]
    assert {o.client for o in failed} == {BERT}
    assert failed[0].failure is not None and words in failed[0].failure.what


@pytest.mark.parametrize("phase", [VALUES, UNMASK])
def test_a_run_that_has_too_few_beside_it_stalls_and_goes_on(phase: str) -> None:
    """It ended for good, or stalled for ever, where one more was missing for a while."""
    found, run = spoilt(phase)
    row = found.play(run, lambda orders: [o for o in orders if o.phase != phase or client_of(found, o) != "carl"])
    assert row.status == "stalled" and "bert" in row.cause
    found.run_service.resume(run)
    found.play(run)
    ended(found, run)
