"""What local training sends and keeps. By default nothing but a seed, down."""

from __future__ import annotations

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Start:
    """What a client is sent: the seed of the common initial weights. As state also what sites have made of them, in the end."""

    seed: int = field(doc="seed of the network's initialisation")
    models: tuple[Weights, ...] = field(doc="the sites' models in the order of their names; only for `unseen`", default=())


@record
class Mine:
    """What a client keeps: its own model; empty before the first exchange."""

    model: Weights = field(doc="parameters and buffers by name")


@record
class Shared:
    """What a client answers in the end, for `unseen`. Targets get it as it is, without a name."""

    model: Weights = field("", Exposure.WEIGHTS, audience=TO_BOTH, doc="the site's own model, which every target scores")


@record
class Models:
    """What a target scores: the models of all who trained."""

    models: tuple[Weights, ...] = field(doc="parameters and buffers by name, a mapping for each site")
