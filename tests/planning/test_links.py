"""The plan: the optimum of the problem, in names; what is refused has its place; a time limit is kept and told."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from tests.planning.cases import BOUNDS, MEASURED, changed, device, entry, powered
from tideline.core.errors import ConfigRefused
from tideline.numerics.links.bounds import Measured, bounds
from tideline.numerics.links.link_problem import LINK, Phi, Problem, exact
from tideline.planning.links import approximated, plan_links, problem_of
from tideline.planning.request import read_links


def refused(given: dict[str, Any]) -> ConfigRefused:
    with pytest.raises(ConfigRefused) as caught:
        plan_links(given)
    return caught.value


def test_it_is_the_optimum_of_the_problem() -> None:
    """The same as the formulas give for the same numbers, in names."""
    made = plan_links(MEASURED)
    error, count, labelled = (
        np.array([each[key] for each in MEASURED["devices"]], float) for key in ("error", "count", "labelled")
    )
    S, T = bounds(Measured(error, count, labelled, np.array(MEASURED["d"], float)), complexity="published", divergence_scale=100)
    K = np.array([[0 if each is None else each for each in row] for row in MEASURED["K"]], float)
    plan = exact(Problem(S, T, K, Phi(), labelled == 0))
    assert (made["objective"], made["bound"], made["gap"], made["status"]) == (plan.objective, plan.objective, 0.0, "proven")
    assert [made["psi"][name] for name in made["devices"]] == [("source", "target")[each] for each in plan.psi]
    assert made["alpha"] == [
        {"from": "anna", "to": "dora", "weight": 1.0, "joules": 4.0},
        {"from": "bert", "to": "carl", "weight": 1.0, "joules": 4.5},
    ]
    assert made["energy"] == 8.5 and made["normalised_energy"] == pytest.approx(100 * 8.5 / 17.0)
    assert made["S"] == S.tolist() and made["T"][0][1:] == T[0, 1:].tolist() and made["T"][0][0] is None
    assert made["K"][1] == [3.0, None, 4.5, 5.0] and made["sweep"] == [] and made["flags"] == []


def test_a_plan_by_hand() -> None:
    """Of bounds: b serves c, which is pinned; whether a is a source of its own or gets b's model is a matter of phi."""
    made = plan_links(BOUNDS | {"phi": {"source": 1.0, "target": 1.0, "energy": 0.0}})
    assert made["psi"] == {"a": "source", "b": "source", "c": "target"}
    assert (made["objective"], made["energy"]) == (1.0 + 2.0 + 8.0, 2.0)
    assert made["alpha"] == [{"from": "b", "to": "c", "weight": 1.0, "joules": 2.0}]
    dear = plan_links(BOUNDS | {"phi": {"source": 100.0, "target": 1.0, "energy": 0.0}})
    assert dear["psi"] == {"a": "source", "b": "target", "c": "target"} and dear["objective"] == 100.0 + 10.0 + 20.0


def test_null_is_no_link() -> None:
    """What cannot be reached is not used, and need not have been measured."""
    made = plan_links(
        changed(
            BOUNDS, K=[[None, 1.0, 1.0], [1.0, None, None], [None] * 3], T=[[None, 10.0, 20.0], [10.0, None, None], [None] * 3]
        )
    )
    assert [each["from"] for each in made["alpha"] if each["to"] == "c"] == ["a"]
    assert made["K"][1][2] is None and made["T"][1][2] is None
    cut = entry("d", 0, 2, None, entry("d", 2, 0, None, entry("K", 0, 2, None, entry("K", 2, 0, None))))
    assert plan_links(cut)["T"][0][2] is None


def test_joules_of_watts_and_rates() -> None:
    """K = P M / R; a rate of 0 or null is no link; without energy nothing costs any."""
    made = plan_links(powered(watts=0.25, rate=1e8, bits=4e8))
    assert made["K"][0] == [None, 1.0, 1.0, 1.0]
    for none in (0.0, None):
        assert plan_links(entry("rates", 0, 3, none, powered()))["K"][0][3] is None
    free = plan_links(changed(MEASURED, K=None))
    assert (free["energy"], free["normalised_energy"], free["K"][0][1]) == (0.0, 0.0, 0.0)


def test_weights_of_power() -> None:
    """In proportion to T^-n over the sources; the bound and the gap are those of the best plan."""
    best, spread = plan_links(MEASURED), plan_links(MEASURED | {"weights": "power", "exponent": 2.0})
    column = np.array([[row[3] for row in spread["T"]][i] for i in (0, 1)])
    weights = [each["weight"] for each in spread["alpha"] if each["to"] == "dora"]
    assert weights == pytest.approx(column**-2 / (column**-2).sum())
    assert spread["bound"] == best["objective"] < spread["objective"]
    assert spread["gap"] == pytest.approx(1 - best["objective"] / spread["objective"])


def test_the_approximation_is_measured_by_the_optimum() -> None:
    best, made = plan_links(MEASURED), plan_links(MEASURED | {"solver": "sca", "seconds": 120.0})
    assert made["status"] in ("converged", "iterations") and made["iterations"] == len(made["objectives"]) > 10
    assert made["bound"] == pytest.approx(best["objective"]) and made["objective"] >= made["bound"] and made["gap"] >= 0


def test_a_sweep_over_the_weight_of_energy() -> None:
    """The smallest first, with the links that are saved since; joules never rise."""
    made = plan_links(changed(MEASURED, sweep=[100.0, 0.0, 1.0]))
    assert [row["phi_energy"] for row in made["sweep"]] == [0.0, 1.0, 100.0]
    assert [list(row) for row in made["sweep"]] == [["phi_energy", "joules", "links", "sources", "status", "saved"]] * 3
    joules = [row["joules"] for row in made["sweep"]]
    assert joules == sorted(joules, reverse=True)
    assert [row["saved"] for row in made["sweep"]] == [made["sweep"][0]["links"] - row["links"] for row in made["sweep"]]


def test_an_uneven_d_is_told() -> None:
    made, even = plan_links(entry("d", 0, 3, 0.4)), plan_links(entry("d", 0, 3, 0.3, entry("d", 3, 0, 0.3)))
    assert made["flags"] == ["uneven"] and made["objective"] == even["objective"]


@pytest.mark.parametrize(
    ("given", "path", "names"),
    [
        (device(2, labelled=2000), "devices[2].labelled", ["carl"]),
        (device(0, powered(), watts=0.0), "devices[0].watts", ["anna"]),
        (entry("d", 0, 2, None), "d[0][2]", ["anna", "carl"]),
        (entry("T", 0, 2, None, BOUNDS), "T[0][2]", ["a", "c"]),
        (entry("rates", 1, 2, 1e-300, powered()), "rates[1][2]", ["bert", "carl"]),
        (changed(MEASURED, K=[[None] * 4] * 4), "K", ["carl", "dora"]),
        (powered(rate=0.0), "rates", ["carl", "dora"]),
        (changed(MEASURED, pins=["anna", "bert"]), "pins", ["anna", "bert", "carl", "dora"]),
        (
            changed(MEASURED, devices=[each | {"labelled": 0} for each in MEASURED["devices"]]),
            "devices",
            ["anna", "bert", "carl", "dora"],
        ),
    ],
)
def test_what_no_link_can_be_made_of(given: dict[str, Any], path: str, names: list[str]) -> None:
    error = refused(given)
    assert error.context["path"] == path and error.context["devices"] == names
    assert names[0] in error.what or path in ("pins", "devices")
    assert "device 0" not in error.what and "device 2" not in error.what and error.todo


def test_when_the_time_is_up() -> None:
    """The approximation tells what it has come to; a sweep says that it was cut."""
    problem, _ = problem_of(read_links(MEASURED))
    plan = approximated(problem, until=time.monotonic())
    assert (plan.status, plan.iterations) == ("limit", 1)
    assert np.allclose(plan.alpha.sum(0), plan.psi) and (plan.alpha > LINK).any()


def test_a_plan_is_plain_and_the_same_again() -> None:
    first, again = (json.dumps(plan_links(changed(MEASURED, sweep=[0.0, 10.0])), allow_nan=False) for _ in range(2))
    assert first == again


def test_a_hundred_devices() -> None:
    N, rng = 100, np.random.default_rng(3)
    d = rng.uniform(0, 2, (N, N))
    devices = [{"name": f"d{i}", "error": 0.5, "count": 1000, "labelled": 800 * (i < 50)} for i in range(N)]
    made = plan_links({"devices": devices, "d": d.tolist(), "K": rng.uniform(1, 5, (N, N)).tolist(), "seconds": 60.0})
    assert made["status"] == "proven" and made["flags"] == ["uneven"]
    assert sum(kind == "target" for kind in made["psi"].values()) == len(made["alpha"])
