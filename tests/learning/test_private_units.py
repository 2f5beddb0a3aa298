"""Private training of units of several rows: what a whole unit moves, and that it is the same as rows where each has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor

from tests.learning.rows_in_memory import site_of
from tests.learning.test_private_training import by_hand, mlp, rows, trained
from tests.numerics.examples import for_all
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused, StepFailed
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.learning.fit import cross_entropy, fit_at
from tideline.learning.private import fit_privately, row_gradients, sum_up
from tideline.learning.private.gradients import Found
from tideline.learning.private.summing import WHOLE, GridSum
from tideline.learning.private.units import SHARE, Units, protected, units_in
from tideline.numerics.privacy.streams import Stream

PATIENTS = Privacy(rows=20, noise=2.0, delta=1e-3, unit="patient")
WHOSE = torch.tensor([2, 0, 1, 1, 4, 2, 2, 3, 1, 0, 2])  # of 11 rows, unsorted


def of_patients(n: int, whose: Tensor, seed: int = 1) -> Data:
    return replace(rows(n, 4, seed=seed), unit="patient", units=whose)


def total(data: Data, clip: float, size: int = 4) -> Tensor:
    net = mlp().double()
    parameters = dict(net.named_parameters())
    found = GridSum(parameters, clip, "cpu")
    exact = replace(data, x=MemoryRows(data.x.batch(torch.arange(len(data))).double()))
    units = units_in(data, PATIENTS)
    assert units is not None
    sum_up(found, row_gradients(net, cross_entropy), parameters, exact, torch.arange(len(units)), size, units)
    return found.total


def without(data: Data, unit: int) -> Data:
    assert data.y is not None and data.units is not None
    rest = (data.units != unit).nonzero().flatten()
    x = MemoryRows(data.x.batch(rest))
    return replace(data, x=x, y=data.y[rest], domain=data.domain[rest], units=data.units[rest])


@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_a_sum_is_that_of_a_plain_loop_over_units(clip: float) -> None:
    data, net = of_patients(11, WHOSE), mlp()
    assert data.y is not None
    found = []
    for unit in range(5):
        own = (unit == WHOSE).nonzero().flatten()
        loss = cross_entropy(net, data.x.batch(own), data.y[own])
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])
        found.append(flat * min(1.0, clip / float(flat.norm())))
    assert torch.allclose(total(data, clip).float() * (clip / WHOLE), torch.stack(found).sum(0), atol=1e-5 * clip)


@for_all(15, st.lists(st.integers(0, 4), min_size=6, max_size=12), st.floats(0.01, 10), st.integers(0, 9))
def test_a_whole_unit_moves_a_sum_by_clip_at_most(whose: list[int], clip: float, seed: int) -> None:
    """Every unit is taken out once, with all its rows, in whole numbers."""
    data = of_patients(len(whose), torch.tensor(whose), seed)
    everything = total(data, clip)
    for unit in sorted(set(whose))[: len(set(whose)) - 1]:
        apart = (everything - total(without(data, unit), clip)).tolist()
        assert 0 < sum(v * v for v in apart) <= WHOLE**2


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_units_that_are_cut_into_parts_give_the_same_sum(size: int) -> None:
    """However many rows' gradients are held at once, a unit's mean is of all its rows."""
    data = of_patients(11, WHOSE)
    assert torch.equal(total(data, 1.0, size), total(data, 1.0, 5))


def test_where_each_unit_has_one_row_it_is_training_by_rows() -> None:
    """From the same key, but for what the grid rounds: a mean is rounded as it is, a row's products by their vectors."""
    data = rows(20, 4)
    by_row = trained(mlp(), data)
    net = mlp()
    by = torch.optim.SGD(net.parameters(), 0.5)
    given = {"rate": 0.5, "steps": 3, "clip": 1.0, "noise": 1.0}
    units = Units.of(torch.arange(20))
    fit_privately(net, data, cross_entropy, by, rows=20, stream=Stream(bytes(32), "test"), units=units, **given)  # type: ignore[arg-type]
    assert torch.allclose(by_row, torch.cat([p.detach().flatten() for p in net.parameters()]), atol=2e-5)


def test_a_unit_counts_as_one_however_many_rows_it_has() -> None:
    one = rows(1, 4)
    assert one.y is not None
    many = replace(one, x=MemoryRows(one.x.batch(torch.zeros(100, dtype=torch.int64))), y=one.y.repeat(100))
    single, hundred = (total(replace(d, unit="patient", units=torch.zeros(len(d), dtype=torch.int64)), 0.5) for d in (one, many))
    assert (single - hundred).abs().max() <= 1, "but for rounding"
    assert torch.allclose(single.float() * (0.5 / WHOLE), by_hand(mlp(), one, 0.5), atol=1e-6)


def test_samples_are_of_units_with_all_their_rows() -> None:
    """A step that draws no unit is noise alone; at rate 1 all are in."""
    units = Units.of(WHOSE)
    assert len(units) == 5 and units.sizes.tolist() == [2, 3, 4, 1, 1]
    assert [units.rows(i).tolist() for i in range(5)] == [[1, 9], [2, 3, 8], [0, 5, 6, 10], [7], [4]]
    net, by_key = mlp(), []
    for seed in (1, 9):
        net = mlp()
        by = torch.optim.SGD(net.parameters(), 0.5)
        data, stream = rows(11, 4, seed=seed), Stream(bytes(32))
        fit_privately(net, data, cross_entropy, by, rate=1e-9, steps=1, clip=1.0, noise=1.0, rows=5, stream=stream, units=units)
        by_key.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    assert torch.equal(*by_key)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_unit_with_a_gradient_that_is_not_finite_counts_as_zero(bad: float) -> None:
    data = of_patients(11, WHOSE)
    x = data.x.batch(torch.arange(11)).clone()
    x[3] = bad
    assert torch.equal(total(replace(data, x=MemoryRows(x)), 1.0), total(without(data, 1), 1.0))


@for_all(30, st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(0, 9))
def test_a_unit_is_one_in_the_counts_of_a_scoring(whose: list[int], seed: int) -> None:
    """Its share of right rows: counts of right and wrong are sums of whole steps, and one unit is 1 in both together."""
    right = torch.randint(2, (len(whose),), generator=Generator().manual_seed(seed))
    units = Units.of(torch.tensor(whose))
    shares = units.shares(right)
    assert len(shares) == len(set(whose)) and torch.equal(shares * SHARE, (shares * SHARE).round())
    for i, unit in enumerate(sorted(set(whose))):
        own = right[torch.tensor(whose) == unit].double()
        assert 0 <= float(own.mean() - shares[i]) < 1 / SHARE
    assert bool(((shares >= 0) & (shares <= 1)).all())


def test_data_that_do_not_say_whose_a_row_is_are_refused() -> None:
    for data, said in ((rows(3, 4), "do not say which rows"), (replace(of_patients(11, WHOSE), unit="visit"), "say it by visit")):
        with pytest.raises(DataRefused, match=said) as refused:
            units_in(data, PATIENTS)
        assert 'unit = "patient"' in refused.value.todo and "without privacy.unit" in refused.value.todo
    assert units_in(rows(3, 4), replace(PATIENTS, unit=None)) is None
    with pytest.raises(StepFailed, match="chose 11 rows without their units"):
        units_in(replace(of_patients(11, WHOSE), units=WHOSE[:4]), PATIENTS)
    assert protected(of_patients(11, WHOSE), PATIENTS) == 5 and protected(of_patients(11, WHOSE), None) == 11


def test_a_sum_over_rows_is_refused_where_units_are_protected() -> None:
    """Whoever sums by rows says nothing of units; who sums by units, does."""
    meter = Meter(PATIENTS, b"k" * 32)
    with pytest.raises(StepFailed, match="protects each patient"):
        meter.spend(Charge(2.0))
    assert not meter.spent and meter.spend(Charge(2.0), by_unit=True)


@pytest.mark.parametrize("without_unit", [0, 3])
def test_one_patient_moves_a_step_of_a_site_by_clip_at_most(without_unit: int) -> None:
    """By what steps call: forty rows of four patients, of which one is taken out, with next to no noise."""
    data = of_patients(40, torch.arange(40) // 10)
    asked = replace(PATIENTS, noise=0.01, rate=1.0, clip=0.01)

    def stepped(of: Data) -> Tensor:
        net, meter = mlp(), Meter(asked, b"k" * 32)
        site = site_of(of, World(), Role.SOURCE, private=meter)
        fit_at(site, net, cross_entropy, torch.optim.SGD(net.parameters(), 1.0), epochs=1, batch=8)
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    moved = float((stepped(data) - stepped(without(data, without_unit))).norm()) * asked.expected
    assert 0.9 * asked.clip < moved < 1.1 * asked.clip, "rows that are clipped by themselves move it up to ten times as much"


def test_no_more_gradients_are_held_than_fit() -> None:
    """Of one patient with a thousand rows, some at a time, always as many: that says nothing of how many there are."""
    data, net, seen = of_patients(1000, torch.zeros(1000, dtype=torch.int64)), mlp(), list[int]()
    parameters, plain = dict(net.named_parameters()), row_gradients(net, cross_entropy)

    def watched(given: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Mapping[str, Found]:
        seen.append(len(x))
        return plain(given, x, y)

    found = GridSum(parameters, 1.0, "cpu")
    sum_up(found, watched, parameters, data, torch.tensor([0]), 16, units_in(data, PATIENTS))
    assert seen == [16] * 63 and bool(found.total.any())
