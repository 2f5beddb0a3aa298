"""How much of the images is in what leaves a site: FADA's features (variant B) and its halves of gradients (variant A), inverted.

    python benchmarks/inversion.py --data DIR [--domain usps] [--batches 16,32] [--noises 0,0.5,1,2] [--out pictures.png]

An attacker has half of a domain's rows, the site the other half. The attacker also has G as the site uses it, which is more than
a coordinator ever has, the step that the site runs and all of its settings, and trains a network that undoes it on its own rows.
Messages are those that the method's steps give, no others. From a message of variant B each row is undone by itself; from one of
variant A the batch, in any order, by the best assignment of what is guessed to what there was. `error`: mean squared error of a
pixel, divided by that of the mean image. `blind`: the same of a network of the same kind that is shown zeros in place of the
message. The difference is what the message gives away.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideline.core.record import Nothing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from benchmarks.domains import Domain, read
from tideline import nets
from tideline.algorithms.fada import client, critic
from tideline.algorithms.fada.messages import Identifier, Identifiers, Mine
from tideline.algorithms.fada.settings import FADA
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.learning.fit import cross_entropy, fit
from tideline.nets.disentangling import identifier, numbers

SIDE = 28
SHOWN = 10  # images of a row of the picture
Lines = dict[str, Tensor]


@dataclass(frozen=True)
class Attack:
    """Messages (m, p) that an attacker made of its own rows, and images (m, B, pixels) that they are of; and the site's."""

    own: Tensor
    images: Tensor
    captured: Tensor
    truth: Tensor


def main() -> int:
    """A line a message."""
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    halves, world = split(read(args.data / args.set / f"{args.domain}.npz", args.set, SIDE), args.seed)
    G = taught(world, halves[0], args)
    pictures = []
    for name, size, attack in attacks(G, world, halves, args):
        row, seen = inverted(attack, args)
        sys.stdout.write(json.dumps({"message": name, "rows": size, "numbers": attack.own.shape[1], **row}) + "\n")
        sys.stdout.flush()
        pictures.append((f"{name}, {size} rows" if size > 1 else name, seen))
    if args.out:
        draw(pictures, args.out)
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--set", default="digits", help="folder of one set")
    parser.add_argument("--domain", default="usps", help="the site's domain")
    parser.add_argument("--batches", default="16,32", help="rows of a half of a gradient")
    parser.add_argument("--noises", default="0,0.5,1,2", help="noise on features, in units of the longest row that is sent")
    parser.add_argument("--clip", type=float, default=1.0, help="the longest row of features that is sent")
    parser.add_argument("--messages", type=int, default=4000, help="messages that an attacker learns from")
    parser.add_argument("--tried", type=int, default=100, help="captured messages that are undone")
    parser.add_argument("--epochs", type=int, default=30, help="epochs over them")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--quick", action="store_true", help="few messages, one epoch")
    parser.add_argument("--out", type=Path, help="a picture, PNG")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(messages=40, tried=4, epochs=1)
    return args


def split(domain: Domain, seed: int) -> tuple[tuple[Data, Data], World]:
    """The attacker's rows and the site's, in grey; and their world."""
    order = torch.randperm(len(domain.y), generator=torch.Generator().manual_seed(seed))
    grey = domain.x.mean(1, keepdim=True)
    parts = order.tensor_split(2)
    made = [Data(MemoryRows(grey[r]), domain.y[r], torch.zeros(len(r), dtype=torch.int64), ("d",)) for r in parts]
    return (made[0], made[1]), World(inputs=(1, SIDE, SIDE), classes=10, model="fada_small")


def taught(world: World, rows: Data, args: Any) -> dict[str, Tensor]:
    """A network that has learnt the classes."""
    net = nets.build(world)
    by = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    fit(net, rows, cross_entropy, by, epochs=1 if args.quick else 10, batch=32, rng=torch.Generator().manual_seed(args.seed))
    return nets.weights_of(net)


def attacks(G: dict[str, Tensor], world: World, halves: tuple[Data, Data], args: Any) -> Iterator[tuple[str, int, Attack]]:
    """Each kind of message, its rows, and what an attacker has to undo it by."""
    for noise in map(float, args.noises.split(",")):
        c = FADA(critic="features", noise=noise, clip=args.clip, batch=32)
        rows = args.messages, args.tried
        sides = [exposed(c, G, world, data, n) for data, n in zip(halves, rows, strict=True)]
        yield f"features, noise {noise:g}", 1, Attack(*sides[0], *sides[1])
    di = torch.cat([w.flatten() for w in identifier(numbers_of(world)[0]).parameters()]).detach()
    for size in map(int, args.batches.split(",")):
        c = FADA(identify_batch=size)
        sides = [halved(c, di, G, world, data, n) for data, n in zip(halves, (args.messages, args.tried), strict=True)]
        yield "half of a gradient", size, Attack(*sides[0], *sides[1])


def numbers_of(world: World) -> tuple[int, int]:
    """d, and p."""
    d = nets.width(world)
    return d, numbers(d)


def site(config: Any, world: World, data: Data, seed: int) -> Site:
    """A source with these rows."""
    return Site(config, world, ClientId("site"), Role.SOURCE, data, 1, torch.Generator().manual_seed(seed))


def memory(G: dict[str, Tensor]) -> Mine:
    """What it keeps."""
    none = torch.zeros(0, dtype=torch.int64)
    return Mine(G, {}, {}, {}, none, torch.zeros(0, 2), none, none, 0, none, {}, {})


def exposed(c: FADA, G: dict[str, Tensor], world: World, data: Data, n: int) -> tuple[Tensor, Tensor]:
    """n messages of variant B, row by row."""
    f, images = [], []
    for seed in range(-(-n // c.batch)):
        outcome = critic.expose.run(Nothing(), memory(G), site(c, world, data, seed))
        f.append(outcome.message.f)
        images.append(data.x.all()[outcome.memory.drawn].flatten(1).unsqueeze(1))
    return torch.cat(f), torch.cat(images)


def halved(c: FADA, di: Tensor, G: dict[str, Tensor], world: World, data: Data, n: int) -> tuple[Tensor, Tensor]:
    """n messages of variant A. Which rows they are of follows from the seed, as the step draws them."""
    g, images = [], []
    for seed in range(n):
        outcome = client.identify.run(Identifiers({"target": Identifier(di)}), memory(G), site(c, world, data, seed))
        g.append(outcome.message.halves["target"].g)
        rows = client.drawn(site(c, world, data, seed), c.identify_batch)
        images.append(data.x.all()[rows].flatten(1))
    return torch.stack(g), torch.stack(images)


def inverted(attack: Attack, args: Any) -> tuple[dict[str, float], Lines]:
    """Errors of a network that was shown messages, and of one that was not; images, and what each made of them."""
    mean, spread = attack.own.mean(0), attack.own.std(0).clamp_min(1e-8)
    own, captured = (attack.own - mean) / spread, (attack.captured - mean) / spread
    guess = learnt(own, attack.images, args)(captured).view_as(attack.truth)
    blind = learnt(0 * own, attack.images, args)(0 * captured).view_as(attack.truth)
    flat = attack.images.flatten(0, 1).mean(0).expand_as(attack.truth)
    base = float(((flat - attack.truth) ** 2).mean())
    errors = {"error": error(guess, attack.truth) / base, "blind": error(blind, attack.truth) / base}
    seen = {"what there was": attack.truth, "undone": guess, "shown nothing": blind}
    return {name: round(value, 3) for name, value in errors.items()}, {word: line(x, attack.truth) for word, x in seen.items()}


def line(guess: Tensor, truth: Tensor) -> Tensor:
    """Some images (s, pixels): of messages of one row each the first ones; else of the first batch, each where it fits best."""
    return (guess[:, 0] if truth.shape[1] == 1 else paired(guess[:1], truth[:1])[0])[:SHOWN]


def learnt(messages: Tensor, images: Tensor, args: Any) -> Callable[[Tensor], Tensor]:
    """A network from a message to its images, in any order: of all epochs the one that is best on an eighth set apart."""
    B, pixels = images.shape[1:]
    net = nn.Sequential(
        *(nn.Linear(messages.shape[1], 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
        *(nn.Linear(512, B * pixels), nn.Sigmoid(), nn.Unflatten(1, (B, pixels))),
    )
    by = torch.optim.Adam(net.parameters(), lr=1e-3)
    tested, rest = torch.arange(len(messages)).split([len(messages) // 8, len(messages) - len(messages) // 8])
    best, best_net = float("inf"), copy.deepcopy(net)
    for _ in range(args.epochs):
        for rows in rest[torch.randperm(len(rest))].split(32):
            guess = net(messages[rows])
            loss = ((guess - paired(images[rows], guess.detach())) ** 2).mean()
            by.zero_grad()
            loss.backward()
            by.step()
        if (now := error(net(messages[tested]).detach(), images[tested])) < best:
            best, best_net = now, copy.deepcopy(net)
    return lambda captured: best_net(captured).detach()


def paired(images: Tensor, guess: Tensor) -> Tensor:
    """images (m, B, pixels) in the order in which each batch fits best what was guessed of it."""
    if images.shape[1] == 1:
        return images
    costs = torch.cdist(guess, images).square().numpy()
    return torch.stack([batch[linear_sum_assignment(cost)[1]] for batch, cost in zip(images, costs, strict=True)])


def error(guess: Tensor, truth: Tensor) -> float:
    """Mean squared error of a pixel, by the best assignment."""
    return float(((paired(guess, truth) - truth) ** 2).mean())


def draw(pictures: list[tuple[str, Lines]], out: Path) -> None:
    """Lines of images for each kind of message: what there was, what was made of the message, and what of nothing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SHOWN * 0.5, 2.1 * len(pictures)), dpi=100, layout="constrained")
    grid: Any = figure.subplots(3 * len(pictures), SHOWN, squeeze=False)
    for place, (name, lines) in enumerate(pictures):
        for below, (word, images) in enumerate(lines.items()):
            cells = grid[3 * place + below]
            cells[0].set_title(word if below else f"{name}: {word}", fontsize=7, loc="left").set_in_layout(False)
            for cell, image in zip(cells, images, strict=False):
                cell.imshow(image.view(SIDE, SIDE).numpy(), cmap="gray", vmin=0, vmax=1)
            for cell in cells:
                cell.axis("off")
    figure.savefig(out)


if __name__ == "__main__":
    sys.exit(main())
