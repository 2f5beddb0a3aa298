"""Settings of the source-free family, and its messages and memory.

A network is h = g o f, in two parts, since the classifier g never changes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.settings import BATCH, EPOCHS, RATE, ROUNDS, Plain, pull, setting
from tideline.learning.local_training import TrainingOptions
from tideline.learning.private.words import NUMBER, TRAINED

PROTOTYPES, PREDICTED = "prototypes", "predicted"
LABELS = (PROTOTYPES, PREDICTED)


@dataclass(frozen=True)
class Source(TrainingOptions):
    """How the source model is trained, where a member of the run has the source's data."""

    source_rounds: int = setting(
        1, low=1, sizes=ROUNDS, doc="exchanges with the sources; more than one averages several sources as it goes"
    )
    source_epochs: int = setting(30, low=1, sizes=EPOCHS, doc="epochs on the source's rows in such an exchange")
    source_batch: int = setting(32, low=2, sizes=BATCH, doc="rows in a mini-batch of the source")
    source_rate: float = setting(1e-3, low=0.0, sizes=RATE, doc="learning rate of the source's SGD")
    source_momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the source's SGD")
    source_weight_decay: float = setting(1e-3, low=0.0, sizes=pull("source_rate"), doc="weight decay of the source's SGD")
    label_smoothing: float = setting(0.1, low=0.0, high=0.99, doc="share of a label at a source that is spread over all classes")


@dataclass(frozen=True)
class EndCounts:
    """What sites count once training is over. Other families have these settings too."""

    confusion: bool = setting(False, doc="in the end targets count which classes are taken for which")
    label_shift: bool = setting(False, doc="in the end sites count rows by class, targets as their model has them")


@dataclass(frozen=True)
class Local(Source):
    """How a site without labels trains, the classifier g held."""

    rounds: int = setting(
        20, low=0, high=100_000, sizes=ROUNDS, doc="rounds of adaptation, R; 0 leaves the source model as it is"
    )
    epochs: int = setting(5, low=1, sizes=EPOCHS, doc="local epochs a round, E")
    batch: int = setting(32, low=2, sizes=BATCH, doc="rows in a mini-batch")
    rate: float = setting(1e-3, low=0.0, sizes=RATE, doc="learning rate of the local SGD, eta")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the local SGD; fresh each round")
    weight_decay: float = setting(1e-3, low=0.0, sizes=pull("rate"), doc="weight decay of the local SGD")
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")


@dataclass(frozen=True)
class Adapting(Local):
    """How it adapts: SGD on L_IM + lambda L_CE."""

    lam: float = setting(0.1, low=0.0, doc="weight of the pseudo-labels' cross-entropy, lambda")
    labels: str = setting(PROTOTYPES, choices=LABELS, doc="pseudo-labels: nearest prototype (eq. 4), or the likeliest class")


TINY: Mapping[str, Plain] = {
    "rounds": 2,
    "epochs": 1,
    "batch": 16,
    "rate": 0.01,
    "source_epochs": 2,
    "source_batch": 16,
    "source_rate": 0.05,
}
DEMO: Mapping[str, Plain] = {"rounds": 6, "epochs": 2, "rate": 2e-3, "source_epochs": 8, "source_rate": 0.02, "evaluate_every": 2}


def of_source(preset: Mapping[str, Plain]) -> dict[str, Plain]:
    """What a preset says of the sources' training."""
    return {name: value for name, value in preset.items() if name.startswith("source_")}


@record
class Model:
    """Down, and the coordinator's state: a whole network."""

    f: Weights = field(doc="parameters and buffers of backbone and bottleneck, by name")
    g: Weights = field(doc="the classifier")


@record
class Taught:
    """Up, from a source: the network after training on its labelled rows. Of one source it goes to all sites as it is."""

    f: Weights = field(
        "like f",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        private=TRAINED,
        doc="backbone and bottleneck as the source trained them, for all sites",
    )
    g: Weights = field(
        "like g",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        private=TRAINED,
        doc="the classifier as the source trained it, for all sites",
    )
    samples: int = field("", Exposure.COUNT, low=1, private=NUMBER, doc="labelled training rows at the source")


@record
class Adapted:
    """Up, from a site without labels: f_k."""

    f: Weights = field("like f", Exposure.WEIGHTS, private=TRAINED, doc="backbone and bottleneck after local adaptation")


@record
class Counted(Adapted):
    """Up, from a site without labels: f_k and how many rows it adapted to, n_k."""

    samples: int = field("", Exposure.COUNT, low=1, private=NUMBER, doc="training rows at the site, all without labels")


@record
class Mine:
    """A site's memory: the model that is its own in the end. Empty before it has one."""

    f: Weights = field(doc="backbone and bottleneck")
    g: Weights = field(doc="the classifier, as the source left it")
