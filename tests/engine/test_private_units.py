"""Runs that protect units of several rows: who must say it, what is refused before any work, and what a unit changes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.algorithms.gaussian_heads.test_method import model
from tests.engine.test_budgets import AMPLE, ANNA, WHOLE, Budgeted
from tests.engine.test_private_runs import NOISE, ROSTER, asked
from tests.laws.stage import Cuts, HoardingParts, Stage
from tests.synthetic import Opener, Rows, blobs, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import fedavg
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, PolicyRefused, StepFailed
from tideline.core.phase import Replies
from tideline.core.privacy import contract_digest
from tideline.core.run import ClientId, Role, RunId, RunSpec
from tideline.core.settings import parse, plain
from tideline.core.step import Data, Site
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.limits import check_rows
from tideline.engine.compute.private.metering import charges, check_plan, cost
from tideline.engine.epsilon.budget import charges_of
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline.engine.epsilon.spending import epsilons
from tideline.engine.model.runs import Status
from tideline.engine.ports.site import Limits
from tideline.engine.simulation.federation import SimSite
from tideline.engine.site.rules import PrivacyRules
from tideline.experiments.results import Ended
from tideline.learning.around.clipping import CLIP, adapting, together
from tideline_agent.home.budget.shown import standings
from tideline_agent.home.ledger import FileLedger
from tideline_agent.metrics import AgentMetrics
from tideline_server.metrics import MOST_EPSILONS, Metrics

PATIENTS = {**NOISE, "unit": "patient"}


def with_patients(data: Data, each: int) -> Data:
    """So many rows belong to one patient."""
    return replace(data, unit="patient", units=torch.arange(len(data)) // each)


class Wards(Opener):
    """Sites whose rows say which patient they are of; without, none says it."""

    each = 3

    def __call__(self, world: World, role: Role) -> Rows:
        found = super().__call__(world, role)
        return Rows(with_patients(found.train, self.each), with_patients(found.held_out, self.each))


class Singles(Wards):
    """Each patient has one row."""

    each = 1


def wards(kind: type[Opener] = Wards, but: str = "") -> dict[str, SimSite]:
    plain = sites()
    return {name: each if name == but else SimSite(kind(i, 0)) for i, (name, each) in enumerate(plain.items())}


@pytest.mark.parametrize("method", ["fedavg", "gaussian_heads", "local", "hfedf", "source_model"])
def test_a_run_that_protects_patients_completes_and_says_so(method: str) -> None:
    """In its note, and in each clause of the contract, which is another than that of rows."""
    world = {"world": {"inputs": [8], "classes": 3, "model": "linear", "normalise": "none"}} if method == "gaussian_heads" else {}
    stage = Stage(METHODS, wards())
    row = stage.play(stage.start(asked(method, PATIENTS, **world)))
    assert row.status == "completed", row.cause
    assert any("each patient of a site is protected: epsilon" in each for each in row.spec.notes)
    assert all("each patient as one" in each.sentence() for each in row.contract)
    plain = Stage(METHODS, wards())
    assert contract_digest(plain.row(plain.start(asked(method, NOISE, **world))).contract) != contract_digest(row.contract)


def test_it_costs_what_rows_cost() -> None:
    """Of as many units as rows: the accountant knows no difference."""
    method = Configured(fedavg, fedavg.configure({"rounds": 3}))
    of_rows = Privacy(rows=100, noise=2.0)
    of_units = replace(of_rows, unit="patient")
    assert charges(method.plan, method.config, of_rows, Role.SOURCE) == charges(method.plan, method.config, of_units, Role.SOURCE)
    assert cost(method, of_rows) == cost(method, of_units)


def test_where_each_patient_has_one_row_it_ends_as_a_run_of_rows(tmp_path: Path) -> None:
    """Up to the noise's key, which follows from all that is asked: with hardly any noise the same model."""
    quiet = {**NOISE, "noise": 0.01, "rate": 1.0}
    found = []
    for privacy in (quiet, {**quiet, "unit": "patient"}):
        stage = Stage(METHODS, wards(Singles), parts=HoardingParts())
        run = stage.start(asked(privacy=privacy))
        assert stage.play(run).status == "completed"
        found.append(torch.cat([each.flatten() for each in model(stage, run).model.values()]))
    assert torch.allclose(*found, atol=0.02)


def test_a_site_that_does_not_say_whose_its_rows_are_is_refused_at_its_join() -> None:
    """Before any work, with what to do; nothing but the refusal leaves it."""
    stage = Stage(METHODS, wards(but="bert"))
    run = stage.start(asked(privacy=PATIENTS))
    row = stage.play(run)
    assert row.status == "stalled" and "do not say which rows belong together" in row.cause
    (failure,) = next(each for each in stage.result(run)["clients"] if each["name"] == "bert")["failures"]
    assert failure["kind"] == "DataRefused" and 'unit = "patient"' in failure["what"]


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({**PATIENTS, "unit": "row"}, "cannot name a unit"),
        ({**PATIENTS, "unit": "a b"}, "cannot name a unit"),
        ({**PATIENTS, "unit": ""}, "cannot name a unit"),
        ({**PATIENTS, "delta": 0.05}, "less than 1 / rows"),
    ],
)
def test_words_that_name_no_unit(privacy: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ConfigRefused, match=said) as refused:
        Stage(METHODS, wards()).start(asked(privacy=privacy))
    assert refused.value.todo


def test_a_step_that_sums_rows_is_refused_for_units() -> None:
    """By its declaration, before anybody is asked."""
    method = Configured(fedavg, fedavg.configure({}))
    method.__dict__["plan"] = tuple(replace(p, step=p.step and replace(p.step, by_unit=False)) for p in method.plan)
    check_plan(method, lambda: ["one"], Privacy(rows=10, noise=1.0))
    with pytest.raises(ConfigRefused, match="and no patient of several") as refused:
        check_plan(method, lambda: ["one"], Privacy(rows=10, noise=1.0, unit="patient"))
    assert refused.value.context["path"] == "privacy.unit"


@pytest.mark.parametrize(
    ("rules", "privacy", "fits"),
    [
        (PrivacyRules(epsilon=100.0, delta=1e-3, unit="patient"), PATIENTS, True),
        (PrivacyRules(epsilon=100.0, delta=1e-3, unit="patient"), NOISE, False),
        (PrivacyRules(epsilon=100.0, delta=1e-3), PATIENTS, False),
        (PrivacyRules(unit="patient"), NOISE, False),
        (PrivacyRules(unit="patient"), PATIENTS, True),
        (PrivacyRules(), PATIENTS, True),
    ],
)
def test_the_budget_and_the_run_count_the_same(
    tmp_path: Path, rules: PrivacyRules, privacy: Mapping[str, Any], fits: bool
) -> None:
    """A row's budget bounds no patient, and a patient's run moves a row's sums otherwise: refused, with the policy's line."""
    stage = Budgeted(tmp_path, rules, data=wards())
    row = stage.play(stage.start(asked(privacy=privacy)))
    assert (row.status == "completed") == fits, row.cause
    if not fits:
        (failure,) = next(each for each in stage.result(row.id)["clients"] if each["name"] == ANNA)["failures"]
        assert failure["kind"] == PolicyRefused.__name__ and "[privacy] unit" in failure["what"]


def test_a_budget_of_patients_is_charged_and_says_so(tmp_path: Path) -> None:
    """The same charges as of rows, in entries that name the unit; another unit is refused over the same people."""
    rules = PrivacyRules(epsilon=100.0, delta=1e-3, unit="patient")
    stage = Budgeted(tmp_path, rules, data=wards())
    assert stage.play(stage.start(asked(privacy=PATIENTS))).status == "completed"
    budgets = stage.ledger.budgets()
    assert budgets.charged_for("rows") == {"patient"} and charges_of(budgets.charged("rows"))
    stage.privacy = PrivacyRules(epsilon=100.0, delta=1e-3)
    stage.rebuild()
    row = stage.play(stage.start(asked(privacy=NOISE)))
    assert row.status == "stalled" and "was charged for each patient before" in row.cause


def test_delta_is_held_to_units_where_a_budget_counts_them() -> None:
    """Of 300 rows of 30 patients, 1/100 protects the patients."""
    limits = Limits(delta=0.01)
    check_rows(limits, fedavg.configure({}), 300, protected=30)
    with pytest.raises(PolicyRefused, match="more than one over its rows"):
        check_rows(limits, fedavg.configure({}), 300)


# Runs whose clip follows a quantile: it goes with the state from round to round, it is told and priced, and refused.
FOLLOWS = {**NOISE, "quantile": 0.5, "clip": 0.05}


def played(privacy: dict[str, Any] = FOLLOWS, cuts: Cuts | None = None) -> tuple[Stage, Any]:
    stage = Stage(METHODS, sites(), cuts, parts=HoardingParts())
    run = stage.start(asked(privacy=privacy))
    assert stage.play(run).status == "completed", stage.row(run).cause
    return stage, run


def clips(stage: Stage) -> dict[tuple[str, int], set[float]]:
    """What each site told of it at each place in the plan, however often it did."""
    found: dict[tuple[str, int], set[float]] = {}
    for client, cursor, words in stage.wire.words:
        if (clip := json.loads(words)[0].get("clip")) is not None:
            found.setdefault((str(client), cursor), set()).add(clip)
    return found


def test_the_clip_moves_and_goes_on_where_it_was() -> None:
    """Far too small at first, it grows; the second round begins where the mean of the first ended."""
    stage, run = played()
    told = clips(stage)
    places = sorted({cursor for _, cursor in told})
    first, second = ([clip for (_, at), (clip,) in told.items() if at == place] for place in places)
    assert len(first) == len(second) == 2 and all(clip != 0.05 for clip in (*first, *second))
    states = [decode(adapted().state, each.state[0][0], stage.parts, LAX) for each in stage.journal.rounds(run) if each.state]
    mean = math.sqrt(first[0] * first[1])
    assert any(state.clip == pytest.approx(mean) for state in states)
    assert states[-1].clip == pytest.approx(math.sqrt(second[0] * second[1]))
    assert max(abs(math.log(clip / mean)) for clip in second) <= 0.2 * 2 * 0.5 + 1e-9, "two steps of half the speed at most"


def adapted() -> Any:
    return adapting(fedavg, True)


def test_it_is_in_the_contract_and_in_what_the_method_keeps() -> None:
    stage, run = played()
    clauses = {each.field: each for each in stage.row(run).contract}
    assert "with noise" in clauses["metrics.clip"].sentence() and "metrics.loss" not in clauses
    plain = Stage(METHODS, sites())
    names = {each.field for each in plain.row(plain.start(asked())).contract}
    assert "metrics.clip" not in names


def test_it_costs_what_a_clip_that_stays_costs(tmp_path: Path) -> None:
    """By the coordinator's accountant, and at a site's budget: one vector, whose noise is the run's."""
    of = [parse(Privacy, each, "privacy") for each in (NOISE, FOLLOWS)]
    method = Configured(fedavg, fedavg.configure({"rounds": 3}))
    follows = Configured(adapted(), fedavg.configure({"rounds": 3}))
    assert charges(method.plan, method.config, of[0], Role.SOURCE) == charges(follows.plan, follows.config, of[1], Role.SOURCE)
    assert cost(method, of[0]) == cost(follows, of[1])
    stage = Budgeted(tmp_path, AMPLE)
    assert stage.play(stage.start(asked(privacy=FOLLOWS))).status == "completed"
    assert charges_of(stage.ledger.budgets().charged("rows")) == WHOLE


def test_it_is_the_same_after_any_restart() -> None:
    """Wherever a process ends: sites' keys are the stage's, so the same clips are told again."""
    stage, _ = played(cuts=Cuts(every=True))
    told = clips(stage)
    assert len(told) == 4, "two rounds of two sites"
    assert all(len(each) == 1 for each in told.values()), "each told alike, however often"


def test_what_the_run_ends_in_is_read_back() -> None:
    """The model of such a run is found by what its result says."""
    stage, run = played()
    ended = Ended(stage.result(run), METHODS, parts=stage.parts)
    state = decode(ended.method.state, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    assert CLIP.found(state) and ended.of_run(state) is not None


@pytest.mark.parametrize(
    ("privacy", "path", "said"),
    [
        ({**NOISE, "quantile": 0.0}, "privacy.quantile", "at least 0.01"),
        ({**NOISE, "quantile": 1.0}, "privacy.quantile", "at most 0.99"),
        ({**FOLLOWS, "quantile_noise": 1.0}, "privacy.quantile_noise", "at least 1.01"),
        ({**NOISE, "quantile_noise": 5.0}, "privacy.quantile", "no quantile"),
    ],
)
def test_quantiles_that_are_none(privacy: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(ConfigRefused, match=said) as refused:
        Stage(METHODS, sites()).start(asked(privacy=privacy))
    assert refused.value.context["path"] == path


def test_a_method_that_trains_nothing_has_no_clip_to_follow() -> None:
    world = {"inputs": [8], "classes": 3, "model": "linear", "normalise": "none"}
    with pytest.raises(ConfigRefused, match="no training whose clip could follow") as refused:
        Stage(METHODS, sites()).start(asked("gaussian_heads", FOLLOWS, world=world))
    assert refused.value.context["path"] == "privacy.quantile" and refused.value.todo


@pytest.mark.parametrize("clip", [float("nan"), float("inf"), 0.0, -1.0, 1e9])
def test_an_order_whose_clip_is_none_is_refused(clip: float) -> None:
    """Whoever sends it."""
    step = next(phase.step for phase in adapted().around(fedavg.plan(fedavg.configure({}))) if phase.step and phase.step.adapts)
    meter = Meter(parse(Privacy, FOLLOWS, "privacy"), b"k" * 32)
    data = blobs(9, 0, 0)
    site: Site[Any] = Site(fedavg.configure({}), World(), ClientId("a"), Role.SOURCE, data, 1, torch.Generator(), private=meter)
    with pytest.raises(StepFailed, match="clip of gradients"):
        step.run(CLIP.joined(fedavg_order(), clip), None, site)


def fedavg_order() -> Any:
    from tideline.algorithms.averaging.messages import Model

    return Model({})


def test_sites_may_tell_any_clip() -> None:
    """What is none is left out; of no sound one the clip stays."""

    def of(*told: float | None) -> Replies[Any]:
        load = {ClientId(str(i)): (lambda: None) for i in range(len(told))}
        return Replies(load, {ClientId(str(i)): {} if each is None else {"clip": each} for i, each in enumerate(told)})

    assert together(of(1.0, 4.0), 9.0) == pytest.approx(2.0)
    assert together(of(1.0, 4.0, float("nan"), -3.0, 0.0, None), 9.0) == pytest.approx(2.0)
    assert together(of(float("inf"), None), 9.0) == 9.0 and together(of(), None) is None
    assert together(of(1e300, 1e300), None) == pytest.approx(1e6)
    assert replace(parse(Privacy, FOLLOWS, "privacy"), quantile=None).quantile is None and ROSTER


# What each site of a private run has spent so far: in results, events, reports and metrics, while the run goes on.
TRAIN, SCORE, DELTA = Charge(2.0, 0.5, 2), Charge(8.0, 1.0, 1), 1e-3


def spent(stage: Stage, run: RunId) -> dict[str, float]:
    return {each["name"]: each["epsilon"] for each in stage.result(run)["clients"]}


def test_it_grows_with_each_exchange() -> None:
    """Of sites that train more than of those that are only scored; an open exchange counts once it is asked."""
    stage = Stage(METHODS, sites())
    run = stage.start(asked())
    assert spent(stage, run) == dict.fromkeys(ROSTER, 0.0)
    seen = []
    for action in stage.actions(run):
        action()
        seen.append(spent(stage, run))
    assert all(before[name] <= after[name] for before, after in pairwise(seen) for name in ROSTER)
    assert renyi_epsilon([TRAIN], DELTA) in {each["anna"] for each in seen}
    last, most = seen[-1], stage.result(run)["privacy"]["epsilon"]
    assert last["anna"] == last["bert"] == most and 0 < last["carl"] == renyi_epsilon([replace(SCORE, times=2)], DELTA) < most


def test_events_tell_it_live() -> None:
    """Of the sites that a closed round asked."""
    stage = Stage(METHODS, sites())
    run = stage.start(asked())
    assert stage.play(run).status == "completed"
    told = [event.data.get("epsilon") for event in stage.journal.events(run) if event.kind == "closed"]
    assert told[0] is None  # the join
    assert told[1] == dict.fromkeys(("anna", "bert"), renyi_epsilon([TRAIN], DELTA))
    assert told[-1] == spent(stage, run)


def test_other_runs_tell_none() -> None:
    stage = Stage(METHODS, sites())
    run = stage.start(asked(privacy=None))
    assert stage.play(run).status == "completed" and spent(stage, run) == dict.fromkeys(ROSTER)
    assert not any("epsilon" in event.data for event in stage.journal.events(run))


def test_a_run_from_before_its_charges_were_written_tells_none() -> None:
    """It says what it costs in all, as it did."""
    stage = Stage(METHODS, sites())
    row = stage.row(stage.start(asked()))
    raw = {name: value for name, value in plain(row.spec).items() if name != "charges"}
    old = replace(row, spec=parse(RunSpec, raw))
    assert row.spec.charges == {"train/train": (TRAIN,), "score/score": (SCORE,)} and parse(RunSpec, plain(row.spec)) == row.spec
    assert epsilons(old, ()) == {} and set(epsilons(row, ()).values()) == {0.0}


def test_a_gauge_for_each_site_of_an_open_run() -> None:
    """It is gone when the run is over, and of many runs the oldest are."""
    stage, metrics = Stage(METHODS, sites()), Metrics("test")
    stage.scheduler.meter = metrics
    run = stage.start(asked())
    text = ""
    for action in stage.actions(run):
        action()
        text = metrics.text()[0].decode() if stage.row(run).status is Status.RUNNING else text
    assert f'tideline_run_epsilon{{client="anna",run="{run}"}} ' in text
    assert "tideline_run_epsilon{" not in metrics.text()[0].decode()
    for number in range(3):
        metrics.epsilons.closed(RunId(f"r{number}"), {f"s{i}": 1.0 for i in range(MOST_EPSILONS // 2)}, over=False)  # type: ignore[misc]
    text = metrics.text()[0].decode()
    assert 'run="r0"' not in text and text.count('run="r1"') == text.count('run="r2"') == MOST_EPSILONS // 2


def test_an_agent_tells_its_budget(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """And goes on telling the rest where the ledger cannot be read."""
    from prometheus_client import generate_latest

    from tests.site.test_budget import ONE, charged, reserved
    from tideline_agent.home.obeyed import obey

    file = tmp_path / "policy.toml"
    file.write_text("[privacy]\nepsilon = 4.0\n")
    obey(tmp_path, file, file.read_text())
    ledger, metrics = FileLedger(tmp_path), AgentMetrics("test")
    reserved(ledger, ONE)
    charged(ledger, ONE, "a")
    metrics.show_budgets(lambda: standings(tmp_path, ledger))
    text = generate_latest(metrics.registry).decode()
    for name in ("spent", "reserved", "left"):
        assert f'tideline_agent_epsilon_{name}{{limit="4",population="rows"}} ' in text
    ledger.path.unlink()
    text = generate_latest(metrics.registry).decode()
    assert "tideline_agent_build_info" in text and 'population="rows"' not in text


@pytest.mark.parametrize("private", [True, False])
def test_a_report_has_a_column_for_it(private: bool) -> None:
    from tideline.cli.tables import spent_epsilon
    from tideline.report.tables.sites import site_table

    stage = Stage(METHODS, sites())
    run = stage.start(asked() if private else asked(privacy=None))
    stage.play(run)
    result = stage.result(run)
    made = site_table(result)  # type: ignore[arg-type]
    assert (">epsilon<" in made) is private and bool(spent_epsilon(result)) is private  # type: ignore[arg-type]
