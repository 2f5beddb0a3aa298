"""Messages and state of the averaging family. Methods of other families whose models travel whole send the same."""

from __future__ import annotations

from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Model:
    """What a client is sent: the common model w."""

    model: Weights = field(doc="parameters and buffers of the network, by name")


@record
class Models:
    """What a client is sent that scores several models."""

    models: tuple[Weights, ...] = field(doc="parameters and buffers by name, a mapping for each model")


@record
class Trained:
    """What a client answers: its model w_i."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="the model after local training")


@record
class Update(Trained):
    """What a client answers: its model w_i and how many rows it trained on, n_i."""

    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the site")


@record
class State(Model):
    """What the coordinator knows: w."""
