"""The rules that a plan is compared with (section V): other sources, other weights, from the same models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tideline.numerics.links import baselines
from tideline.numerics.links.baselines import between
from tideline.numerics.links.bounds import Floats
from tideline.numerics.links.link_problem import Plan, Problem


@dataclass(frozen=True, eq=False)
class Beside:
    """What rules look at beside the problem: counts (N,) of rows, attention (N, N) of each source in each target's model."""

    count: Floats
    attention: Floats


Rule = Callable[[Problem, Plan, np.random.Generator, Beside], Plan]


def attention_of(given: Mapping[str, Mapping[str, float]], names: tuple[str, ...]) -> Floats:
    """(N, N) from what was given by target and source; 0 where nothing was."""
    return np.array([[given.get(target, {}).get(source, 0.0) for target in names] for source in names], np.float64)


def by_count(of: Problem, given: Plan, rng: np.random.Generator, beside: Beside) -> Plan:
    """FedAvg's weights."""
    return baselines.count_weights(of, given, beside.count)


def by_attention(of: Problem, given: Plan, rng: np.random.Generator, beside: Beside) -> Plan:
    """Weights that were given; of a target to whose sources none was given, equal ones."""
    kept = np.where(between(of, given), beside.attention, 0)
    return baselines.weighted(of, given, np.where(kept.sum(0) > 0, kept, 1))


def drawn(draw: Callable[[Problem, Plan, np.random.Generator], Plan]) -> Rule:
    """A rule that looks at nothing beside."""
    return lambda of, given, rng, beside: draw(of, given, rng)


def thinned(then: Rule, of: Problem, given: Plan, rng: np.random.Generator, beside: Beside) -> Plan:
    """Each source stays one with probability 0.75; weights by another rule."""
    return then(of, baselines.thinned(of, given, rng), rng, beside)


BY_RULE: Mapping[str, Rule] = {
    "random_alpha": drawn(baselines.random_weights),
    "fedavg_alpha": by_count,
    "attention_alpha": by_attention,
    "average_degree": drawn(baselines.random_degree),
    "single_matching": drawn(baselines.one_each),
    "random_psi": partial(thinned, drawn(baselines.random_weights)),
    "fedavg_psi": partial(thinned, by_count),
    "attention_psi": partial(thinned, by_attention),
}
