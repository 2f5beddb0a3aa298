"""The exchanges of a secure sum beside that of its values: what the coordinator asks, and what it makes of the answers.

Keys and shares are exchanged for several rounds at once; each round has its own. Signatures are looked at when answers come in
(`engine.peers.summing`), where sites' keys are known, and by every site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from tideline.core.algorithm import SUM_KEYS, SUM_SHARES, SUM_SURVIVORS, SUM_UNMASK, named_around
from tideline.core.errors import StepFailed
from tideline.core.phase import AnyPhase, Folded, Phase, Replies, Turn
from tideline.core.run import ClientId
from tideline.core.settings import EMPTY
from tideline.core.step import AnyStep, Outcome, Site, Step, charged_before
from tideline.engine.compute.sums.numbers import words_of
from tideline.learning.around.sums import SUMS, Answered, Asked, Rounds, Sums, parcels_key
from tideline.secure.fixed_point import Words
from tideline.secure.rounds.coordinator import Delivered, Summed, delivered, gathered
from tideline.secure.rounds.forms import from_bytes, to_bytes
from tideline.secure.rounds.messages import Agreement, Agreements, Ahead, Asking, Parcels, Roll, Unmasked
from tideline.secure.rounds.terms import Identity, Terms

T = TypeVar("T")
NEEDS = "a sum that shows no single site"


def seen_before(site: str, words: bytes, signature: bytes) -> bool:
    """Signatures were held to the sites' keys as they came."""
    return True


def no_sign(words: bytes) -> bytes:
    raise AssertionError("the coordinator signs nothing in a sum")


COORDINATOR = Identity("coordinator", no_sign, seen_before)


def of_an_agent(name: str, keeps: type[Any]) -> AnyStep:
    """A step that agents do themselves."""

    def run(order: Asked, memory: Any, site: Site[Any]) -> Outcome[Answered, Any]:
        raise StepFailed(f"The step {name} is an agent's own, and a trainer was asked for it", "Upgrade the site's agent")

    return Step(name=name, run=run, takes=Asked, keeps=keeps, gives=Answered, spends=charged_before, by_unit=True)


def as_tensor(message: Any) -> Tensor:
    """The file of a message of the protocol, as bytes."""
    return torch.frombuffer(bytearray(to_bytes(message)), dtype=torch.uint8)


def bytes_in(tensor: Tensor) -> memoryview:
    return tensor.contiguous().numpy().data.cast("B")


def read(kind: type[T], file: Tensor) -> T:
    return from_bytes(kind, bytes_in(file))


def answers(kind: type[T], replies: Replies[Answered]) -> dict[str, T]:
    return {str(name): read(kind, reply.file) for name, reply in replies.items()}


def alike(sites: tuple[str, ...], message: Any) -> dict[ClientId, Asked]:
    return dict.fromkeys(map(ClientId, sites), Asked(as_tensor(message)))


@dataclass(frozen=True)
class Kept:
    """Where the state keeps what there is of a phase's rounds."""

    phase: str

    def rounds(self, state: Any) -> Rounds | None:
        """None where nothing is masked."""
        found: Sums | None = SUMS.found(state)
        return None if found is None else found.of.get(self.phase)

    def there(self, state: Any) -> Rounds:
        found = self.rounds(state)
        assert found is not None, "keys come before everything else"
        return found

    def put(self, state: Any, made: Rounds | None) -> Any:
        """The state with other rounds; without any where none are to come."""
        found: Sums | None = SUMS.found(state)
        others = {} if found is None else {name: of for name, of in found.of.items() if name != self.phase}
        of = others if made is None else {**others, self.phase: made}
        return replace(state, **{SUMS.name: Sums(of) if of else None})

    def after(self, state: Any, number: int) -> Any:
        """The state once the sum of a round is there."""
        was = self.there(state)
        left = was.first + len(was.rolls) - 1 > number
        return self.put(state, replace(was, order="", total=None, survivors=(), agreements=None) if left else None)


def keys(kept: Kept, outer: AnyPhase, keeps: type[Any], terms: Callable[[Any, Turn[Any]], tuple[Terms, ...]]) -> AnyPhase:
    """terms(state, turn): what is to be summed in each of the rounds to come, and by whom."""

    def ask(state: Any, turn: Turn[Any]) -> Mapping[ClientId, Asked]:
        made = terms(state, turn)
        return alike(made[0].sites, Asking(terms=made)) if made else EMPTY

    def fold(state: Any, replies: Replies[Answered], turn: Turn[Any]) -> Any:
        sent, made = answers(Ahead, replies), terms(state, turn)
        rolls = [gathered(each, (of.adverts[at] for of in sent.values()), COORDINATOR) for at, each in enumerate(made)]
        rounds = Rounds(
            first=made[0].place.round,
            rolls=tuple(map(as_tensor, rolls)),
            parcels={},
            order="",
            total=None,
            survivors=(),
            agreements=None,
        )
        return kept.put(state, rounds)

    return beside(outer, SUM_KEYS, keeps, ask, fold)


def shares(kept: Kept, outer: AnyPhase, keeps: type[Any]) -> AnyPhase:
    def ask(state: Any, turn: Turn[Any]) -> Mapping[ClientId, Asked]:
        if kept.rounds(state) is None:  # nobody was asked for keys, and so for nothing else
            return EMPTY
        rolls = tuple(read(Roll, each) for each in kept.there(state).rolls)
        return alike(rolls[0].sites, Asking(rolls=rolls))

    def fold(state: Any, replies: Replies[Answered], turn: Turn[Any]) -> Any:
        sent, made, first = answers(Ahead, replies), dict[str, Tensor](), kept.there(state).first
        for at, roll in enumerate(kept.there(state).rolls):
            of_round = {author: each.parcels[at].parcels for author, each in sent.items()}
            delivered(read(Roll, roll), of_round, "", COORDINATOR)  # holds them to the roll
            made |= {parcels_key(first + at, author): as_tensor(Parcels(of_round[author])) for author in sorted(of_round)}
        return kept.put(state, replace(kept.there(state), parcels=made))

    return beside(outer, SUM_SHARES, keeps, ask, fold)


def survivors(kept: Kept, outer: AnyPhase, keeps: type[Any]) -> AnyPhase:
    def ask(state: Any, turn: Turn[Any]) -> Mapping[ClientId, Asked]:
        if kept.rounds(state) is None:
            return EMPTY
        named = summed(kept.there(state), turn.round).survivors
        return alike(named.sites, named)

    def fold(state: Any, replies: Replies[Answered], turn: Turn[Any]) -> Any:
        found = kept.there(state)
        agreed = summed(found, turn.round).agreed(answers(Agreement, replies).values(), COORDINATOR)
        return kept.put(state, replace(found, agreements=as_tensor(agreed)))

    return beside(outer, SUM_SURVIVORS, keeps, ask, fold)


@dataclass(frozen=True)
class Opened:
    """The sum of so many sites' rows."""

    total: Words
    sites: int


def unmasking(kept: Kept, outer: AnyPhase, keeps: type[Any], take: Callable[[Any, Opened, Turn[Any]], Folded[Any]]) -> AnyPhase:
    """take(state, sum, turn): the next state."""

    def ask(state: Any, turn: Turn[Any]) -> Mapping[ClientId, Asked]:
        if kept.rounds(state) is None:
            return EMPTY
        found = kept.there(state).agreements
        assert found is not None, "survivors were asked before"
        agreed = read(Agreements, found)
        return alike(tuple(each.site for each in agreed.agreements), agreed)

    def fold(state: Any, replies: Replies[Answered], turn: Turn[Any]) -> Folded[Any]:
        made = summed(kept.there(state), turn.round).opened(answers(Unmasked, replies).values())
        return take(kept.after(state, turn.round), Opened(made.total, len(made.sites)), turn)

    return beside(outer, SUM_UNMASK, keeps, ask, fold)


def parcels_of(found: Rounds, number: int) -> Delivered:
    """The sealed shares of a round, by author, with what was asked."""
    roll = read(Roll, found.rolls[number - found.first])
    files = {author: found.parcels.get(parcels_key(number, author)) for author in roll.sites}
    by_author = {author: read(Parcels, file).parcels for author, file in files.items() if file is not None}
    return delivered(roll, by_author, found.order, COORDINATOR)


def summed(found: Rounds, number: int) -> Summed:
    """The sum of a round under its masks."""
    assert found.total is not None, "values were asked before"
    there = parcels_of(found, number)
    return Summed(there, found.survivors, words_of(found.total, there.pairs.roll.terms.bits))


def beside(outer: AnyPhase, step: str, keeps: type[Any], ask: Any, fold: Any) -> AnyPhase:
    """An exchange of its own beside a phase, skipped where that is."""
    return Phase(
        name=named_around(outer.name, step),
        step=of_an_agent(step, keeps),
        ask=ask,
        fold=fold,
        skip=outer.skip,
        masks=True,
        needs=NEEDS,
        asks=outer.asks,
    )
