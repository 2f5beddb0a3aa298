"""What is sent and kept where a hypernetwork generates the models. Embeddings and the hypernetwork itself are never sent."""

from __future__ import annotations

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Model:
    """Down: a client's model, phi_i."""

    model: Weights = field(doc="parameters and buffers of the network, by name")


@record
class Update:
    """Up: what local training added to it, Delta_i."""

    delta: Weights = field("like model", Exposure.WEIGHTS, doc="the model after local training less the one before")


@record
class Counted:
    """Up, where counts weigh what is averaged: Delta_i and n_i."""

    delta: Weights = field("like model", Exposure.WEIGHTS, doc="the model after local training less the one before")
    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the site")


@record
class Shared:
    """Up, where one client is asked at a time: Delta_i. A share of it reaches the next one with what is not generated."""

    delta: Weights = field(
        "like model",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        doc="the model after local training less the one before; a share of what is not generated reaches the next site",
    )


@record
class Models:
    """Down, to be scored: a client's own model alone, or those of all clients, to a site that has none."""

    models: tuple[Weights, ...] = field(doc="models, each by name")


@record
class State:
    """What the coordinator knows: the hypernetwork with its optimiser's memory, and what is averaged beside it."""

    theta: Weights = field(doc="parameters by name, and nu (N, e), a row for each of `clients`")
    m: Weights = field(doc="first moments of theta")
    v: Weights = field(doc="second moments of theta; none with SGD")
    steps: int = field(doc="optimiser steps done")
    rest: Weights = field(doc="tensors that are not generated, buffers among them: their mean")
    clients: tuple[str, ...] = field(doc="who has an embedding, sorted")
