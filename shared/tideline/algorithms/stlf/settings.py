"""Settings of ST-LF: symbols and defaults as in the paper and its authors' code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.core.run import EMPTY
from tideline.core.settings import Plain, setting
from tideline.learning.optimisers import OPTIMISERS

GIVEN = ("attention_alpha", "attention_psi")  # rules whose weights the experiment gives
RULES = ("random_alpha", "fedavg_alpha", GIVEN[0], "average_degree", "single_matching", "random_psi", "fedavg_psi", GIVEN[1])


@dataclass(frozen=True)
class STLF:
    """Training, divergences, the optimisation problem (P), and what links cost."""

    rounds: int = setting(4, low=0, high=100_000, doc="rounds of federated averaging among labelled devices first; 0: none")
    epochs: int = setting(10, low=1, doc="local epochs of such a round")
    alone: int = setting(80, low=0, doc="epochs that each labelled device then trains alone")
    batch: int = setting(10, low=1, doc="rows in a mini-batch")
    rate: float = setting(1e-2, low=0.0, doc="learning rate, also of the classifiers that tell devices apart")
    momentum: float = setting(0.0, low=0.0, high=1.0, doc="momentum of the SGD; fresh each round")
    weight_decay: float = setting(0.0, low=0.0, doc="weight decay of training")
    optimiser: str = setting("sgd", choices=OPTIMISERS, doc="of local training; adam has no use for momentum")
    validation: float = setting(0.1, low=0.0, high=0.9, doc="share of labelled training rows that only measure the error")
    divergence: str = setting(
        "pairs", choices=("pairs", "shared", "statistics"), doc="classifiers of pairs (algorithm 1), one for all, or moments"
    )
    exchanges: int = setting(50, low=1, high=10_000, doc="exchanges of a pair's classifier, T_div")
    share: float = setting(0.36, low=0.001, high=1.0, doc="share of its rows that a device trains a classifier on, each exchange")
    blocks: int = setting(1, low=1, high=1000, doc="parts that the tournament of pairs is played in; more: fewer pairs at a time")
    calibrated: bool = setting(
        True, doc="d at the threshold that tells a pair's rows best apart; false: as the classifier says, as in the paper"
    )
    one_sided: bool = setting(False, doc="d = max(0, 2 (1 - 2 err)) in place of 2 |1 - 2 err|")
    divergence_scale: float = setting(100.0, choices=(1.0, 100.0), doc="scale of d / 2 in T: 1 in theory, 100 as published")
    complexity: str = setting(
        "published", choices=("natural", "published", "early"), doc="Rademacher bound: 1.177, 0.776, or of the count"
    )
    delta: float = setting(1e-3, low=1e-12, high=0.999, doc="failure probability of each bound, delta")
    phi_source: float = setting(1.0, low=0.0, doc="weight of sources' errors, phi_S")
    phi_target: float = setting(0.5, low=0.0, doc="weight of targets' errors, phi_T")
    phi_energy: float = setting(1.0, low=0.0, doc="weight of energy, phi_E")
    energy_mode: str = setting("ratio", choices=("ratio", "linear"), doc="K a / (a + eps_E), or K a")
    solver: str = setting("exact", choices=("exact", "sca"), doc="facility location, or successive approximation (algorithm 2)")
    weights: str = setting(
        "single", choices=("single", "power", "solver"), doc="each target's cheapest source, T^-n over all, or as the solver left"
    )
    exponent: float = setting(1.0, low=0.0, high=1000.0, doc="n of power")
    bits: float = setting(1e9, low=0.0, doc="size of a model in bits, M; 0: that of the network")
    watts: Mapping[str, float] = setting(
        EMPTY, low=0.0, doc="transmit power of sites, P; drawn from [0.20, 0.32] where not given"
    )
    rates: Mapping[str, Mapping[str, float]] = setting(
        EMPTY, low=0.0, doc="bit/s from one site to another, R; 0: no link; drawn from [63e6, 85e6] where not given"
    )
    measured: bool = setting(
        False, doc="rates as the transfers of classifiers between the sites were: not the same in any two runs"
    )
    sweep: tuple[float, ...] = setting((), low=0.0, doc="further phi_E to solve for, so that the report shows what links cost")
    compare: tuple[str, ...] = setting((), choices=None, doc=f"rules to compare with in the same run: {', '.join(RULES)}")
    attention: Mapping[str, Mapping[str, float]] = setting(
        EMPTY, low=0.0, doc="for rules by attention: of each target the weights of its sources, as another method told them"
    )


PUBLISHED: Mapping[str, Plain] = {}
EARLY: Mapping[str, Plain] = {"divergence_scale": 1.0, "complexity": "early", "phi_target": 50.0}
THEORY: Mapping[str, Plain] = {"divergence_scale": 1.0, "complexity": "natural"}
DEMO: Mapping[str, Plain] = {"rounds": 2, "epochs": 2, "alone": 4, "batch": 32, "rate": 0.05, "momentum": 0.9, "exchanges": 4}
TINY: Mapping[str, Plain] = {"rounds": 1, "epochs": 1, "alone": 1, "batch": 16, "rate": 0.05, "exchanges": 2}
PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": DEMO,
    "early": EARLY,
    "published": PUBLISHED,
    "theory": THEORY,
    "tiny": TINY,
}
