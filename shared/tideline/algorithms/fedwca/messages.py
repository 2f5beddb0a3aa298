"""What FedWCA sends and keeps. Who is in which cluster is a field of `State` and of no message."""

from __future__ import annotations

from torch import Tensor

from tideline.algorithms.source_free.messages import Adapted, Model
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record


@record
class Start:
    """Down, in the first round and where the coordinator makes f_init: two models, however many clusters there are."""

    f: Weights = field(doc="f_{c_k}, the model of the site's cluster; in the first round f_S")
    init: Weights | None = field(doc="f_init, where training begins; none: with the own model")
    g: Weights = field(doc="the classifier of the source")


@record
class Mix:
    """Down, in a full round: C + 1 models. How many there are tells the number of clusters, and nothing of their members."""

    f: Weights = field(doc="f_{c_k}, the model of the site's cluster")
    soft: tuple[Weights, ...] = field(doc="f~_c, the soft model of each cluster; none where there is but one cluster")
    g: Weights = field(doc="the classifier of the source")
    scores: Tensor = field("C", doc="zeros, one for each soft model, which the site's weights take the place of")


@record
class Weighed(Adapted):
    """Up, in a full round: f_k, and which models suited the site."""

    alpha: Tensor = field("C", Exposure.STATISTIC, low=0, doc="how well each soft model suits the site, on the simplex (eq. 1)")
    beta: Tensor = field(
        "2", Exposure.STATISTIC, low=0, doc="shares of the cluster's model and of the soft models' mean, on the simplex (eq. 3)"
    )


@record
class State(Model):
    """What the coordinator knows: h_S, for sites that come late, and the clusters."""

    models: tuple[Weights, ...] = field(doc="f_c, the model of each cluster")
    members: dict[str, int] = field(doc="the cluster of each site that has one")
    layers: Weights = field(doc="what each of them was clustered by")
    missed: dict[str, int] = field(doc="rounds in a row in which each of them did not answer")
    soft: Tensor = field("L C", doc="S: the share of f_c in each of the L models that a full round sends as soft ones")
    v: Weights = field(doc="v_k (C,): the share of f_c in a site's f_init (eq. 8), since its last full round")
