"""What privacy costs in accuracy: each domain of a set once the unlabelled target, all others labelled sources, by epsilon.

    python benchmarks/private_accuracy.py --data DIR --set office_lite0 [--targets a,b] [--seeds 3] [--out F]
    python benchmarks/private_accuracy.py --data DIR --methods fedavg,fedavg_quantile --epsilon 4 --clip 0.1,1,10
    python benchmarks/private_accuracy.py --table rows.jsonl

DIR holds one folder a set, each with one .npz file a domain (x, y, train_idx, test_idx). `fedavg` trains a linear layer on
vectors and LeNet on images, `fedavg_quantile` does so with a clip that follows the median of gradients, from where it is;
`gaussian_heads` is solved from sums on random directions. `self_training` trains that layer on a target's own labels, too. `shot`
adapts an `mlp` at the target alone, of which nothing leaves. Epsilon is that of the whole run for each row of a site, at delta
1e-5. A row: the accuracy in percent of the final model on the target's rows, and `before` it was adapted there; counted here, as
the run's own scoring would cost epsilon. Small targets are scored on all of their rows. --out goes on with what is there.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.domains import each_target, played_with, world_of
from benchmarks.lines import Row, show, there
from tideline import nets
from tideline.algorithms import METHODS as REGISTERED
from tideline.algorithms.averaging.messages import Model
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import resolve
from tideline.core.asked.normalise import NO_SCALING
from tideline.core.asked.world import World
from tideline.core.record import Weights
from tideline.core.run import ClientId, RunId
from tideline.core.settings import plain
from tideline.engine.simulation.federation import Federation
from tideline.learning.around.clipping import CLIP
from tideline.learning.formats.holdings import Holdings

NONE = "none"
SCORE_NOISE = 1000.0  # of the run's own scoring, which is not looked at, and costs next to nothing


class Setting(NamedTuple):
    """A method's settings on a set; clip, rate and the rest of privacy beside them."""

    config: Mapping[str, Any]
    privacy: Mapping[str, Any]
    model: str = ""


# Rounds, rates and clips were chosen on one target of each set at epsilon 4: webcam, photo and optdigits.
ROWS = {"office_lite0": 500, "pacs32_lite0": 1800, "digits": 1800}
FEDAVG = {
    "office_lite0": Setting({"rounds": 10, "rate": 0.3}, {"clip": 1.0, "rate": 0.2}),
    "pacs32_lite0": Setting({"rounds": 10, "rate": 0.3}, {"clip": 1.0, "rate": 0.1}),
    "digits": Setting({"rounds": 10, "rate": 0.1}, {"clip": 1.0, "rate": 0.05}),
}
HEADS = {
    "office_lite0": Setting({"project": 64, "shrinkage": 0.9}, {"clip": 30.0}),
    "pacs32_lite0": Setting({"project": 128, "shrinkage": 0.9}, {"clip": 30.0}),
    "digits": Setting({"project": 128, "shrinkage": 0.9}, {"clip": 15.0}, "linear"),
}
LABELLED = {"rounds": 5, "times": 5, "rounds_between": 4, "rate": 0.2, "threshold": 0.8}
SELF_TRAINING = {
    "office_lite0": Setting(LABELLED, {"clip": 1.0, "rate": 0.2}),
    "pacs32_lite0": Setting(LABELLED, {"clip": 1.0, "rate": 0.1}),
}
ALONE = {"rounds": 3, "epochs": 3, "rate": 0.003, "source_rounds": 10, "source_epochs": 1, "source_rate": 0.1, "score_own": False}
SHOT = {
    "office_lite0": Setting(ALONE, {"clip": 1.0, "rate": 0.2}, "mlp"),
    "pacs32_lite0": Setting(ALONE, {"clip": 1.0, "rate": 0.1}, "mlp"),
}
# What is otherwise without privacy.
PLAIN = {
    "fedavg": {"rate": 0.01},
    "gaussian_heads": {"project": 0, "shrinkage": 0.2},
    "self_training": {"rate": 0.01},
    "shot": {"source_rate": 0.02},
}
MEDIAN = {"quantile": 0.5}
QUANTILE = {chosen: Setting(each.config, {**each.privacy, **MEDIAN}) for chosen, each in FEDAVG.items()}
METHODS = {
    "fedavg": FEDAVG,
    "fedavg_quantile": QUANTILE,
    "gaussian_heads": HEADS,
    "self_training": SELF_TRAINING,
    "shot": SHOT,
}
OWN = {"fedavg_quantile": "fedavg"}  # the method behind a name


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)
    show(args, rows, table)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the sets")
    parser.add_argument("--set", default="office_lite0", choices=sorted(ROWS), help="folder of a set")
    parser.add_argument("--domains", default="", help="only these domains, by commas")
    parser.add_argument("--targets", default="", help="only these targets, by commas")
    parser.add_argument("--methods", default="fedavg,gaussian_heads", help="which methods, by commas")
    parser.add_argument("--epsilon", default="1,2,4,8,none", help="which, by commas")
    parser.add_argument("--clip", default="", help="other clips than were chosen, by commas")
    parser.add_argument("--rows", type=int, default=1800, help="images that a site has")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--table", type=Path, help="run nothing: a table of such lines, from a file")
    return parser.parse_args()


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """What is not there yet."""
    keys = ("set", "target", "method", "epsilon", "seed", *(["clip"] if args.clip else []))
    known = there(args.out, keys)
    clips = [{"clip": clip} for clip in args.clip.split(",")] if args.clip else [{}]
    methods = [each for each in args.methods.split(",") if args.set in METHODS[each]]
    asked = itertools.product(methods, args.epsilon.split(","), range(args.seeds), clips)
    for (at, sites), (method, epsilon, seed, clip) in itertools.product(each_target(args), asked):
        row = {"set": args.set, "target": at, "method": method, "epsilon": epsilon, "seed": seed, **clip}
        if tuple(row.values()) not in known:
            yield {**row, **measured(args.set, sites, at, method, epsilon, seed, clip)}


def measured(
    chosen: str, sites: Mapping[str, Holdings], at: str, name: str, epsilon: str, seed: int, clip: Mapping[str, str]
) -> Row:
    """One run, and the accuracy of its model on the target's rows; and its last clip, where that follows a quantile."""
    method = OWN.get(name, name)
    chosen_for, world = METHODS[name][chosen], replace(world_of(sites, at), normalise=NO_SCALING)
    world = replace(world, model=chosen_for.model or world.model)
    config, more = dict(chosen_for.config), dict[str, Any]()
    if epsilon == NONE:
        config |= PLAIN[method]
    else:
        privacy = {"rows": ROWS[chosen], "epsilon": float(epsilon), "score_noise": SCORE_NOISE, **chosen_for.privacy}
        privacy |= {key: float(value) for key, value in clip.items()}
        more = {"privacy": privacy}
    if "rounds" in config:
        config["evaluate_every"] = config["rounds"] + config.get("times", 0) * config.get("rounds_between", 0)
    roster = {site: "target" if site == at else "source" for site in sites}
    begun = time.perf_counter()
    federation, run, _ = played_with(sites, roster, method, config, seed, plain(world), more=more)
    if name in OWN and epsilon != NONE:
        state = decode(CLIP.of(Model), federation.journal.rounds(RunId(run))[-1].state[0][0], federation.parts, LAX)
        found = {"accuracy": right(state.model, world, sites[at]), "clip_ended": round(CLIP.found(state) or 0.0, 4)}
    else:
        found = {"accuracy": right(model_of(federation, RunId(run), method, config, world, at), world, sites[at])}
    if method == "shot":
        state = final_state(federation, RunId(run), method)
        found["before"] = right({**state.f, **state.g}, world, sites[at])
    return found | {"seconds": round(time.perf_counter() - begun, 1)}


def right(model: Weights, world: World, own: Holdings) -> float:
    """The percentage of a site's held-out rows that a model is right about."""
    held, net = own.held_out, nets.loaded(world, model).eval()
    assert held.y is not None
    with torch.no_grad():
        return 100 * float((net(held.x.all()).argmax(1) == held.y).float().mean())


def final_state(federation: Federation, run: RunId, method: str) -> Any:
    """What the coordinator knows in the end."""
    return decode(resolve(REGISTERED, method).state, federation.journal.rounds(run)[-1].state[0][0], federation.parts, LAX)


def model_of(federation: Federation, run: RunId, method: str, config: Mapping[str, Any], world: World, at: str) -> Weights:
    """The model that the run ends in: of all sites, or where these have their own, of the target."""
    algorithm = resolve(REGISTERED, method)
    if algorithm.run_model is not None:
        return algorithm.run_model.of(algorithm.configure(config), world, final_state(federation, run, method))
    vault, own = federation.agents[ClientId(at)].vault, algorithm.site_models
    head = vault.head(run)
    assert head is not None and own is not None and own.of is not None, "the target keeps its model"
    return own.of(algorithm.configure(config), world, decode(algorithm.memory, head.memory[0][0], vault.parts(run), LAX))


def table(found: Sequence[Row]) -> str:
    """A line a set, method and clip, a cell an epsilon: the mean over targets and seeds, and the spread of seeds."""
    columns = sorted({row["epsilon"] for row in found}, key=lambda each: float("inf") if each == NONE else float(each))
    lines = [["set", "method", *columns], ["---"] * (len(columns) + 2)]
    for chosen, method, clip in sorted({named(row) for row in found}):
        own = [row for row in found if named(row) == (chosen, method, clip)]
        of_clip = f"{method}{f', clip {clip}' if clip else ''}"
        lines += [
            [chosen, said, *(cell([row for row in own if row["epsilon"] == each], what) for each in columns)]
            for what, said in (("accuracy", of_clip), ("before", f"{of_clip}, before"))
            if what == "accuracy" or any(what in row for row in own)
        ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def named(row: Row) -> tuple[str, str, str]:
    return row["set"], row["method"], row.get("clip", "")


def cell(own: Sequence[Row], what: str) -> str:
    """Mean over targets and seeds, and the standard deviation over seeds of the mean over targets."""
    by_seed = [mean(row[what] for row in own if row["seed"] == seed) for seed in sorted({row["seed"] for row in own})]
    return "-" if not own else f"{mean(by_seed):.1f}" + (f" ± {stdev(by_seed):.1f}" if len(by_seed) > 1 else "")


if __name__ == "__main__":
    sys.exit(main())
