"""In which numbers a run's weights travel: in fewer bytes, and read as float32 at both ends.

No method knows of it. What sites and coordinator compute with is what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tideline.core.errors import ConfigRefused
from tideline.core.settings import setting

LEAST_SHARE = 1e-4  # of a tensor's numbers that topk sends: what is read may be so much larger than what came
LEAST_NUMBERS = 64  # of a tensor that is packed: smaller ones would take as many bytes for what names them
# Numbers of a vector that travels as it is where int8 would give it one scale, and topk a share: biases, and batch norm's
# statistics. A variance that is a hundredth of another would become 0, or less.
LONGEST_VECTOR = 4096


class Format(StrEnum):
    """How a float32 tensor is written.

    FLOAT32   as it is, 4 bytes a number
    BFLOAT16  rounded to the nearest, ties to even; 2 bytes
    INT8      whole numbers from -127 to 127 times a scale, rounded up or down at random so that the mean is right; 1 byte
    TOPK      the largest numbers with their places; the others are 0
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    TOPK = "topk"


class Scale(StrEnum):
    """Of what int8 has one scale: of a tensor, or of each of its rows (its first axis)."""

    TENSOR = "tensor"
    ROW = "row"


@dataclass(frozen=True)
class Wire:
    """How weights travel in a run. The defaults are what a run without this section does, too."""

    format: Format = setting(Format.FLOAT32, doc="in which sites send weights: float32, bfloat16, int8 or topk")
    down: Format = setting(Format.FLOAT32, doc="in which sites are sent models: float32, bfloat16 or int8; true: as format")
    scale: Scale = setting(Scale.TENSOR, doc="of int8: one for each tensor, or one for each row of it")
    share: float = setting(0.01, low=LEAST_SHARE, high=1.0, doc="of topk: the share of a tensor's numbers that is sent")
    delta: bool = setting(False, doc="send the difference to the model that was sent, where a field has one")
    feedback: bool = setting(True, doc="add to the next message what rounding left out of the last; it stays at the site")

    @classmethod
    def unfolded(cls, given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """`down` may be true or false, too."""
        said = given.get("down")
        if not isinstance(said, bool):
            return given
        return {**given, "down": given.get("format", Format.FLOAT32) if said else Format.FLOAT32}

    @property
    def on(self) -> bool:
        """Whether anything travels otherwise than as float32."""
        return self.format is not Format.FLOAT32 or self.down is not Format.FLOAT32

    @property
    def asks(self) -> tuple[Format, ...]:
        """The formats that a site has to speak."""
        return tuple(each for each in Format if each in (self.format, self.down) and each is not Format.FLOAT32)


NO_WIRE = Wire()


def wire_of(said: Format | Wire) -> Wire:
    """What an experiment says, in full. Raises ConfigRefused for settings that do not go together."""
    wire = said if isinstance(said, Wire) else Wire(said)
    if wire.down is Format.TOPK:
        what = "wire.down is topk, and of a model that is sent whole most numbers would be lost"
        raise ConfigRefused(what, "Write down: bfloat16 or down: int8", path="wire.down")
    if wire.format is Format.TOPK and not wire.delta:
        what = "wire.format is topk, and of a model that is sent whole most numbers would be lost"
        raise ConfigRefused(what, "Write delta: true beside it, so that differences are sent", path="wire.delta")
    if wire.format is Format.FLOAT32 and wire.delta:
        what = "wire.delta is true, and differences in float32 take as many bytes as the model"
        raise ConfigRefused(what, "Write format: bfloat16, int8 or topk, or leave delta out", path="wire.delta")
    return wire
