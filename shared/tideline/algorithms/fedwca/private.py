"""FedWCA's adaptation in runs that protect rows: labels of two models by noised prototypes, and weights of noised sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline.algorithms.source_free.adapting import adapt
from tideline.algorithms.source_free.family import PREDICTED
from tideline.algorithms.source_free.private import (
    Noised,
    adapting_spends,
    labelled_rows,
    noised_sums,
    own_labels_of_rows,
    seen_rows,
    unit,
)
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.record import Weights
from tideline.core.step import Site
from tideline.learning.private.statistics import Bound, statistics, statistics_spend
from tideline.nets import layers
from tideline.numerics.labels.prototypes import Labelled, common, two_model

if TYPE_CHECKING:
    from tideline.algorithms.fedwca import Config

Put = Callable[[Weights], None]


def starting(config: Config, privacy: Privacy) -> tuple[Charge, ...]:
    """Adaptation, and what the cluster's model says of the rows."""
    own = adapting_spends(lambda c: config.fixed_labels)(config, privacy)
    return (*statistics_spend(privacy, int(config.two_models)), *own)


def mixing(config: Config, privacy: Privacy) -> tuple[Charge, ...]:
    """The same, and how well each cluster's model suits the rows."""
    return (*statistics_spend(privacy), *starting(config, privacy))


def noised_confidence(net: nn.Module, soft: Sequence[Weights], put: Put, site: Site[Config], meter: Meter) -> Tensor:
    """I_{k,c} of each soft model (C,) (eq. 1), a mean over rows of cosines, which are 1 at most; put(f) puts a model into net."""
    w = unit(layers.class_vectors(net).double())

    def of(x: Tensor) -> list[Tensor]:
        found = []
        for f in soft:
            put(f)
            found.append((unit(seen_rows(net, x)[0].double()) @ w.mT).amax(1))
        return [torch.stack(found, 1)]

    (total,) = statistics(site, meter, of, [Bound(len(soft) ** 0.5, len(soft))])
    return (total / meter.asked.rows).clamp(-1.0, 1.0)


def adapt_to_two(net: nn.Module, begin: Callable[[], None], site: Site[Config], meter: Meter, second: bool) -> None:
    """Adapt f_init, which `begin` puts into the network, on its labels and, with `second`, those of the model that is there."""
    c: Config = site.config
    theirs = None
    if second and c.two_models:
        theirs = labels_of(net, noised_sums(net, site, meter, c.labels != PREDICTED), site)
    begin()

    def labels(net: nn.Module, known: Noised, site: Site[Config]) -> Tensor:
        if theirs is None:
            return own_labels_of_rows(net, known, site)
        return two_model(labels_of(net, known, site), theirs)[0]

    adapt(net, site, no_aim, fixed=c.fixed_labels, privately=labels)  # type: ignore[arg-type]


def no_aim(net: nn.Module) -> object:
    raise AssertionError("rows are labelled by noised sums here")


def labels_of(net: nn.Module, known: Noised, site: Site[Config]) -> Labelled:
    """Each row's label and similarity by noised prototypes, or by outputs alone."""
    found = labelled_rows(net, known, site)
    prototypes = known.prototypes if known.prototypes is not None else torch.zeros(0, 0)
    return Labelled(
        labels=found[:, 0].long(),
        similarity=found[:, 1],
        prototypes=prototypes,
        present=torch.ones(len(prototypes), dtype=torch.bool),
        common=common(prototypes) if len(prototypes) else 0.0,
    )


PRIVATELY = (
    "no row is mixed with another: config.mu is of no effect",
    "which clusters' models suit a site, alpha, comes of noised sums; the own cluster and the others then count one half each,"
    " for the density of outputs compares rows with rows",
)
