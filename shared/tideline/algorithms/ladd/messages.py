"""What LADD sends and keeps, beside what the source-free family does. Who is in which cluster is a field of `State` alone."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record

MEAN = "mean amplitude of the lowest frequencies of up to 100 training images"


@record
class Style:
    """Up, once: a site's style."""

    style: Tensor = field("channels window window", Exposure.STATISTIC, low=0, doc=MEAN)


@record
class SharedStyle:
    """Up, once, where sources train on images in the targets' styles: a site's style."""

    style: Tensor = field(
        "channels window window", Exposure.STATISTIC, audience=TO_BOTH, low=0, doc=f"{MEAN}; goes to the sources as it is"
    )


@record
class Lesson:
    """Down, to a source: the network, and the styles that its images take."""

    f: Weights = field(doc="parameters and buffers of backbone and bottleneck, by name")
    g: Weights = field(doc="the classifier")
    styles: Tensor = field("N channels window window", doc="the targets' styles, without names")


@record
class Start:
    """Down, in a round of LADD: where training begins, and h_S, which it is held to. A site keeps both: large parts come once."""

    f: Weights = field(doc="f_c, the model of the site's cluster; the model of all for a site without one")
    source: Weights = field(doc="f_S, as the source left it")
    g: Weights = field(doc="the classifier of the source")


@record
class Pupil:
    """What a site keeps under LADD. Empty before it has a model; without a teacher before the running mean begins."""

    f: Weights = field(doc="backbone and bottleneck of the model that is its own")
    g: Weights = field(doc="the classifier, as the source left it")
    source: Weights = field(doc="f_S, kept so that its large parts are not sent again")
    teacher: Weights = field(doc="f of the teacher: the running mean of the models that came")
    taken: int = field(doc="m: how many models it is the mean of")


@record
class State:
    """What the coordinator knows."""

    f: Weights = field(doc="the mean over all sites; at first f_S")
    g: Weights = field(doc="g_S, which never changes")
    source: Weights = field(doc="f_S")
    models: tuple[Weights, ...] = field(doc="f_c of each cluster; none while all have the model of all")
    members: dict[str, int] = field(doc="the cluster of each site that sent its style")
    styles: Weights = field(doc="the style of each of them")
