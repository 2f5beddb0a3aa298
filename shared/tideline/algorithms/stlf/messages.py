"""What ST-LF sends and stores. As in the paper h is a hypothesis, d divergences, psi 1 for a target, alpha weights, K joules."""

from __future__ import annotations

from torch import Tensor

from tideline.algorithms.averaging.messages import Trained
from tideline.core.handle import Handle
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import Weights, field, record


@record
class Hypothesis:
    """A source's model, for its targets alone. No order of theirs has one that it could be like: they hold it to the network."""

    h: Weights = field("", Exposure.WEIGHTS, audience=TO_PEERS, doc="the model that a device trained, for its targets alone")


@record
class Separator:
    """A device's half of a classifier of "mine or yours", for its partner."""

    w: Weights = field("", Exposure.WEIGHTS, audience=TO_PEERS, doc="a classifier of the pair's rows, for the partner alone")


@record
class Update(Trained):
    """A model after local training."""

    count: int = field("", Exposure.COUNT, low=1, doc="labelled rows that it was trained on")


@record
class Profile:
    """What a device reports of itself."""

    count: int = field("", Exposure.COUNT, low=1, doc="training rows, D_i")
    labelled: int = field("", Exposure.COUNT, low=0, doc="training rows with labels, D_i^L")
    error: float = field("", Exposure.METRIC, low=0, doc="empirical error, unlabelled rows counted as wrong (eq. 3)")


@record
class Pairs:
    """The partners of a device; in a first exchange where both start, later what each partner made in the one before."""

    partners: tuple[str, ...]
    theirs: dict[str, Handle[Separator]]
    start: Weights = field(doc="the common start of all classifiers; empty after the first exchange")


@record
class Separated:
    """A device's halves, each for one partner."""

    own: dict[str, Handle[Separator]]


@record
class Curve:
    """How a finished classifier takes a device's rows for its partner's, at each threshold; in the middle, as it says itself."""

    above: Tensor = field("257", Exposure.STATISTIC, low=0, doc="share of own rows taken for the partner's, by threshold")


@record
class Errors:
    """That of each partner; and how fast lines were."""

    errors: dict[str, Curve]
    rates: dict[str, float] = field("", Exposure.METRIC, low=0, doc="bit/s of what came from each partner, where it is measured")
    sent: float = field("", Exposure.METRIC, low=0, doc="bit/s of what was sent, where it is measured")


@record
class Whose:
    """The one classifier that tells all devices apart, and which of its outputs is whose."""

    model: Weights = field(doc="a network with an output for each device")
    names: tuple[str, ...]


@record
class Summary:
    """Moments of a device's rows."""

    mean: Tensor = field("inputs", Exposure.STATISTIC, doc="mean of each number of a row")
    variance: Tensor = field("inputs", Exposure.STATISTIC, low=0, doc="variance of each number of a row")


@record
class Chosen:
    """A rule's sources, targets and weights, in the order of the state's names."""

    rule: str
    psi: Tensor = field("N")
    alpha: Tensor = field("N N")
    joules: float = 0.0
    links: int = 0
    objective: float = 0.0


@record
class State:
    """What the coordinator knows. It has no hypothesis: handles name those that sites hold for each other.

    names are those of devices that are linked, sorted; before there are links, none. h are the models of sources, and readers
    those devices that each is sealed to.
    """

    model: Weights = field(doc="the common model")
    start: Weights = field(doc="the start of classifiers, or the classifier of all")
    K: Tensor = field("n n", doc="joules of a transfer, from i to j, in the roster's order; -1: no link")
    watts: Tensor = field("n", doc="transmit power, in the roster's order")
    roster: tuple[str, ...]
    count: dict[str, int]
    labelled: dict[str, int]
    error: dict[str, float]
    h: dict[str, Handle[Hypothesis]]
    readers: dict[str, tuple[str, ...]]
    separators: dict[str, Handle[Separator]]
    errors: dict[str, dict[str, Curve]]
    rates: dict[str, dict[str, float]]
    sent: dict[str, float]
    moments: dict[str, Summary]
    lost: tuple[str, ...]
    names: tuple[str, ...]
    d: Tensor = field("N N", doc="divergences")
    plans: tuple[Chosen, ...] = ()
    objectives: tuple[float, ...] = ()
    sweep: Tensor | None = field("s 4", doc="phi_E, joules, links, sources", default=None)


@record
class Targets:
    """Who gets a source's model."""

    names: tuple[str, ...]


@record
class Offered:
    """A source's model, sealed for them."""

    h: Handle[Hypothesis]


@record
class Share:
    """A source's model in a target's: its weight by each rule."""

    h: Handle[Hypothesis]
    weight: dict[str, float]


@record
class Assignment:
    """What a device is to be: by each rule a target, or not; and the models that its own is made of."""

    target: dict[str, bool]
    sources: dict[str, Share]


@record
class Span:
    """Bytes and seconds of transfers, where they are measured."""

    size: int = 0
    seconds: float = 0.0


@record
class Mine:
    """A device's memory."""

    validation: Tensor = field("v", doc="numbers of labelled training rows that only measure the error")
    h: Weights = field(doc="its own hypothesis")
    own: dict[str, Weights]
    models: dict[str, Weights]
    fetched: dict[str, Span]
    sent: Span
