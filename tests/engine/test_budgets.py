"""Private runs at sites that have a budget: priced by their own code, charged before any work, refused beyond what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.engine.present import present
from tests.engine.test_private_runs import NOISE, asked
from tests.laws.stage import Cuts, Stage, ready
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.core.asked.private import Charge
from tideline.core.errors import BudgetExceeded, DataRefused, PolicyRefused
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.step import no_tick
from tideline.engine.compute.private.metering import able
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.epsilon.budget import charges_of, cost
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline.engine.model.brief import brief_in
from tideline.engine.model.orders import Order
from tideline.engine.simulation.federation import SimSite
from tideline.engine.site.agent import Agent
from tideline.engine.site.charging import charged_with, noise_key
from tideline.engine.site.owner import Owner
from tideline.engine.site.rules import FREE, PrivacyRules
from tideline_agent.home.ledger import FileLedger, entries

ANNA = ClientId("anna")
WHOLE = (Charge(2.0, 0.5, 4), Charge(8.0, 1.0, 2))  # two rounds of two steps and a scoring
AMPLE = PrivacyRules(epsilon=100.0, delta=1e-3)


class Budgeted(Stage):
    """A stage whose sites have ledgers, and anna a budget."""

    def __init__(
        self, folder: Path, rules: PrivacyRules = AMPLE, cuts: Cuts | None = None, data: Mapping[str, SimSite] | None = None
    ) -> None:
        self.folder, self.privacy = folder, rules
        super().__init__(METHODS, sites() if data is None else data, cuts)

    def agent(self, name: ClientId) -> Agent:
        made = super().agent(name)
        home = self.folder / name
        home.mkdir(exist_ok=True)
        rules = replace(FREE, privacy=self.privacy) if name == ANNA else FREE
        made.owner = Owner(rules=rules, ledger=FileLedger(home), private_methods=partial(able, METHODS))
        return made

    @property
    def ledger(self) -> FileLedger:
        found = self.agents[ANNA].owner.ledger
        assert isinstance(found, FileLedger)
        return found

    def kinds(self, *wanted: str) -> list[str]:
        return [each.kind for each in entries(self.folder / ANNA) if each.kind in wanted or not wanted]

    def first(self, run: RunId, step: str = "train") -> Order:
        """Anna's first order of a step, once all have joined."""
        for order in self.waiting():
            self.handle(order)
        self.scheduler.turn(run)
        return next(each for each in self.waiting() if each.step == step and self.whose(each) == ANNA)

    def whose(self, order: Order) -> ClientId:
        row = present(self.journal.order(order.id))
        return row.client


def test_a_run_is_reserved_at_its_join_and_charged_before_each_step(tmp_path: Path) -> None:
    """Once it has ended all that it reserved is spent, which is what its plan costs, and no entry tells what another has."""
    stage = Budgeted(tmp_path)
    run = stage.start(asked())
    assert stage.play(run).status == "completed" and stage.kinds()[:3] == ["reserved", "run", "order"]
    assert stage.kinds()[4:8] == ["charged", "order", "reply", "charged"]
    budgets = stage.ledger.budgets()
    assert charges_of(budgets.charged("rows")) == WHOLE and not budgets.reserved("rows")
    assert not [each for each in entries(tmp_path / "bert") if each.kind in ("reserved", "charged")]


def test_what_does_not_fit_is_refused_before_any_work(tmp_path: Path) -> None:
    """Naming what is left; the site opens no data, and users read it."""
    one = renyi_epsilon(WHOLE, 1e-3)
    stage = Budgeted(tmp_path, PrivacyRules(epsilon=1.2 * one, delta=1e-3))
    assert stage.play(stage.start(asked())).status == "completed"
    before, jobs = stage.kinds("run", "order"), len(stage.jobs)
    row = stage.play(stage.start(asked()))
    assert row.status == "stalled" and f"{0.2 * one - 0.0005:.3f} is left" in row.cause
    assert stage.kinds("run", "order") == before and stage.kinds()[-1] == "refused"
    assert [client for client, _ in stage.jobs[jobs:]].count(ANNA) == 1, "the price alone was asked for"
    (failure,) = next(each for each in stage.result(row.id)["clients"] if each["name"] == ANNA)["failures"]
    assert failure["kind"] == "BudgetExceeded"
    assert any("takes no part: The budget of this site's rows" in each for each in stage.result(row.id)["notes"])


def test_the_same_order_twice_costs_once_and_gives_the_same_bytes(tmp_path: Path) -> None:
    """Another message at the same place is charged again; with other data, or another secret, it is other noise, charged too."""
    stage = Budgeted(tmp_path)
    run = stage.start(asked())
    order, vault = stage.first(run), stage.vaults[ANNA]
    before = vault.head(run)
    first = ready(stage.agents[ANNA], order)
    assert stage.kinds("charged") == ["charged"]
    vault.restore(run, before)
    stage.rebuild()
    assert ready(stage.agents[ANNA], order).reply == first.reply and stage.kinds("charged") == ["charged"]
    vault.restore(run, before)
    assert ready(stage.agents[ANNA], replace(order, seed=order.seed + 1)).reply != first.reply
    assert stage.kinds("charged") == ["charged"] * 2
    for other in ("secret", "data"):
        vault.restore(run, before)
        stage.rebuild()
        if other == "secret":
            stage.agents[ANNA].secret = lambda: b"o" * 32
        else:
            stage.agents[ANNA].pool._stepper._seen = "other rows"  # type: ignore[attr-defined]
        assert ready(stage.agents[ANNA], order).reply != first.reply
    assert stage.kinds("charged") == ["charged"] * 4


def test_the_coordinator_has_the_end_of_the_ledger_before_the_answer_counts(tmp_path: Path) -> None:
    """By that a home that is put back shows, whenever the coordinator dies."""
    stage = Budgeted(tmp_path)
    stage.handle(stage.first(stage.start(asked())))
    known = stage.journal.client(ANNA)
    assert known is not None and known.reported == stage.ledger.tip()


def test_data_that_change_before_the_step_begins(tmp_path: Path) -> None:
    """What was priced for other data is not worked on."""
    stage = Budgeted(tmp_path)
    run = stage.start(asked())
    order = stage.first(run)
    agent = stage.agents[ANNA]
    runner = agent.pool._stepper  # type: ignore[attr-defined]
    assert isinstance(runner, StepRunner)
    work = agent.ready(order)
    priced = agent.pool.run(next(work), no_tick)
    assert priced.price is not None and priced.price.step == (Charge(2.0, 0.5, 2),) and priced.price.run == WHOLE
    job = work.send(replace(priced, price=replace(priced.price, seen="yesterday")))
    with pytest.raises(DataRefused, match="changed while"):
        agent.pool.run(job, no_tick)


def test_every_place_where_the_agent_may_die(tmp_path: Path) -> None:
    """Between charge and answer, too: the run completes, and each step was charged once."""
    stage = Budgeted(tmp_path, cuts=Cuts(every=True))
    run = stage.start(asked())
    assert stage.play(run).status == "completed" and charges_of(stage.ledger.budgets().charged("rows")) == WHOLE


def test_a_backup_of_the_home_does_not_spend_twice(tmp_path: Path) -> None:
    """The vault of an earlier day with today's ledger: the same orders are free, and answered alike."""
    stage = Budgeted(tmp_path)
    run = stage.start(asked())
    order = stage.first(run)
    before = stage.vaults[ANNA].head(run)
    stage.handle(order)
    answered = stage.vaults[ANNA].head(run)
    stage.vaults[ANNA].restore(run, before)
    again = ready(stage.agents[ANNA], order)
    assert answered is not None and again.reply == answered.reply and stage.kinds("charged") == ["charged"]


@pytest.mark.parametrize("change", [{"noise": 0.5}, {"rate": 1.0}, {"clip": 9.0}])
def test_a_coordinator_that_asks_for_something_else_than_it_said(tmp_path: Path, change: Mapping[str, float]) -> None:
    """The site prices each order by what that asks for: beyond what is reserved it must fit."""
    stage = Budgeted(tmp_path, PrivacyRules(epsilon=1.05 * renyi_epsilon(WHOLE, 1e-3), delta=1e-3))
    order = stage.first(stage.start(asked()))
    brief = {**order.brief, "privacy": {**order.brief["privacy"], **change}}  # type: ignore[dict-item]
    agent, other = stage.agents[ANNA], replace(order, brief=brief)
    if "clip" in change:  # it costs the same
        ready(agent, other)
    else:
        with pytest.raises(BudgetExceeded):
            ready(agent, other)
    budgets, limit = stage.ledger.budgets(), stage.privacy.limit
    assert limit is not None and cost(budgets, limit, budgets.charged("rows")) <= limit.epsilon


def test_a_step_without_a_join_reserves_the_run(tmp_path: Path) -> None:
    """As when the owner writes the section while a run is under way."""
    stage = Budgeted(tmp_path, PrivacyRules())
    run = stage.start(asked())
    order = stage.first(run)
    assert not stage.kinds("reserved")
    stage.privacy = AMPLE
    stage.rebuild()
    ready(stage.agents[ANNA], order)
    assert stage.kinds("reserved", "charged") == ["reserved", "charged"]


@pytest.mark.parametrize(
    ("method", "require", "works"),
    [("fedavg", ("all",), False), ("fedavg", ("fedavg",), False), ("fedavg", ("shot",), True), ("shot", ("shot",), False)],
)
def test_runs_that_must_protect_rows(tmp_path: Path, method: str, require: tuple[str, ...], works: bool) -> None:
    """Are refused before any work, with the methods that can; also those of a method that cannot."""
    stage = Budgeted(tmp_path, PrivacyRules(require=require))
    run = stage.start(asked(method, privacy=None))
    order = next(each for each in stage.waiting() if stage.whose(each) == ANNA)
    if works:
        ready(stage.agents[ANNA], order)
        return
    with pytest.raises(PolicyRefused, match="only if they protect rows") as refused:
        ready(stage.agents[ANNA], order)
    assert "methods: fedavg, fedprox, fedgma" in refused.value.todo and refused.value.context["rules"] == ["[privacy] require"]
    assert stage.agents[ANNA].holds(order) is None and not stage.jobs and stage.row(run).status == "waiting"


def test_a_private_run_is_what_is_required(tmp_path: Path) -> None:
    stage = Budgeted(tmp_path, PrivacyRules(require=("all",)))
    assert stage.play(stage.start(asked())).status == "completed"
    assert not stage.kinds("reserved", "charged"), "no budget is set"


def test_a_delta_of_more_than_one_over_the_rows(tmp_path: Path) -> None:
    """Is refused by what the run says of the rows, and by the rows themselves, of which no number is told."""
    stage = Budgeted(tmp_path, PrivacyRules(epsilon=100.0, delta=0.06))
    row = stage.play(stage.start(asked()))
    assert row.status == "stalled" and "a budget at delta 0.06 for 20 rows" in row.cause and not stage.kinds("order")
    stage = Budgeted(tmp_path, PrivacyRules(epsilon=100.0, delta=0.04))
    row = stage.play(stage.start(asked()))
    assert row.status == "stalled" and "more than one over its rows" in row.cause and "charged" not in stage.kinds()


def test_the_place_tells_nothing_of_the_key(tmp_path: Path) -> None:
    """And follows from the order, the secret and the data alone."""
    stage = Budgeted(tmp_path)
    stage.start(asked())
    order = next(iter(stage.waiting()))
    brief = brief_in(order)
    key = noise_key(b"s" * 32, order, brief)
    found = charged_with(key, "today")
    assert found == charged_with(noise_key(b"s" * 32, replace(order, id="x"), brief), "today")  # type: ignore[arg-type]
    others = [
        charged_with(key, "tomorrow"),
        charged_with(noise_key(b"t" * 32, order, brief), "today"),
        charged_with(noise_key(b"s" * 32, replace(order, files=((Digest("b3-" + "0" * 64), 1),)), brief), "today"),
    ]
    assert len({found.place, *(each.place for each in others)}) == 4 == len({found.noise, *(each.noise for each in others)})
    assert found.place not in found.noise and len(found.noise) == 64


def test_sites_without_a_budget_are_as_they_were(tmp_path: Path) -> None:
    """Their noise is of the order's key alone, and nothing is priced."""
    stage = Budgeted(tmp_path, PrivacyRules())
    run = stage.start(asked(privacy=NOISE))
    order = stage.first(run)
    job = next(stage.agents[ANNA].ready(order))
    assert not job.prices and job.limits.delta == 0.0 and job.seen == ""


def test_a_join_that_tells_fewer_charges_than_before_is_refused(tmp_path: Path) -> None:
    """By the coordinator, of a ledger that is older or new; with what to do. One that was asked before knew less."""
    stage = Budgeted(tmp_path)
    assert stage.play(stage.start(asked())).status == "completed"
    early = stage.start(asked())
    stage.clock.advance(1.0)
    assert stage.play(stage.start(asked())).status == "completed"
    known = stage.journal.client(ANNA)
    assert known is not None and known.charged == 4 and stage.ledger.charges() == 8
    stage.clock.advance(1.0)
    lost = tmp_path / ANNA
    lost.rename(tmp_path / "lost")
    stage.rebuild()
    row = stage.play(stage.start(asked()))
    assert row.status == "stalled" and "has charged its budget 0 times, as it says, and told of 4 before" in row.cause
    failure = next(each for each in stage.result(row.id)["clients"] if each["name"] == ANNA)["failures"][-1]
    assert failure["kind"] == "BudgetExceeded" and "restore the newest home" in row.cause + failure["what"]
    assert stage.play(early).status == "completed", "it was asked before the higher number was told"


def test_a_site_without_a_budget_tells_nothing_of_charges(tmp_path: Path) -> None:
    stage = Budgeted(tmp_path)
    stage.play(stage.start(asked()))
    bert = stage.journal.client(ClientId("bert"))
    assert bert is not None and bert.charged is None


@pytest.mark.parametrize("told", ["many", -1, True, 1 << 40])
def test_a_number_of_charges_that_cannot_be(tmp_path: Path, told: object) -> None:
    """Is refused with the join, and remembered by nobody."""
    stage = Budgeted(tmp_path)
    run = stage.start(asked())
    stage.ledger.charges = lambda: told  # type: ignore[method-assign, assignment, return-value]
    stage.handle(next(each for each in stage.waiting() if stage.whose(each) == ANNA))
    stage.scheduler.turn(run)
    (failure,) = next(each for each in stage.result(run)["clients"] if each["name"] == ANNA)["failures"]
    assert failure["kind"] == "Undeclared"
    known = stage.journal.client(ANNA)
    assert known is not None and known.charged is None
