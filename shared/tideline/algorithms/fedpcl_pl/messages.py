"""What FedPCL sends and keeps beside what the family does. The projection head is a field of `Kept` and of no message."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Common:
    """Down: what all sites have in common."""

    f: Weights = field(doc="f_S, which never changes")
    g: Weights = field(doc="g_S, which never changes")
    seed: int = field(doc="seed of the projection head's initialisation")
    mean: Tensor = field("classes width", doc="Cbar^c, the mean over the sites that have the class; zeros where none has")
    present: Tensor = field("classes", doc="which classes have a prototype")


@record
class Lesson:
    """Down, to train: what is common, and every site's prototypes, without a word of whose they are."""

    common: Common = field(doc="what all sites have in common")
    each: Tensor = field("sites classes width", doc="C_j^c of each site that sent any; zeros where it has none of the class")
    there: Tensor = field("sites classes", doc="which of them exist")


@record
class Described:
    """Up: a site's prototypes. They go to all sites as they are."""

    prototypes: Tensor = field(
        "classes width",
        Exposure.STATISTIC,
        audience=TO_BOTH,
        doc="C_i^c, the mean projection of the rows with each pseudo-label, for all sites; zeros for fewer than 5 rows",
    )
    counts: Tensor = field("classes", Exposure.COUNT, low=0, doc="rows with each pseudo-label; 0 for a class of fewer than 5")


@record
class Kept:
    """What a site keeps. Empty before its first exchange."""

    f: Weights = field(doc="f_S")
    g: Weights = field(doc="g_S")
    head: Weights = field(doc="the site's own projection head p")
    mean: Tensor = field(doc="Cbar^c (classes, width), as the site was sent them last")
    present: Tensor = field(doc="which classes have a prototype (classes,)")


@record
class State:
    """What the coordinator knows."""

    f: Weights = field(doc="f_S")
    g: Weights = field(doc="g_S")
    seed: int = field(doc="seed of every site's projection head")
    prototypes: dict[str, Tensor] = field(doc="C_i^c (classes, width) as each site sent them last")
    counts: dict[str, Tensor] = field(doc="its rows of each class (classes,)")
