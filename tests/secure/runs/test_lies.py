"""A coordinator that lies to an agent in a run: what it is asked is held to what the site knows by itself, and to its notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.laws.stage import Stage
from tests.secure.runs.played import KEYS, SURVIVORS, VALUES, asked, stage
from tideline.archive import plain
from tideline.archive.checks import LAX
from tideline.archive.plain import Plainly
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.asked.secure import SecureSums
from tideline.core.run import ClientId, RunId
from tideline.core.settings import plain as plain_of
from tideline.engine.compute.configured import configured
from tideline.engine.model.brief import brief_in
from tideline.engine.model.orders import Order
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest
from tideline.engine.site.rules import FREE, Least
from tideline.secure.fixed_point import finest
from tideline.secure.rounds.forms import from_bytes, to_bytes
from tideline.secure.rounds.messages import Asking, Survivors

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
    row = found.journal.order(order.id)
    assert row is not None
    return row.client


def answer(found: Stage, order: Order, file: tuple[Any, ...]) -> str:
    """What becomes of an order that brings another file: the words of its failure, or nothing."""
    receipt = found.agents[ANNA].handle(replace(order, files=file))
    row = found.journal.order(order.id)
    assert receipt is not None and row is not None
    return "" if row.failure is None else f"{row.failure.kind}: {row.failure.what}"


def changed(found: Stage, order: Order, kind: type[Any], lie: Lie) -> tuple[Any, ...]:
    """The order's file with another message in it, as the site would have got it."""
    message = plain.tensor_at(found.parts, order.files[0][0], "file")
    assert message is not None
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
    takes = configured(found.methods, "fedavg", found.row(run).spec.config, sums=SecureSums()).plan[2].step
    assert takes is not None
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
