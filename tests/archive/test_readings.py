"""Files that are read twice: what one reader does reaches no other, and what is remembered is bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest
import torch
from torch import Tensor

from tideline.archive import readings
from tideline.archive.checks import RULES, Rules
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, Parts
from tideline.archive.readings import Checked, Orders
from tideline.archive.writer import encode
from tideline.core.errors import Malformed
from tideline.core.record import Weights, record
from tideline.core.run import Digest


@record
class Inner:
    x: Tensor


@record
class Model:
    model: Weights
    steps: tuple[Inner, ...]
    n: int


def model(seed: int = 0) -> Model:
    numbers = torch.Generator().manual_seed(seed)
    return Model({"w": torch.rand(3, 2, generator=numbers)}, (Inner(torch.rand(2, generator=numbers)),), seed)


@pytest.fixture(params=["memory", "folder"])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Parts:
    return MemoryParts() if request.param == "memory" else FolderParts(tmp_path, durable=False)


def test_an_order_is_read_once_for_all(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reader gets the same numbers over the same bytes, in tensors of its own."""
    orders, digest = Orders(), encode(model(), parts).digest
    one, rules = orders.read(Model, digest, parts, {})
    monkeypatch.setattr(readings, "read", None)  # nothing is read again
    other, same = orders.read(Model, digest, parts, {})
    assert torch.equal(one.model["w"], other.model["w"]) and torch.equal(one.steps[0].x, other.steps[0].x)
    assert one.model["w"].data_ptr() == other.model["w"].data_ptr() and other.n == 0
    assert one.model["w"] is not other.model["w"] and rules is same


def test_what_a_reader_does_reaches_no_other(parts: Parts) -> None:
    """It may write to tensors in place, through numpy too, take a gradient, and change its mappings."""
    orders, digest = Orders(), encode(model(), parts).digest
    ways: tuple[Callable[[Tensor], object], ...] = (Tensor.zero_, lambda t: t.numpy().fill(7), Tensor.requires_grad_)
    for spoil in ways:
        mine, _ = orders.read(Model, digest, parts, {})
        assert torch.equal(mine.model["w"], model().model["w"]) and not mine.model["w"].requires_grad
        spoil(mine.model["w"])
        mine.model.clear()  # type: ignore[attr-defined]


def test_another_order_or_other_sizes_are_read(parts: Parts) -> None:
    orders = Orders()
    first, second = (encode(model(seed), parts).digest for seed in (1, 2))
    assert [orders.read(Model, digest, parts, {})[0].n for digest in (first, second, first)] == [1, 2, 1]
    assert orders.read(Model, first, parts, {"d": 3})[1].sizes == {"d": 3}


def test_a_part_that_was_damaged_is_read_again() -> None:
    """What lies in this reader's own store counts, not what another had under the name."""
    orders, here, there = Orders(), MemoryParts(), MemoryParts()
    digest = encode(model(), here).digest
    orders.read(Model, digest, here, {})
    there._held[digest] = here._held[digest][:-8]
    with pytest.raises(Malformed):
        orders.read(Model, digest, there, {})


def test_a_checked_reply_is_handed_out_once(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """To who folds it by the rules that it was checked by; what it does to it, a later reader does not see."""
    checked, digest = Checked(), encode(model(), parts).digest
    checked.check(Model, digest, parts, RULES)
    with monkeypatch.context() as patched:
        patched.setattr(readings, "read", None)
        checked.take(Model, digest, parts, RULES).model["w"].zero_()
    assert torch.equal(checked.take(Model, digest, parts, RULES).model["w"], model().model["w"])


def test_other_rules_read_again(parts: Parts) -> None:
    checked, digest = Checked(), encode(model(), parts).digest
    checked.check(Model, digest, parts, RULES)
    with pytest.raises(Malformed):
        checked.take(Model, digest, parts, Rules(most=1e-9))


def test_replies_are_remembered_up_to_a_number_of_bytes(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, digests = Checked(), [encode(model(seed), parts).digest for seed in range(8)]
    monkeypatch.setattr(readings, "CHECKED_BYTES", 3 * parts.size(digests[0]))
    for digest in (*digests, digests[-1]):
        checked.check(Model, digest, parts, RULES)
    assert [digest for _, digest in checked._known] == digests[-3:]
    assert checked._bytes == 3 * parts.size(digests[0])
    assert [checked.take(Model, Digest(digest), parts, RULES).n for digest in digests] == list(range(8))
    assert checked._bytes == 0


def test_what_a_reply_was_held_to_is_not_held(parts: Parts) -> None:
    """The rules hold the order, which may be large; a reply may be checked here, and folded by another coordinator."""
    checked, digest, rules = Checked(), encode(model(), parts).digest, Rules({"d": 3})
    checked.check(Model, digest, parts, rules)
    held = ref(rules)
    del rules
    assert held() is None and checked.take(Model, digest, parts, RULES).n == 0


def test_no_more_replies_than_a_number_are_remembered(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "CHECKED", 2)
    checked, digests = Checked(), [encode(model(seed), parts).digest for seed in range(4)]
    for digest in digests:
        checked.check(Model, digest, parts, RULES)
    assert [digest for _, digest in checked._known] == digests[-2:]
