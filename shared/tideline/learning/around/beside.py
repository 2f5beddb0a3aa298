"""A method whose records get a field more, of which its steps and folds know nothing: they see their own records.

A shared value stands in the state, so that it is kept, restored and computed again with it, and in messages, so that no site
needs an earlier one. A site's own value stands in its memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from tideline.core.algorithm import AnyAlgorithm
from tideline.core.asked.world import World
from tideline.core.phase import AnyPhase, AnyPlan, Each, Folded, Replies, Turn, folded
from tideline.core.record import Record, field, specs
from tideline.core.run import ClientId, Role
from tideline.core.settings import Settings
from tideline.core.step import AnyStep, Outcome, Site, View

R = TypeVar("R", bound=Record)
FEWEST = 2  # labelled sites whose own values are pooled: that of one would reach the others as it is


@dataclass(frozen=True)
class Beside:
    """A field beside a record's own: None before it is known.

    name: of a shared one also in a `Site`, where steps look for it. scored: only messages of scorings bring it, and to targets.
    """

    name: str
    kind: type[Any]
    doc: str
    dims: str = ""
    scored: bool = False

    def of(self, kind: type[Any]) -> type[Any]:
        """A record type with this field beside its own, whose names stay: replies are held to them."""
        return extended(self, cast(Hashable, kind))

    def joined(self, value: Any, found: object) -> Any:
        own = type(value)
        return self.of(own)(**{spec.name: getattr(value, spec.name) for spec in specs(own)}, **{self.name: found})

    def found(self, value: object) -> Any:
        """That beside a memory, a state or a message, or of a site; None where there is none, or not yet."""
        found = getattr(value, self.name, None)
        return found if isinstance(found, self.kind) else None


@cache
def extended(beside: Beside, kind: Any) -> type[Any]:
    more = (beside.name, beside.kind | None, field(beside.dims, doc=beside.doc))
    made = dataclasses.make_dataclass(kind.__name__, [more], bases=(kind,), frozen=True, eq=False, kw_only=True)
    made.__record__ = True  # type: ignore[attr-defined]
    return made


def bare(value: Any, kind: type[R]) -> R:
    """The method's own record."""
    return kind(**{spec.name: getattr(value, spec.name) for spec in specs(kind)})


def remembering(
    algorithm: AnyAlgorithm,
    beside: Beside,
    first: Callable[[Site[Any]], Any],
    later: Callable[[Site[Any], Outcome[Any, Any], Any], Any],
    same: Callable[[Any, Any], bool],
) -> AnyAlgorithm:
    """A method whose sites remember something beside its own memory.

    first(site): what there is at the join. later(site, outcome of a step, what was remembered): what is remembered then.
    """
    own = algorithm.memory

    def prepare(config: Settings, site: Site[Settings]) -> Any:
        return beside.joined(algorithm.prepare(config, site), first(site))

    def kept_by(step: AnyStep) -> AnyStep:
        def run(order: Any, memory: Any, site: Site[Any]) -> Outcome[Any, Any]:
            mine, before = bare(memory, own), beside.found(memory)
            made = step.run(order, mine, site)
            if type(made.memory) is not own:
                return made  # which is refused
            after = later(site, made, before)
            kept = made.memory is mine and same(before, after)
            return replace(made, memory=memory if kept else beside.joined(made.memory, after))

        return replace(step, run=run, keeps=beside.of(own))

    def around(plan: AnyPlan) -> AnyPlan:
        return tuple(stepping(phase, kept_by) for phase in algorithm.around(plan))

    return replace(algorithm, memory=beside.of(own), prepare=prepare, around=around)


def stepping(phase: AnyPhase, made: Callable[[AnyStep], AnyStep]) -> AnyPhase:
    """The same phase with its step made another, if it has one."""
    return phase if phase.step is None else replace(phase, step=made(phase.step))


def sharing(
    algorithm: AnyAlgorithm,
    beside: Beside,
    exchange: Callable[[type[Any], bool], AnyPhase],
    sizes: Callable[[World], Mapping[str, int]],
) -> AnyAlgorithm:
    """A method whose sites tell something first, of which all make a shared value.

    exchange(memory type, whether the run may ask a part of the sites): that phase, whose fold puts it into the state. sizes: of
    the dims that it names.
    """

    def begin(*given: Any) -> Any:
        return beside.joined(algorithm.begin(*given), None)

    def all_sizes(config: Settings, world: World) -> Mapping[str, int]:
        return {**algorithm.sizes(config, world), **sizes(world)}

    def around(plan: AnyPlan) -> AnyPlan:
        own = algorithm.around(plan)
        first = exchange(algorithm.memory, any(map(sampled, own)))
        return (first, *(bringing(phase, algorithm.state, beside) for phase in own))

    starts = algorithm.initial_weights
    if starts is not None:
        plain = starts.begin
        starts = replace(starts, begin=lambda *given: beside.joined(plain(*given), None))
    return replace(
        algorithm, state=beside.of(algorithm.state), begin=begin, initial_weights=starts, sizes=all_sizes, around=around
    )


def sampled(phase: AnyPhase) -> bool:
    """Whether a phase that does more than score may ask a part of the sites."""
    return phase.sampled and phase.step is not None and phase.step.view is not View.HELD_OUT


def bringing(phase: AnyPhase, own: type[Any], beside: Beside, brings: bool | None = None) -> AnyPhase:
    """The method's phase over its own state, whose messages bring the shared value beside. brings: whether they do."""
    if brings is None:
        brings = not beside.scored or (phase.step is not None and phase.step.view is View.HELD_OUT)

    def ask(state: Any, turn: Turn[Any]) -> Mapping[ClientId, Any]:
        orders = phase.ask(bare(state, own), turn)
        readers = turn.members(Role.TARGET) if beside.scored else turn.members()
        return joined_orders(orders, beside, dict.fromkeys(readers, beside.found(state))) if brings else orders

    def next_state(state: Any, replies: Replies[Any], turn: Turn[Any]) -> Folded[Any]:
        made = folded(phase.fold(bare(state, own), replies, turn))
        return replace(made, state=beside.joined(made.state, beside.found(state)))

    made = replace(phase, ask=ask, fold=next_state, skip=lambda state: phase.skip(bare(state, own)))
    return stepping(made, lambda step: reading(step, beside)) if brings else made


def joined_orders(orders: Mapping[ClientId, Any], beside: Beside, values: Mapping[ClientId, Any]) -> Mapping[ClientId, Any]:
    """Each client's message with its value; what several get alike is made once."""
    if isinstance(orders, Each):
        return Each(orders, lambda client: beside.joined(orders[client], values.get(client)))
    pairs = {client: (order, values.get(client)) for client, order in orders.items()}
    once = {(id(order), id(value)): (order, value) for order, value in pairs.values()}
    made = {key: beside.joined(order, value) for key, (order, value) in once.items()}
    return {client: made[id(order), id(value)] for client, (order, value) in pairs.items()}


def reading(step: AnyStep, beside: Beside) -> AnyStep:
    """A step whose message brings the shared value: it sees its own message, and the value in its site."""
    takes = step.takes

    def run(order: Any, memory: Any, site: Site[Any]) -> Outcome[Any, Any]:
        return step.run(bare(order, takes), memory, replace(site, **{beside.name: beside.found(order)}))

    return replace(step, run=run, takes=beside.of(takes))
