"""What IFCA sends and keeps beside what the family does."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Models:
    """Down: the k models, of which the site takes one."""

    f: Weights = field(doc="theta_1")
    others: tuple[Weights, ...] = field(doc="theta_2 .. theta_k")
    g: Weights = field(doc="the classifier of the source")


@record
class Chosen:
    """Up: which model suited the site, and what it became there. Where no other site chose it, that goes to all as it is."""

    f: Weights = field(
        "like f", Exposure.WEIGHTS, audience=TO_BOTH, doc="the chosen model's backbone and bottleneck after local adaptation"
    )
    choice: Tensor = field("k", Exposure.STATISTIC, low=0, doc="1 at the model that the site chose, 0 at the others")


@record
class State:
    """What the coordinator knows."""

    f: Weights = field(doc="f_S, with which a site that has not chosen is scored")
    g: Weights = field(doc="g_S, which never changes")
    models: tuple[Weights, ...] = field(doc="theta_1 .. theta_k; none before the source model is known")
    chosen: dict[str, int] = field(doc="the place of the model that each site chose last, from 0")
