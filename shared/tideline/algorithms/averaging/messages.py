"""What the averaging family sends and keeps."""

from __future__ import annotations

from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Model:
    """What a client is sent: the common model w."""

    model: Weights = field(doc="parameters and buffers of the network, by name")


@record
class Update:
    """What a client answers: its model w_i and how many rows it trained on, n_i."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="the model after local training")
    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the site")


@record
class State:
    """What the coordinator knows: w."""

    model: Weights = field(doc="the common model")
