"""What central training sends and keeps. It is the one method whose sites send their rows."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Rows:
    """Up: a site's labelled training rows, as the world's network takes them, each in one line of numbers."""

    x: Tensor = field("n inputs", Exposure.SAMPLES, doc="the training rows themselves")
    y: Tensor = field("n", Exposure.SAMPLES, low=0, doc="their labels")


@record
class Held:
    """The rows of one site while the coordinator trains. No dims: sites have different numbers of rows."""

    x: Tensor = field(doc="training rows (n, inputs)")
    y: Tensor = field(doc="their labels (n,)")


@record
class State:
    """What the coordinator knows: the model, and until it is trained the rows of every site."""

    model: Weights = field(doc="parameters and buffers of the network, by name")
    rows: dict[str, Held] = field(doc="what each site sent; none from the last round of training on")
    lost: int = field(doc="rounds of training whose numbers did not stay finite, so that the model stayed as it was")
