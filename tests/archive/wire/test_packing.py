"""Messages whose weights are packed: what is written is read as float32, and only what the run's wire says is packed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.archive.values import equal
from tests.archive.wire.values import Sent, Trained, model, read, rules, sent, trained, wire, written
from tideline.archive import errors
from tideline.archive.checks import RULES, Rules
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode, decode_order, files_of
from tideline.archive.readings import Checked, Orders
from tideline.archive.wire.packing import Packing
from tideline.archive.writer import PART_BYTES, encode
from tideline.core.asked.wire import Format, Wire
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Statistics:
    """A reply with what batch norm measured."""

    model: Weights = field("like model", Exposure.WEIGHTS)


WIRES = {
    "bfloat16": wire(format="bfloat16"),
    "int8": wire(format="int8", delta=True),
    "int8 by row": wire(format="int8", scale="row"),
    "topk": wire(format="topk", share=0.1, delta=True),
}
every = pytest.mark.parametrize("how", WIRES.values(), ids=WIRES.keys())


@every
def test_the_same_seed_gives_the_same_bytes(how: Wire) -> None:
    """And another seed other ones, where numbers are rounded at random."""
    (_, first), (_, again), (_, other) = written(how), written(how), written(how, seed=8)
    assert first == again and (first == other) == (how.format is not Format.INT8)


@every
def test_it_is_read_as_float32_in_the_order_s_shapes(how: Wire) -> None:
    """What is no weight, what is small and what is no float32 comes as it was sent."""
    made, value = read(how, *written(how)), trained()
    assert {name: (t.shape, t.dtype) for name, t in made.model.items()} == {
        name: (t.shape, t.dtype) for name, t in value.model.items()
    }
    assert all(equal(made.model[name], value.model[name]) for name in ("bias", "count"))
    assert equal(made.sums, value.sums) and not equal(made.model["large"], value.model["large"])


def test_float32_changes_no_byte() -> None:
    """A wire of float32 writes what no wire writes."""
    parts = MemoryParts()
    value = trained()
    plain = encode(value, parts, Rules({}, (sent(),)))
    assert encode(value, parts, rules(wire())) == plain


def test_differences_are_taken_to_what_was_sent() -> None:
    """A field that is a difference already is not taken less the model again, and a vector has none."""
    how, value = wire(format="bfloat16", delta=True), trained()
    made = read(how, *written(how, value))
    base = sent().model["large"]
    assert equal(made.model["large"], base + (value.model["large"] - base).bfloat16().float())
    assert equal(made.change["large"], value.change["large"].bfloat16().float())
    assert equal(made.vector, value.vector.bfloat16().float())


def test_topk_leaves_what_has_no_difference_as_it_is() -> None:
    """Of the vector most numbers would be lost; of the model those are kept that the order had."""
    how, value = wire(format="topk", share=0.1, delta=True), trained()
    made = read(how, *written(how, value))
    assert equal(made.vector, value.vector)
    assert int((made.model["large"] == sent().model["large"]).sum()) == 240 - 24
    assert int((made.change["large"] == 0).sum()) == 240 - 24


@every
def test_no_variance_becomes_negative(how: Wire) -> None:
    """Of a layer of batch norm some variances are a thousandth of others: in their scale nothing would be left of them."""
    spread = torch.logspace(-4, 3, 512)
    order, value = Sent({"bn.running_var": spread.clone()}), Sent({"bn.running_var": spread * 1.01})
    parts, down = MemoryParts(), Packing(replace(how, down=Format.INT8), up=False)
    for message in (order, value):
        digest = encode(message, parts, Rules(packing=replace(down, seed=3))).digest
        assert torch.equal(
            decode(Sent, digest, parts, Rules(packing=down)).model["bn.running_var"], message.model["bn.running_var"]
        )
    up, left = Packing(how, up=True), dict[str, Tensor]()
    reply = Rules(
        {}, (order,), packing=replace(up, seed=3, at="train", left=left, before={"train/model/bn.running_var": -spread / 500})
    )
    digest = encode(Statistics(value.model), parts, reply).digest
    came = decode(Statistics, digest, parts, replace(reply, packing=up)).model["bn.running_var"]
    assert bool((came > 0).all()) and torch.allclose(came, value.model["bn.running_var"], rtol=0.01)


@every
def test_what_was_left_out_comes_with_the_next_message(how: Wire) -> None:
    """Feedback: what two messages bring is what two were to bring, less what the second leaves out."""
    left: dict[str, Tensor] = {}
    value = trained()
    first = read(how, *written(how, value, left=left))
    assert "train/model/large" in left
    after: dict[str, Tensor] = {}
    second = read(how, *written(how, value, before=left, left=after))
    base = sent().model["large"]
    brought = (first.model["large"] - base) + (second.model["large"] - base)
    wanted = 2 * (value.model["large"] - base) - after["train/model/large"]
    assert torch.allclose(brought, wanted, atol=1e-4)


def test_feedback_can_be_switched_off() -> None:
    """Then nothing is left to add."""
    left: dict[str, Tensor] = {}
    written(wire(format="int8", feedback=False), left=left)
    assert not left


def test_large_tensors_are_parts_in_fewer_bytes() -> None:
    """A packed tensor is as many parts as it has large tensors."""
    rows = PART_BYTES // 256
    big = Sent({"w": torch.randn(rows, 512, generator=torch.Generator().manual_seed(3))})
    parts, how = MemoryParts(), wire(down="int8")
    whole, small = encode(big, parts), encode(big, parts, Rules(packing=Packing(how, up=False)))
    assert 3.9 < whole.size / small.size < 4.0 and files_of(small.digest, parts) == small.files
    made, reply = decode_order(Sent, small.digest, parts, Rules(packing=Packing(how, up=False)))
    assert reply.packing == Packing(how, up=True) and torch.allclose(made.model["w"], big.model["w"], atol=0.1)


def test_a_coarse_scale_is_noticed() -> None:
    """One huge number leaves nothing of the others: the site says so."""
    value = trained()
    spoilt = {**value.model, "large": value.model["large"].clone()}
    spoilt["large"][0, 0] = 1e9
    coarse: list[str] = []
    parts, message = written(wire(format="int8"), Trained(spoilt, value.change, value.vector, value.sums), coarse=coarse)
    assert coarse == ["model/large"]
    assert bool(torch.isfinite(read(wire(format="int8"), parts, message).model["large"]).all())


@pytest.mark.parametrize("fill", [float("nan"), float("inf")])
@every
def test_a_tensor_without_finite_numbers_is_refused_where_it_is_made(how: Wire, fill: float) -> None:
    """By its name, before it is packed: topk would find no largest number in it."""
    value = trained()
    spoilt = Trained({**value.model, "large": torch.full((40, 6), fill)}, value.change, value.vector, value.sums)
    with pytest.raises(errors.NotFinite, match="model/large holds a NaN or an infinity"):
        written(how, spoilt)


def test_what_feedback_makes_too_large_is_refused_where_it_is_made() -> None:
    """What a reader will see is held to the same bounds as what was to be sent."""
    how, value = wire(format="bfloat16"), trained()
    full = {**value.model, "large": torch.full((40, 6), 9.9e14)}
    before = {"train/model/large": torch.full((40, 6), 9.9e14)}
    with pytest.raises(errors.OutOfRange, match="model/large"):
        written(how, Trained(full, value.change, value.vector, value.sums), before=before)


def test_unpacked_messages_are_not_remembered() -> None:
    """What is remembered is held to the bytes of its file, which say nothing of tensors in memory of their own."""
    how = wire(format="int8", down="int8")
    parts, message = written(how)
    checked, held = Checked(), rules(how)
    checked.check(Trained, message.digest, parts, held)
    assert not checked._known
    asked = encode(sent(), parts, Rules(packing=Packing(how, up=False)))
    orders = Orders()
    first, _ = orders.read(Sent, asked.digest, parts, {}, Packing(how, up=False))
    first.model["large"].zero_()
    second, reply = orders.read(Sent, asked.digest, parts, {}, Packing(how, up=False))
    assert bool(second.model["large"].any())
    assert isinstance(reply.like[0], Sent) and bool(reply.like[0].model["large"].any())


def test_a_state_is_never_packed() -> None:
    """Rules without a wire pack nothing."""
    parts = MemoryParts()
    message = encode(sent(), parts)
    assert equal(decode(Sent, message.digest, parts, RULES).model, model(1))
