"""Which fields of a message a run's wire packs, and in which form. The contract names it; writers and readers go by it."""

from __future__ import annotations

from dataclasses import dataclass

from tideline.core.asked.wire import Format, Scale, Wire
from tideline.core.privacy import Audience, Exposure
from tideline.core.record import Kind, Leaf, Spec


@dataclass(frozen=True)
class Form:
    """How a field's float32 tensors are written. delta: less those that the order's field of the name `like` has."""

    format: Format
    scale: Scale
    share: float
    delta: bool

    @property
    def words(self) -> str:
        """The form as a clause of the contract has it."""
        shown = {
            Format.INT8: f"int8 with a scale for each {self.scale.value}",
            Format.TOPK: f"the largest {100 * self.share:g} % of each tensor's numbers",
        }
        made = shown.get(self.format, self.format.value)
        return f"{made}, as a difference to what was sent" if self.delta else made


def form_up(wire: Wire, of: Spec | Leaf, kind: Kind) -> Form | None:
    """The form of what a site sends in a field, or in a part of one; None: as it is.

    Differences are taken where sender and reader have the same model, which readers of a sealed value need not have. topk is for
    differences whose shapes the order tells: what it does not send is 0.
    """
    if of.exposure is not Exposure.WEIGHTS or wire.format is Format.FLOAT32 or kind.what not in ("tensor", "weights"):
        return None
    shared = of.dims.startswith("like ") and Audience.COORDINATOR in of.audience
    delta = wire.delta and shared and not of.difference
    if wire.format is Format.TOPK and not (delta or (shared and of.difference)):
        return None
    return Form(wire.format, wire.scale, wire.share, delta)


def form_down(wire: Wire, kind: Kind) -> Form | None:
    """The form of a field of an order; None: as it is. Models are packed, and nothing else is."""
    if kind.what != "weights" or wire.down is Format.FLOAT32:
        return None
    return Form(wire.down, wire.scale, wire.share, delta=False)
