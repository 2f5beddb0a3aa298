"""Records as bytes and back, compared leaf by leaf; and a method whose every function is looked at while it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Generator, Tensor

from tideline.archive.checks import Rules
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.algorithm import Algorithm
from tideline.core.handle import Handle, Maker
from tideline.core.phase import Phase, Replies, Turn, folded
from tideline.core.record import is_record, specs
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site

Check = Callable[[str, Any], None]


MAKER = Maker(ClientId("somebody"), "somewhere", 1)


def digest(value: Any) -> str:
    """A record's bytes in one word."""
    return encode(value, MemoryParts(), made(value)).digest


def copied(value: Any) -> Any:
    """A record that shares no memory with the given one; of values for peers it has the handles, as everybody else has."""
    parts = MemoryParts()
    return decode(type(value), encode(value, parts, made(value)).digest, parts, like(value))


def made(value: Any) -> Rules:
    """No rules but those of `like`, also for what values for peers are like; a site may make these."""
    given = list(given_to_peers(value))
    return replace(like(value, *given), maker=MAKER if given else None)


def given_to_peers(value: Any) -> Iterator[Any]:
    """The values behind a record's handles, at the site that has just made them."""
    yield from (each.value for _, each in leaves(value) if isinstance(each, Handle) and each.value is not None)


def like(*values: Any) -> Rules:
    """No rules but that weights are like those of these records; of one that names what it does not hold, like itself."""
    return Rules(like=(*values, *map(itself, values)), finite=False)


def itself(value: Any) -> Any:
    """The weights of a record by the names that they are declared to be like."""
    named = (s for s in specs(type(value)) if s.dims.startswith("like ")) if is_record(type(value)) else ()
    return SimpleNamespace(**{s.dims.removeprefix("like "): getattr(value, s.name) for s in named})


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor, scalar and handle in a value, with its place."""
    if is_dataclass(value) and not isinstance(value, Handle):
        for f in fields(value):
            yield from leaves(getattr(value, f.name), f"{path}.{f.name}".strip("."))
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield from leaves(value[name], f"{path}.{name}".strip("."))
    elif isinstance(value, tuple):
        for i, each in enumerate(value):
            yield from leaves(each, f"{path}.{i}".strip("."))
    else:
        yield path, value


def raw(tensor: Tensor) -> bytes:
    """A tensor's bytes."""
    return bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data) if tensor.numel() else b""


def same(a: Any, b: Any) -> None:
    """Two values have the same leaves: names, types, dtypes, shapes and every bit."""
    ours, theirs = dict(leaves(a)), dict(leaves(b))
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        other = theirs[path]
        if isinstance(value, Tensor):
            assert (value.dtype, value.shape) == (other.dtype, other.shape), path
            assert raw(value) == raw(other), path
        else:
            assert type(value) is type(other), path
            assert value == other, path


def survives(value: Any) -> None:
    """A value comes back from the archive as it went in, and gives the same bytes again; and so does what it has for peers."""
    for inner in given_to_peers(value):
        survives(inner)
        value = copied(value)
    back = copied(value)
    same(value, back)
    assert digest(back) == digest(value)


def seen(algorithm: Algorithm, look: Check) -> Algorithm:
    """The same method; `look(kind, value)` is shown every state, memory and message as its functions give them."""

    def phase(p: Phase) -> Phase:
        def ask(state: Any, turn: Turn) -> Mapping[Any, Any]:
            look("state", state)
            orders = p.ask(state, turn)
            for order in orders.values():
                look("order", order)
            return orders

        def fold(state: Any, replies: Replies[Any], turn: Turn) -> Any:
            given = p.fold(state, replies, turn)
            look("state", folded(given).state)
            return given

        def run(order: Any, memory: Any, site: Site) -> Outcome[Any, Any]:
            assert p.step is not None
            look("memory", memory)
            outcome = p.step.run(order, memory, site)
            look("reply", outcome.message)
            look("memory", outcome.memory)
            return outcome

        return replace(p, ask=ask, fold=fold, step=replace(p.step, run=run) if p.step else None)

    return replace(algorithm, plan=lambda c: tuple(phase(p) for p in algorithm.plan(c)))


def repeated(algorithm: Algorithm) -> Algorithm:
    """The same method; each of its functions is called twice from equal beginnings and must give equal bytes."""

    def begin(config: Any, world: Any, roster: Any, rng: Generator) -> Any:
        first, second = twice(rng, lambda: algorithm.begin(config, world, roster, rng))
        assert digest(first) == digest(second), "begin gives other bytes the second time"
        return first

    def prepare(config: Any, site: Site) -> Any:
        first, second = twice(site.rng, lambda: algorithm.prepare(config, site))
        assert digest(first) == digest(second), "prepare gives other bytes the second time"
        return first

    return replace(algorithm, begin=begin, prepare=prepare, plan=lambda c: tuple(repeated_phase(p) for p in algorithm.plan(c)))


def repeated_phase(p: Phase) -> Phase:
    """One phase of `repeated`."""

    def ask(state: Any, turn: Turn) -> Mapping[Any, Any]:
        before = digest(state)
        first, second = twice(turn.rng, lambda: p.ask(state, turn))
        assert digest(state) == before, f"ask of {p.name} changes the state"
        assert {c: digest(o) for c, o in first.items()} == {c: digest(o) for c, o in second.items()}
        return first

    def fold(state: Any, replies: Replies[Any], turn: Turn) -> Any:
        # A tell may consume its state: it is called on copies.
        spare, before = copied(state), {c: digest(r) for c, r in replies.items()}
        first, second = twice(turn.rng, lambda: p.fold(state, replies, turn), lambda: p.fold(spare, replies, turn))
        assert digest(folded(first).state) == digest(folded(second).state), f"fold of {p.name} gives other bytes the second time"
        assert replace(folded(first), state=None) == replace(folded(second), state=None)
        assert {c: digest(r) for c, r in replies.items()} == before, f"fold of {p.name} changes the replies"
        return first

    def run(order: Any, memory: Any, site: Site) -> Outcome[Any, Any]:
        assert p.step is not None
        step = p.step.run
        before = (digest(order), digest(memory), rows(site))
        first, second = twice(site.rng, lambda: step(order, memory, site))
        assert (digest(order), digest(memory), rows(site)) == before, f"the step of {p.name} changes its arguments"
        assert outcome(first) == outcome(second), f"the step of {p.name} gives other bytes the second time"
        return first

    return replace(p, ask=ask, fold=fold, step=replace(p.step, run=run) if p.step else None)


def twice(rng: Generator, first: Callable[[], Any], second: Callable[[], Any] | None = None) -> tuple[Any, Any]:
    """Two calls that begin with the same generators."""
    own, common = rng.get_state(), torch.get_rng_state()
    one = first()
    rng.set_state(own)
    torch.set_rng_state(common)
    return one, (second or first)()


def outcome(given: Outcome[Any, Any]) -> tuple[str, str, dict[str, float]]:
    """All that a step gives, comparable."""
    return digest(given.message), digest(given.memory), {k: float(v) for k, v in given.metrics.items()}


def rows(site: Site) -> str:
    """The site's rows in one word."""
    sha = hashlib.sha256()
    for tensor in (site.data.x.all(), site.data.y, site.data.domain):
        sha.update(b"none" if tensor is None else raw(tensor))
    return sha.hexdigest()
