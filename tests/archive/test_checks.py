"""What a message is held to: dims, `like`, and parts that are written once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor

from tests.archive.values import Flags, bytes_of, equal, root, stored
from tideline.archive import errors, layout
from tideline.archive.checks import LAX, Rules
from tideline.archive.digests import Buffer
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode, decode_order
from tideline.archive.writer import PART_BYTES, Memo, encode
from tideline.core.errors import Malformed
from tideline.core.record import Weights, field, record
from tideline.core.run import Digest


@record
class Cloud:
    """Dims in all their places."""

    z: Tensor = field("K n d")
    y: Tensor = field("K n 10")
    means: tuple[Tensor, ...] = field("d", default=())
    images: tuple[Tensor, ...] = field("n ...", default=())
    extra: Tensor | None = field("d d", default=None)


@record
class Moved:
    """An answer to a cloud."""

    z: Tensor = field("K n d")
    classes: Tensor = field("c")
    own: Tensor = field("rows")


@record
class Told:
    """Numbers of every kind."""

    x: Tensor
    w: Weights = dataclasses.field(default_factory=dict)
    n: int = 0
    rate: float = 0.0


@record
class Spread:
    """A tensor with a bound."""

    spread: Tensor = field("...", low=0)


@record
class Free:
    """The same without one."""

    spread: Tensor = field("...")


MANY = layout.LIMITS.parts + 1
Z, Y = torch.zeros(2, 3, 4), torch.zeros(2, 3, 10)


def cloud(z: Tensor = Z, y: Tensor = Y, images: tuple[Tensor, ...] = (), extra: Tensor | None = None, d: int = 4) -> Cloud:
    """A cloud that keeps its dims, unless told otherwise."""
    return Cloud(z, y, (torch.zeros(d), torch.zeros(4)), images, extra)


GOOD = {
    "plain": cloud(),
    "dots stand for nothing": cloud(images=(torch.zeros(3),)),
    "dots stand for anything": cloud(images=(torch.zeros(3, 1, 28, 28), torch.zeros(3, 5))),
    "optional": cloud(extra=torch.zeros(4, 4)),
    "empty": Cloud(torch.zeros(0, 0, 0), torch.zeros(0, 0, 10)),
}
BAD = {
    "one axis less": (cloud(z=torch.zeros(2, 3)), "z"),
    "one axis more": (cloud(z=torch.zeros(2, 3, 4, 1)), "z"),
    "another K": (cloud(y=torch.zeros(3, 3, 10)), "K"),
    "another n": (cloud(y=torch.zeros(2, 2, 10)), "n"),
    "not ten": (cloud(y=torch.zeros(2, 3, 11)), "10"),
    "in another tuple": (cloud(d=5), "means/0"),
    "in a tuple": (cloud(images=(torch.zeros(3), torch.zeros(2, 3))), "images/1"),
    "before the dots": (cloud(images=(torch.zeros(()),)), "images/0"),
    "in an optional": (cloud(extra=torch.zeros(4, 5)), "extra"),
}


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD)
def test_dims_that_agree(value: Cloud) -> None:
    """A name is bound where it is met first, a number is itself, dots are any further axes."""
    parts = MemoryParts()
    assert equal(decode(Cloud, encode(value, parts).digest, parts), value)


@record
class Undimmed:
    """A cloud whose maker declared no dims: what a dishonest site would send."""

    z: Tensor
    y: Tensor
    means: tuple[Tensor, ...]
    images: tuple[Tensor, ...]
    extra: Tensor | None


@pytest.mark.parametrize(("value", "named"), BAD.values(), ids=BAD)
def test_dims_that_contradict(value: Cloud, named: str) -> None:
    """A contradiction is refused by name, on writing and on reading."""
    parts = MemoryParts()
    with pytest.raises(errors.WrongDims, match=named):
        encode(value, parts)
    sent = encode(Undimmed(value.z, value.y, value.means, value.images, value.extra), parts)
    with pytest.raises(errors.WrongDims, match=named):
        decode(Cloud, sent.digest, parts)


def test_dims_are_bound_anew_in_each_message() -> None:
    """Two messages of one type may have different sizes; those of the world hold for all."""
    parts = MemoryParts()
    small = encode(Cloud(torch.zeros(1, 1, 1), torch.zeros(1, 1, 10)), parts)
    assert decode(Cloud, encode(cloud(), parts).digest, parts, Rules({"d": 4})).z.shape == Z.shape
    with pytest.raises(errors.WrongDims, match="d = 1; expected 4"):
        decode(Cloud, small.digest, parts, Rules({"d": 4}))


def test_dims_of_an_order_hold_for_its_reply() -> None:
    """A name means one size in both; what only the reply names is its own."""
    parts = MemoryParts()
    order = encode(Cloud(Z, Y), parts)
    given, rules = decode_order(Cloud, order.digest, parts, Rules({"c": 7}))
    assert equal(given, Cloud(Z, Y)) and rules.sizes == {"c": 7, "K": 2, "n": 3, "d": 4}
    same = encode(Moved(Z, torch.zeros(7), torch.zeros(99)), parts, rules)
    assert decode(Moved, same.digest, parts, rules).z.shape == Z.shape
    for z, c, words in ((torch.zeros(3, 5, 4), 7, "K = 3; expected 2"), (Z, 8, "c = 8; expected 7")):
        other = Moved(z, torch.zeros(c), torch.zeros(99))
        with pytest.raises(errors.WrongDims, match=words):
            encode(other, parts, rules)
        with pytest.raises(errors.WrongDims, match=words):
            decode(Moved, encode(other, parts).digest, parts, rules)


LARGE = {
    "a float": Told(torch.tensor([1.0, 1e30])),
    "a negative one": Told(torch.tensor([-2e15, 0.0])),
    "a bfloat": Told(torch.tensor([3e38], dtype=torch.bfloat16)),
    "a whole number": Told(torch.tensor([1, -(2**63)])),
    "a weight": Told(torch.zeros(1), {"w": torch.tensor(1e16)}),
    "a negative weight": Told(torch.zeros(1), {"w": torch.tensor(-1e16)}),
    "a scalar": Told(torch.zeros(1), n=10**16),
    "a fraction": Told(torch.zeros(1), rate=-1e300),
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_no_number_of_a_reply_is_beyond_all_measure(value: Told) -> None:
    """What squared and summed is infinite would end the run of all; what is kept or ordered may be any number."""
    parts = MemoryParts()
    _, rules = decode_order(Flags, encode(Flags(torch.zeros(1)), parts).digest, parts, Rules())
    sent = encode(value, parts)
    assert equal(decode(Told, sent.digest, parts), value)
    with pytest.raises(errors.OutOfRange, match="no number may be beyond 1e\\+15"):
        decode(Told, sent.digest, parts, rules)
    with pytest.raises(errors.OutOfRange):
        encode(value, parts, rules)
    good = encode(Told(torch.tensor([-1e15, 1e15]), n=10**15), parts, rules)
    assert decode(Told, good.digest, parts, rules).n == 10**15


@pytest.mark.parametrize("low", [torch.tensor([1.0, -0.5]), torch.tensor([[-1]]), torch.tensor([-1e-3], dtype=torch.float16)])
def test_a_tensor_keeps_the_bound_of_its_field(low: Tensor) -> None:
    """As a single number does, in both directions; an empty one has nothing to keep."""
    parts = MemoryParts()
    with pytest.raises(errors.OutOfRange, match=r"spread is -.*; it is declared as 0 or more"):
        encode(Spread(low), parts)
    with pytest.raises(errors.OutOfRange):
        decode(Spread, encode(Free(low), parts).digest, parts)
    for good in (low.abs(), low[:0], torch.zeros(3, dtype=torch.bool)):
        assert equal(decode(Spread, encode(Spread(good), parts).digest, parts).spread, good)


def test_a_root_names_parts_a_limited_number_of_times() -> None:
    """Each time one is mapped, which takes one of the files that a process may have open, however small or often named it is."""
    few, many = (MANY - 1, MANY)
    part = ["part", "b3-" + "0" * 64, "F32", [2], 8]
    for count in (few, many):
        header = layout.parse(memoryview(root({"each": [part] * count})))
        if count == few:
            assert header.parts == (("b3-" + "0" * 64, 8),)
            continue
        with pytest.raises(errors.TooManyTensors, match=f"names parts {MANY} times; the limit is {MANY - 1}"):
            _ = header.parts


def test_what_names_too_many_parts_is_not_written() -> None:
    """The same limit on the way out: one tensor in very many places."""
    big = torch.zeros(PART_BYTES)
    with pytest.raises(errors.TooManyTensors):
        encode(Cloud(Z, Y, images=(big.expand(3, -1).contiguous(),) * MANY), MemoryParts(), LAX)


@record
class Model:
    """What is asked."""

    model: Weights


@record
class Update:
    """What is answered: like what was asked."""

    model: Weights = field("like model")


@record
class Clouds:
    """An answer for each of several models."""

    each: dict[str, Weights] = field("like model")


TEMPLATE = Model({"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.int64)})
UNLIKE = {
    "a name less": ({"a": torch.zeros(2, 3)}, "lacks 'b'"),
    "a name more": ({**TEMPLATE.model, "c": torch.zeros(1)}, "unexpected tensor 'c'"),
    "another name": ({"a": torch.zeros(2, 3), "B": torch.zeros((), dtype=torch.int64)}, "'B'"),
    "another shape": ({**TEMPLATE.model, "a": torch.zeros(3, 2)}, r"model/a is \[3, 2\]"),
    "an axis of one": ({**TEMPLATE.model, "b": torch.zeros(1, dtype=torch.int64)}, "model/b"),
    "another dtype": ({**TEMPLATE.model, "a": torch.zeros(2, 3).double()}, "float64"),
}


@pytest.mark.parametrize(("weights", "words"), UNLIKE.values(), ids=UNLIKE)
def test_like_ties_names_shapes_and_dtypes(weights: dict[str, Tensor], words: str) -> None:
    """Weights that are `like model` differ from the order's model in nothing but numbers."""
    parts, rules = MemoryParts(), Rules(like=(TEMPLATE,))
    with pytest.raises(errors.WrongDims, match=words):
        encode(Update(weights), parts, rules)
    with pytest.raises(errors.WrongDims, match=words):
        decode(Update, encode(Model(weights), parts).digest, parts, rules)
    with pytest.raises(errors.WrongDims):
        encode(Clouds({"k": weights}), parts, rules)


def test_names_are_compared_before_a_part_is_opened() -> None:
    """A root that names more than the order's tensors is refused without a look at what it names."""
    part = ["part", "b3-" + "0" * 64, "F32", [2], 8]
    parts, digest = stored(root({"model": {f"t{i}": part for i in range(1000)}}))
    with pytest.raises(errors.WrongDims, match="model lacks 'a'"):
        decode(Update, digest, parts, Rules(like=(TEMPLATE,)))


def test_like_looks_at_the_order_first_and_then_at_the_state() -> None:
    """The first record that has the field is the template; where none has it, nothing is accepted."""
    parts, good = MemoryParts(), Update({n: t + 1 for n, t in TEMPLATE.model.items()})
    other = Flags(torch.zeros(1))
    found: list[tuple[Any, ...]] = [(TEMPLATE,), (other, TEMPLATE), (TEMPLATE, Model({})), (None, TEMPLATE)]
    lost: list[tuple[Any, ...]] = [(), (None,), (other,), (Model({}), TEMPLATE)]
    for like in found:
        sent = encode(good, parts, Rules(like=like))
        assert equal(decode(Update, sent.digest, parts, Rules(like=like)), good)
    for like in lost:
        with pytest.raises(errors.WrongDims):
            encode(good, parts, Rules(like=like))


def test_only_memory_may_hold_what_is_not_finite() -> None:
    """The strict rules are the default; the lax ones let NaN through, and nothing else that is malformed."""
    parts, value = MemoryParts(), Flags(torch.tensor([1.0, float("nan")]))
    with pytest.raises(errors.NotFinite, match="on holds a NaN"):
        encode(value, parts)
    sent = encode(value, parts, LAX)
    assert equal(decode(Flags, sent.digest, parts, LAX), value)
    with pytest.raises(errors.NotFinite):
        decode(Flags, sent.digest, parts)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 5_000, 9_999])
def test_one_bad_number_is_found_anywhere(dtype: torch.dtype, bad: float, at: int) -> None:
    """The finite check looks at every element of every floating dtype."""
    numbers = torch.linspace(-1, 1, 10_000).to(dtype)
    encode(Flags(numbers), MemoryParts())
    numbers[at] = bad
    with pytest.raises(errors.NotFinite):
        encode(Flags(numbers), MemoryParts())


class Counting(MemoryParts):
    """A store that counts what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        self.sizes.append(sum(len(b) for b in buffers))
        return super().put(buffers)

    @property
    def large(self) -> int:
        """How many parts were given."""
        return sum(size > PART_BYTES for size in self.sizes)


def test_a_part_that_two_records_share_is_written_once() -> None:
    """One turn hashes and writes a tensor once, however many messages and states hold it."""
    parts, memo, big = Counting(), Memo(), torch.zeros(PART_BYTES)
    first = encode(Model({"a": big}), parts, memo=memo)
    second = encode(Flags(big), parts, memo=memo)
    assert parts.large == 1 and first.files[1:] == second.files[1:]
    encode(Flags(big), parts)
    assert parts.large == 2


def test_a_part_that_changed_in_place_is_written_again() -> None:
    """The memo notices changes in place, through views and on the way back too."""
    parts, memo, big = Counting(), Memo(), torch.zeros(PART_BYTES)
    digests = [encode(Flags(big), parts, memo=memo).files[1][0]]
    changes: list[Callable[[], Any]] = [lambda: big.add_(1), lambda: big[:2].zero_(), lambda: big.detach().zero_()]
    for change in changes:
        change()
        sent = encode(Flags(big), parts, memo=memo)
        digests.append(sent.files[1][0])
        assert bytes_of(decode(Flags, sent.digest, parts).on) == bytes_of(big)
    assert parts.large == 4 and len(set(digests[:3])) == 3 and digests[3] == digests[0]


def test_a_tensor_without_a_version_is_never_remembered() -> None:
    """Inference tensors cannot say that they changed, so they are hashed each time."""
    parts, memo = Counting(), Memo()
    with torch.inference_mode():
        big = torch.zeros(PART_BYTES)
        first = encode(Flags(big), parts, memo=memo)
        big.add_(1)
        second = encode(Flags(big), parts, memo=memo)
    assert first.digest != second.digest and parts.large == 2


def test_a_memo_knows_a_tensor_from_its_successor() -> None:
    """A tensor that was let go cannot lend its identity to another one; and it is let go."""
    parts, memo, gone = MemoryParts(), Memo(), []
    for i in range(20):
        big = torch.full((PART_BYTES,), float(i))
        sent = encode(Flags(big), parts, memo=memo)
        assert decode(Flags, sent.digest, parts).on[0].item() == i
        gone.append(ref(big))
        del big
    assert not any(each() is not None for each in gone)


def test_extra_records_of_another_type_are_malformed() -> None:
    """A file of one type is not read as another."""
    parts = MemoryParts()
    for kind in (Flags, Update, Clouds, Cloud):
        with pytest.raises(Malformed):
            decode(kind, encode(TEMPLATE, parts).digest, parts)


@record
class Later:
    """A record with a default."""

    n: int
    w: Weights
    more: tuple[Weights, ...] = field(default=())


def test_every_field_must_be_there() -> None:
    """A default lets nothing be missing."""
    parts = MemoryParts()
    for structure, name in (({"n": 3, "more": []}, "w"), ({"n": 3, "w": {}}, "more")):
        with pytest.raises(errors.Missing, match=f"{name} is declared by Later and missing"):
            decode(Later, parts.put([root(structure)]), parts)
