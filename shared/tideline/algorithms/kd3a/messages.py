"""What KD3A sends and keeps. The tables of probabilities that the target votes by are in no message and no memory."""

from __future__ import annotations

from torch import Tensor

from tideline.algorithms.source_free.messages import Model
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record


@record
class Trained:
    """Up, from a source: w_k. The target gets it as it is."""

    f: Weights = field("like f", Exposure.WEIGHTS, audience=TO_BOTH, doc="the extractor as the source trained it, for the target")
    g: Weights = field(
        "like g", Exposure.WEIGHTS, audience=TO_BOTH, doc="the classifier as the source trained it, for the target"
    )


@record
class Counted:
    """Up, from a source, where weights go by counts: the same, and n_k."""

    f: Weights = field("like f", Exposure.WEIGHTS, audience=TO_BOTH, doc="the extractor as the source trained it, for the target")
    g: Weights = field(
        "like g", Exposure.WEIGHTS, audience=TO_BOTH, doc="the classifier as the source trained it, for the target"
    )
    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the source")


@record
class Lesson:
    """Down, to the target: the common model, and the models of the sources, without names."""

    f: Weights = field(doc="the common extractor")
    g: Weights = field(doc="the common classifier")
    sources: tuple[Model, ...] = field(doc="w_k of each source that has answered")
    shares: Tensor = field("parts", doc="zeros, for the target and each source, which the target's weights take the place of")


@record
class Distilled:
    """Up, from the target: its model, and how much each model should weigh."""

    f: Weights = field("like f", Exposure.WEIGHTS, doc="the extractor after distillation")
    g: Weights | None = field("like g", Exposure.WEIGHTS, doc="the classifier after distillation; none where heads are local")
    a: Tensor = field("parts", Exposure.STATISTIC, low=0, doc="weight of the target, and of each source by consensus focus")


@record
class DistilledCounted:
    """Up, from the target, where weights go by counts: the same, and n_T."""

    f: Weights = field("like f", Exposure.WEIGHTS, doc="the extractor after distillation")
    g: Weights | None = field("like g", Exposure.WEIGHTS, doc="the classifier after distillation; none where heads are local")
    a: Tensor = field("parts", Exposure.STATISTIC, low=0, doc="weight of the target, and of each source by consensus focus")
    samples: int = field("", Exposure.COUNT, low=1, doc="training rows at the target, all without labels")


@record
class State:
    """What the coordinator knows."""

    f: Weights = field(doc="the common extractor")
    g: Weights = field(doc="the common classifier; where heads are local, the one that all began from")
    taught: dict[str, Model] = field(doc="w_k of the sources that have trained in this round")
    samples: dict[str, int] = field(doc="n_k of these, where weights go by counts")
    weights: dict[str, float] = field(doc="the smoothed weight of each site that has been in an average")
