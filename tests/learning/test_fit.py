"""Mini-batch training, what batch norm measures anew, and local training by its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch import Generator, Tensor, nn
from torch.nn import functional

from tests.learning.rows_in_memory import data_of
from tests.numerics.examples import for_all
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World
from tideline.core.errors import Cancelled, ConfigRefused
from tideline.core.settings import parse
from tideline.core.step import Data
from tideline.learning.fit import batches, cross_entropy, fit, normed, remeasure
from tideline.learning.local_training import LocalTraining, TrainingOptions, balanced, criterion, optimiser_of, rate_at, shorten


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def line(n: int = 10, dtype: torch.dtype = torch.float64) -> Data:
    """Rows of two features, with labels."""
    x = torch.randn(n, 2, generator=seeded(1)).to(dtype)
    return data_of(x, (x[:, 0] > 0).long())


def linear() -> nn.Module:
    """A linear classifier that starts at zero, in float64."""
    net = nn.Linear(2, 2).double()
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    return net


@for_all(50, st.integers(1, 60), st.integers(1, 20), st.integers(0, 5))
def test_an_epoch_sees_every_row_once(n: int, size: int, seed: int) -> None:
    """Batches part the rows: none twice, none left out, none larger than the size but for a joined last row."""
    parts = list(batches(n, size, seeded(seed)))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert all(len(p) == size for p in parts[:-1])
    assert 0 < len(parts[-1]) <= size + 1


@for_all(50, st.integers(2, 60), st.integers(2, 20))
def test_no_batch_is_a_single_row_of_many(n: int, size: int) -> None:
    """Batch norm can work on every batch: a lone last row joins the batch before it."""
    assert min(len(p) for p in batches(n, size, seeded())) >= 2


@for_all(50, st.integers(1, 90), st.integers(1, 20), st.integers(0, 10))
def test_a_last_batch_may_be_held_to_a_least(n: int, least: int, more: int) -> None:
    """Where there are so many rows, every batch has them; none grows by as many."""
    parts = list(batches(n, least + more, seeded(), least))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert min(map(len, parts)) >= min(n, least)
    assert max(map(len, parts)) < 2 * least + more


def test_batches_come_in_an_order_of_their_generator() -> None:
    """Equal generators give equal batches, other ones other batches, and a second epoch another order."""
    rng = seeded(3)
    first, second = (torch.cat(list(batches(20, 6, rng))).tolist() for _ in range(2))
    assert first == torch.cat(list(batches(20, 6, seeded(3)))).tolist()
    assert first != second
    assert first != torch.cat(list(batches(20, 6, seeded(4)))).tolist()


def test_a_full_batch_epoch_is_one_gradient_step() -> None:
    """Plain SGD over one batch moves by the gradient of the mean loss, as computed by hand."""
    data, net = line(), linear()
    assert data.y is not None
    one_hot = nn.functional.one_hot(data.y, 2).double()
    gradient = (0.5 - one_hot).T @ data.x.all() / len(data)
    loss = fit(net, data, cross_entropy, torch.optim.SGD(net.parameters(), lr=0.3), epochs=1, batch=10, rng=seeded())
    torch.testing.assert_close(net.state_dict()["weight"], -0.3 * gradient)
    assert loss == pytest.approx(torch.tensor(2.0).log().item(), abs=1e-6)


def test_the_loss_is_the_mean_over_rows_of_the_last_epoch() -> None:
    data, net, seen = line(7), linear(), []

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = cross_entropy(net, x, y)
        seen.append((len(x), float(value.detach())))
        return value

    got = fit(net, data, loss, torch.optim.SGD(net.parameters(), lr=0.1), epochs=3, batch=5, rng=seeded())
    assert [n for n, _ in seen] == [5, 2] * 3
    assert got == pytest.approx(sum(n * v for n, v in seen[-2:]) / 7)


def test_progress_rises_to_one() -> None:
    ticks: list[float] = []
    net = linear()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=2, batch=4, rng=seeded(), tick=ticks.append)
    assert ticks == sorted(ticks)
    assert ticks == pytest.approx([0.2, 0.4, 0.5, 0.7, 0.9, 1.0])


def test_a_cancelled_step_stops_at_the_next_batch() -> None:
    net, calls = linear(), []

    def tick(share: float) -> None:
        calls.append(share)
        raise Cancelled("withdrawn")

    with pytest.raises(Cancelled):
        fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=2, batch=4, rng=seeded(), tick=tick)
    assert len(calls) == 1


def test_it_trains_in_training_mode() -> None:
    """Batch norm's statistics move, whatever mode the network was left in; no counter tells how many rows it has seen."""
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).double().eval()
    net[0].num_batches_tracked.fill_(7)
    before = net[0].running_mean.clone()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=1, batch=5, rng=seeded())
    assert not torch.equal(net[0].running_mean, before) and int(net[0].num_batches_tracked) == 7


def test_rows_without_labels_cannot_be_fitted() -> None:
    net, unlabelled = linear(), replace(line(), y=None)
    with pytest.raises(AssertionError, match="labelled"):
        fit(net, unlabelled, cross_entropy, torch.optim.SGD(net.parameters()), epochs=1, batch=5, rng=seeded())


@pytest.mark.parametrize("steps", [1, 4, 7, 12])
def test_steps_count_mini_batches(steps: int) -> None:
    """So many are taken, in as many passes over the rows as that needs; the last one is cut short."""
    net, told = linear(), list[float]()
    by, seen = torch.optim.SGD(net.parameters(), lr=0.1), list[int]()

    def counted(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(x))
        return cross_entropy(net, x, y)

    fit(net, line(), counted, by, epochs=99, batch=3, rng=seeded(), steps=steps, tick=told.append)
    assert len(seen) == steps
    assert told == [pytest.approx((i + 1) / steps) for i in range(steps)]


def test_as_many_steps_as_epochs_have_are_the_epochs() -> None:
    nets = [linear(), linear()]
    for net, more in zip(nets, ({"epochs": 2}, {"epochs": 1, "steps": 6}), strict=True):
        by = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        fit(net, line(), cross_entropy, by, batch=3, rng=seeded(), **more)  # type: ignore[arg-type]
    assert nets[0].weight.equal(nets[1].weight)


def test_a_long_gradient_is_shortened() -> None:
    """One step of rate 1 moves by the largest norm that is let through; a short one moves as it would."""
    moved = {}
    for clip in (0.0, 1e-3, 1e3):
        net = linear()
        by = torch.optim.SGD(net.parameters(), lr=1.0)
        fit(net, line(), cross_entropy, by, epochs=1, batch=10, rng=seeded(), clip=clip)
        moved[clip] = float(torch.cat([p.detach().flatten() for p in net.parameters()]).norm())
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-3) and moved[1e3] == moved[0.0] > 0.01


WORLD = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")


def rows(n: int, seed: int = 0) -> Tensor:
    """Images that lie elsewhere than standard normal ones."""
    return 2 + 3 * torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def network() -> nn.Module:
    """LeNet with a bottleneck, in training mode."""
    torch.manual_seed(0)
    return nets.build(WORLD).train()


def test_one_part_is_its_mean_and_variance() -> None:
    """Of rows that pass at once, of what comes into the layer; dropout changes nothing. Then it is in evaluation mode."""
    net, x = network(), rows(30)
    remeasure(net, x, 30, torch.Generator())
    (layer,) = normed(net)
    with torch.no_grad():
        f = net.get_submodule("features.backbone")(x)
        z = net.get_submodule("features.bottleneck.linear")(f)
    torch.testing.assert_close(layer.running_mean, z.mean(0))
    torch.testing.assert_close(layer.running_var, z.var(0))
    assert not net.training and layer.momentum == 0.1


def test_parts_are_averaged_alike() -> None:
    """Of 50 rows, 16 or somewhat more at once: three parts, in the generator's order."""
    net, x = network(), rows(50)
    remeasure(net, x, 16, torch.Generator().manual_seed(4))
    (layer,) = normed(net)
    parts = torch.randperm(50, generator=torch.Generator().manual_seed(4)).tensor_split(3)
    assert [len(part) for part in parts] == [17, 17, 16]
    with torch.no_grad():
        z = net.get_submodule("features.bottleneck.linear")(net.get_submodule("features.backbone")(x))
    torch.testing.assert_close(layer.running_mean, torch.stack([z[part].mean(0) for part in parts]).mean(0))
    torch.testing.assert_close(layer.running_var, torch.stack([z[part].var(0) for part in parts]).mean(0))


def test_nothing_else_changes() -> None:
    """No weight, and no counter, which would tell the number of parts. What was measured before has no say."""
    net = network()
    before = {name: w.clone() for name, w in net.state_dict().items()}
    remeasure(net, rows(40), 8, torch.Generator().manual_seed(1))
    after = {name: w.clone() for name, w in net.state_dict().items()}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"features.bottleneck.norm.running_{name}" for name in ("mean", "var")}
    (layer,) = normed(net)
    assert layer.running_mean is not None
    layer.running_mean.fill_(1e6)
    remeasure(net, rows(40), 8, torch.Generator().manual_seed(1))
    assert all(torch.equal(w, after[name]) for name, w in net.state_dict().items())


@pytest.mark.parametrize(("n", "batch"), [(2, 2), (3, 2), (2, 64), (5, 4)])
def test_few_rows(n: int, batch: int) -> None:
    """No part is a single row, which has no variance; the share of the pass that is done ends at 1."""
    net, told = network(), list[float]()
    remeasure(net, rows(n), batch, torch.Generator(), tick=told.append)
    assert told[-1] == 1.0
    assert all(bool(torch.isfinite(w).all()) for w in net.state_dict().values())


def test_a_network_without_batch_norm_stays() -> None:
    net = nets.build(World(inputs=(8,), classes=3, model="mlp"))
    remeasure(net, torch.zeros(4, 5), 2, torch.Generator())
    assert normed(net) == []


def stepped(c: LocalTraining, gradients: list[float]) -> float:
    """A weight of 1 after steps along these gradients."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
    by = optimiser_of(c, [weight], 1)
    for g in gradients:
        weight.grad = torch.tensor([g], dtype=torch.float64)
        by.step()
    return float(weight.detach())


def of(**given: Any) -> LocalTraining:
    """Settings with a rate of 0.1, a momentum of a half, and a weight decay of a hundredth."""
    return LocalTraining(**({"rate": 0.1, "momentum": 0.5, "weight_decay": 0.01} | given))


def test_sgd_has_momentum_and_weight_decay() -> None:
    """Two steps by hand: b_1 = 2 + 0.01 w, b_2 = 0.5 b_1 + 4 + 0.01 w."""
    first = 2 + 0.01
    w = 1 - 0.1 * first
    assert stepped(of(), [2.0]) == w
    assert abs(stepped(of(), [2.0, 4.0]) - (w - 0.1 * (0.5 * first + 4 + 0.01 * w))) < 1e-12


def test_nesterov_looks_ahead() -> None:
    first = 2 + 0.01
    assert stepped(of(nesterov=True), [2.0]) == pytest.approx(1 - 0.1 * (first + 0.5 * first))
    assert stepped(of(nesterov=True, momentum=0.0), [2.0]) == 1 - 0.1 * first


def test_adam_takes_a_step_of_the_rate_first() -> None:
    for g in (1e-3, 1.0, 1e3):
        assert abs(stepped(of(optimiser="adam"), [g]) - 0.9) < 1e-5


def test_adamw_decays_apart_from_the_gradient() -> None:
    assert stepped(of(optimiser="adamw"), [5.0]) == pytest.approx((1 - 0.001) - 0.1, abs=1e-6)


@for_all(50, st.integers(1, 40), st.integers(0, 10), st.sampled_from(["constant", "cosine", "step"]))
def test_a_schedule_begins_at_the_full_rate_and_never_exceeds_it(rounds: int, warmup: int, schedule: str) -> None:
    """It rises in a straight line, is whole in the round after the warm-up, and then never rises."""
    c = TrainingOptions(schedule=schedule, warmup=warmup, decay_every=3)
    rates = [rate_at(c, 0.5, r, rounds) for r in range(1, rounds + 1)]
    assert rates[:warmup] == pytest.approx([0.5 * r / warmup for r in range(1, rounds + 1)][:warmup] if warmup else [])
    assert all(a >= b >= 0 for a, b in zip(rates[warmup:], rates[warmup + 1 :], strict=False))
    assert rates[warmup : warmup + 1] in ([], [0.5])


def test_schedules_by_hand() -> None:
    """Half a cosine over the rounds after the warm-up; a tenth after each two."""
    cosine = TrainingOptions(schedule="cosine", warmup=1)
    assert [rate_at(cosine, 1.0, r, 5) for r in (1, 2, 4)] == pytest.approx([1.0, 1.0, 0.5])
    step = TrainingOptions(schedule="step", decay_every=2)
    assert [rate_at(step, 1.0, r, 6) for r in range(1, 7)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


@for_all(50, st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_balanced_weights_are_scikit_learns(labels: list[int]) -> None:
    y = torch.tensor(labels)
    there = sorted(set(labels))
    ours = balanced(y, 6)
    assert ours[there].tolist() == pytest.approx(compute_class_weight("balanced", classes=np.array(there), y=labels).tolist())
    assert float(ours.sum()) == pytest.approx(float(ours[there].sum()))
    assert float(ours[y].mean()) == pytest.approx(1.0)


def test_the_criterion_is_smoothed_and_weighed() -> None:
    y, logits = torch.tensor([0, 0, 0, 1]), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert criterion(TrainingOptions(), y, 3) is functional.cross_entropy
    made = criterion(TrainingOptions(label_smoothing=0.2, class_weights="balanced"), y, 3)(logits, y)
    weight = torch.tensor([4 / 6, 2.0, 0.0])
    assert torch.equal(made, functional.cross_entropy(logits, y, weight=weight, label_smoothing=0.2))


def test_gradients_are_shortened() -> None:
    for most, length in ((0.0, 5.0), (10.0, 5.0), (1.0, 1.0)):
        w = nn.Parameter(torch.zeros(2))
        w.grad = torch.tensor([3.0, 4.0])
        shorten([w], TrainingOptions(clip_gradient=most))
        assert float(w.grad.norm()) == pytest.approx(length, abs=1e-4)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ConfigRefused, match=r"config\.nesterov is true, and config\.optimiser is adam") as caught:
        parse(LocalTraining, {"nesterov": True, "optimiser": "adam"}, "config")
    assert caught.value.context["path"] == "config.nesterov"


def options_of(config: Any) -> Iterator[TrainingOptions]:
    """The options of a method's settings: the settings themselves, or a group in them."""
    groups = (config, *(getattr(config, f.name) for f in fields(config)))
    yield from (each for each in groups if is_dataclass(each) and isinstance(each, TrainingOptions))


SOLVES = ("gaussian_heads",)  # without a step of gradient descent


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_every_method_has_the_settings(name: str) -> None:
    """Each method trains a network at sites or at the coordinator, and takes all options; or it solves for its model."""
    method = resolve(METHODS, name)
    assert bool(list(options_of(method.config()))) is (name not in SOLVES)
