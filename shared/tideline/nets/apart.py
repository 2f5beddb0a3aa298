"""Any module as features and classifier: its head is found by rule, moved out, and what is left is tried on two rows.

The head is what the module's attribute `classifier_name` names; else its attribute `classifier`, or the last linear layer in that
which gives a number for each class; else the last linear layer of the whole that does. Features are what enters it. That the
head, applied to the features, gives what the module gives is tried and not believed.

Shapes: n rows, d features, K classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.shapes.rows import drawn
from tideline.nets.small import Net

log = logging.getLogger(__name__)
NAMED = "classifier_name"  # the attribute by which a module names its head
CLASSIFIER = "classifier"
TOLERANCE = 1e-5
MOST_TRIED = 4  # linear layers that may be the head
SEED = 0


class Apart(Net):
    """A module whose head was moved out: `features` is the module with nothing in the head's place, `classifier` the head."""

    def __init__(self, module: nn.Module, path: str) -> None:
        head = moved_out(module, path) if path else module
        super().__init__(module if path else nn.Identity(), head)
        self.own = (("features.", ""), ("classifier.", f"{path}." if path else ""))


@dataclass(frozen=True)
class Tried:
    """A network that was tried. path: of the head in the module as it was built; width: d."""

    net: Net
    path: str
    width: int


class Misfit(Exception):
    """Why a module cannot be taken apart at one head, and what can be done."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(what)
        self.what, self.todo = what, todo


def taken_apart(module: nn.Module, world: World) -> Tried:
    """A module as features and classifier, on the CPU. Raises ConfigRefused, with the way out, for one that cannot be."""
    rows = probe(world)
    with alone(), evaluating(module):
        given = checked(lambda: module(rows), world)
        reasons = list[Misfit]()
        for path in heads(module, world):
            try:
                return tried(module, path, rows, given)
            except Misfit as reason:
                reasons.append(reason)
    if reasons:
        raise unfit(world, reasons[0])
    name_it = f'name the head yourself: {NAMED} = "layers.7" in its class'
    what = f"has no head that can be found: no attribute {CLASSIFIER}, and no linear layer that gives {world.classes} numbers"
    raise refused(world, what, f"End it with nn.Linear(..., world.classes), or {name_it}")


def whole(net: Net, world: World) -> Tried:
    """A network that is made of features and classifier already. Raises ConfigRefused as `taken_apart`."""
    rows = probe(world)
    with alone(), evaluating(net):
        given = checked(lambda: net(rows), world)
        try:
            return Tried(net, "", compared(net, rows, given, CLASSIFIER))
        except Misfit as reason:
            raise unfit(world, reason) from None


def again(module: nn.Module, path: str) -> Net:
    """Another module of a kind that was tried, taken apart in the same way."""
    return module if isinstance(module, Net) else Apart(module, path)


def heads(module: nn.Module, world: World) -> Iterator[str]:
    """The paths at which the head may be, the likeliest first. Raises ConfigRefused for a name that leads nowhere."""
    named = getattr(module, NAMED, None)
    inside = dict(module.named_modules())
    if named is not None:
        if not isinstance(named, str) or not named or named not in inside:
            todo = f"Use one of: {', '.join(list(filter(None, inside))[-5:])}"
            raise refused(world, f"says that its head is {named!r}, and has no such submodule", todo)
        yield named
        return
    fits = [name for name, each in inside.items() if isinstance(each, nn.Linear) and each.out_features == world.classes]
    own = [name for name in fits if name == CLASSIFIER or name.startswith(f"{CLASSIFIER}.")]
    yield from own[-1:]
    if CLASSIFIER in inside and CLASSIFIER not in own:
        yield CLASSIFIER
    yield from [name for name in reversed(fits) if name not in own[-1:]][:MOST_TRIED]


def moved_out(module: nn.Module, path: str) -> nn.Module:
    """The submodule at a path, with nothing left in its place."""
    parent, _, leaf = path.rpartition(".")
    head = module.get_submodule(path)
    module.get_submodule(parent).add_module(leaf, nn.Identity())
    return head


def tried(module: nn.Module, path: str, rows: Tensor, given: Tensor) -> Tried:
    """The module apart at a path. Raises Misfit, and then the module is as it was."""
    apart = Apart(module, path)
    try:
        return Tried(apart, path, compared(apart, rows, given, path))
    except Misfit:
        if path:
            parent, _, leaf = path.rpartition(".")
            module.get_submodule(parent).add_module(leaf, apart.classifier)
        raise


def compared(net: Net, rows: Tensor, given: Tensor, path: str) -> int:
    """d, if classifier(features(rows)) is what the module itself gives. Raises Misfit."""
    end = "let forward end with the head"
    try:
        f = evaluated(lambda: net.features(rows))
    except Exception as cause:
        raise Misfit(f"cannot compute without its head {path or 'itself'} ({type(cause).__name__})", end.capitalize()) from cause
    if not isinstance(f, Tensor) or f.dim() != 2 or len(f) != len(rows):
        shape = list(f.shape) if isinstance(f, Tensor) else type(f).__name__
        what = f"gives its head {path} {shape} for {len(rows)} rows, which is not (n, d)"
        raise Misfit(what, f"Flatten what enters the head, and {end}")
    try:
        made = evaluated(lambda: net.classifier(f))
    except Exception as cause:
        raise Misfit(f"does more between its features and its head {path}", f"Put it before the head: {end}") from cause
    if not isinstance(made, Tensor) or made.shape != given.shape or not close(made, given):
        what = f"does something after its head {path}, or uses it otherwise than to apply it: the head alone gives other numbers"
        raise Misfit(what, f"Return what the head gives, without a softmax or anything after it: {end}")
    return f.shape[1]


def checked(run: Callable[[], object], world: World) -> Tensor:
    """What a module makes of the probe in evaluation mode, if that is a number for each class. Raises ConfigRefused."""
    try:
        given = evaluated(run)
    except Exception as cause:
        # The words may be the module's own, for whoever runs this process.
        log.warning("The network %s cannot compute", world.model, exc_info=cause)
        what = f"raises {type(cause).__name__} in forward, for two rows of {list(world.inputs)}"
        raise refused(world, what, "See the log of this process for its words; correct forward, or world.inputs") from cause
    expected = [2, world.classes]
    if not isinstance(given, Tensor) or list(given.shape) != expected:
        got = f"a tensor of {list(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        todo = "Return one tensor (n, classes); switch auxiliary outputs off"
        raise refused(world, f"gives {got} for two rows, where {expected} is (n, classes)", todo)
    if not given.is_floating_point() or not torch.isfinite(given).all():
        raise refused(
            world, "gives numbers that are not finite for two plain rows", "Look at its first weights and its divisions"
        )
    return given


def evaluated(run: Callable[[], object]) -> object:
    """What a computation gives, with the same random numbers each time, and no gradients."""
    torch.default_generator.manual_seed(SEED)
    with torch.no_grad():
        return run()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, and in training mode afterwards, head and all."""
    inside = list(module.modules())
    module.eval()
    try:
        yield
    finally:
        for each in inside:
            each.training = True


@contextmanager
def alone() -> Iterator[None]:
    """On the CPU, and with torch's global generator as it was before, afterwards."""
    with torch.random.fork_rng(devices=()), torch.device("cpu"):
        yield


def probe(world: World) -> Tensor:
    """Two rows (2, *inputs), the same everywhere."""
    return drawn(world, 2, SEED)


def close(one: Tensor, other: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether numbers are the same but for rounding."""
    return float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))


def unfit(world: World, reason: Misfit) -> ConfigRefused:
    """The refusal of a network that cannot be taken apart; the words of its own error go to this process's log."""
    if reason.__cause__ is not None:
        log.warning("The network %s cannot be taken apart at its head", world.model, exc_info=reason.__cause__)
    return refused(world, reason.what, reason.todo)


def refused(world: World, what: str, todo: str) -> ConfigRefused:
    """The refusal of a network, by name."""
    return ConfigRefused(f"The network {world.model} {what}", todo, path="world.model")
