"""A prototype of `secure(phase)` in simulations: a phase whose fold needs a sum alone, added up plainly or under masks.

Both add whole numbers on one grid, so both end in the same state. A run of this version knows neither: here the masks are put on
inside the fold, where the replies are still in the clear. What is shown is that masks change nothing of a run's numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tests.secure.play import Play
from tideline.algorithms.averaging import FedAvg, fedavg
from tideline.algorithms.averaging.messages import State, Update
from tideline.core.phase import AnyPhase, Replies, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId
from tideline.secure.fixed_point import Floats, Words, finest
from tideline.secure.rounds.terms import Place, Terms

S = TypeVar("S")
G = TypeVar("G")
C = TypeVar("C")


@dataclass(frozen=True)
class Addends(Generic[S, G, C]):
    """What a fold needs of replies.

    of(reply, state, turn)      a site's numbers; at a site `state` is the order, which has what it needs of it
    take(total, state, turn)    the next state, from the sum over the sites that remain
    clip(turn)                  the largest number of a site
    """

    of: Callable[[G, S, Turn[C]], Floats]
    take: Callable[[Floats, S, Turn[C]], S]
    clip: Callable[[Turn[C]], float]
    bits: int = 32


Add = Callable[[Terms, Mapping[ClientId, Words], tuple[ClientId, ...]], Words]


def summing(phase: AnyPhase, addends: Addends[Any, Any, Any], add: Add, lost: Callable[[int], int]) -> AnyPhase:
    """The phase with a fold that sees a sum. lost(round): how many sites, the last by name, drop out before their values."""

    def fold(state: Any, replies: Replies[Any], turn: Turn[Any]) -> Any:
        sites, clip = tuple(replies), addends.clip(turn)
        grid = finest(clip, len(sites), addends.bits)
        encoded = {name: grid.encode(addends.of(reply, state, turn)).values for name, reply in replies.items()}
        length = len(encoded[sites[0]])
        place = Place("run", phase.name, turn.round)
        terms = Terms(place=place, sites=sites, length=length, clip=clip, bits=addends.bits, exponent=grid.exponent)
        total = add(terms, encoded, sites[: len(sites) - lost(turn.round)])
        return addends.take(grid.decode(total), state, turn)

    return dataclasses.replace(phase, fold=fold)


def plainly(terms: Terms, values: Mapping[ClientId, Words], remaining: tuple[ClientId, ...]) -> Words:
    total = terms.grid.zeros(terms.length)
    for name in remaining:
        total += values[name]
    return total


def masked(terms: Terms, values: Mapping[ClientId, Words], remaining: tuple[ClientId, ...]) -> Words:
    play = Play(terms)
    came = {name: play.mask(name, values[name].copy()) for name in remaining}
    summed = play.delivered.summed(each for _, each in came.values())
    agreed = {name: state.agree(summed.survivors, play.who[name], play.notebooks[name]) for name, (state, _) in came.items()}
    agreements = summed.agreed((each for _, each in agreed.values()), play.coordinator)
    return summed.opened(state.unmask(agreements, play.who[name]) for name, (state, _) in agreed.items()).total


MOST_SAMPLES = 1000  # what a site may weigh; a setting of the method, once there is one


def share_of(update: Update, config: FedAvg) -> float:
    return 1.0 if config.weighting == "uniform" else min(update.samples, MOST_SAMPLES) / MOST_SAMPLES


def differences(update: Update, state: State, turn: Turn[FedAvg]) -> NDArray[np.float64]:
    """a_i (w_i - w), and a_i: what a weighted mean is made of."""
    share = share_of(update, turn.config)
    return np.append(share * (flat(update.model) - flat(state.model)), share)


def moved(total: Floats, state: State, turn: Turn[FedAvg]) -> State:
    """w + sum a_i (w_i - w) / sum a_i."""
    return State(shaped(flat(state.model) + total[:-1] / total[-1], state.model))


def flat(model: Weights) -> NDArray[np.float64]:
    return np.concatenate([model[name].numpy().astype(np.float64).reshape(-1) for name in sorted(model)])


def shaped(values: Floats, like: Weights) -> Weights:
    at, made = 0, {}
    for name in sorted(like):
        tensor = like[name]
        part = values[at : at + tensor.numel()]
        made[name] = torch.from_numpy(part.copy()).reshape(tensor.shape).to(tensor.dtype)
        at += tensor.numel()
    return made


AVERAGE: Addends[State, Update, FedAvg] = Addends(of=differences, take=moved, clip=lambda turn: 1.0)


def method(name: str, add: Add, lost: Callable[[int], int]) -> Any:
    """FedAvg whose rounds of training are folded from a sum."""

    def plan(config: FedAvg) -> Any:
        change = partial(summing, addends=AVERAGE, add=add, lost=lost)
        return tuple(change(phase) if phase.name == "train" else phase for phase in fedavg.plan(config))

    return dataclasses.replace(fedavg, name=name, plan=plan)


def none(number: int) -> int:
    return 0


def one_by_turns(number: int) -> int:
    return number % 2


PLAIN, MASKED = method("plain", plainly, none), method("masked", masked, none)
PLAIN_LOSING, MASKED_LOSING = method("plain_losing", plainly, one_by_turns), method("masked_losing", masked, one_by_turns)
METHODS = tuple((each.name, f"{__name__}:{each.name.upper()}") for each in (PLAIN, MASKED, PLAIN_LOSING, MASKED_LOSING))
