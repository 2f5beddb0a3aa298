"""What each format promises of a tensor, for any numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.budgets import examples
from tideline.archive.wire import formats
from tideline.archive.wire.formats import INDICES, SCALE, VALUES, check, pack, unpack
from tideline.archive.wire.packing import rng_of
from tideline.core.asked.forms import Form
from tideline.core.asked.wire import LEAST_NUMBERS, LONGEST_VECTOR, Format, Scale

floats = st.floats(-(2.0**49), 2.0**49, width=32, allow_subnormal=False) | st.sampled_from([0.0, -0.0, 1e-45, 1.2e-38, 1e15])
BFLOAT16 = Form(Format.BFLOAT16, Scale.TENSOR, 0.01, delta=False)
INT8 = Form(Format.INT8, Scale.TENSOR, 0.01, delta=False)
ROWS = Form(Format.INT8, Scale.ROW, 0.01, delta=False)
TOPK = Form(Format.TOPK, Scale.TENSOR, 0.1, delta=False)
FORMS = pytest.mark.parametrize("form", [BFLOAT16, INT8, ROWS, TOPK], ids=["bfloat16", "int8", "int8 by row", "topk"])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """A matrix with LEAST_NUMBERS numbers or more, most of them drawn from few."""
    rows, columns = draw(st.integers(4, 9)), draw(st.integers(16, 20))
    some = torch.tensor(draw(st.lists(floats, min_size=1, max_size=12)))
    places = torch.randint(len(some), (rows, columns), generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return some[places]


@FORMS
@settings(max_examples=examples(60))
@given(t=tensors(), seed=st.integers(0, 2**62))
def test_what_is_packed_passes_its_checks_and_comes_back_in_its_shape(form: Form, t: Tensor, seed: int) -> None:
    """Equal seeds give equal bytes, and the tensor is not written to."""
    before = t.clone()
    packed, again = (pack(t, form, rng_of(seed, "w")) for _ in range(2))
    assert all(torch.equal(packed[name], again[name]) for name in packed) and torch.equal(t, before)
    assert tuple(packed) == formats.NAMES[form.format]
    check(packed, form, t.shape, "w")
    made = unpack(packed, form, t.shape)
    assert made.shape == t.shape and made.dtype is torch.float32 and bool(torch.isfinite(made).all())


@settings(max_examples=examples(60))
@given(t=tensors())
def test_bfloat16_is_the_nearest(t: Tensor) -> None:
    """No bfloat16 is nearer, and of two that are as near the even one is taken."""
    made = unpack(pack(t, BFLOAT16, rng_of(0, "")), BFLOAT16, t.shape)
    bits = made.view(torch.int32)
    assert not bool((bits & 0xFFFF).any())
    off = (t.double() - made.double()).abs()
    for step in (1 << 16, -(1 << 16)):
        other = (bits + step).view(torch.float32).double()
        gap = (t.double() - other).abs()
        assert bool(((off < gap) | ((off == gap) & ((bits >> 16) % 2 == 0)) | ~torch.isfinite(other)).all())


@pytest.mark.parametrize("form", [INT8, ROWS], ids=["tensor", "row"])
@settings(max_examples=examples(60))
@given(t=tensors(), seed=st.integers(0, 2**62))
def test_int8_is_off_by_less_than_a_step(form: Form, t: Tensor, seed: int) -> None:
    """Of the scale of the tensor, or of the row: a 127th of its largest number."""
    packed = pack(t, form, rng_of(seed, ""))
    off = (unpack(packed, form, t.shape).double() - t.double()).abs()
    whole = t.abs().amax(1, keepdim=True) if form is ROWS else t.abs().max()
    assert bool((off <= whole.double() / 127 * (1 + 1e-5) + 1e-44).all())
    assert packed[SCALE].shape == ((len(t),) if form is ROWS else ())


def test_int8_is_right_on_average() -> None:
    """Of a thousand seeds: rounding up and down at random has no direction."""
    t = torch.linspace(-1, 1, 64).view(8, 8)
    mean = sum(unpack(pack(t, INT8, rng_of(seed, "")), INT8, t.shape) for seed in range(1000)) / 1000
    assert float((mean - t).abs().max()) < 4 * (1 / 127) / math.sqrt(1000)


def test_int8_of_one_huge_number_loses_the_others_of_its_scale_alone() -> None:
    """They become 0, or a step at random; with a scale for each row, those of other rows stay."""
    t = torch.ones(8, 16)
    t[2, 3] = 1e12
    made = unpack(pack(t, INT8, rng_of(3, "")), INT8, t.shape)
    assert float(made[2, 3]) == pytest.approx(1e12) and int((made == 0).sum()) == 127
    by_row = unpack(pack(t, ROWS, rng_of(3, "")), ROWS, t.shape)
    others = torch.cat([by_row[:2], by_row[3:]])
    assert torch.allclose(others, torch.ones_like(others), atol=1e-6) and int((by_row[2] == 0).sum()) == 15


@settings(max_examples=examples(60))
@given(t=tensors())
def test_topk_sends_the_largest(t: Tensor) -> None:
    """No number that it leaves out is larger than one that it sends; what it sends is as it was."""
    packed = pack(t, TOPK, rng_of(0, ""))
    places, flat = packed[INDICES].long(), t.reshape(-1)
    assert len(places) == math.ceil(0.1 * len(flat)) and torch.equal(flat[places], packed[VALUES])
    left = torch.ones(len(flat), dtype=torch.bool)
    left[places] = False
    assert float(flat[left].abs().max()) <= float(packed[VALUES].abs().min())
    order = flat.abs().sort(descending=True, stable=True).indices[: len(places)]
    assert torch.equal(order.sort().values, places)


def test_vectors_of_bytes() -> None:
    """Golden: the same tensor and seed give these numbers, on every machine."""
    t = torch.tensor([0.5, -1.0, 127.0, 3.25] * 16).view(4, 16)
    assert pack(t, BFLOAT16, rng_of(1, "w"))[VALUES][0, :4].tolist() == [0.5, -1.0, 127.0, 3.25]
    int8 = pack(t, INT8, rng_of(1, "w"))
    assert float(int8[SCALE]) == 1.0 and int8[VALUES][0].tolist() == GOLDEN
    assert pack(t, TOPK, rng_of(1, "w"))[INDICES].tolist() == [2, 6, 10, 14, 18, 22, 26]


GOLDEN = [0, -1, 127, 3, 0, -1, 127, 3, 1, -1, 127, 4, 1, -1, 127, 3]


@FORMS
def test_small_tensors_and_other_types_are_not_packed(form: Form) -> None:
    """They travel as they are; so do vectors where numbers of unlike sizes would share a scale, or most be left out."""
    square, row = torch.Size((8, LEAST_NUMBERS // 8)), torch.Size((1, LEAST_NUMBERS - 1))
    assert formats.packs(torch.float32, square, form) and not formats.packs(torch.float32, row, form)
    assert not formats.packs(torch.int64, square, form) and not formats.packs(torch.float64, square, form)
    assert formats.packs(torch.float32, torch.Size((LONGEST_VECTOR,)), form) == (form is BFLOAT16)
    assert formats.packs(torch.float32, torch.Size((LONGEST_VECTOR + 1,)), form)
