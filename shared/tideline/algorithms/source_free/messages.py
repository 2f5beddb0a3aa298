"""What the source-free family sends and keeps: h = g o f in its two parts, since the classifier g never changes again."""

from __future__ import annotations

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Model:
    """Down, and the coordinator's state: a whole network."""

    f: Weights = field(doc="parameters and buffers of backbone and bottleneck, by name")
    g: Weights = field(doc="the classifier")


@record
class Taught:
    """Up, from a source: the network after training on its labelled rows. Of one source it goes to all sites as it is."""

    f: Weights = field(
        "like f", Exposure.WEIGHTS, audience=TO_BOTH, doc="backbone and bottleneck as the source trained them, for all sites"
    )
    g: Weights = field("like g", Exposure.WEIGHTS, audience=TO_BOTH, doc="the classifier as the source trained it, for all sites")
    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the source")


@record
class Adapted:
    """Up, from a site without labels: f_k."""

    f: Weights = field("like f", Exposure.WEIGHTS, doc="backbone and bottleneck after local adaptation")


@record
class Counted(Adapted):
    """Up, from a site without labels: f_k and how many rows it adapted to, n_k."""

    samples: int = field("", Exposure.COUNT, low=1, doc="training rows at the site, all without labels")


@record
class Mine:
    """What a site keeps: the model that is its own in the end. Empty before it has one."""

    f: Weights = field(doc="backbone and bottleneck")
    g: Weights = field(doc="the classifier, as the source left it")
