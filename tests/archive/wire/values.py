"""Records whose weights are packed, the wires that pack them, and ways to write and read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tideline.archive.checks import MOST, Rules
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.wire.packing import Packing
from tideline.archive.writer import Message, encode
from tideline.core.asked.wire import Wire, wire_of
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record
from tideline.core.settings import parse

SHAPES = {"bias": (5,), "count": (), "large": (40, 6), "long": (128,)}


@record
class Sent:
    """An order."""

    model: Weights = field(doc="a model")


@record
class Trained:
    """A reply: a model like the order's, a vector, a difference, and what is no weights."""

    model: Weights = field("like model", Exposure.WEIGHTS)
    change: Weights = field("like model", Exposure.WEIGHTS, difference=True)
    vector: Tensor = field("p", Exposure.WEIGHTS)
    sums: Tensor = field("", Exposure.STATISTIC)


def wire(**given: Any) -> Wire:
    """A wire as people write it."""
    return wire_of(parse(Wire, given, "wire"))


def model(seed: int) -> dict[str, Tensor]:
    """Named tensors: small ones, a matrix, a vector, and a whole number."""
    rng = torch.Generator().manual_seed(seed)
    made = {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items() if shape}
    return {**made, "count": torch.tensor(3)}


def sent(seed: int = 1) -> Sent:
    """An order with that model."""
    return Sent(model(seed))


def trained(seed: int = 2) -> Trained:
    """A reply."""
    made = model(seed)
    return Trained(made, {n: t - 1 for n, t in model(seed + 1).items()}, made["long"] * 2, made["large"] * 3)


def rules(how: Wire, seed: int = 7, **more: Any) -> Rules:
    """What a reply to `sent()` is held to, for its writer."""
    return Rules({}, (sent(),), most=MOST, packing=replace(Packing(how, up=True), seed=seed, at="train", **more))


def written(how: Wire, value: Trained | None = None, **more: Any) -> tuple[MemoryParts, Message]:
    """A reply in a store of its own."""
    parts = MemoryParts()
    return parts, encode(value or trained(), parts, rules(how, **more))


def read(how: Wire, parts: MemoryParts, message: Message) -> Trained:
    """The reply, as a coordinator reads it."""
    return decode(Trained, message.digest, parts, replace(rules(how), packing=Packing(how, up=True)))
