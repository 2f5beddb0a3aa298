"""How the family folds replies: the weighted mean, or a rule that bears f wrong sites (tideline.numerics.aggregation.robust)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from tideline.algorithms.averaging.messages import State, Update
from tideline.algorithms.averaging.sums import by_rows, mean_of
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Each, Folded, Replies, Sums, Turn, marked
from tideline.core.record import Weights
from tideline.core.run import ClientId
from tideline.numerics.aggregation import robust
from tideline.numerics.aggregation.averaging import weighted_sum

if TYPE_CHECKING:
    from tideline.algorithms.averaging import Averaging, FedAvg

C = TypeVar("C")
Fold: TypeAlias = "Callable[[State, Replies[Update], Turn[FedAvg]], State | Folded[State]]"
RULES = ("none", "clip", "median", "trimmed_mean", "krum", "multi_krum")
PAGE = "docs/robust-folds.md"
OUTLIERS = f"a site whose data differ from the others' looks like a wrong one ({PAGE})"
SAYS = {
    "clip": "robust: clip shortens what lies far from the common model, as the marks of each round say",
    "median": "robust: median takes the middle value of each coordinate",
    "trimmed_mean": "robust: trimmed_mean leaves out the {f} least and the {f} largest values of each coordinate",
    "krum": "robust: krum takes one site's model a round and leaves out the others', as the marks of each round say",
    "multi_krum": "robust: multi_krum leaves out the models of {left} sites a round, as the marks of each round say",
}

COUNTS = "a site that tells a large number of samples still weighs much, unless weighting is uniform"
NO_COUNTS = "the numbers of samples are not used: every site counts alike"


@dataclass(frozen=True)
class Folding(Generic[C]):
    """How a member of the family makes the next model of replies.

    fold          the coordinator's `fold`
    floor         the least number of replies that it can fold, and what needs them
    check         raises ConfigRefused for settings that it has no use for, or lacks
    check_number  raises RosterRefused where fewer sites than it needs can train
    notes         what it does with sites and their counts, for those who start a run
    sums          what it needs of replies, where that is sums alone; None: it needs single ones
    """

    fold: Callable[[State, Replies[Update], Turn[C]], State | Folded[State]]
    floor: Callable[[C], tuple[int | None, str]] | None = None
    check: Callable[[C], None] | None = None
    check_number: Callable[[C, int], None] | None = None
    notes: Callable[[C, World], tuple[str, ...]] = lambda config, world: ()
    sums: Callable[[C], Sums[C, State] | None] = lambda config: None


def models(replies: Replies[Update]) -> Each[Weights]:
    """The models of some replies, each read when it is looked at."""
    return Each(replies, lambda client: replies[client].model)


def check(config: FedAvg) -> None:
    """Raises ConfigRefused for settings that the rule has no use for, or lacks."""
    if config.byzantine and config.robust in ("none", "clip"):
        what = f"config.byzantine is {config.byzantine}, but config.robust is {config.robust}, which counts no wrong sites"
        todo = "Leave byzantine out, or set robust to median, trimmed_mean, krum or multi_krum"
        raise ConfigRefused(what, todo, path="config.byzantine")
    if not config.byzantine and config.robust in ("trimmed_mean", "krum", "multi_krum"):
        what = f"config.robust is {config.robust}, but config.byzantine is 0, so that it would bear no wrong site"
        raise ConfigRefused(what, "Set byzantine to the number of sites that may be wrong", path="config.byzantine")
    if config.clip_norm and config.robust != "clip":
        what = f"config.clip_norm is {config.clip_norm:g}, but config.robust is {config.robust}, which clips nothing"
        raise ConfigRefused(what, "Leave clip_norm out, or set robust to clip", path="config.clip_norm")


def floor(config: FedAvg) -> tuple[int | None, str]:
    """The least number of replies that the rule can fold, and what needs them."""
    if config.robust in ("none", "clip"):
        return None, ""
    return robust.least(config.robust, config.byzantine), f"{config.robust} with byzantine: {config.byzantine}"


def check_number(config: FedAvg, n: int) -> None:
    """Raises RosterRefused where fewer than the rule needs can train."""
    least, needs = floor(config)
    if least is not None and n < least:
        what = f"{needs} needs the models of {least} sites; {n} of the roster can train"
        raise RosterRefused(what, "Add labelled sites, lower byzantine, or choose another rule", path="config.byzantine")


def notes(config: FedAvg, world: World) -> tuple[str, ...]:
    """What a rule does with sites and their counts, for those who start a run."""
    if config.robust == "none":
        return ()
    f = config.byzantine
    says = f"{SAYS[config.robust].format(f=f, left=f + 2)}; {OUTLIERS}"
    return (says,) if config.weighting == "uniform" else (says, COUNTS if config.robust == "clip" else NO_COUNTS)


def fold(state: State, replies: Replies[Update], turn: Turn[FedAvg]) -> State | Folded[State]:
    """The next w by the rule of the config, and what was done with single sites."""
    return FOLDS[turn.config.robust](state, replies, turn)


def mean(state: State, replies: Replies[Update], turn: Turn[FedAvg]) -> State:
    """w <- sum_i (n_i / n) w_i over those who answered, or their plain mean."""
    p = shares(replies, turn.config)
    return State(weighted_sum((p[client], reply.model) for client, reply in replies.items()))


def shares(replies: Replies[Update], config: Averaging) -> dict[ClientId, float]:
    """The coefficients of the mean, which sum to one: n_i / n, or 1 / N."""
    counts = {client: 1 if config.weighting == "uniform" else reply.samples for client, reply in replies.items()}
    n = sum(counts.values())
    return {client: count / n for client, count in counts.items()}


def clip(state: State, replies: Replies[Update], turn: Turn[FedAvg]) -> Folded[State]:
    """w <- w + sum_i a_i c_i (w_i - w), with the coefficients a_i of the mean."""
    made, factors = robust.clip(state.model, models(replies), shares(replies, turn.config), turn.config.clip_norm)
    return Folded(State(made), marked({"clipped": [client for client, c in factors.items() if c < 1]}))


def coordinatewise(rule: Callable[[Mapping[ClientId, Weights], int], Weights]) -> Fold:
    """w <- what a rule makes of each coordinate's values alone."""
    return lambda state, replies, turn: State(rule(models(replies), turn.config.byzantine))


def krum(state: State, replies: Replies[Update], turn: Turn[FedAvg]) -> Folded[State]:
    """w <- the model of the site with the least Krum score."""
    one = robust.krum(models(replies), turn.config.byzantine)
    return Folded(State(replies[one].model), choice(replies, (one,)))


def multi_krum(state: State, replies: Replies[Update], turn: Turn[FedAvg]) -> Folded[State]:
    """w <- the plain mean of the N - f - 2 models with the least Krum scores."""
    all_models = models(replies)
    chosen = robust.multi_krum(all_models, turn.config.byzantine)
    return Folded(State(robust.trimmed_mean({client: all_models[client] for client in chosen}, 0)), choice(replies, chosen))


def choice(replies: Replies[Update], chosen: tuple[ClientId, ...]) -> Mapping[str, tuple[ClientId, ...]]:
    """Who was chosen and who was left out."""
    return marked({"chosen": chosen, "left out": [client for client in replies if client not in chosen]})


FOLDS: Mapping[str, Fold] = {
    "none": mean,
    "clip": clip,
    "median": coordinatewise(robust.median),
    "trimmed_mean": coordinatewise(robust.trimmed_mean),
    "krum": krum,
    "multi_krum": multi_krum,
}


def sums(config: FedAvg) -> Sums[FedAvg, State] | None:
    """Of the mean alone: every other rule looks at single models."""
    return mean_of(by_rows) if config.robust == "none" else None


ROBUST = Folding(fold=fold, floor=floor, check=check, check_number=check_number, notes=notes, sums=sums)
