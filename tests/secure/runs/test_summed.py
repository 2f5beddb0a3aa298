"""A run with secure sums ends in the bytes of the same run without masks, and nobody sees what a single site has sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from tests.engine.present import present
from tests.laws.stage import Cuts, Stage, WatchedVault
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
from tideline import nets
from tideline.algorithms import METHODS
from tideline.archive import plain
from tideline.archive.parts import MemoryParts
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused, StepFailed
from tideline.core.privacy import TO_COORDINATOR, TO_SUM, Exposure, contract_digest
from tideline.core.run import ClientId
from tideline.engine.compute.drafts import Drafts
from tideline.engine.compute.sums.numbers import Row, grid_for, words_of
from tideline.engine.compute.sums.phases import MEANS
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.model.experiment import UPLOADER
from tideline.engine.model.orders import Order, OrderStatus
from tideline.engine.model.runs import Status
from tideline.engine.site.summing import SiteSums
from tideline.numerics.aggregation.sums import SHARE, mean_from, shapes_of, terms
from tideline.numerics.privacy.streams import Stream
from tideline.secure.graph import enough
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
    (exact, one), (summed, two) = (played(config=config, secure_sums=False), played(config=config, secure_sums={"bits": bits}))
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
        assert row != hidden[place] and len(row) == len(hidden[place]) and row[:32] not in masked.wire.all()
    assert all(not o.metrics for o in masked.journal.orders(run) if of_values(masked, run, o))


def of_values(found: Any, run: Any, order: Any) -> bool:
    return bool(found.row(run).fact(order.cursor).phase == VALUES)


def values(found: Any, order: Any) -> bytes:
    row = present(plain.tensor_at(found.parts, order.reply[0][0], "values"))
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


# What is said of a run with secure sums before anybody is asked: its contract, and what no sum can be of.
ADAPTED = {**dict.fromkeys(("anna", "bert", "carl"), "source"), **dict.fromkeys(("dora", "emil"), "target")}
IMPOSSIBLE: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "more keys than a message has": ("fedavg", 190, {"secure_sums": {"ahead": 64}}, "Write ahead: 63 in secure_sums"),
    "more sites than a sum has": ("fedavg", 3501, {"secure_sums": {"ahead": 1}}, "3501 sites are asked in train"),
    "two sites": ("fedavg", 2, {}, "2 sites are asked in train"),
    "fewer than the run wants": ("fedavg", 4, {"secure_sums": {"sites": 5}}, "lower secure_sums.sites"),
    "two that adapt": ("fedavg_shot", 0, {"roster": ADAPTED}, "2 sites are asked in adapt"),
    "one source": (
        "fedavg_shot",
        0,
        {"roster": {"anna": "source", **dict.fromkeys(("carl", "dora", "emil"), "target")}},
        "1 site is asked in source",
    ),
}


@pytest.mark.parametrize(("method", "many", "more", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_no_sum_can_be_of_is_refused_at_the_start(method: str, many: int, more: dict[str, Any], words: str) -> None:
    """With what to write, before anybody is asked, and when an experiment is checked."""
    found, names = stage(), tuple(f"site{i:04d}" for i in range(many))
    given = asked(method, **{"roster": dict.fromkeys(names, "source"), "config": {"rounds": 64}, **more})
    with pytest.raises(RosterRefused) as refusal:
        found.start(given)
    assert words in f"{refusal.value.what}. {refusal.value.todo}" and found.waiting() == []
    with pytest.raises(RosterRefused):
        found.run_service.check(given, Identity())


@pytest.mark.nightly(job="numbers")
def test_as_many_keys_as_a_message_has_are_let_in() -> None:
    """With as many rounds at once as the refusal said. Of fewer rounds than that there are fewer keys."""
    names = tuple(f"site{i:03d}" for i in range(190))
    roster = dict.fromkeys(names, "source")
    stage().start(asked(roster=roster, config={**CONFIG, "rounds": 64}, secure_sums={"ahead": 63}))
    stage().start(asked(roster=roster, config={**CONFIG, "rounds": 63}, secure_sums={"ahead": 64}))


@pytest.mark.parametrize("masks", [True, False])
def test_an_exchange_that_asks_nobody_is_left_out(masks: bool) -> None:
    """A run that brings its source model needs no source, and makes no keys for the sums of what sources send."""
    found, roster = stage(masks), dict.fromkeys(NAMES, "target")
    digest = found.parts.put([save(nets.weights_of(nets.build(World(inputs=(8,), classes=3, model="mlp"))))])
    found.journal.add_parts([digest], *UPLOADER, found.clock.now())
    run = found.start(asked("fedavg_shot", roster=roster, config={"rounds": 1, "epochs": 1, "batch": 16}, weights=digest))
    found.play(run)
    ended(found, run)
    asked_in = {found.row(run).fact(order.cursor).phase for order in found.journal.orders(run) if order.cursor >= 0}
    assert "adapt" in asked_in and not {each for each in asked_in if each.split()[0] == "source"}


def test_the_contract_that_is_shown_before_is_the_runs() -> None:
    found, run = played(True)
    assert found.compute.describe("fedavg", secure_sums=True).digest == contract_digest(found.row(run).contract)


# Noise in sums: each site's change is shortened, and the shares of noise of as few sites as may remain are all of it.
KEY = b"k" * 32
NOISE = {"norm": 1.0, "noise": 1.0}


@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_a_change_is_no_longer_than_the_norm(size: float, seed: int) -> None:
    """In whole numbers, rounding included: the row without its noise, which the same stream draws."""
    grid, w = grid_for(5, 32), {"w": torch.zeros(40, 3), "b": torch.zeros(7)}
    rng = torch.Generator().manual_seed(seed)
    made = {name: size * torch.randn(t.shape, generator=rng) for name, t in w.items()}
    row, bound = Row(shapes_of(w), ("loss",)), 2.0**20
    values = terms(made, w, 1.0, 1.0)
    with_noise = steps(row, values, bound, 100.0, grid, Stream(KEY, "one"))
    nothing = terms(w, w, 1.0, 1.0)
    alone = steps(row, nothing, bound, 100.0, grid, Stream(KEY, "one"))
    own = [row.places[name] for name in row.shapes if name != SHARE]
    change = np.concatenate([(with_noise - alone)[place] for place in own]).astype(np.float64)
    assert math.sqrt(float((change**2).sum())) <= bound
    assert (with_noise[row.tensors :] == 0).all() and with_noise[row.places[SHARE]][0] == grid.most


def steps(row, values, bound, noise, grid, stream):  # type: ignore[no-untyped-def]
    made = row.encode_noised(values, (SHARE,), bound, noise, grid, stream)
    return grid.steps(words_of(made, grid.bits).copy()).astype(np.int64)


def test_the_noise_of_those_who_may_remain_is_all_of_it() -> None:
    """The sum of floor(2 N / 3) + 1 sites is off by `noise` norms, and no more."""
    n, asked = 9, SecureSums(norm=0.5, noise=2.0)
    least, grid, w = enough(n), grid_for(n, 32), {"w": torch.zeros(20_000)}
    reach = asked.reach(least)
    row, bound = Row(shapes_of(w), ()), 0.5 / reach * 2.0**grid.exponent
    change = {"w": torch.full((20_000,), 0.5 / math.sqrt(20_000))}
    total = grid.zeros(row.length)
    for i in range(least):
        values = terms(change, w, 1.0, reach)
        noise = 2.0 * bound / math.sqrt(least)
        total += words_of(row.encode_noised(values, (SHARE,), bound, noise, grid, Stream(KEY, i)), 32)
    mean = mean_from(row.decode(total, grid, least).tensors, w, reach)["w"] * least
    assert float((mean - least * change["w"]).std()) == pytest.approx(2.0 * 0.5, rel=0.03)


def test_a_norm_that_rounding_outgrows_is_refused() -> None:
    """With words on what to do."""
    w = {"w": torch.zeros(1000)}
    row, grid = Row(shapes_of(w), ()), grid_for(3, 32)
    with pytest.raises(StepFailed, match="bits: 64"):
        row.encode_noised(terms(w, w, 1.0, 1.0), (SHARE,), 3.0, 1.0, grid, Stream(KEY))


@cache
def noised(**more: object) -> tuple[Stage, str]:
    """Play a run with noise to its end. Tests only read from it, so it is played once."""
    made = stage()
    run = made.start(asked(secure_sums={**NOISE, **more}))
    made.play(run)
    return made, run


def test_a_run_says_what_its_noise_promises() -> None:
    """Its notes, its contract; and no metric of training is told, in which there is no noise."""
    found, run = noised()
    ended(found, run)  # type: ignore[arg-type]
    notes = " ".join(found.result(run)["notes"])  # type: ignore[arg-type]
    assert "2 sums with noise protect each whole site: epsilon" in notes
    clause = next(each for each in found.row(run).contract if each.field == "values")  # type: ignore[arg-type]
    assert "no longer than 1" in clause.wire and "noise of 1 times that" in clause.wire
    tables = [each.tables[MEANS] for each in found.journal.rounds(run) if MEANS in each.tables]  # type: ignore[arg-type]
    assert len(tables) == 2 and {table.columns for table in tables} == {("clipped",)}


def test_little_noise_in_a_long_norm_changes_little() -> None:
    """The accuracy is that of a run without."""
    quiet, run = noised(norm=4.0, noise=0.0101, bits=64)
    plain, other = played(config=CONFIG)
    ended(quiet, run)  # type: ignore[arg-type]
    scores = [
        [each["accuracy"] for each in found.result(of)["curve"][-len(NAMES) :]] for found, of in ((quiet, run), (plain, other))
    ]
    assert sum(scores[0]) / len(NAMES) == pytest.approx(sum(scores[1]) / len(NAMES), abs=0.2)


def test_much_noise_is_another_each_time() -> None:
    """It comes of each site's own key, and of the run."""
    (one, first), (two, second) = noised(), noised.__wrapped__()
    assert ended(one, first) != ended(two, second)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "sums", "words"),
    [
        ("fedgma", NOISE, "nothing can be shortened"),
        ("fedavg", {"norm": 1.0}, "only beside secure_sums.noise"),
        ("fedavg", {"noise": 1.0}, "only beside secure_sums.norm"),
        ("fedavg", {"sites": 9}, "the least that is made"),
        ("hfedf", {}, "needs the replies of single sites"),
    ],
)
def test_what_cannot_be_is_refused(method: str, sums: dict[str, float], words: str) -> None:
    """Before anybody works, with the place."""
    made = stage()
    with pytest.raises((ConfigRefused, RosterRefused), match=words) as caught:
        made.start(asked(method, secure_sums=sums, config={}))
    assert str(caught.value.context["path"]).startswith("secure_sums")


@pytest.mark.parametrize("name", ["wire", "shares", "sample"])
def test_what_looks_at_single_replies_is_refused(name: str) -> None:
    """Beside secure sums, with what to leave out."""
    given = {"wire": "int8", "shares": {"max": 0.5}, "sample": 3}
    with pytest.raises(ConfigRefused, match=f"stands beside {name}") as caught:
        stage().start(asked(**{name: given[name]}))
    assert caught.value.context["path"] == name


def test_rows_are_protected_in_sums_that_nobody_sees() -> None:
    """Noise of gradients and masks go together: the contract says both of the values, and the run its epsilon."""
    privacy = {"rows": 40, "noise": 2.0, "delta": 1e-3, "rate": 0.25, "score_noise": 1000.0}
    found, run = played(privacy=privacy)
    ended(found, run)
    clause = next(each for each in found.row(run).contract if each.field == "values")
    assert "clipped gradients with noise" in clause.private and "under masks" in clause.wire
    assert found.result(run)["privacy"]["epsilon"] > 0
    tables = [each.tables[MEANS] for each in found.journal.rounds(run) if MEANS in each.tables]
    assert {table.columns for table in tables} == {("clipped",)}
