"""Settings of ST-LF, symbols and defaults as in the paper and its authors' code; and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.run import Role, Roster, described
from tideline.core.settings import BATCH, EMPTY, EPOCHS, RATE, ROUNDS, Plain, nearest, pull, setting
from tideline.learning.local_training import LocalTraining

GIVEN = ("attention_alpha", "attention_psi")  # rules whose weights the experiment gives
RULES = ("random_alpha", "fedavg_alpha", GIVEN[0], "average_degree", "single_matching", "random_psi", "fedavg_psi", GIVEN[1])


@dataclass(frozen=True)
class STLF(LocalTraining):
    """Training, divergences, the optimisation problem (P), and what links cost."""

    rounds: int = setting(
        4, low=0, high=100_000, sizes=ROUNDS, doc="rounds of federated averaging among labelled devices first; 0: none"
    )
    epochs: int = setting(10, low=1, sizes=EPOCHS, doc="local epochs of such a round")
    alone: int = setting(80, low=0, sizes=EPOCHS, doc="epochs that each labelled device then trains alone")
    batch: int = setting(10, low=1, sizes=BATCH, doc="rows in a mini-batch")
    rate: float = setting(1e-2, low=0.0, sizes=RATE, doc="learning rate, also of the classifiers that tell devices apart")
    momentum: float = setting(0.0, low=0.0, high=1.0, doc="momentum of the SGD; fresh each round")
    weight_decay: float = setting(0.0, low=0.0, sizes=pull("rate"), doc="weight decay of training")
    validation: float = setting(0.1, low=0.0, high=0.9, doc="share of labelled training rows that only measure the error")
    divergence: str = setting(
        "pairs", choices=("pairs", "shared", "statistics"), doc="classifiers of pairs (algorithm 1), one for all, or moments"
    )
    exchanges: int = setting(50, low=1, high=10_000, sizes=ROUNDS, doc="exchanges of a pair's classifier, T_div")
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


ALONE = 20  # epochs of the demonstration
SHORT: Mapping[str, Plain] = {"rounds": 0, "epochs": 1, "alone": ALONE, "batch": 32, "rate": 0.02, "momentum": 0.9}
PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": {**SHORT, "divergence": "statistics"},
    "early": {"divergence_scale": 1.0, "complexity": "early", "phi_target": 50.0},
    "published": {},
    "theory": {"divergence_scale": 1.0, "complexity": "natural"},
    "tiny": {"rounds": 1, "epochs": 1, "alone": 1, "batch": 16, "rate": 0.05, "exchanges": 2},
}


def fits(config: STLF, world: World, roster: Roster) -> None:
    """Raises ConfigRefused for powers, rates and rules that mean nothing, RosterRefused where nobody can teach or be reached."""
    nets.check(world)
    check_rules(config.compare)
    if config.measured and config.divergence != "pairs":
        what = f"config.measured is true, but with divergence: {config.divergence} nothing is sent from site to site"
        raise ConfigRefused(what, "Use divergence: pairs, or give rates", path="config.measured")
    check_attention(config)
    if config.batch == 1 and config.divergence != "statistics":
        refuse("config.batch", "1; classifiers that tell devices apart are trained on two rows and more", "Use a larger batch")
    names = [str(member.id) for member in roster]
    for path, name in named(config):
        if name not in names:
            what = f"a mapping with {name!r}, which is not on the roster"
            refuse(path, what, f"Name sites of the roster{nearest(name, names)}")
    for name, watts in config.watts.items():
        if watts <= 0:
            what = f"{watts:g} W; a device sends with a power above 0"
            refuse(f"config.watts.{name}", what, "Write its transmit power in watts")
    if len(roster) < 2:
        what = f"A link wants two devices; the roster has {len(roster)}"
        raise RosterRefused(what, "Add a device", path="roster")
    check_reached(config.rates, roster)


def check_rules(rules: Sequence[str]) -> None:
    """Raises ConfigRefused for a rule that there is not, or twice."""
    for rule in rules:
        if rule not in RULES:
            todo = f"Use some of: {', '.join(RULES)}{nearest(rule, RULES)}"
            raise ConfigRefused(f"config.compare names the rule {rule!r}, which there is not", todo, path="config.compare")
    if len(set(rules)) < len(rules):
        raise ConfigRefused("config.compare names a rule twice", "Name each once", path="config.compare")


def check_attention(config: STLF) -> None:
    """Raises ConfigRefused where weights are wanted and not given, or given and not wanted."""
    wanted = [rule for rule in config.compare if rule in GIVEN]
    if wanted and not config.attention:
        todo = "Give config.attention: of each target the weights of its sources, as another method told them"
        raise ConfigRefused(
            f"config.compare names the rule {wanted[0]!r}, and no weights are given", todo, path="config.attention"
        )
    if config.attention and not wanted:
        todo = f"Name {GIVEN[0]} or {GIVEN[1]} in config.compare, or leave the weights out"
        raise ConfigRefused("config.attention gives weights that no rule looks at", todo, path="config.attention")


def named(config: STLF) -> Iterator[tuple[str, str]]:
    """Every site that the settings name, and where."""
    yield from (("config.watts", name) for name in config.watts)
    for sender, rates in config.rates.items():
        yield "config.rates", sender
        yield from ((f"config.rates.{sender}", receiver) for receiver in rates)
    for target, weights in config.attention.items():
        yield "config.attention", target
        yield from ((f"config.attention.{target}", source) for source in weights)


def refuse(path: str, is_: str, todo: str) -> None:
    raise ConfigRefused(f"{path} is {is_}", todo, path=path)


def check_reached(rates: Mapping[str, Mapping[str, float]], roster: Roster) -> None:
    """Raises RosterRefused where no device has labels, or one without any is reached by none that has."""
    able = [m.id for m in roster if m.labelled and m.role is not Role.TARGET]
    if not able:
        what = f"No device has labels, so that none can be a source; the roster has {described(roster)}"
        raise RosterRefused(what, "Give a labelled site the role source or peer", path="roster")
    for member in roster:
        if member.id not in able and not any(rates.get(i, {}).get(member.id, 1.0) > 0 for i in able):
            what = f"No device with labels has a link to {member.id}, which has none: every rate to it is 0"
            raise RosterRefused(what, "Give a rate above 0 from one of them, or leave it out", path=f"roster.{member.id}")


def notes(config: STLF, world: World) -> tuple[str, ...]:
    """What is drawn, and what is of no use."""
    said = []
    missing = [word for word, known in (("powers", config.watts), ("rates", config.rates or config.measured)) if not known]
    if missing:
        said.append(f"transmit {' and '.join(missing)} are drawn, as none are given: joules are those of a simulation")
    if config.measured:
        said.append("rates are measured, so no two runs are the same; in one process they are those of its memory")
    if config.solver == "exact" and config.weights == "solver":
        said.append("weights: solver is single with the exact solver, which gives each target one source")
    return tuple(said)
