"""What FedSR sends and keeps. The class references are a field of `Mine` and of no message."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Update:
    """Up: encoder and classifier after local training. Counts of rows are not sent: all sites weigh alike."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="encoder and classifier after local training")


@record
class Mine:
    """What a site keeps: its own class references, K classes and representations of m numbers."""

    r_mu: Tensor = field("K m", doc="means of the classes' representations")
    r_s: Tensor = field("K m", doc="their scales, before softplus")
    C: float = field(doc="the scale between a representation and its class's reference")
