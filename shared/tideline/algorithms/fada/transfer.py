"""Step 6: what a source sends of G and C, and what comes of their weighted sum. Batch norm's statistics are no part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from torch import Tensor

from tideline.algorithms.fada.messages import Contribution
from tideline.algorithms.fada.settings import DELTA, GRAD, PARAM, Either
from tideline.core.errors import Malformed, StepFailed
from tideline.core.handle import Handle
from tideline.core.record import Weights
from tideline.core.step import Site
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum

NOT_NUMBERS = ("NotFinite", "OutOfRange")


def trained(weights: Weights) -> dict[str, Tensor]:
    """What of a network is trained."""
    return {name: weights[name] for name in layers.parameters(weights)}


def extractor(weights: Weights) -> dict[str, Tensor]:
    """What of G is trained."""
    return {name: w for name, w in trained(weights).items() if name.startswith("features.")}


def shifted(theta: Weights, drift: Weights, a: float) -> dict[str, Tensor]:
    """theta + a drift, of what has drifted."""
    return {name: theta[name] + a * d for name, d in drift.items()}


def moved(mode: str, before: Weights, after: Weights) -> dict[str, Tensor]:
    """A contribution after local steps: the change, or what came of it."""
    return {name: w - before[name] if mode == DELTA else w for name, w in after.items()}


def applied(mode: str, theta: Weights, terms: Iterable[tuple[float, Weights]], rate: float) -> dict[str, Tensor]:
    """theta + sum_i w_i Delta_i, theta - eta sum_i w_i g_i, or sum_i w_i theta_i: what has no weight is no part of the sum."""
    used = ((w, each) for w, each in terms if w != 0)
    if mode == PARAM:
        return weighted_sum(used)
    sign = -rate if mode == GRAD else 1.0
    return weighted_sum(chain([(1.0, theta)], ((sign * w, each) for w, each in used)))


def toward(mode: str, theta: Weights, w: float, each: Weights, rate: float) -> dict[str, Tensor]:
    """theta after one source's contribution alone, at its weight."""
    if mode == PARAM:
        return weighted_sum([(1 - w, theta), (w, each)])
    return applied(mode, theta, [(w, each)], rate)


@dataclass(frozen=True)
class Due:
    """Which exchange contributions have to be of, and what they have to be like."""

    phase: str
    round: int
    like: Weights


def fetched(handle: Handle[Contribution], holder: str, due: Due, site: Site[Either]) -> Weights | None:
    """What a source contributes; None where its numbers are not finite. Raises StepFailed as `opened` does."""
    given = opened(handle, holder, due, site)
    return None if given is None else given.theta


def opened(handle: Handle[Contribution], holder: str, due: Due, site: Site[Either]) -> Contribution | None:
    """A source's contribution; None where its numbers are not finite.

    Raises StepFailed for one of another holder or exchange than is due, or of another network.
    """
    if (handle.holder, handle.phase, handle.round) != (holder, due.phase, due.round):
        given = f"that of {handle.holder}, of round {handle.round} of {handle.phase}"
        what = f"The order hands out {given}, where that of {holder}, of round {due.round} of {due.phase}, is due"
        raise StepFailed(what, "The coordinator hands out what is not asked for: do not trust it")
    try:
        made: Contribution = site.fetch(handle)
    except Malformed as error:
        if error.kind in NOT_NUMBERS:
            return None
        raise
    if not alike(made.theta, due.like) or (made.start and not alike(made.start, due.like)):
        raise StepFailed(f"What {holder} sealed is of another network", "Install the same version at both sites", holder=holder)
    return made


def alike(theirs: Weights, mine: Weights) -> bool:
    """Whether names, shapes and dtypes agree."""
    same = theirs.keys() == mine.keys()
    return same and all((w.shape, w.dtype) == (mine[name].shape, mine[name].dtype) for name, w in theirs.items())


def usable(handles: Mapping[str, Handle[Contribution]], due: Due, site: Site[Either]) -> list[str]:
    """The sources whose contributions can be used, sorted; one of them in memory at a time."""
    return [name for name in sorted(handles) if fetched(handles[name], name, due, site) is not None]


def weighed(
    handles: Mapping[str, Handle[Contribution]], w: Mapping[str, float], due: Due, site: Site[Either]
) -> Iterator[tuple[float, Weights]]:
    """Each usable contribution with its weight, one of them in memory at a time."""
    for name in sorted(w):
        theta = fetched(handles[name], name, due, site)
        assert theta is not None
        yield w[name], theta


def together(
    mode: str, theta: Weights, handles: Mapping[str, Handle[Contribution]], due: Due, site: Site[Either]
) -> dict[str, Tensor]:
    """What all sources made, each counted alike; theta as it is where there is nothing to use."""
    names = usable(handles, due, site)
    if not names:
        return dict(theta)
    return applied(mode, theta, weighed(handles, dict.fromkeys(names, 1 / len(names)), due, site), site.config.rate_of(due.round))
