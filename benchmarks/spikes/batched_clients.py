"""Clients whose networks are alike, trained as one batch: how much faster that is, and whether their weights are the same bits.

    python benchmarks/spikes/batched_clients.py [--clients 50 500] [--rounds 5] [--chunk 0] [--model mlp] [--batch 10]

The work is that of benchmarks/simulation.py. Both forms begin with the same weights and draw the same permutations; rounds of the
one and of the other take turns, so that both meet the same machine.

loop        one network, into which each client's weights are loaded
batched     all clients' weights in stacks (clients, *shape); torch.func takes their gradients at once
--chunk     so many clients in a stack; 0: all of them
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap
from torch.nn.functional import conv2d, cross_entropy, linear

from benchmarks.limits import emit, table
from benchmarks.measure import grown
from benchmarks.simulation import BATCH, DECAY, MOMENTUM, RATE, TRAIN, holdings, warm_up
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.step import Data

Weights = dict[str, Tensor]
FORMS = ("loop", "batched")
FEW = 400  # multiplications: torch computes a stack of such products itself, and single ones by its BLAS
SIDES = ((1, 2, 3, 4, 10, 20, 32, 64, 128), (2, 4, 10, 32, 64, 120, 256, 784), (2, 4, 10, 64, 84, 120, 256))


@dataclass(frozen=True)
class Stack:
    """Rows of clients that have equally many: x (clients, 20, *inputs), y (clients, 20); 4 a client are held out."""

    x: Tensor
    y: Tensor
    x_held_out: Tensor
    y_held_out: Tensor

    def __getitem__(self, own: slice) -> Stack:
        return Stack(self.x[own], self.y[own], self.x_held_out[own], self.y_held_out[own])


@dataclass(frozen=True)
class Work:
    """What is trained, and rows of a step."""

    world: World
    batch: int

    def rows(self, clients: int) -> Stack:
        """The clients' rows, as benchmarks/simulation.py draws them."""
        sites = [holdings(client) for client in range(clients)]
        x, y = torch.stack([s.train.x.all() for s in sites]), torch.stack([labels(s.train) for s in sites])
        held_out, truth = torch.stack([s.held_out.x.all() for s in sites]), torch.stack([labels(s.held_out) for s in sites])
        inputs = self.world.inputs
        return Stack(x.unflatten(2, inputs), y, held_out.unflatten(2, inputs), truth)


def labels(data: Data) -> Tensor:
    assert data.y is not None
    return data.y


@dataclass(frozen=True)
class Row:
    """One number of clients. Seconds of a round, the median of those after the first, and MB, by form.

    times: how often batched goes into the loop, the median of rounds that followed each other.
    same_bits: share of the weights' numbers that are equal after one round; difference: the largest one after one round and after
    all, over the largest number of the same tensor. alone: whether a client's bits are the same in a stack of half as many.
    operations: the largest difference of each operation that is given the same numbers, as above; 0: the same bits.
    """

    clients: int
    seconds: dict[str, float]
    memory_mb: dict[str, float]
    times: float
    accuracy: dict[str, float]
    same_bits: float
    difference: list[float]
    alone: bool
    operations: dict[str, float]


def main() -> int:
    """Measure each number of clients."""
    args = arguments()
    torch.set_num_threads(args.threads)
    warm_up()
    work = Work(World(inputs=(1, 8, 8) if args.model == "lenet" else (64,), classes=10, model=args.model), args.batch)
    if args.products:
        print(*products(), "", sep="\n")
    for clients in args.clients:
        row = measured(work, clients, args.rounds, args.chunk or clients)
        emit(row, shown(row, args.rounds), [], args.json)
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are measured, after one that warms up")
    parser.add_argument("--chunk", type=int, default=0, help="clients in a stack; 0: all")
    parser.add_argument("--model", choices=("mlp", "linear", "lenet"), default="mlp")
    parser.add_argument("--batch", type=int, default=BATCH, help="rows of a step")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, in both forms")
    parser.add_argument("--products", action="store_true", help="also: products of which shapes differ in a stack")
    parser.add_argument("--quick", action="store_true", help="four clients, two rounds")
    parser.add_argument("--json", action="store_true", help="a JSON object a row")
    args = parser.parse_args()
    if args.quick:
        args.clients, args.rounds = [4], 2
    return args


def order(client: int, turn: int) -> Tensor:
    """A client's rows in the order of a round's epoch, by a generator of its own: (20,)."""
    return torch.randperm(TRAIN, generator=torch.Generator().manual_seed(1000 * turn + client))


def one_by_one(net: nn.Module, rows: Stack, batch: int, mean: Weights, turn: int) -> Iterator[Weights]:
    """Each client's weights after an epoch; they are the network's own until the next is asked for."""
    for client, (x, y) in enumerate(zip(rows.x, rows.y, strict=True)):
        net.load_state_dict(mean)
        optimiser = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
        for own in order(client, turn).split(batch):
            loss = cross_entropy(net(x[own]), y[own])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        yield net.state_dict()


def at_once(net: nn.Module, rows: Stack, batch: int, mean: Weights, orders: Tensor) -> Weights:
    """All clients' weights after an epoch, in stacks. orders: (clients, 20).

    `stack_module_state` would copy as many networks; here all begin with the same weights, so these are copied.
    """

    def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(net, weights, (x,)), y)

    slopes, who = vmap(grad(loss)), torch.arange(len(orders))[:, None]
    weights = {name: each.repeat(len(orders), *[1] * each.dim()) for name, each in mean.items()}
    momentum: Weights = {}
    for own in orders.split(batch, dim=1):
        descend(weights, slopes(weights, rows.x[who, own], rows.y[who, own]), momentum)
    return weights


def descend(weights: Weights, slopes: Weights, momentum: Weights) -> None:
    """A step of torch.optim.SGD, number by number what it computes, in place."""
    for name, each in weights.items():
        slope = slopes[name].add(each, alpha=DECAY)
        momentum[name] = momentum[name].mul_(MOMENTUM).add_(slope) if name in momentum else slope
        each.add_(momentum[name], alpha=-RATE)


def in_chunks(net: nn.Module, rows: Stack, batch: int, chunk: int, mean: Weights, turn: int) -> Iterator[Weights]:
    """Each client's weights, from one stack after the other."""
    orders = torch.stack([order(client, turn) for client in range(len(rows.x))])
    for first in range(0, len(orders), chunk):
        own = slice(first, first + chunk)
        weights = at_once(net, rows[own], batch, mean, orders[own])
        yield from (dict(zip(weights, each, strict=True)) for each in zip(*weights.values(), strict=True))


def fold(replies: Iterable[Weights], clients: int) -> Weights:
    """The mean, in the clients' order: both forms fold alike."""
    total: Weights = {}
    for reply in replies:
        for name, each in reply.items():
            total[name] = total[name].add_(each, alpha=1 / clients) if name in total else each / clients
    return total


def score_each(net: nn.Module, rows: Stack, mean: Weights) -> float:
    """The mean accuracy, a client after the other."""
    net.load_state_dict(mean)
    with torch.no_grad():
        pairs = zip(rows.x_held_out, rows.y_held_out, strict=True)
        return statistics.mean(float((net(x).argmax(1) == y).float().mean()) for x, y in pairs)


def score_all(net: nn.Module, rows: Stack, mean: Weights) -> float:
    """The mean accuracy: one model, so all rows are one batch."""
    net.load_state_dict(mean)
    with torch.no_grad():
        return float((net(rows.x_held_out.flatten(0, 1)).argmax(1) == rows.y_held_out.flatten()).float().mean())


@dataclass(frozen=True)
class Form:
    """One form of the rounds: train (mean, round) -> each client's weights; score a mean."""

    train: Callable[[Weights, int], Iterable[Weights]]
    score: Callable[[Weights], float]

    def mean(self, mean: Weights, turn: int, clients: int) -> Weights:
        return fold(self.train(mean, turn), clients)

    def clocked(self, mean: Weights, turn: int, clients: int) -> tuple[float, Weights]:
        """The seconds of a round, and the new mean."""
        began = time.perf_counter()
        mean = self.mean(mean, turn, clients)
        self.score(mean)
        return time.perf_counter() - began, mean


def measured(work: Work, clients: int, rounds: int, chunk: int) -> Row:
    """What both forms take, and what their bits say."""
    rows, net = work.rows(clients), nets.build(work.world).train()
    begin = nets.weights_of(nets.build(work.world))
    loop = Form(partial(one_by_one, net, rows, work.batch), partial(score_each, net, rows))
    batched = Form(partial(in_chunks, net, rows, work.batch, chunk), partial(score_all, net, rows))
    fewer = Form(partial(in_chunks, net, rows, work.batch, max(1, chunk // 2)), batched.score)
    first, last = (replies_of((loop, batched), begin, clients, turns) for turns in (1, rounds))
    (alone,) = replies_of((fewer,), begin, clients, 1)
    took, means, memory = clocked((loop, batched), begin, clients, rounds)
    return Row(
        clients=clients,
        seconds=dict(zip(FORMS, map(statistics.median, took), strict=True)),
        memory_mb=dict(zip(FORMS, memory, strict=True)),
        times=statistics.median(a / b for a, b in zip(*took, strict=True)),
        accuracy={name: form.score(mean) for name, form, mean in zip(FORMS, (loop, batched), means, strict=True)},
        same_bits=same(*first),
        difference=[apart(*first), apart(*last)],
        alone=same(first[1], alone) == 1,
        operations=operations(clients, work.batch),
    )


def clocked(
    forms: tuple[Form, ...], begin: Weights, clients: int, rounds: int
) -> tuple[list[list[float]], list[Weights], list[float]]:
    """Of each form the seconds of each round after the first, its last mean, and the MB of its first round. They take turns."""
    means, memory, took = [begin] * len(forms), [0.0] * len(forms), [list[float]() for _ in forms]
    for i, form in enumerate(forms):
        memory[i], means[i] = grown(partial(form.mean, begin, 0, clients))
    for turn in range(1, rounds + 1):
        for i, form in enumerate(forms):
            seconds, means[i] = form.clocked(means[i], turn, clients)
            took[i].append(seconds)
    return took, means, memory


def replies_of(forms: tuple[Form, ...], begin: Weights, clients: int, rounds: int) -> list[Weights]:
    """The clients' weights of the last of so many rounds, in stacks (clients, *shape)."""
    made = []
    for form in forms:
        mean = begin
        for turn in range(rounds - 1):
            mean = form.mean(mean, turn, clients)
        made.append(stack([copied(each) for each in form.train(mean, rounds - 1)]))
    return made


def copied(weights: Weights) -> Weights:
    return {name: each.clone() for name, each in weights.items()}


def stack(replies: list[Weights]) -> Weights:
    return {name: torch.stack([each[name] for each in replies]) for name in replies[0]}


def same(a: Weights, b: Weights) -> float:
    """The share of numbers that are equal."""
    return sum(int((a[name] == b[name]).sum()) for name in a) / sum(each.numel() for each in a.values())


def apart(a: Weights, b: Weights) -> float:
    """The largest difference, over the largest number of its tensor."""
    return max(difference(a[name], b[name]) for name in a)


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / a.abs().max())


def operations(clients: int, batch: int) -> dict[str, float]:
    """What a step is made of, client by client and at once, each on the same numbers."""
    n, b = clients, batch
    label = torch.randint(10, (n, b))
    of: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "linear 64-64": (linear, (torch.randn(n, b, 64), torch.randn(n, 64, 64), torch.randn(n, 64))),
        "linear 64-10": (linear, (torch.randn(n, b, 64), torch.randn(n, 10, 64), torch.randn(n, 10))),
        "linear 64-10, gradient of inputs": (torch.matmul, (torch.randn(n, b, 10), torch.randn(n, 10, 64))),
        "linear 64-10, gradient of weights": (transposed, (torch.randn(n, b, 10), torch.randn(n, b, 64))),
        "linear 64-64, gradient of weights": (transposed, (torch.randn(n, b, 64), torch.randn(n, b, 64))),
        "gradient of biases": (partial(torch.sum, dim=0), (torch.randn(n, b, 64),)),
        "cross-entropy": (cross_entropy, (torch.randn(n, b, 10), label)),
        "cross-entropy, gradient": (grad(cross_entropy), (torch.randn(n, b, 10), label)),
        "convolution 1-16, gradient of weights": (convolved, images(n, b, 1, 16)),
        "convolution 16-32, gradient of weights": (convolved, images(n, b, 16, 32)),
    }
    return {name: difference(each(f, *given), vmap(f)(*given)) for name, (f, given) in of.items()}


def each(f: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """An operation client by client, stacked."""
    return torch.stack([f(*own) for own in zip(*given, strict=True)])


def transposed(a: Tensor, b: Tensor) -> Tensor:
    return a.T @ b


def images(clients: int, batch: int, channels: int, made: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of a convolution of 5 x 5 over images of 8 x 8: what comes in, the weights, and the gradient of what goes out."""
    sizes = (clients, batch, channels, 8, 8), (clients, made, channels, 5, 5), (clients, batch, made, 8, 8)
    x, weights, slope = map(torch.randn, sizes)
    return x, weights, slope


def convolved(x: Tensor, weights: Tensor, slope: Tensor) -> Tensor:
    """The gradient of a convolution's weights."""
    found: Tensor = vjp(partial(conv2d, x, padding=2), weights)[1](slope)[0]
    return found


def products(clients: int = 16) -> list[str]:
    """For which shapes a stack of products of matrices has other bits than the products one by one, in lines."""
    made = [(m * k * p, m, unequal(clients, m, k, p)) for m, k, p in itertools.product(*SIDES)]
    few, lone = [bad for size, _, bad in made if size < FEW], [bad for size, m, bad in made if size >= FEW and m == 1]
    rest = [bad for size, m, bad in made if size >= FEW and m > 1]
    kinds = {f"fewer than {FEW} multiplications": few, "more, of one row": lone, "all others": rest}
    return [f"products of {kind}: {sum(found)} of {len(found)} shapes differ" for kind, found in kinds.items()]


def unequal(clients: int, m: int, k: int, p: int) -> bool:
    """Whether any product of (m, k) and (k, p) differs: as a layer computes it forward, and as its two gradients are."""
    forward = (torch.randn(clients, m, k), torch.randn(clients, p, k).mT)
    inputs = (torch.randn(clients, m, k), torch.randn(clients, k, p))
    weights = (torch.randn(clients, k, m).mT, torch.randn(clients, k, p))
    return any(difference(each(torch.matmul, *two), torch.bmm(*two)) > 0 for two in (forward, inputs, weights))


def shown(row: Row, rounds: int) -> list[str]:
    """A row in lines."""
    figures = {"s a round": row.seconds, "MB": row.memory_mb, "accuracy": row.accuracy}
    lines = table(
        (f"clients {row.clients}", *FORMS), [(name, *(round(each, 4) for each in of.values())) for name, of in figures.items()]
    )
    lines += [f"{row.times:.1f} times as fast; {100 * row.same_bits:g} % of the numbers have the same bits after one round"]
    lines += [f"largest difference: {row.difference[0]:.1e} after one round, {row.difference[1]:.1e} after {rounds}"]
    lines += [f"a client's bits {'do not ' * (not row.alone)}stay the same in a stack of half as many"]
    return [*lines, *(f"  {name}: {each:.1e}" for name, each in row.operations.items()), ""]


if __name__ == "__main__":
    sys.exit(main())
