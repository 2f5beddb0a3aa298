"""Local training by its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn import functional

from tests.numerics.examples import for_all
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.errors import ConfigRefused
from tideline.core.settings import parse
from tideline.learning.local_training import LocalTraining, TrainingOptions, balanced, criterion, optimiser_of, rate_at, shorten


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
