"""What pFedHN keeps beside the hypernetwork. Its messages are those of the hypernetworks' family."""

from __future__ import annotations

from tideline.algorithms.hypernetworks import messages
from tideline.core.record import field, record


@record
class State:
    """What the coordinator knows."""

    hyper: messages.State = field(doc="the hypernetwork, and what is averaged beside it")
    queue: tuple[str, ...] = field(doc="clients whose turn comes in this pass, the next one first")
