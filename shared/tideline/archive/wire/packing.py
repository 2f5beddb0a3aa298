"""Which tensors of a message are packed, and how, while it is written or read.

What rounding leaves out of a message is added to the next one of the same field (error feedback: Seide et al., "1-bit stochastic
gradient descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from tideline.archive.wire import formats
from tideline.archive.wire.formats import Packed
from tideline.core.asked.forms import Form, form_down, form_up
from tideline.core.asked.wire import Wire
from tideline.core.record import Kind, Spec
from tideline.core.settings import EMPTY

COARSE = 0.99  # share of a tensor's numbers that int8 makes 0 for one that is huge


@dataclass(frozen=True)
class Packing:
    """The wire of one message.

    up      whether a site sends it; else it is an order
    seed    by which its writer rounds
    before  what rounding left out of the last message, by field
    left    takes what it leaves out of this one; None: nobody wants it
    coarse  takes the paths of tensors whose scale left next to nothing of them
    at      the field that the message is the value of, with the step that gives it
    """

    wire: Wire
    up: bool
    seed: int = field(default=0, compare=False)
    before: Mapping[str, Tensor] = field(default_factory=lambda: EMPTY, compare=False)
    left: dict[str, Tensor] | None = field(default=None, compare=False)
    coarse: list[str] = field(default_factory=list, compare=False)
    at: str = field(default="", compare=False)

    @property
    def reply(self) -> Packing:
        """That of the reply to an order."""
        return Packing(self.wire, up=True)

    def within(self, path: str) -> Packing:
        """That of a value for peers, which the message names at this path."""
        return replace(self, at=self.place(path))

    def place(self, path: str) -> str:
        return f"{self.at}/{path}"

    def form(self, spec: Spec, kind: Kind) -> Form | None:
        """The form of a field, or of a part of one; None: as it is."""
        return form_up(self.wire, spec, kind) if self.up else form_down(self.wire, kind)

    def packed(self, t: Tensor, form: Form, like: Tensor | None, path: str) -> tuple[Packed, Tensor] | None:
        """A tensor of finite numbers, packed, and as it will be read; None for one that travels as it is.

        like: what differences are taken to.
        """
        if not formats.packs(t.dtype, t.numel()):
            return None
        place, base = self.place(path), like if form.delta else None
        wanted = t.detach().cpu() if base is None else t.detach().cpu() - base
        before = self.before.get(place)
        if before is not None and before.shape == wanted.shape:
            wanted = wanted + before
        made = formats.pack(wanted.contiguous(), form, rng_of(self.seed, place))
        read = formats.unpack(made, form, t.shape)
        if self.left is not None and self.wire.feedback:
            self.left[place] = wanted - read
        if formats.SCALE in made and int((made[formats.VALUES] == 0).sum() - (wanted == 0).sum()) > COARSE * t.numel():
            self.coarse.append(path)
        return made, read if base is None else base + read


def unpacked(packed: Packed, form: Form, like: Tensor | None, path: str) -> Tensor:
    """A tensor that came packed. like: that of the order, if it names one. Raises BadPacking before anything large is made."""
    shape = packed[formats.VALUES].shape if like is None else like.shape
    formats.check(packed, form, shape, path)
    read = formats.unpack(packed, form, shape)
    return like + read if form.delta and like is not None else read


def rng_of(seed: int, place: str) -> Generator:
    """A generator for one tensor, whichever is written first."""
    made = hashlib.sha256(f"{seed} {place}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(made[:8], "little") >> 1)
