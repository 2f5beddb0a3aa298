"""Handles in archives: a site writes their values beside its message, everybody else passes on what names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.checks import Rules
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode, decode_order
from tideline.archive.writer import PART_BYTES, encode
from tideline.core.handle import Handle, Maker
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId

ANNA, BERT, CARL = map(ClientId, ("anna", "bert", "carl"))
MAKER = Maker(ANNA, "train", 2)


@record
class Hypothesis:
    """A model for other sites."""

    h: Weights = field("like model", Exposure.WEIGHTS, audience=TO_PEERS)
    x: Tensor = field("d", Exposure.STATISTIC, audience=TO_PEERS)


@record
class Model:
    """An order."""

    model: Weights = field(doc="a template")
    x: Tensor = field("d", doc="of width d")


@record
class Trained:
    """A reply."""

    one: Handle[Hypothesis] | None = None
    many: dict[str, Handle[Hypothesis]] = field(default=None)


def hypothesis(fill: float = 1.0, n: int = 4, d: int = 3) -> Hypothesis:
    return Hypothesis({"w": torch.full((n,), fill)}, torch.full((d,), fill))


def rules(parts: MemoryParts, maker: Maker | None = MAKER) -> Rules:
    """What a reply to an order is held to."""
    order = encode(Model({"w": torch.zeros(4)}, torch.zeros(3)), parts)
    return replace(decode_order(Model, order.digest, parts, Rules())[1], maker=maker)


def test_a_value_is_a_file_of_its_own() -> None:
    """The message names it, and who made it where; only its file opens it, with every tensor in it."""
    parts = MemoryParts()
    large = hypothesis(n=PART_BYTES // 4)
    order = encode(Model({"w": torch.zeros(PART_BYTES // 4)}, torch.zeros(3)), parts)
    held = replace(decode_order(Model, order.digest, parts, Rules())[1], maker=MAKER)
    message = encode(Trained(Handle.of(large, [BERT]), {}), parts, held)
    (handle,) = message.handles
    assert (handle.holder, handle.phase, handle.round, handle.to, handle.value) == (ANNA, "train", 2, (BERT,), None)
    assert message.files == ((message.digest, parts.size(message.digest)),)
    assert parts.size(message.digest) < 1000 < PART_BYTES < handle.size == parts.size(handle.digest)
    back = decode(Trained, message.digest, parts)
    assert back.one == handle and back.one is not None and back.one.kind is Hypothesis
    value = decode(Hypothesis, handle.digest, parts, Rules(like=(Model(large.h, large.x),)))
    assert torch.equal(value.h["w"], large.h["w"])
    again = encode(back, parts)
    assert (again.digest, again.handles) == (message.digest, (handle,))
    assert layout.parse(parts.view(message.digest)).handles == (handle,)
    assert layout.parse(parts.view(message.digest)).parts == ()


def test_one_value_for_two() -> None:
    """It is written once, for both."""
    parts = MemoryParts()
    both = Trained(None, {"bert": Handle.of(hypothesis(), [BERT]), "carl": Handle.of(hypothesis(), [CARL])})
    message = encode(both, parts, rules(parts))
    assert [handle.to for handle in message.handles] == [(BERT, CARL)]
    assert encode(replace(both, one=Handle.of(hypothesis())), parts, rules(parts)).handles[0].to is None


WRONG: dict[str, tuple[Any, type[Exception]]] = {
    "of another kind": (Model({}, torch.zeros(3)), errors.WrongType),
    "unlike the order's model": (hypothesis(n=5), errors.WrongDims),
    "of another width than the order's": (hypothesis(d=2), errors.WrongDims),
    "not finite": (hypothesis(float("nan")), errors.NotFinite),
    "too large": (hypothesis(1e20), errors.OutOfRange),
}


@pytest.mark.parametrize(("value", "error"), WRONG.values(), ids=WRONG)
def test_a_value_is_held_to_its_declaration(value: Any, error: type[Exception]) -> None:
    """As the message is, on the way out of its site."""
    parts = MemoryParts()
    with pytest.raises(error):
        encode(Trained(Handle.of(value), {}), parts, rules(parts))


def test_only_a_site_makes_handles() -> None:
    """And passes none on: it can say of its own values alone what they are."""
    parts = MemoryParts()
    with pytest.raises(errors.WrongType, match="one is a handle with its value"):
        encode(Trained(Handle.of(hypothesis()), {}), parts)
    message = encode(Trained(Handle.of(hypothesis()), {}), parts, rules(parts))
    with pytest.raises(errors.WrongType, match="one is a handle without a value"):
        encode(decode(Trained, message.digest, parts), parts, rules(parts))


NODES = {
    "a digest that is none": ["handle", "Z" * 64, 1, "anna", "train", 1],
    "a size that is none": ["handle", "b3-" + "0" * 64, -1, "anna", "train", 1],
    "a size that is true": ["handle", "b3-" + "0" * 64, True, "anna", "train", 1],
    "a round that is none": ["handle", "b3-" + "0" * 64, 1, "anna", "train", 1.5],
    "a holder that is none": ["handle", "b3-" + "0" * 64, 1, 7, "train", 1],
    "a holder with a line's end": ["handle", "b3-" + "0" * 64, 1, "an\nna", "train", 1],
    "too short": ["handle", "b3-" + "0" * 64, 1, "anna", "train"],
    "texts": ["handle", "b3-" + "0" * 64, "1", "anna", "train", "1"],
    "nothing": [],
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_a_node_that_is_no_handle_is_refused(node: list[Any]) -> None:
    """Whatever a coordinator or a site may send."""
    with pytest.raises(errors.ArchiveBroken):
        layout.handle_in(node)
