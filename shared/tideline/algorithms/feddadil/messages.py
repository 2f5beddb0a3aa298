"""What FedDaDiL sends and stores. Coordinates alpha, features and labels are fields of `Mine` and of no message."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Heads:
    """Down: linear layers that know nothing of the dictionary, and how the sources' features are standardised for two of them.

    h = 3: rows of all sources count alike; sites count alike; sites count alike, each scaled by its own statistics. h = 0: none.
    """

    weight: Tensor = field("h n_c d", doc="weights")
    bias: Tensor = field("h n_c", doc="biases")
    shift: Tensor = field("d", doc="mean feature over all rows of the sources")
    stretch: Tensor = field("d", doc="spread of each feature over all rows of the sources")
    decay: float = field(doc="weight decay of the layers")
    contrast: float = field(doc="share of the weight that moves between sources when sites instead of rows count alike")


@record
class Slopes:
    """Up, while the linear layers are learnt: the gradient of the site's mean cross-entropy, and how curved it is at most.

    The first gradient is taken at zero weights, where it is the share and the summed features of each class: a statistic.
    """

    weight: Tensor = field(
        "h n_c d",
        Exposure.STATISTIC,
        doc="gradient by the weights of each layer; the first tells the sum of each class's features",
    )
    bias: Tensor = field(
        "h n_c", Exposure.STATISTIC, doc="gradient by the biases of each layer; the first tells how many rows each class has"
    )
    curvature: Tensor = field(
        "h", Exposure.STATISTIC, low=0, doc="largest eigenvalue of the features' second moments, each layer's"
    )


@record
class Described:
    """Up, once, before the first atoms: moments of the site's features, and of each class that has enough rows."""

    rows: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the site")
    total_mean: Tensor = field("d", Exposure.STATISTIC, doc="mean feature, as the encoder gives it")
    total_variance: Tensor = field("d", Exposure.STATISTIC, low=0, doc="variance of each feature, as the encoder gives it")
    classes: Tensor = field("c", Exposure.COUNT, doc="which classes have at least ten rows here")
    count: Tensor = field("c", Exposure.COUNT, doc="training rows of each of them")
    mean: Tensor = field("c d", Exposure.STATISTIC, doc="mean feature of each of them, scaled by the site's own statistics")
    variance: Tensor = field("c d", Exposure.STATISTIC, low=0, doc="variance of each feature in each of them, likewise scaled")


@record
class Atoms:
    """Down: the dictionary, K labelled clouds of n points."""

    z: Tensor = field("K n d", doc="support points in feature space, Z_P")
    y: Tensor = field("K n n_c", doc="soft labels, Y_P; each row lies on the simplex")


@record
class Adapting(Atoms):
    """Down, to targets: the dictionary and what the sources know without it."""

    heads: Heads = field(doc="the linear layers of the sources")


@record
class Learnt:
    """Up: the site's version of the dictionary after its local epochs."""

    z: Tensor = field("K n d", Exposure.SYNTHETIC, doc="support points of the atoms, as this site moved them")
    y: Tensor = field("K n n_c", Exposure.SYNTHETIC, low=0, doc="soft labels of the atoms, as this site moved them")


@record
class Shown:
    """Up instead of `Learnt` after the last pass, only with `line`: two sites' versions are shown to all."""

    z: Tensor = field("K n d", Exposure.SYNTHETIC, audience=TO_BOTH, doc="support points of the atoms, as this site moved them")
    y: Tensor = field(
        "K n n_c", Exposure.SYNTHETIC, audience=TO_BOTH, low=0, doc="soft labels of the atoms, as this site moved them"
    )


@record
class Line:
    """Down, only with `line`: dictionaries on the straight line between two sites' versions (figure 2a)."""

    z: Tensor = field("t K n d", doc="support points at each place of the line")
    y: Tensor = field("t K n n_c", doc="soft labels at each place of the line")


@record
class Labelled:
    """Labelled points, kept; sets of different sizes stand beside each other."""

    z: Tensor = field("...", doc="points (r, d)")
    y: Tensor = field("...", doc="soft labels (r, n_c)")


@record
class Linear:
    """An ensemble of linear classifiers, kept: probabilities are averaged with the given shares."""

    weight: Tensor = field("...", doc="weights of each member (m, n_c, d)")
    bias: Tensor = field("...", doc="biases of each member (m, n_c)")
    share: Tensor = field("...", doc="shares of the members (m,), on the simplex")


@record
class Moments:
    """The optimiser's memory, kept for the whole run (numerics.client_update.Moments); empty before the first step."""

    z1: Tensor = field("...", doc="first moment of the points")
    z2: Tensor = field("...", doc="second moment of the points")
    logits1: Tensor = field("...", doc="first moment of the label logits")
    logits2: Tensor = field("...", doc="second moment of the label logits")
    alpha1: Tensor = field("...", doc="first moment of the coordinates")
    alpha2: Tensor = field("...", doc="second moment of the coordinates")
    row_steps: Tensor = field("...", doc="steps taken by each row of the atoms")
    alpha_steps: Tensor = field("...", doc="steps taken by the coordinates")


@record
class Mine:
    """A site's memory. It never travels."""

    z: Tensor = field(
        "n_l d", Exposure.SAMPLES, doc="features of the training rows, as the encoder gives them; scaled they are Z_Q"
    )
    y: Tensor = field("l", Exposure.SAMPLES, doc="their labels, int64; empty where there are none, Y_Q")
    shift: Tensor = field("s", doc="the site's own mean feature")
    stretch: Tensor = field("s", doc="the site's own spread of each feature")
    alpha: Tensor = field("K", doc="barycentric coordinates, on the simplex")
    moments: Moments = field(doc="of the optimiser; empty before the first step")
    model: Weights = field(doc="the frozen network; empty where data are features")
    heads: Heads = field(doc="the sources' linear layers; only at a target, h = 0 before it adapts")
    guess: Tensor = field("g n_c", doc="what the unadapted model makes of the training rows; only at a target")
    candidates: dict[str, Linear] = field(doc="-R and -E of the last passes of adaptation, by way and pass")
    evidence: dict[str, float] = field(doc="what the choice was made from, found without labels")
    chosen: str = field(doc="what predicts: none, own, committee, r, e; empty before the first choice")
    summaries: dict[str, Labelled] = field(doc="labelled summaries of this site, by samples per class")
    picture: dict[str, Tensor] = field(doc="rows and the barycenter that stands for them in a plane, and their classes")


@record
class State:
    """What the coordinator knows."""

    model: Weights = field(doc="the network; empty where data are features")
    heads: Heads = field(doc="the linear layers of the sources")
    weight: Tensor = field("h n_c d", doc="the layers' weights before the last step's momentum")
    bias: Tensor = field("h n_c", doc="their biases, likewise")
    rows: dict[str, int] = field(doc="labelled rows of each source, once known")
    z: Tensor = field("K n d", doc="support points of the global atoms, Z_P")
    y: Tensor = field("K n n_c", doc="soft labels of the global atoms, Y_P")
    versions: tuple[Atoms, ...] = field(doc="two sites' versions after the last pass, only with `line`")
