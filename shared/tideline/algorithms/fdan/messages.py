"""What f-DAN sends and keeps. Batch-norm statistics are a field of `Mine` and of no reply."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record

LEAST = 32  # rows of a site, and of a mini-batch: a mean over fewer would nearly be a row


@record
class Model:
    """Down: the common model."""

    model: Weights = field(doc="w, what is trained of the network, by name")
    buffers: Weights = field(doc="batch-norm statistics and counters of the beginning, for a site that has none of its own yet")


@record
class Width:
    """Up, once, from the target: how far its features lie apart. It goes to all sites."""

    s2: float = field("", Exposure.METRIC, audience=TO_BOTH, low=1e-12, doc="median squared distance of 500 of its features")


@record
class Waves:
    """Down: the common model, and what all sites draw the same random features from."""

    model: Weights = field(doc="w")
    buffers: Weights = field(doc="batch-norm statistics of the beginning")
    seed: int = field(doc="seed of Omega and of the phases")
    s2: float = field(doc="the target's squared distance, which the kernels are as wide as")


@record
class Moment:
    """Up: a site's features as one vector. The target's goes to the sources; the mean of the sources', to the target."""

    m: Tensor = field("D", Exposure.STATISTIC, audience=TO_BOTH, doc="the mean of psi over the site's training rows")
    samples: int = field("", Exposure.COUNT, low=LEAST, doc="training rows at the site")


@record
class Lesson:
    """Down: the common model, and the moment that features are drawn to."""

    model: Weights = field(doc="w")
    buffers: Weights = field(doc="batch-norm statistics of the beginning")
    seed: int = field(doc="seed of Omega and of the phases")
    s2: float = field(doc="the target's squared distance")
    partner: Tensor | None = field("D", doc="to a source m_T, to the target the mean of m_i; none before they are known")
    spread: float = field(doc="to the target, the mean of |m_i|^2 less |partner|^2, which no feature changes; to a source 0")


@record
class Change:
    """Up: what local training changed."""

    delta: Weights = field("like model", Exposure.WEIGHTS, doc="w_i - w, of what is trained")


@record
class Mine:
    """What a site keeps: the batch norm of its own, and the model that it is scored with. Empty before there are any."""

    model: Weights = field(doc="w, once it was scored")
    buffers: Weights = field(doc="batch-norm statistics on the site's own training rows")


@record
class State:
    """What the coordinator knows."""

    model: Weights = field(doc="w")
    buffers: Weights = field(doc="batch-norm statistics of the beginning, which never change")
    seed: int = field(doc="seed of Omega and of the phases")
    s2: float = field(doc="the target's squared distance; 0 before it is known")
    moments: dict[str, Tensor] = field(doc="the last moment of each site")
