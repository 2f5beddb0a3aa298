"""What the coordinator of a rehearsal knows between exchanges.

Shapes: a members, s sites that played the target, m candidates.
"""

from __future__ import annotations

from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.record import field, record
from tideline.core.run import ClientId, Roster
from tideline.learning.rehearsal.messages import Moments


@record
class State:
    """labelled: moments of the labelled sites; shifts (a, 2) against the other labelled ones, -1 where unknown; counts of rows
    (s, m); voted (s, 5); agreed (m,).
    """

    labelled: Moments
    shifts: Tensor = field("a 2")
    rows: Tensor = field("s m")
    right: Tensor = field("s m")
    gained: Tensor = field("s m")
    lost: Tensor = field("s m")
    changed: Tensor = field("s m")
    confidence: Tensor = field("s m")
    voted: Tensor = field("s 5")
    agreed: Tensor = field("m")


def members_of(roster: Roster) -> tuple[ClientId, ...]:
    """All members, sorted: the order of the rows of `shifts`."""
    return tuple(sorted(member.id for member in roster))


def width(world: World) -> int:
    """How many features a shift is measured by: those of a row, or the channels of an image."""
    return world.inputs[0]
