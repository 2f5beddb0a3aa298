"""Runs that protect units of several rows: who must say it, what is refused before any work, and what a unit changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.algorithms.gaussian_heads.test_method import model
from tests.engine.test_budgets import ANNA, Budgeted
from tests.engine.test_private_runs import NOISE, asked
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import Opener, Rows, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import fedavg
from tideline.core.asked.private import Privacy
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, PolicyRefused
from tideline.core.privacy import contract_digest
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.limits import check_rows
from tideline.engine.compute.private.metering import charges, check_plan, cost
from tideline.engine.epsilon.budget import charges_of
from tideline.engine.ports.site import Limits
from tideline.engine.simulation.federation import SimSite
from tideline.engine.site.rules import PrivacyRules

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
