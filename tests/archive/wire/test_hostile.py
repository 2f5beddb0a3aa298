"""Packed tensors that lie: each is refused by name, before memory is taken for what it claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.archive.values import root, stored
from tests.archive.wire.values import wire
from tideline.archive import errors, layout
from tideline.archive.checks import MOST, Rules
from tideline.archive.layout import PART_NAME
from tideline.archive.reader import decode
from tideline.archive.wire.packing import Packing
from tideline.core.asked.wire import Wire
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record

INT8, ROWS, BFLOAT16 = wire(format="int8"), wire(format="int8", scale="row"), wire(format="bfloat16")
TOPK = wire(format="topk", share=0.05, delta=True)
BASE = torch.ones(8, 16)


@record
class Model:
    """What was sent."""

    model: Weights = field(doc="a model")


@record
class Reply:
    """What comes."""

    model: Weights = field("like model", Exposure.WEIGHTS)


@record
class Free:
    """What comes where no order says its shapes."""

    model: Weights = field("", Exposure.WEIGHTS)


def values(dtype: torch.dtype = torch.int8, shape: tuple[int, ...] = (8, 16), fill: float = 1) -> Tensor:
    """Values of a packed tensor."""
    return torch.full(shape, fill, dtype=dtype)


def scale(*of: float, shape: tuple[int, ...] = ()) -> Tensor:
    """A scale, or a scale for each row."""
    return torch.tensor(of).view(shape)


def places(*at: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Indices of seven values, which is what topk sends of 128 numbers with a share of 0.05."""
    return torch.tensor(at, dtype=dtype)


Lie = tuple[Wire, Any, Mapping[str, Tensor]]


def packed(how: Wire, name: str, **tensors: Tensor) -> Lie:
    """A root with a packed tensor."""
    return how, [name, dict.fromkeys(tensors)], {f"model/w/{each}": tensor for each, tensor in tensors.items()}


SEVEN = torch.ones(7)
GOOD: dict[str, Lie] = {
    "int8": packed(INT8, "int8", values=values(), scale=scale(0.5)),
    "rows": packed(ROWS, "int8", values=values(), scale=scale(*[0.5] * 8, shape=(8,))),
    "bfloat16": packed(BFLOAT16, "bfloat16", values=values(torch.bfloat16)),
    "topk": packed(TOPK, "topk", values=SEVEN, indices=places(0, 1, 2, 3, 4, 5, 127)),
}
LIES: dict[str, Lie] = {
    "not packed": (INT8, None, {"model/w": BASE}),
    "another format": packed(INT8, "bfloat16", values=values(torch.bfloat16)),
    "an unknown format": packed(INT8, "x" * 1000, values=values()),
    "a tensor less": packed(INT8, "int8", values=values()),
    "a tensor more": packed(BFLOAT16, "bfloat16", values=values(torch.bfloat16), scale=scale(1.0)),
    "values of another type": packed(INT8, "int8", values=values(torch.uint8), scale=scale(0.5)),
    "values of another shape": packed(INT8, "int8", values=values(shape=(16, 8)), scale=scale(0.5)),
    "a value of -128": packed(INT8, "int8", values=values(fill=-128), scale=scale(0.5)),
    "a scale that is negative": packed(INT8, "int8", values=values(), scale=scale(-0.5)),
    "a scale that is NaN": packed(INT8, "int8", values=values(), scale=scale(float("nan"))),
    "a scale that is infinite": packed(INT8, "int8", values=values(), scale=scale(float("inf"))),
    "a scale of another type": packed(INT8, "int8", values=values(), scale=scale(0.5).double()),
    "a scale for each row, unasked": packed(INT8, "int8", values=values(), scale=scale(*[0.5] * 8, shape=(8,))),
    "a scale too few": packed(ROWS, "int8", values=values(), scale=scale(*[0.5] * 7, shape=(7,))),
    "one scale for all rows": packed(ROWS, "int8", values=values(), scale=scale(0.5)),
    "float16 for bfloat16": packed(BFLOAT16, "bfloat16", values=values(torch.float16)),
    "a place too many": packed(TOPK, "topk", values=torch.ones(8), indices=places(0, 1, 2, 3, 4, 5, 6, 7)),
    "a place too few": packed(TOPK, "topk", values=torch.ones(6), indices=places(0, 1, 2, 3, 4, 5)),
    "a place without a value": packed(TOPK, "topk", values=torch.ones(6), indices=places(0, 1, 2, 3, 4, 5, 6)),
    "a place beyond": packed(TOPK, "topk", values=SEVEN, indices=places(0, 1, 2, 3, 4, 5, 128)),
    "a place before": packed(TOPK, "topk", values=SEVEN, indices=places(-1, 1, 2, 3, 4, 5, 6)),
    "a place twice": packed(TOPK, "topk", values=SEVEN, indices=places(0, 1, 2, 2, 4, 5, 6)),
    "places that fall": packed(TOPK, "topk", values=SEVEN, indices=places(0, 1, 3, 2, 4, 5, 6)),
    "places of another type": packed(TOPK, "topk", values=SEVEN, indices=places(0, 1, 2, 3, 4, 5, 6, dtype=torch.int64)),
}


def came(lie: Lie, kind: type[Any] = Reply, order: Tensor = BASE) -> Any:
    """A reply as the coordinator reads it."""
    how, node, tensors = lie
    parts, digest = stored(root({"model": {"w": node}}, tensors))
    return decode(kind, digest, parts, Rules({}, (Model({"w": order}),), most=MOST, packing=Packing(how, up=True)))


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_packed_tensor_that_lies_is_refused(lie: Lie) -> None:
    """By one error, in words that can be sent on."""
    with pytest.raises(errors.BadPacking) as refused:
        came(lie)
    assert str(refused.value).startswith("model/w") and len(str(refused.value)) < 300


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD.keys())
def test_without_its_lie_each_is_read(good: Lie) -> None:
    """So the table tests what it says."""
    assert came(good).model["w"].shape == BASE.shape


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        (packed(INT8, "int8", values=values(fill=127), scale=scale(3e38)), errors.NotFinite),
        (packed(INT8, "int8", values=values(fill=2), scale=scale(1e15)), errors.OutOfRange),
        (packed(TOPK, "topk", values=torch.full((7,), float("nan")), indices=places(0, 1, 2, 3, 4, 5, 6)), errors.NotFinite),
        (packed(BFLOAT16, "bfloat16", values=values(torch.bfloat16, fill=float("inf"))), errors.NotFinite),
    ],
    ids=["a product beyond float32", "too large", "NaN", "infinity"],
)
def test_numbers_are_held_to_their_bounds_as_they_are_read(lie: Lie, kind: type[Exception]) -> None:
    """What is unpacked is checked like what came as it is."""
    with pytest.raises(kind):
        came(lie)


def test_a_packed_tensor_is_refused_where_none_is_asked_for() -> None:
    """By a run of another wire, or of none."""
    _, node, tensors = GOOD["int8"]
    for other in (None, Packing(wire(), up=True), Packing(wire(down="int8"), up=True)):
        parts, digest = stored(root({"model": {"w": node}}, tensors))
        with pytest.raises(errors.BadMetadata, match="neither a tensor of this file nor a part"):
            decode(Reply, digest, parts, Rules({}, (Model({"w": BASE}),), packing=other))


def test_small_tensors_may_not_come_packed() -> None:
    """A value has one encoding."""
    lie = packed(INT8, "int8", values=values(shape=(3,)), scale=scale(0.5))
    with pytest.raises(errors.BadPacking, match="so small a tensor"):
        came(lie, order=torch.ones(3))


@record
class Many:
    """Models that an order names once, and a reply any number of times."""

    models: tuple[Weights, ...] = field("like model", Exposure.WEIGHTS)


def test_no_memory_is_taken_for_what_is_named_again_and_again() -> None:
    """A part of few bytes, named a thousand times as another tensor, would be gigabytes."""
    big = values(shape=(1 << 21,))
    head, _ = layout.build({PART_NAME: ("I8", (1 << 21,))}, {})
    part = head + big.numpy().tobytes()
    node = ["part", stored(part)[1], "I8", [1 << 21], len(part)]
    packing = Packing(INT8, up=True)

    def named(times: int) -> tuple[Any, Any]:
        tree = {"model": {f"w{i:03}": ["int8", {"values": node, "scale": None}] for i in range(times)}}
        return stored(root(tree, {f"model/w{i:03}/scale": scale(0.5) for i in range(times)}), part)

    parts, top = named(1000)
    with pytest.raises(errors.BadPacking, match=r"^model/w00\d .* again and again"):
        decode(Free, top, parts, Rules(packing=packing))
    parts, top = named(8)  # layers that are all zero are one part
    assert len(decode(Free, top, parts, Rules(packing=packing)).model) == 8
    base = {"w": torch.zeros(1 << 21)}
    tree = {"models": [{"w": ["int8", {"values": node, "scale": None}]} for _ in range(100)]}
    parts, top = stored(root(tree, {f"models/{i}/w/scale": scale(0.5) for i in range(100)}), part)
    with pytest.raises(errors.BadPacking, match=r"^models/1\d/w .* again and again"):
        decode(Many, top, parts, Rules({}, (Model(base),), most=MOST, packing=packing))
