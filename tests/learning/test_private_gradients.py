"""Gradients of single rows: the same as by autograd of one row after the other, whatever the network; and their sums."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tests.numerics.examples import for_all
from tideline.learning.fit import cross_entropy
from tideline.learning.private import at_once
from tideline.learning.private.gradients import Outer, flat, row_gradients
from tideline.learning.private.summing import WHOLE, GridSum, Kinds, clip_together
from tideline.learning.stepping import Loss
from tideline.nets.small import LeNet


class Twice(nn.Module):
    """A layer that is passed twice, and whose weight is used beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(self.inner(x).relu()).relu() @ self.inner.weight)


class Words(nn.Module):
    """An embedding, attention, and one linear map of each of several vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(9, 4), nn.Linear(4, 3)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        words = self.embed(x.long())
        return self.last(self.attention(words, words, words)[0]).mean(1)


class Views(nn.Module):
    """Two images of a row, side by side as rows are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 2, 3, stride=2), nn.Linear(2 * 3 * 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        both = self.conv(torch.cat([x, x.flip(-1) ** 2])).relu().flatten(1)
        return self.last(both.unflatten(0, (2, len(x))).mean(0))


def frozen(net: nn.Module, *names: str) -> nn.Module:
    for name in names:
        net.get_parameter(name).requires_grad_(False)
    return net


def convolutions() -> nn.Module:
    """Of all kinds of steps and edges, in groups, along one line, without a bias, and of a padding by words or of copies."""
    first = (nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), nn.ReLU())
    more = (nn.Conv2d(4, 4, 3, groups=2, padding=1), nn.Conv2d(4, 3, 1, bias=False), nn.Conv2d(3, 3, 3, padding="same"))
    last = (nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(2), nn.Conv1d(2, 2, 3))
    return nn.Sequential(*first, *more, *last, nn.Flatten(), nn.LazyLinear(3))


NETS: Mapping[str, tuple[nn.Module, tuple[int, ...]]] = {
    "perceptron": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3, bias=False)), (4,)),
    "lenet": (LeNet(2, 8, 8, 3), (2, 8, 8)),
    "convolutions": (convolutions(), (2, 9, 8)),
    "norms": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 3)), (1, 4, 4)),
    "twice": (Twice(), (4,)),
    "words": (Words(), (5,)),
    "views": (Views(), (1, 8, 8)),
    "frozen weight": (frozen(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), "0.weight", "1.bias"), (4,)),
}


def anchored(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """A penalty on weights, as FedProx has it, beside the loss."""
    return cross_entropy(net, x, y) + 0.1 * sum((p - 0.3).square().sum() for p in net.parameters() if p.requires_grad)


def batch(shape: tuple[int, ...], n: int = 7) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, *shape, generator=Generator().manual_seed(1)).double()
    return (x.abs() * 3 if len(shape) == 1 and shape[0] == 5 else x), torch.arange(n) % 3


def trains(net: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}


def one_by_one(net: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    asked = {name: p for name, p in net.named_parameters() if p.requires_grad}
    found = [torch.autograd.grad(loss(net, x[i : i + 1], y[i : i + 1]), list(asked.values())) for i in range(len(x))]
    return {name: torch.stack([each[k] for each in found]) for k, name in enumerate(asked)}


@pytest.mark.parametrize("loss", [cross_entropy, anchored])
@pytest.mark.parametrize("name", NETS)
def test_they_are_those_of_each_row_alone(name: str, loss: Loss) -> None:
    torch.manual_seed(0)
    made, shape = NETS[name]
    net, (x, y) = made.double(), batch(shape)
    net(x)
    expected, found = one_by_one(net, loss, x, y), row_gradients(net, loss)(trains(net), x, y)
    assert list(found) == list(expected)
    for key, each in expected.items():
        assert torch.allclose(flat(found[key]), each.flatten(1), atol=1e-12), key
        assert not flat(found[key]).requires_grad


def test_a_weight_that_each_row_passes_once_is_kept_as_two_vectors() -> None:
    """And one that is used otherwise, or by several vectors of a row, is not."""
    outer = {}
    for name, (made, shape) in NETS.items():
        for loss in (cross_entropy, anchored):
            net, (x, y) = made.double(), batch(shape)
            net(x)
            found = row_gradients(net, loss)(trains(net), x, y)
            outer[name, loss] = [key for key, each in found.items() if isinstance(each, Outer)]
    assert outer["lenet", cross_entropy] == ["features.7.weight", "classifier.weight"]
    assert outer["twice", cross_entropy] == ["last.weight"] and not outer["words", cross_entropy]
    assert outer["frozen weight", cross_entropy] == ["1.weight"]
    assert not any(found for (_, loss), found in outer.items() if loss is anchored)


def test_each_row_has_its_own_chance() -> None:
    net = nn.Sequential(nn.Linear(50, 40), nn.Dropout(0.5), nn.Linear(40, 3))
    found = row_gradients(net, cross_entropy)(trains(net), torch.ones(2, 50), torch.zeros(2, dtype=torch.int64))
    dropped = flat(found["0.bias"]) == 0
    assert 5 < int(dropped[0].sum()) < 35 and not torch.equal(dropped[0], dropped[1])


def test_a_loss_of_no_parameter_has_no_gradient() -> None:
    net = nn.Linear(4, 3)
    found = row_gradients(net, lambda net, x, y: x.sum())(trains(net), *batch((4,)))
    assert all(flat(each).shape == (7, net.get_parameter(name).numel()) and not flat(each).any() for name, each in found.items())


def pair(m: int, a: int, b: int, seed: int) -> Outer:
    rng = Generator().manual_seed(seed)
    return Outer(torch.randn(m, a, generator=rng), torch.randn(m, b, generator=rng))


def summed(gradients: Mapping[str, Tensor | Outer], m: int, clip: float) -> GridSum:
    shapes = {name: torch.empty(flat(each).shape[1]) for name, each in gradients.items()}
    total = GridSum(shapes, clip, "cpu")
    total.add(gradients, m)
    return total


@pytest.mark.parametrize("clip", [0.5, 19.0, 1e4])
def test_products_are_summed_as_if_they_were_made(clip: float) -> None:
    """The same clipped sum, in the order of the parameters, and the same count of rows that are short."""
    made = {"a": pair(9, 5, 70, 1), "b": torch.randn(9, 3, 2), "c": pair(9, 1, 4, 2)}
    fast, whole = summed(made, 8, clip), summed({name: flat(each) for name, each in made.items()}, 8, clip)
    assert fast.short == whole.short and (clip != 19.0 or 0 < fast.short < 8)
    apart = (fast.total - whole.total).double() / WHOLE
    assert float(apart.norm()) < 1e-4 and float(whole.total.double().norm()) > 1e-5 * WHOLE


@for_all(
    100, st.integers(1, 40), st.integers(1, 300), st.integers(0, 50), st.floats(-20, 15), st.floats(-20, 15), st.integers(0, 9)
)
def test_a_row_with_products_moves_a_sum_by_clip_at_most(a: int, b: int, d: int, by: float, of: float, seed: int) -> None:
    """The norm of the whole numbers, in whole numbers; and nearly all of the clip is used, wherever a row's length lies."""
    part = pair(1, a, b, seed)
    column, line = part.column.double() * 10.0**by, part.line.double() * 10.0**of
    found = summed({"a": Outer(column, line), "b": torch.randn(1, d).double() * 10.0 ** (by + of)}, 1, 1.0)
    square = sum(v * v for v in found.total.tolist())
    assert square <= WHOLE**2 and found.short in (0, 1)
    if not found.short:
        assert square > 0.998 * WHOLE**2


def test_a_sum_of_products_is_exact_in_any_order() -> None:
    part = pair(70, 30, 40, 5)
    one_by_one = sum(summed({"a": Outer(part.column[i : i + 1], part.line[i : i + 1])}, 1, 2.0).total for i in range(70))
    assert torch.equal(summed({"a": part}, 70, 2.0).total, one_by_one)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("where", ["column", "line", "rest"])
def test_a_row_that_is_not_finite_counts_as_zero_in_all_its_parts(bad: float, where: str) -> None:
    column, line, rest = torch.ones(3, 2).double(), torch.ones(3, 4).double(), torch.ones(3, 5).double()
    {"column": column, "line": line, "rest": rest}[where][1, 0] = bad
    good = torch.tensor([0, 2])
    found = summed({"a": Outer(column, line), "b": rest}, 3, 1.0).total
    assert torch.equal(found, summed({"a": Outer(column[good], line[good]), "b": rest[good]}, 2, 1.0).total)


def test_a_row_without_a_gradient_in_a_product_keeps_what_else_it_has() -> None:
    found = summed({"a": Outer(torch.ones(1, 2), torch.zeros(1, 4)), "b": torch.ones(1, 5)}, 1, 1.0).total
    assert not found[:8].any() and bool(found[8:].all())


class TooFar(Kinds):
    """Scales rows beyond the clip."""

    def reach(self, whole: int) -> float:
        return 1.0001 * whole


def test_whole_numbers_that_are_too_long_count_as_zero() -> None:
    """However a row came to be too long: the rounded numbers decide, those of its products with the others."""
    for kinds, kept in ((Kinds(3, [(2, 2)]), True), (TooFar(3, [(2, 2)]), False)):
        rows, column, line = torch.ones(2, 3).double(), torch.ones(2, 2).double(), torch.ones(2, 2).double()
        clip_together(rows, [(column, line)], kinds, 1.0)
        assert all(bool(each.all()) is bool(each.any()) is kept for each in (rows, column, line))


def test_samples_are_cut_into_parts_of_one_size_that_nearly_hold_them() -> None:
    """By public numbers: 64 rows and two standard deviations in one part, or in equal ones."""
    net = trains(nn.Linear(1000, 80))
    assert at_once(net, 64.0, 1 << 30) == 80
    assert at_once(net, 64.0, 30 * 4 * 80_080) == 27 and at_once(net, 64.0, 1) == 1
    assert at_once(net, 1e-6, 1 << 30) == 1 and at_once(net, 1e6, 1 << 40) <= 256


@pytest.mark.parametrize("name", ["perceptron", "lenet", "norms"])
def test_a_row_is_the_same_beside_any_others(name: str) -> None:
    """To the last bit, wherever it stands in a part and whatever is beside it: else one row would move what others add."""
    torch.manual_seed(0)
    made, shape = NETS[name]
    net = made.float()
    x = torch.randn(24, *shape, generator=Generator().manual_seed(2))
    y = torch.arange(24) % 3
    found = row_gradients(net, cross_entropy)(trains(net), x, y)
    order = torch.randperm(24, generator=Generator().manual_seed(3))
    again = row_gradients(net, cross_entropy)(trains(net), torch.cat([x[order[:12]], 100 * x[order[12:]]]), y[order])
    for key, each in found.items():
        assert torch.equal(flat(each)[order[:12]], flat(again[key])[:12]), key
