"""What FedDaDiL sends and keeps. Coordinates alpha, features and labels are fields of `Mine` and of no message."""

from __future__ import annotations

from torch import Tensor

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Model:
    """Down: the network, encoder and classifier."""

    model: Weights = field(doc="parameters and buffers by name")


@record
class Trained:
    """Up, while the encoder is learnt."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="the network after local training")


@record
class Head:
    """Down: one linear layer on the features as a site scales them; without rows where none is learnt."""

    weight: Tensor = field("m d", doc="its weights, a row per class")
    bias: Tensor = field("m", doc="its biases")


@record
class Tuned:
    """Up, while the head is learnt."""

    weight: Tensor = field("m d", Exposure.WEIGHTS, doc="the head's weights after local training")
    bias: Tensor = field("m", Exposure.WEIGHTS, doc="the head's biases after local training")


@record
class Described:
    """Up, once, before the first atoms: the moments of each class that has enough rows."""

    classes: Tensor = field("c", Exposure.COUNT, doc="which classes have at least ten rows here")
    count: Tensor = field("c", Exposure.COUNT, doc="training rows of each of them")
    mean: Tensor = field("c d", Exposure.STATISTIC, doc="mean feature of each of them")
    variance: Tensor = field("c d", Exposure.STATISTIC, doc="variance of each feature in each of them")


@record
class Atoms:
    """Down: the dictionary, K labelled clouds of n points."""

    z: Tensor = field("K n d", doc="support points in feature space, Z_P")
    y: Tensor = field("K n n_c", doc="soft labels, Y_P; each row lies on the simplex")


@record
class Adapting:
    """Down, to targets: the dictionary and what the sources know without it."""

    z: Tensor = field("K n d", doc="support points, Z_P")
    y: Tensor = field("K n n_c", doc="soft labels, Y_P")
    head: Head = field(doc="the linear layer of the sources")


@record
class Learnt:
    """Up: the site's version of the dictionary after its local epochs."""

    z: Tensor = field("K n d", Exposure.SYNTHETIC, doc="support points of the atoms, as this site moved them")
    y: Tensor = field("K n n_c", Exposure.SYNTHETIC, doc="soft labels of the atoms, as this site moved them")


@record
class Shown:
    """Up instead of `Learnt` after the last pass, only with `line`: two sites' versions are shown to all."""

    z: Tensor = field("K n d", Exposure.SYNTHETIC, audience=TO_BOTH, doc="support points of the atoms, as this site moved them")
    y: Tensor = field("K n n_c", Exposure.SYNTHETIC, audience=TO_BOTH, doc="soft labels of the atoms, as this site moved them")


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
    """The optimiser's memory, kept for the whole run (numerics.dictionary.Moments); empty before the first step."""

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
    """What a site keeps. It never travels."""

    z: Tensor = field("n_l d", doc="features of the training rows, scaled by the site's own statistics, Z_Q")
    y: Tensor = field("l", doc="their labels, int64; empty where there are none, Y_Q")
    shift: Tensor = field("s", doc="the site's own mean feature")
    stretch: Tensor = field("s", doc="the site's own spread of each feature")
    alpha: Tensor = field("K", doc="barycentric coordinates, on the simplex")
    moments: Moments = field(doc="of the optimiser; empty before the first step")
    model: Weights = field(doc="the frozen network; empty where data are features")
    guess: Tensor = field("g n_c", doc="what the unadapted model makes of the training rows; only at a target")
    candidates: dict[str, Linear] = field(doc="classifiers to choose from, by the pass and the way they were made")
    merits: dict[str, float] = field(doc="what each candidate is worth, found without labels")
    chosen: str = field(doc="the candidate that predicts; empty before the first choice")
    summaries: dict[str, Labelled] = field(doc="labelled summaries of this site, by samples per class")
    picture: Labelled = field(doc="the barycenter that stands for this site")


@record
class State:
    """What the coordinator knows."""

    model: Weights = field(doc="the network; empty where data are features")
    head: Head = field(doc="the linear layer of the sources")
    z: Tensor = field("K n d", doc="support points of the global atoms, Z_P")
    y: Tensor = field("K n n_c", doc="soft labels of the global atoms, Y_P")
    versions: tuple[Atoms, ...] = field(doc="two sites' versions after the last pass, only with `line`")
