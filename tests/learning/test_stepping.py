"""Steps of an optimiser: mini-batches added up, gradients scaled, and one try more where there is no room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tests.learning.rows_in_memory import data_of
from tests.numerics.examples import for_all
from tideline.core.asked.computing import Computing, Precision
from tideline.core.errors import StepFailed
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.stepping import READ_EVERY, MeanLoss, Steps
from tideline.nets.computing import HALVED, Here, computing_at


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def rows(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of three numbers, and labels of two classes."""
    x = torch.randn(n, 3, generator=seeded(seed), dtype=torch.float64)
    return x, (x[:, 0] > 0).long()


def network(seed: int = 1) -> nn.Module:
    """Two layers in float64, without batch norm."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


class Small(nn.Module):
    """A network whose device has room for so many rows, and no more."""

    def __init__(self, room: int, after: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.room, self.seen = after or network(), room, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        if len(x) > self.room:
            raise torch.OutOfMemoryError(f"{len(x)} rows")
        return self.inner(x)


class NoWayBack(torch.autograd.Function):
    """A layer whose backward pass, not its forward pass, finds no room for many rows."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, g: Tensor) -> Tensor:  # type: ignore[override]
        if len(g) > 4:
            raise torch.OutOfMemoryError(f"{len(g)} rows")
        return g


class SmallBehind(nn.Module):
    """The same in the middle of the backward pass, when some of the gradient is there already."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 5).double(), nn.Linear(5, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(NoWayBack.apply(torch.tanh(self.first(x))))  # type: ignore[no-untyped-call]


def gradient(net: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


def stepped(net: nn.Module, parts: list[tuple[Tensor, Tensor]], computing: Computing) -> tuple[list[Tensor], Here]:
    """The gradient that a step of plain SGD at rate 0 was made by."""
    with computing_at(computing, "cpu") as here:
        steps = Steps(net, cross_entropy, torch.optim.SGD(net.parameters(), lr=0.0))
        for x, y in parts:
            steps.take(x, y)
        steps.flush()
    return gradient(net), here


def whole(x: Tensor, y: Tensor, net: nn.Module) -> list[Tensor]:
    cross_entropy(net, x, y).backward()  # type: ignore[no-untyped-call]
    return gradient(net)


def close(some: list[Tensor], others: list[Tensor], tolerance: float = 1e-12) -> bool:
    return len(some) == len(others) > 0 and all(torch.allclose(a, b, atol=tolerance) for a, b in zip(some, others, strict=True))


@for_all(50, st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_mini_batches_that_are_added_up_are_one(sizes: list[int], seed: int) -> None:
    """Of any sizes, the last group cut short or not: the gradient is that of all their rows at once."""
    x, y = rows(sum(sizes), seed)
    parts = list(zip(x.split(sizes), y.split(sizes), strict=True))
    found, _ = stepped(network(), parts, Computing(accumulate=8))
    assert close(found, whole(x, y, network()))


@for_all(30, st.integers(4, 20), st.integers(0, 99))
def test_training_by_halves_is_training(half: int, seed: int) -> None:
    """Two mini-batches of half the size to a step, in the order of the same generator: the same weights in the end."""

    def trained(size: int, accumulate: int) -> nn.Module:
        net, (x, y) = network(), rows(4 * half, seed)
        data = data_of(x, y)
        with computing_at(Computing(accumulate=accumulate), "cpu"):
            by = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            fit(net, data, cross_entropy, by, epochs=2, batch=size, rng=seeded(seed), clip=0.5)
        return net

    both = zip(trained(2 * half, 1).parameters(), trained(half, 2).parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in both)


def test_without_a_section_a_step_is_as_it_was() -> None:
    (x, y), one, other = rows(30), network().float(), network().float()
    data = data_of(x.float(), y)
    mean = fit(
        one, data, cross_entropy, torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9), epochs=1, batch=8, rng=seeded(3)
    )
    by, expected, seen = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9), 0.0, 0
    for at in torch.randperm(30, generator=seeded(3)).tensor_split([8, 16, 24]):
        value = cross_entropy(other, x[at].float(), y[at])
        by.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        by.step()
        seen += len(at)
        expected += (float(value.detach()) - expected) * len(at) / seen
    assert mean == expected
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("behind", [False, True], ids=["forward", "backward"])
def test_halves_of_a_mini_batch_that_has_no_room(accumulate: int, behind: bool) -> None:
    """The gradient is of the same rows, also where the backward pass broke off, and the step says so."""
    x, y = rows(6 * accumulate)
    parts = list(zip(x.split(6), y.split(6), strict=True))
    torch.manual_seed(0)
    net = SmallBehind() if behind else Small(4)
    like = network()
    if behind:
        like.load_state_dict(
            {"0.weight": net.first.weight, "0.bias": net.first.bias, "2.weight": net.last.weight, "2.bias": net.last.bias}
        )
    found, here = stepped(net, parts, Computing(accumulate=accumulate))
    assert close(found, whole(x, y, like))
    assert here.events == [HALVED]


def test_what_had_no_room_once_is_not_tried_again() -> None:
    """The mini-batches after it pass in halves at once; the loss that is told is the mean of both."""
    (x, y), net = rows(12), Small(4)
    with computing_at(None, "cpu"):
        steps = Steps(net, cross_entropy, torch.optim.SGD(net.parameters(), lr=0.0))
        losses = [steps.take(x[:6], y[:6]), steps.take(x[6:], y[6:])]
    assert net.seen == [6, 3, 3, 3, 3]
    assert float(losses[1]) == pytest.approx(float(cross_entropy(network(), x[6:], y[6:]).detach()))


@pytest.mark.parametrize(("rows_", "room"), [(8, 2), (3, 2)])
def test_no_room_for_a_half_either(rows_: int, room: int) -> None:
    """Ends the step, with what to do; what cannot be halved ends it at once."""
    (x, y), net = rows(rows_), Small(room)
    with pytest.raises(StepFailed, match=rf"no room for a mini-batch of {rows_} rows.*Lower config.batch.*bfloat16"):
        stepped(net, [(x, y)], Computing())


@contextmanager
def counted(net: nn.Module) -> Iterator[list[float]]:
    """The scales by which gradients come, as the first layer sees them."""
    found: list[float] = []
    handle = next(iter(net.parameters())).register_hook(lambda g: found.append(float(g.abs().sum())))
    yield found
    handle.remove()


def test_gradients_of_float16_are_scaled() -> None:
    """On their way back, not in the step: small ones would be 0 else."""
    (x, y), net = rows(6), network().float()
    with counted(net) as seen:
        found, _ = stepped(net, [(x.float(), y)], Computing(precision=Precision.FLOAT16))
    assert seen[0] == pytest.approx(1024 * float(found[0].abs().sum()), rel=1e-3)
    assert close(found, whole(x.float(), y, network().float()), 1e-3)


def test_a_step_that_overflows_is_left_out() -> None:
    (x, y), net = rows(6), network().float()
    before = [p.detach().clone() for p in net.parameters()]
    with computing_at(Computing(precision=Precision.FLOAT16), "cpu"):
        by = torch.optim.SGD(net.parameters(), lr=1.0)
        steps = Steps(net, lambda net, x, y: cross_entropy(net, x, y) * torch.inf, by)
        steps.take(x.float(), y)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True))


@for_all(50, st.lists(st.tuples(st.floats(0, 9, width=32), st.integers(1, 9)), min_size=1, max_size=9))
def test_losses_that_wait_have_the_same_mean(found: list[tuple[float, int]]) -> None:
    """What is read many at once, as from a GPU, gives the bits of what is read one by one."""
    one, many = MeanLoss(), MeanLoss()
    for value, n in found:
        one.add(torch.tensor(value), n)
        many._unread.append((torch.tensor(value), n))
    assert len(found) < READ_EVERY and one.value == many.value
