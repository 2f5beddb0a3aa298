"""ST-LF's links formed again from what runs have kept: other constants, weights and divergences with the same models.

    python benchmarks/stlf.py --data DIR --keep kept --out rows.jsonl
    python benchmarks/stlf.py --data DIR --keep pairs --rounds 0 --alone 0 --divergence pairs --exchanges 50
    python benchmarks/stlf_ablation.py --data DIR --kept kept [--divergences pairs,shared] [--draws 10]

Nothing is trained. The first table forms links by other settings, and by what nobody knows: `truth`, each target's nearest source
by the true distance, half the sum of |p_i - p_j| over domains and classes; `best`, its best source by hidden labels; `one at
random`, the mean over its sources. Random rules are means of several draws. The second table compares divergences, those of
the runs and of other folders with the same cases and seeds: their rank correlation with the true distance over all pairs and, by
target, with the error of sources' models; ST-LF's accuracy with them, and megabytes over the network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from scipy.stats import spearmanr  # type: ignore[import-untyped]

from benchmarks.digit_devices import CASES, Network, network
from benchmarks.links_saved import SavedLinks, load_links
from tideline import nets
from tideline.learning.evaluate import outputs
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.links import baselines, link_problem
from tideline.numerics.links.link_problem import Plan, Problem
from tideline.numerics.links.signomial import sca

EARLY: Mapping[str, Any] = {"scale": 1.0, "complexity": "early", "target": 50.0}
THEORY: Mapping[str, Any] = {"scale": 1.0, "complexity": "natural"}
Array = np.ndarray[Any, Any]
DOMAINS = sorted({name for _, names in CASES.values() for name in names})
Form = Callable[["Replay"], Sequence[Plan]]


@dataclass
class Replay:
    """A run's devices with their rows, and the accuracy of each mixture of models that was asked for."""

    run: SavedLinks
    made: Network
    draws: int
    known: dict[tuple[int, bytes], float] = field(default_factory=dict)

    def accuracy(self, plan: Plan) -> float:
        """The mean over targets, in percent."""
        return float(np.mean([self.at(j, plan.alpha[:, j]) for j in targets(plan)]))

    def at(self, j: int, alpha: Array) -> float:
        """The accuracy of the weighted mean of sources' models at a device."""
        key = j, alpha.tobytes()
        if key not in self.known:
            rows = self.made.sites[self.run.names[j]].held_out
            model = weighted_sum((float(alpha[i]), self.run.h[i]) for i in np.flatnonzero(alpha > 0).tolist())
            assert rows.y is not None
            guess = outputs(nets.loaded(self.made.world, model), rows.x, "cpu").argmax(1)
            self.known[key] = 100 * float(guess.eq(rows.y).double().mean())
        return self.known[key]

    def of(self, **constants: Any) -> Problem:
        """(P) by these constants."""
        return self.run.problem(**constants)

    @cached_property
    def ours(self) -> Plan:
        """The method's own plan."""
        return link_problem.exact(self.of())

    @cached_property
    def truth(self) -> Array:
        """Half the sum of |p_i - p_j| over domains and classes, (N, N) in [0, 1]."""
        shares = np.array([self.shares(name) for name in self.run.names])
        distance: Array = np.abs(shares[:, None] - shares[None]).sum(2) / 2
        return distance

    def shares(self, name: str) -> Array:
        """How a device's labelled rows are spread over domains and classes."""
        own, counts = self.made.sites[name], np.zeros((len(DOMAINS), 10))
        for side in (own.train, own.held_out):
            if side.y is not None:
                for k, y in zip(side.domain.tolist(), side.y.tolist(), strict=True):
                    counts[DOMAINS.index(side.domains[k]), y] += 1
        p: Array = counts.flatten() / counts.sum()
        return p

    @cached_property
    def single(self) -> Array:
        """The accuracy of each source's model at each target, (N, N); NaN where there is none."""
        found = np.full_like(self.run.d, np.nan)
        for i in sources(self.ours):
            for j in targets(self.ours):
                found[i, j] = self.at(j, np.eye(len(found))[i])
        return found

    def one_each(self, cost: Array) -> Plan:
        """Each target's source of least cost (N, N)."""
        alpha = np.zeros_like(cost)
        for j in targets(self.ours):
            alpha[np.nanargmin(np.where(self.ours.psi == 0, cost[:, j], np.nan)), j] = 1
        return link_problem.plan(self.of(), self.ours.psi, alpha)


def sources(plan: Plan) -> list[int]:
    """The devices that are sources."""
    return [int(i) for i in np.flatnonzero(plan.psi == 0)]


def targets(plan: Plan) -> list[int]:
    """The devices that are targets."""
    return [int(j) for j in np.flatnonzero(plan.psi == 1)]


def drawn(rule: Callable[[Problem, Plan, np.random.Generator], Plan]) -> Form:
    """Several draws of a rule."""
    return lambda r: [rule(r.of(), r.ours, np.random.default_rng(i)) for i in range(r.draws)]


def matched(of: Problem, given: Plan, rng: np.random.Generator) -> Plan:
    """One source a target without a look at the plan's own choices."""
    return baselines.one_each(of, baselines.random_weights(of, given, rng), rng)


def all_but(i: int, n: int) -> Array:
    """A cost (n, n) that is zero from one source alone."""
    cost: Array = np.ones((n, n)) - np.eye(n)[i][:, None]
    return cost


FORMS: Mapping[str, Form] = {
    "ST-LF": lambda r: [r.ours],
    "weights T^-1": lambda r: [link_problem.power(r.of(), r.ours.psi, 1.0)],
    "weights T^-5": lambda r: [link_problem.power(r.of(), r.ours.psi, 5.0)],
    "weights T^-20": lambda r: [link_problem.power(r.of(), r.ours.psi, 20.0)],
    "solver: sca, as it left weights": lambda r: [sca(r.of())],
    "phi_E 0.01": lambda r: [link_problem.exact(r.of(energy=0.01))],
    "phi_E 100": lambda r: [link_problem.exact(r.of(energy=100.0))],
    "preset early": lambda r: [link_problem.exact(r.of(**EARLY))],
    "preset theory": lambda r: [link_problem.exact(r.of(**THEORY))],
    "theory, phi_E 0.01": lambda r: [link_problem.exact(r.of(**THEORY, energy=0.01))],
    "truth": lambda r: [r.one_each(r.truth)],
    "best": lambda r: [r.one_each(-r.single)],
    "one at random": lambda r: [r.one_each(all_but(i, len(r.run.d))) for i in sources(r.ours)],
    "SM": drawn(matched),
    "Rnd-α": drawn(baselines.random_weights),
    "AvgD": drawn(baselines.random_degree),
    "FedAvg": lambda r: [baselines.count_weights(r.of(), r.ours, r.run.count)],
    "Rnd-ψ": drawn(lambda p, g, rng: baselines.random_weights(p, baselines.thinned(p, g, rng), rng)),
}


def main() -> int:
    """Both tables."""
    args = arguments()
    torch.set_num_threads(1)
    replays = dict(replayed(args))
    sys.stdout.write(forms(replays) + "\n" + divergences(replays, args))
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the sets")
    parser.add_argument("--kept", type=Path, required=True, help="what runs have kept")
    parser.add_argument("--divergences", default="", help="folders of other divergences, by commas")
    parser.add_argument("--draws", type=int, default=10, help="draws of random rules")
    return parser.parse_args()


def replayed(args: Any) -> Iterator[tuple[str, Replay]]:
    """Every run that was kept, by the name of its file."""
    for path in sorted(args.kept.glob("*.safetensors")):
        run = load_links(path)
        with tempfile.TemporaryDirectory() as room:
            made = network(run.said["case"], run.said["seed"], run.said["scale"], args.data, Path(room))
        yield path.name, Replay(run, made, args.draws)


def forms(replays: Mapping[str, Replay]) -> str:
    """A line a way to form links: accuracy by case and in the mean, energy in percent of all links, links."""
    cases = [case for case in CASES if any(r.run.said["case"] == case for r in replays.values())]
    lines = [f"| links | {' | '.join(cases)} | mean | energy | links |\n|{' --- |' * (4 + len(cases))}\n"]
    for name, form in FORMS.items():
        found = {key: form(r) for key, r in replays.items()}
        score = {key: np.mean([replays[key].accuracy(plan) for plan in plans]) for key, plans in found.items()}
        by_case = [np.mean([v for key, v in score.items() if replays[key].run.said["case"] == case]) for case in cases]
        spent = np.mean([plan.energy / every(replays[key]) for key, plans in found.items() for plan in plans])
        number = np.mean([plan.links for plans in found.values() for plan in plans])
        report = " | ".join(f"{v:.1f}" for v in (*by_case, np.mean(list(score.values()))))
        lines.append(f"| {name} | {report} | {100 * spent:.0f} % | {number:.1f} |\n")
    return "".join(lines)


def every(r: Replay) -> float:
    """The energy of all links from sources to targets."""
    return baselines.count_weights(r.of(), r.ours, r.run.count).energy


def divergences(replays: Mapping[str, Replay], args: Any) -> str:
    """A line a way to measure divergences and a case."""
    lines = [f"| divergence | data | runs | and distance | and error | ST-LF | FedAvg | MB |\n|{' --- |' * 8}\n"]
    for folder in (args.kept, *(Path(each) for each in args.divergences.split(",") if each)):
        there = {path.name: load_links(path) for path in sorted(folder.glob("*.safetensors")) if path.name in replays}
        for case in CASES:
            own = {name: run for name, run in there.items() if run.said["case"] == case}
            if own:
                head = f"| {words(next(iter(own.values())))} | {case} | {len(own)} |"
                lines.append(f"{head} {' | '.join(judged(own, replays))} |\n")
    return "".join(lines)


def words(run: SavedLinks) -> str:
    """A divergence's name."""
    kind = run.said["divergence"]
    return kind if kind == "statistics" else f"{kind}, {run.said['exchanges']} exchanges"


def judged(runs: Mapping[str, SavedLinks], replays: Mapping[str, Replay]) -> list[str]:
    """Rank correlations, the accuracy that comes of it beside FedAvg's, megabytes: means over runs."""
    values = []
    for name, run in runs.items():
        r = replays[name]
        assert run.names == r.run.names
        pairs, own = np.triu_indices(len(run.names), 1), sources(r.ours)
        near = ranked(run.d[pairs], r.truth[pairs])
        errors = np.nanmean([ranked(run.d[own, j], -r.single[own, j]) for j in targets(r.ours)])
        plan = link_problem.exact(r.of(d=run.d))
        fedavg = baselines.count_weights(r.of(), r.ours, r.run.count)
        values.append((near, errors, r.accuracy(plan), r.accuracy(fedavg), run.said.get("divergence_mb", np.nan)))
    near, errors, ours, theirs, mb = np.nanmean(np.array(values), 0)
    return [f"{near:.2f}", f"{errors:.2f}", f"{ours:.1f}", f"{theirs:.1f}", f"{mb:.2f}"]


def ranked(a: Array, b: Array) -> float:
    """Spearman's rank correlation; 0 where one of them is constant."""
    return 0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else float(spearmanr(a, b).statistic)


if __name__ == "__main__":
    sys.exit(main())
