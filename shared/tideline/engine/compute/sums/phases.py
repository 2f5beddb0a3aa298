"""A method whose phases are summed: each that needs a sum alone is six exchanges at most, and of its values nobody sees one.

What is added up are whole numbers on one grid, with masks or without. So a run under masks ends in the bytes of the same run in a
simulation, which has none: there only the values are exchanged.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from blake3 import blake3
from torch import Tensor

from tideline.core.algorithm import AnyAlgorithm, rounds_of, where_summed
from tideline.core.asked.secure import SecureSums
from tideline.core.errors import ConfigRefused, StepFailed
from tideline.core.phase import AnyPhase, AnyPlan, Folded, Replies, Sums, Table, To, Turn, folded
from tideline.core.privacy import TO_COORDINATOR, Audience, Exposure
from tideline.core.record import Record, leaves, specs
from tideline.core.run import ClientId
from tideline.core.settings import EMPTY
from tideline.core.step import AnyStep, Outcome, Site, View
from tideline.engine.compute.sums import exchanges
from tideline.engine.compute.sums.bounds import check_number
from tideline.engine.compute.sums.exchanges import Kept, Opened, as_tensor
from tideline.engine.compute.sums.numbers import Row, grid_for, row_of, words_of
from tideline.learning.around.beside import bare
from tideline.learning.around.sums import ASKED, SUMS, SumAsked, summand_of
from tideline.numerics.privacy.accounting import Gaussian, epsilon
from tideline.numerics.privacy.streams import Stream
from tideline.secure.fixed_point import Words
from tideline.secure.graph import enough
from tideline.secure.rounds.terms import Place, Terms

QUIET = (Exposure.MASKED, Exposure.METRIC, Exposure.COUNT)
MEANS, CLIPPED = "means over sites", "clipped"  # the table of a summed round, and its last column
LEFT_OUT = "left out"


def check_sums(algorithm: AnyAlgorithm, plan: AnyPlan, asked: SecureSums | None, able: Callable[[], list[str]]) -> None:
    """Raises ConfigRefused where a run asks for sums of a method that needs single replies. able: the methods that do not."""
    if asked is None or any(phase.masks for phase in plan):
        return
    what = f"secure_sums is asked, and {algorithm.name} needs the replies of single sites, with these settings"
    raise ConfigRefused(what, f"Use one of: {', '.join(able()) or 'none here'}; or leave secure_sums out", path="secure_sums")


def check_noise(plan: AnyPlan, asked: SecureSums | None, able: Callable[[], list[str]]) -> tuple[str, ...]:
    """What noise in sums promises, in a sentence; none where there is none. plan: the method's own. able: the methods that it can
    be added to. Raises ConfigRefused for others.
    """
    if asked is None or asked.noise is None:
        return ()
    for phase in plan:
        if phase.sums is not None and phase.sums.alike is None:
            what = f"secure_sums.noise is given, and of what {phase.name} sums nothing can be shortened to a norm"
            todo = f"Use one of: {', '.join(able())}; or leave norm and noise out"
            raise ConfigRefused(what, todo, path="secure_sums.noise")
    times = sum(phase.sums is not None for phase in plan)
    found = epsilon((Gaussian(noise=asked.noise, times=times),), asked.delta)
    said = f"{times} sums with noise protect each whole site: epsilon {found:.3g} at delta {asked.delta:g}"
    whom = "of its change against none in its place, and against whoever sees the sums and has no share in their noise"
    reported = [
        f"{name} of {phase.name}"
        for phase in dict.fromkeys(plan)
        if phase.step and not phase.sums and phase.step.view is not View.HELD_OUT
        for name in phase.step.metrics
    ]
    return (f"{said}, {whom}; scores have no noise" + "".join(f", nor has {each}" for each in reported),)


def check_sites(plan: AnyPlan, asked: SecureSums | None, selects: bool, turn: Turn[Any]) -> None:
    """Hold a roster to what sums can be of, before anybody is asked. plan: the method's own. turn: with the whole roster. Raises
    RosterRefused.

    A site may turn out to have no labels, and whom some exchanges ask follows from their state: then it is said when they ask.
    """
    if asked is None:
        return
    sizes = batches(plan, rounds_ahead(asked, selects))
    for at, phase in enumerate(plan):
        if phase.sums:
            clients = phase.ask.clients(turn) if isinstance(phase.ask, To) else turn.members(*phase.asks)
            check_number(phase.name, len(clients), sizes[at], asked)


def unsummed(plan: AnyPlan, own: AnyPlan, asked: SecureSums | None) -> tuple[str, ...]:
    """A sentence for each exchange of which the coordinator still sees single replies that tell more than numbers and scores, or
    whose sum may have one in it as it is. plan: as it is played. own: the method's own.
    """
    if asked is None:
        return ()
    found = dict[str, list[str]]()
    lone = dict.fromkeys(f"secure_sums: in {each.name}, {each.sums.lone}" for each in own if each.sums and each.sums.lone)
    for phase in plan:
        if phase.step is None or phase.masks:
            continue
        alone = (each for each in leaves(phase.step.gives) if Audience.SUM not in each.audience)
        seen = [each.path for each in alone if each.audience >= TO_COORDINATOR and each.exposure not in QUIET]
        if seen:
            found[phase.name] = seen
    of_each = (f"secure_sums: of {name} the coordinator sees each site's {', '.join(fields)}" for name, fields in found.items())
    return (*of_each, *lone)


def summed_in(algorithm: AnyAlgorithm, asked: SecureSums | None, private: bool = False, selects: bool = False) -> AnyAlgorithm:
    """The method as it is played where sums are secure, if they are. private: whether the run protects rows, and withholds what
    has no noise. selects: whether states between rounds are results, too: then no keys are made for rounds to come.
    """
    if asked is None:
        return algorithm
    algorithm = where_summed(algorithm, asked)
    own, ahead = algorithm.state, rounds_ahead(asked, selects)

    def begin(*given: Any) -> Any:
        return SUMS.joined(algorithm.begin(*given), None)

    def summed_at(phase: AnyPhase, number: int, batch: int) -> AnyPlan:
        return Exchange(phase=phase, asked=asked, algorithm=algorithm, private=private, number=number, batch=batch).phases

    def plan(config: Any) -> AnyPlan:
        made = algorithm.plan(config)
        numbers, sizes = rounds_of(made), batches(made, ahead)
        places = (
            summed_at(phase, numbers[at], sizes[at]) if phase.sums else (plain(phase, own),) for at, phase in enumerate(made)
        )
        return tuple(itertools.chain.from_iterable(places))

    starts = algorithm.initial_weights
    if starts is not None:
        first = starts.begin
        starts = replace(starts, begin=lambda *given: SUMS.joined(first(*given), None))
    return replace(algorithm, state=SUMS.of(own), begin=begin, plan=plan, initial_weights=starts)


def rounds_ahead(asked: SecureSums, selects: bool) -> int:
    return 1 if selects else asked.ahead


def batches(plan: AnyPlan, most: int) -> dict[int, int]:
    """For how many rounds keys are exchanged before each place that is summed: 0 where it has some already. Rounds of one batch
    are of one phase, which asks the same sites.
    """
    places = defaultdict[str, list[int]](list)
    for at, phase in enumerate(plan):
        if phase.sums:
            places[phase.name].append(at)
    found = dict[int, int]()
    for mine in places.values():
        for _, same in itertools.groupby(mine, key=lambda at: id(plan[at])):
            of_one = list(same)
            found |= {at: min(most, len(of_one) - i) if i % most == 0 else 0 for i, at in enumerate(of_one)}
    return found


def plain(phase: AnyPhase, own: type[Any]) -> AnyPhase:
    """A phase that is not summed, over its own state."""

    def fold(state: Any, replies: Replies[Any], turn: Turn[Any]) -> Folded[Any]:
        made = folded(phase.fold(bare(state, own), replies, turn))
        return replace(made, state=SUMS.joined(made.state, SUMS.found(state)))

    return replace(
        phase,
        ask=lambda state, turn: phase.ask(bare(state, own), turn),
        fold=fold,
        skip=lambda state: phase.skip(bare(state, own)),
        report=None if phase.report is None else lambda given, tells: plain(phase.report(phase, tells), own),  # type: ignore[misc]
    )


@dataclass(frozen=True)
class Exchange:
    """One phase of a method at one place of its plan, summed.

    number: its round. batch: for how many rounds keys are exchanged before it; 0: there are some.
    """

    phase: AnyPhase
    asked: SecureSums
    algorithm: AnyAlgorithm
    private: bool
    number: int
    batch: int

    @property
    def kept(self) -> Kept:
        return Kept(self.phase.name)

    @property
    def phases(self) -> AnyPlan:
        keeps, outer = self.algorithm.memory, replace(self.phase, skip=lambda state: self.phase.skip(self.own(state)))
        before = exchanges.keys(self.kept, outer, keeps, self.terms), exchanges.shares(self.kept, outer, keeps)
        return (
            *(before if self.batch else ()),
            replace(outer, step=self.step, ask=self.ask, fold=self.fold, sums=None, sampled=False, needs=exchanges.NEEDS),
            exchanges.survivors(self.kept, outer, keeps),
            exchanges.unmasking(self.kept, outer, keeps, self.take),
        )

    def own(self, state: Any) -> Any:
        return bare(state, self.algorithm.state)

    @property
    def sums(self) -> Sums[Any, Any]:
        assert self.phase.sums is not None, "of phases that are summed"
        return self.phase.sums

    @property
    def given(self) -> AnyStep:
        assert self.phase.step is not None, "of phases with a step"
        return self.phase.step

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those whose means are told: of sums with noise, none."""
        if self.asked.noise is not None:
            return ()
        return self.given.reports if self.private else self.given.metrics

    def row(self, order: Any, at: Turn[Any] | Site[Any]) -> Row:
        return Row(self.sums.shapes(order, at.config, at.world), self.metrics)

    def orders(self, state: Any, turn: Turn[Any]) -> tuple[Mapping[ClientId, Any], Any]:
        """What sites are asked, and that it is the same for all of them; nothing where nobody is. Raises RosterRefused for too
        few.
        """
        orders = self.phase.ask(self.own(state), turn)
        check_number(self.phase.name, len(orders), self.batch, self.asked)
        if not orders:
            return EMPTY, None
        first = next(iter(orders.values()))
        if not self.sums.differs and any(order is not first for order in orders.values()):
            what = f"{self.phase.name} asks sites for different things, and of these there is no sum"
            raise StepFailed(what, "Leave secure_sums out")
        return orders, first

    def digests(self, orders: Mapping[ClientId, Any]) -> tuple[str, dict[str, str]]:
        """What all sites are asked, under one digest; and each site's, where these differ."""
        if not self.sums.differs:
            return order_digest(next(iter(orders.values()))), {}
        each = {str(name): order_digest(order) for name, order in sorted(orders.items())}
        return of_all(each), each

    def terms(self, state: Any, turn: Turn[Any]) -> tuple[Terms, ...]:
        """Of this round and those behind it whose keys are made with its own; none where nobody is asked."""
        orders, order = self.orders(state, turn)
        if not orders:
            return ()
        grid, sites, length = grid_for(len(orders), self.asked.bits), tuple(sorted(orders)), self.row(order, turn).length
        places = (Place(turn.run, self.phase.name, self.number + more) for more in range(self.batch))
        return tuple(
            Terms(place=each, sites=sites, length=length, clip=grid.clip, bits=grid.bits, exponent=grid.exponent)
            for each in places
        )

    def ask(self, state: Any, turn: Turn[Any]) -> Mapping[ClientId, Any]:
        """The method's own orders, to those whose shares are there; to all where nothing is masked."""
        (orders, order), found = self.orders(state, turn), self.kept.rounds(state)
        if not orders:
            return EMPTY
        grid = grid_for(len(orders), self.asked.bits)
        whole, each = self.digests(orders)
        span = torch.zeros(self.row(order, turn).length * self.asked.bits // 32, 0)
        plainly = SumAsked(span=span, exponent=grid.exponent, sites=len(orders), delivery=None, orders=each)
        once = ASKED.joined(order, plainly)
        if found is None:
            return {name: ASKED.joined(own, plainly) for name, own in orders.items()} if each else dict.fromkeys(orders, once)
        there = exchanges.parcels_of(replace(found, order=whole), turn.round)
        return {
            ClientId(name): ASKED.joined(orders[ClientId(name)], replace(plainly, delivery=as_tensor(there.to(name))))
            for name in there.authors
        }

    @property
    def step(self) -> AnyStep:
        """The method's own, whose reply is a row of whole numbers. An agent masks it before it leaves."""
        own, takes = self.given, self.given.takes
        gives = summand_of(own.gives, self.asked.words, self.private, self.sums.lone)

        def run(order: Any, memory: Any, site: Site[Any]) -> Outcome[Any, Any]:
            how, mine = ASKED.found(order), bare(order, takes)
            digest = order_digest(mine)  # before the step, which may write to what it was asked
            if how.orders:
                digest = of_all(how.orders) if how.orders.get(str(site.me)) == digest else digest
            made = own.run(mine, memory, site)
            row, grid = self.row(mine, site), grid_for(how.sites, self.asked.bits)
            if type(made.message) is not own.gives or how.exponent != grid.exponent or set(self.metrics) - set(made.metrics):
                raise StepFailed(f"What {own.name} gives is not what it declares, or is asked on another grid", "Mend the method")
            given = self.sums.of(made.message, bare(order, takes), site, self.as_asked(how.sites))
            values = row.encode(given, made.metrics, grid) if self.asked.noise is None else self.noised(row, given, how, site)
            return replace(made, message=gives(values, digest), metrics=EMPTY)

        return replace(own, run=run, takes=ASKED.of(takes), gives=gives, metrics=(), reports=())

    def as_asked(self, sites: int) -> SecureSums:
        """How the method is to make its numbers: in sums with noise all sites count alike, and there is room for it."""
        asked = self.asked
        return asked if asked.noise is None else replace(asked, clip=asked.reach(enough(sites)), rows=1)

    def noised(self, row: Row, given: Mapping[str, Tensor], how: SumAsked, site: Site[Any]) -> Tensor:
        """A site's row with its share of the noise. The sum of as few as may remain has all of it."""
        asked, least, grid = self.asked, enough(how.sites), grid_for(how.sites, self.asked.bits)
        assert asked.norm is not None and asked.noise is not None and self.sums.alike is not None, "drafts are held to it"
        bound = asked.norm / asked.reach(least) * 2.0**grid.exponent
        stream = Stream(site.noise_key, "site", self.phase.name)
        return row.encode_noised(given, self.sums.alike, bound, asked.noise * bound / math.sqrt(least), grid, stream)

    def fold(self, state: Any, replies: Replies[Any], turn: Turn[Any]) -> Folded[Any]:
        """Add up what came, one after the other. What answers another order is left out: its masks do not cancel."""
        orders, _ = self.orders(state, turn)
        (right, _), total, came = self.digests(orders), None, list[str]()
        for name, reply in replies.items():
            if reply.order == right:
                total = added(total, words_of(reply.values, self.asked.bits))
                came.append(name)
        if total is None:
            raise StepFailed(f"No site has answered {self.phase.name} as it was asked", "Upgrade the agents of the sites")
        left = {LEFT_OUT: tuple(ClientId(name) for name in replies if name not in came)}
        found = self.kept.rounds(state)
        if found is None:
            made = self.take(state, Opened(total, len(came)), turn)
            return replace(made, marks={**made.marks, **left}) if left[LEFT_OUT] else made
        state = self.kept.put(state, replace(found, order=right, total=row_of(total), survivors=tuple(came)))
        return Folded(state, marks=left) if left[LEFT_OUT] else Folded(state)

    def take(self, state: Any, opened: Opened, turn: Turn[Any]) -> Folded[Any]:
        """The method's next state from a sum. Its generator is that of the round, whether there were masks or not."""
        orders, order = self.orders(state, turn)
        row, grid = self.row(order, turn), grid_for(len(orders), self.asked.bits)
        found = row.decode(opened.total, grid, opened.sites)
        alike = replace(turn, rng=torch.Generator().manual_seed(turn.round))
        made = folded(self.sums.fold(found.tensors, self.own(state), alike, self.as_asked(len(orders))))
        numbers = (*(found.means[name] for name in self.metrics), float(found.clipped))
        table = Table(("all sites",), (*self.metrics, CLIPPED), (numbers,))
        return replace(made, state=SUMS.joined(made.state, SUMS.found(state)), tables={**made.tables, MEANS: table})


def added(total: Words | None, row: Words) -> Words:
    if total is None:
        return row.copy()
    total += row
    return total


def of_all(digests: Mapping[str, str]) -> str:
    """The digest of what each site is asked."""
    return blake3("".join(f"{name}\0{digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()


def order_digest(order: Record) -> str:
    """What a site is asked, hashed: names, types, shapes and bytes of all that is in a record."""
    made = blake3()
    for line in lines_of(order, ""):
        made.update(line)
    return made.hexdigest()


def lines_of(value: Any, path: str) -> Any:
    if isinstance(value, Tensor):
        dense = value.detach().cpu().contiguous()
        yield f"{path}\0{dense.dtype}\0{tuple(dense.shape)}\0".encode()
        yield dense.reshape(-1).view(torch.uint8).numpy().data.cast("B") if dense.numel() else b""
    elif hasattr(type(value), "__record__"):
        for spec in specs(type(value)):
            yield from lines_of(getattr(value, spec.name), f"{path}/{spec.name}")
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield from lines_of(value[name], f"{path}/{name}")
    elif isinstance(value, tuple):
        for at, each in enumerate(value):
            yield from lines_of(each, f"{path}/{at}")
    else:
        yield f"{path}\0{value!r}\0".encode()
