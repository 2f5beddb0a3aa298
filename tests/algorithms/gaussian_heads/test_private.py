"""Gaussian heads in runs that protect rows: what one row changes, what noise does to the sums, and what leaves a site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from tests.algorithms.gaussian_heads.test_method import ROSTER, WORLD, model, site
from tests.budgets import examples
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import CLASSES, blobs, experiment
from tideline.algorithms import METHODS
from tideline.algorithms.gaussian_heads import BIAS, WEIGHT
from tideline.algorithms.gaussian_heads.private import FINER, by_unit, mean_of, spends, twice
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.rows import MemoryRows
from tideline.learning.private.releasing import REACH, release, whole_rows
from tideline.learning.private.units import Units
from tideline.numerics.labels.gaussian_heads import ClassSums, class_sums, heads, no_sums

NOISE = {"rows": 40, "noise": 0.01, "delta": 1e-3, "clip": 9.0, "score_noise": 0.5}


def played(privacy: dict[str, Any], config: dict[str, Any] | None = None) -> tuple[Stage, Any]:
    stage = Stage(METHODS, {name: site(i) for i, name in enumerate(ROSTER)}, parts=HoardingParts())
    given = experiment("gaussian_heads", ROSTER, world={**WORLD, "normalise": "none"}, config=config or {})
    run = stage.start({**given, "privacy": privacy})
    stage.play(run)
    assert stage.row(run).status.value == "completed", stage.row(run).cause
    return stage, run


def test_with_hardly_any_noise_it_is_the_classifier_of_the_rows() -> None:
    """The bound is above all norms, so that no row is shortened."""
    stage, run = played(NOISE)
    data = [blobs(41, domain, 0) for domain in (0, 1)]
    x, y = torch.cat([d.x.all() for d in data]), torch.cat([d.y for d in data if d.y is not None])
    assert float(x.flatten(1).norm(dim=1).max()) < NOISE["clip"]
    found, known = model(stage, run).model, heads(class_sums(x, y, CLASSES))
    told = x.flatten(1) @ found[WEIGHT].T + found[BIAS]
    best = x.flatten(1).double() @ known.weight.T + known.bias
    assert (told.argmax(1) == best.argmax(1)).float().mean() > 0.9


def test_what_leaves_has_noise_and_a_price() -> None:
    """Fields by their clause; no number of rows beside them, and the run's cost is that of one vector and a scoring."""
    stage, run = played({**NOISE, "noise": 4.0})
    clauses = {each.field: each for each in stage.row(run).contract}
    assert {"count", "total", "second"} < set(clauses) and "metrics.samples" not in clauses
    assert all("with noise" in clauses[name].sentence() for name in ("count", "total", "second"))
    assert spends(None, Privacy(rows=40, noise=4.0, delta=1e-3)) == (Charge(4.0),)  # type: ignore[arg-type]
    assert stage.result(run)["privacy"]["noise"] == 4.0


@pytest.mark.nightly(job="numbers")
def test_sums_of_nothing_but_noise_end_no_run() -> None:
    """Their covariance is no covariance: it is made one. Accuracy is by chance, and the run says what it cost."""
    stage, run = played({**NOISE, "noise": 5.0}, {"least_rows": 1})
    assert all(bool(torch.isfinite(each).all()) for each in model(stage, run).model.values())


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.floats(-20, 20), st.floats(1e-3, 1e3), st.integers(0, 9))
def test_one_row_changes_each_sum_by_its_sensitivity_at_most(d: int, n: int, power: float, clip: float, seed: int) -> None:
    """In whole numbers, so exactly: of sums by class REACH, of products, each as often as it stands, REACH squared."""
    rng = Generator().manual_seed(seed)
    x, y = torch.randn(n, d, generator=rng) * 10.0**power, torch.randint(3, (n,), generator=rng)
    rows, columns, weight = twice(d)
    all_of, less = (class_sums(whole_rows(x[kept], clip), y[kept], 3) for kept in (slice(None), slice(1, None)))
    total, second = all_of.total - less.total, (all_of.second - less.second)[rows, columns]
    assert torch.equal(total, total.round()) and torch.equal(second, second.round())
    assert exact(total) <= REACH**2
    assert sum(int(v) ** 2 * (1 if w == 1 else 2) for v, w in zip(second.tolist(), weight.tolist(), strict=True)) <= REACH**4
    assert exact(all_of.count - less.count) == 1


def exact(values: Tensor) -> int:
    """The square of a norm of whole numbers."""
    return sum(int(v) ** 2 for v in values.flatten().tolist())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_zero(bad: float) -> None:
    found = whole_rows(torch.tensor([[3.0, 4.0], [bad, 1.0]]), 5.0)
    assert found[1].tolist() == [0.0, 0.0] and found[0].norm() == pytest.approx(REACH, rel=1e-3)


def test_noise_is_in_proportion_to_sensitivities() -> None:
    """One charge for all sums, whose noise is noise * sensitivity * sqrt(number of sums); the same key gives the same bytes."""
    meter = Meter(Privacy(rows=40, noise=3.0, delta=1e-3), b"k" * 32)
    zeros = [(torch.zeros(4000), 1.0), (torch.zeros(40, 100), 100.0)]
    small, large = release(zeros, meter)
    assert meter.spent == [Charge(3.0)] and large.shape == (40, 100)
    for found, sensitivity in ((small, 1.0), (large, 100.0)):
        assert float(found.std()) == pytest.approx(3.0 * sensitivity * 2**0.5, rel=0.05)
    again = release(zeros, Meter(meter.asked, b"k" * 32))
    assert torch.equal(again[0], small) and torch.equal(again[1], large)
    other = release(zeros, Meter(replace(meter.asked, noise=3.5), b"k" * 32))
    assert not torch.equal(other[0], small)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(0, 3), min_size=2, max_size=12), st.floats(-6, 6), st.integers(0, 9))
def test_a_whole_unit_changes_each_sum_by_its_sensitivity_at_most(d: int, whose: list[int], power: float, seed: int) -> None:
    """Every unit is taken out once, with all its rows, which are of any classes; in whole numbers, so exactly."""
    rng = Generator().manual_seed(seed)
    x = torch.randn(len(whose), d, generator=rng) * 10.0**power
    y, units = torch.randint(3, (len(whose),), generator=rng), torch.tensor(whose)
    rows, columns, weight = twice(d)
    everything = unit_sums(x, y, units)
    for unit in sorted(set(whose)):
        kept = units != unit
        less = unit_sums(x[kept], y[kept], units[kept])
        count, total = everything.count - less.count, everything.total - less.total
        second = (everything.second - less.second)[rows, columns]
        assert torch.equal(second, second.round()) and torch.equal(total, total.round()) and torch.equal(count, count.round())
        assert 0 < exact(count) <= FINER[0] ** 2 and exact(total) <= (REACH * FINER[1]) ** 2
        assert sum(int(v) ** 2 * (1 if w == 1 else 2) for v, w in zip(second.tolist(), weight.tolist(), strict=True)) <= REACH**4


def unit_sums(x: Tensor, y: Tensor, units: Tensor) -> ClassSums:
    """What a site releases, without noise."""
    found = no_sums(3, x.shape[1])
    if len(y):
        for part, own in by_unit(MemoryRows(x), y, Units.of(units)):
            found += mean_of(class_sums(whole_rows(part, 1.0), own, 3), len(own))
    return found


def test_where_each_unit_has_one_row_sums_are_those_of_rows() -> None:
    """And of ten rows that are alike they are those of one."""
    x, y = torch.randn(9, 4, generator=Generator().manual_seed(1)), torch.arange(9) % 3
    found, known = unit_sums(x, y, torch.arange(9)), class_sums(whole_rows(x, 1.0), y, 3)
    again = unit_sums(x.repeat(10, 1), y.repeat(10), torch.arange(9).repeat(10))
    for each in (found, again):
        assert torch.equal(each.count / FINER[0], known.count) and torch.equal(each.total / FINER[1], known.total)
        assert torch.equal(each.second, known.second)
