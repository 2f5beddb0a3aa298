"""What FedAMP sends and keeps beside what the family does. u_i goes down as a `Model`."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Adapted:
    """Up: w_i."""

    f: Weights = field("like f", Exposure.WEIGHTS, doc="backbone and bottleneck after local adaptation, w_i")


@record
class State:
    """What the coordinator knows."""

    f: Weights = field(doc="f_S, for sites that have not answered yet")
    g: Weights = field(doc="g_S, which never changes")
    models: dict[str, Weights] = field(doc="w_i, the last model of each site that has answered")
    xi: Tensor = field("N N", doc="attention between these models, rows and columns in the order of the sites' names")
