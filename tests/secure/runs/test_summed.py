"""A run with secure sums ends in the bytes of the same run without masks, and nobody sees what a single site has sent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from tests.laws.stage import Cuts, WatchedVault
from tests.secure.runs.played import (
    CONFIG,
    KEYS,
    PATIENT,
    PHASES,
    SHARES,
    SURVIVORS,
    UNMASK,
    VALUES,
    asked,
    client_of,
    ended,
    missing,
    played,
    played_tiny,
    stage,
)
from tests.synthetic import NAMES
from tideline.algorithms import METHODS
from tideline.archive import plain
from tideline.archive.parts import MemoryParts
from tideline.core.privacy import TO_COORDINATOR, TO_SUM, Exposure
from tideline.core.run import ClientId
from tideline.engine.compute.drafts import Drafts
from tideline.engine.compute.sums.phases import MEANS
from tideline.engine.model.orders import Order, OrderStatus
from tideline.engine.model.runs import Status
from tideline.engine.site.summing import SiteSums
from tideline.secure.rounds.notebook import MemoryNotebook

GONE = "carl"
SUMMED = Drafts(MemoryParts(), METHODS).summed_methods()
AT_NIGHT = pytest.mark.nightly(job="numbers")


def quick(values: Sequence[str], *kept: str) -> list[Any]:
    """Return the values as parameters of tests: these are played in the quick tier, the others at night."""
    return [value if value in kept else pytest.param(value, marks=AT_NIGHT) for value in values]


@pytest.mark.parametrize("method", quick(SUMMED, "fedavg", "fedwca"))
def test_masks_change_no_byte(method: str) -> None:
    assert ended(*played_tiny(method, True)) == ended(*played_tiny(method, False))


@pytest.mark.parametrize("method", quick(SUMMED, "fedavg"))
def test_a_method_learns_from_sums_what_it_learns_from_replies(method: str) -> None:
    """Accuracies differ as with other mini-batches: a sum's exchanges have other places in the plan."""
    means = []
    for sums in (True, False):
        found, run = played_tiny(method, True, sums)
        ended(found, run)
        last = found.result(run)["curve"][-6:]
        means.append(sum(each["accuracy"] for each in last) / len(last))
    assert means[0] == pytest.approx(means[1], abs=0.12)


@pytest.mark.parametrize(("weighting", "bits"), [("samples", 32), ("uniform", 64)])
def test_sums_learn_what_means_learn(weighting: str, bits: int) -> None:
    """The model is that of single replies but for the grid's steps."""
    config = {**CONFIG, "weighting": weighting}
    (exact, one), (summed, two) = (
        played(config=config, secure_sums=False),
        played(config=config, secure_sums={"bits": bits}),
    )
    known = [each["accuracy"] for each in exact.result(one)["curve"]]
    assert [each["accuracy"] for each in summed.result(two)["curve"]] == pytest.approx(known, abs=0.02)
    assert ended(exact, one) != ended(summed, two)


@cache
def end_without_values(rounds: tuple[int, ...]) -> str:
    """Return the digest of a run without masks in which one site sends no values in these rounds."""
    alone = stage(masks=False)
    run = alone.start(asked(waiting=PATIENT))
    alone.play(run, missing(alone, GONE, VALUES, rounds))
    return ended(alone, run)


@pytest.mark.parametrize("phase", quick(PHASES, KEYS, VALUES, UNMASK))
def test_a_site_drops_out(phase: str) -> None:
    """Before its values it is not in the sum; behind them it is. Without keys it is in no sum that they are for."""
    whole = stage()
    run = whole.start(asked(waiting=PATIENT))
    whole.play(run, missing(whole, GONE, phase))
    assert ended(whole, run) == end_without_values({KEYS: (1, 2), SHARES: (1, 2), VALUES: (1,)}.get(phase, ()))


@AT_NIGHT
@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_keys_are_made_for_several_rounds_at_once(ahead: int) -> None:
    """In as few exchanges as they take; and who missed some is back with the next."""
    config, sums = {**CONFIG, "rounds": 5}, {"ahead": ahead}
    found, run = played(config=config, secure_sums=sums)
    names = [each.phase for each in found.row(run).plan]
    assert names.count(KEYS) == names.count(SHARES) == -(-5 // ahead) and names.count(VALUES) == names.count(UNMASK) == 5
    assert ended(found, run) == ended(*played(False, config=config, secure_sums=sums))
    away = stage()
    other = away.start(asked(config=config, secure_sums=sums, waiting=PATIENT))
    away.play(other, missing(away, GONE, KEYS))
    alone = stage(masks=False)
    third = alone.start(asked(config=config, secure_sums=sums, waiting=PATIENT))
    alone.play(third, missing(alone, GONE, VALUES, tuple(range(1, ahead + 1))))
    assert ended(away, other) == ended(alone, third)


def test_a_run_that_selects_its_best_round_ends_alike() -> None:
    """Its result is a state between rounds, which has nothing of sums to come in it."""
    more = {"selection": "accuracy", "config": {**CONFIG, "rounds": 3}}
    (masked, run), (bare, other) = played(True, **more), played(False, **more)
    assert ended(masked, run) == ended(bare, other)


@pytest.mark.parametrize("phase", quick(PHASES, SHARES, SURVIVORS))
def test_with_too_few_the_run_stalls_and_goes_on(phase: str) -> None:
    """Two of five are missing. Nothing is made known; once they are back, the run ends as if nothing had been."""
    short = stage()
    run = short.start(asked(waiting=PATIENT))
    gone = ("carl", "dora")
    row = short.play(run, lambda orders: [o for o in orders if o.phase != phase or client_of(short, o) not in gone])
    assert row.status is Status.STALLED
    assert "a sum that shows no single site needs 4" in row.cause and "carl: no answer in time" in row.cause
    short.run_service.resume(run)
    short.play(run)
    assert ended(short, run) == ended(*played(True))


def test_a_site_that_lost_its_home_between_shares_and_values() -> None:
    """A run that waits for all of its sites stalls, and goes on with fewer: as if the site had answered none of those rounds."""
    short, gone = stage(), ClientId(GONE)
    run = short.start(asked())
    emptied = list[bool]()

    def empty(orders: list[Order]) -> list[Order]:
        if not emptied and any(o.phase == VALUES and client_of(short, o) == GONE for o in orders):
            short.vaults[gone], short.notebooks[gone] = WatchedVault(short.cuts), MemoryNotebook()
            short.agents[gone] = short.agent(gone)
            emptied.append(True)
        return orders

    row = short.play(run, empty)
    assert row.status is Status.STALLED and "carl: " in row.cause and emptied
    short.run_service.resume(run, quorum=4)
    short.play(run)
    assert ended(short, run) == end_without_values((1, 2))


@AT_NIGHT
@pytest.mark.parametrize("every", [1, 2])
def test_restarts_at_any_moment_change_nothing(every: int) -> None:
    """Every process ends at every place once: between any two messages, in the middle of parts, around each commit."""
    cuts = Cuts(every=True)
    found = ended(*played(True, cuts=cuts, checkpoint_every=every))
    assert {place[0] for place in cuts.reached} >= {"commit", "committed", "report", "reported", "advance", "advanced"}
    assert found == ended(*played(False, checkpoint_every=every))


def test_no_reply_is_a_row() -> None:
    """What crosses the line is none of what the trainers gave, and there are no metrics of single sites."""
    (masked, run), (bare, other) = played(True), played(False)

    def rows(found: Any, of: Any) -> dict[tuple[str, int], bytes]:
        orders = [o for o in found.journal.orders(of) if o.cursor >= 0 and of_values(found, of, o)]
        return {(o.client, found.row(of).fact(o.cursor).round): values(found, o) for o in orders}

    plainly, hidden = rows(bare, other), rows(masked, run)
    assert plainly.keys() == hidden.keys() and len(plainly) == 2 * len(NAMES)
    for place, row in plainly.items():
        assert row != hidden[place] and len(row) == len(hidden[place])
        assert row[:32] not in masked.wire.all()
    assert all(not o.metrics for o in masked.journal.orders(run) if of_values(masked, run, o))


def of_values(found: Any, run: Any, order: Any) -> bool:
    return bool(found.row(run).fact(order.cursor).phase == VALUES)


def values(found: Any, order: Any) -> bytes:
    row = plain.tensor_at(found.parts, order.reply[0][0], "values")
    assert row is not None
    return bytes(row.data)


def test_means_of_metrics_are_in_the_sum() -> None:
    """The mean loss and number of rows, about as sites tell them that draw other mini-batches; and that nothing was clipped."""
    (summed, run), (exact, other) = played(True), played(secure_sums=False)
    table = next(each.tables[MEANS] for each in summed.journal.rounds(run) if MEANS in each.tables)
    told = [o.metrics for o in exact.journal.orders(other) if o.cursor == 0]
    for name, off in (("loss", 0.05), ("samples", 0.0)):
        mean = sum(each[name] for each in told) / len(told)
        assert table.values[0][table.columns.index(name)] == pytest.approx(mean, abs=off)
    assert table.values[0][table.columns.index("clipped")] == 0


def test_what_is_clipped_is_counted() -> None:
    """A clip that is smaller than most changes."""
    found, run = played(secure_sums={"clip": 2.0**-12})
    table = next(each.tables[MEANS] for each in found.journal.rounds(run) if MEANS in each.tables)
    assert table.values[0][-1] > 100
    assert ended(found, run) == ended(*played(False, secure_sums={"clip": 2.0**-12}))


def test_the_contract_says_what_is_summed() -> None:
    found, run = played(True)
    clauses = {clause.field: clause for clause in found.row(run).contract if clause.phase == VALUES}
    assert set(clauses) == {"values", "order"}
    assert clauses["values"].audience == TO_SUM and clauses["values"].exposure is Exposure.WEIGHTS
    assert "more than two thirds" in clauses["values"].wire and "model, samples" in clauses["values"].doc
    around = [clause for clause in found.row(run).contract if "sum_" in clause.step]
    assert {clause.exposure for clause in around} == {Exposure.MASKED} and len(around) == 4
    assert {clause.audience for clause in around} == {TO_COORDINATOR}


def test_an_agent_gives_no_values_without_masks() -> None:
    """Whatever a coordinator asks for: only a simulation's sites are told that there are none."""
    careless = stage(masks=False)
    careless.masks = True
    for name in careless.agents:
        careless.agents[name].sums = SiteSums(ClientId(name), careless.peer_keys_of[name], careless.notebooks[name])
    run = careless.start(asked())
    row = careless.play(run)
    assert row.status is Status.STALLED and "without masks" in row.cause


def test_an_answer_in_anothers_name_is_refused_where_it_comes() -> None:
    """A site that signs for another, or with a key that is not its own, is named, and no fold meets what it sent."""
    found = stage()
    run = found.start(asked())
    liar = ClientId("bert")
    found.agents[liar].sums.name = ClientId("anna")  # as if it knew no better
    found.play(run)
    failed = [o for o in found.journal.orders(run) if o.status is OrderStatus.FAILED]
    assert [o.client for o in failed] == [liar]
    assert failed[0].failure is not None and "anna" in failed[0].failure.what


@AT_NIGHT
def test_a_run_of_more_sites_than_one_message_has_parcels_of() -> None:
    """Beyond 64 sites, all parcels of a round are more than a list of a message may have."""
    names = tuple(f"site{i:02d}" for i in range(65))
    found = stage(names=names)
    run = found.start(asked(roster=dict.fromkeys(names, "source"), config={**CONFIG, "rounds": 1}))
    found.play(run)
    ended(found, run)
