"""What FADA sends and stores. The paper's names: G, C a network's parts, DI an identifier, f features, w weights.

A source's model is sealed to other sites; the coordinator has handles, and identifiers as vectors of their p parameters.
"""

from __future__ import annotations

from torch import Tensor

from tideline.algorithms.fada.settings import LEAST
from tideline.core.handle import Handle
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import Weights, field, record


@record
class Contribution:
    """What a source gives other sites, of what is trained alone: nothing that batch norm measures is in it."""

    theta: Weights = field(
        "", Exposure.WEIGHTS, audience=TO_PEERS, doc="G and C, their change or gradient, without batch norm's statistics"
    )
    start: Weights = field("", Exposure.WEIGHTS, audience=TO_PEERS, doc="where the round began, for sites that missed the last")


@record
class Common:
    """Down, before the first round: where all begin, and what sources made of it since."""

    start: Weights = field(doc="G and C as they were drawn")
    models: dict[str, Handle[Contribution]]
    to: tuple[str, ...]


@record
class Identifier:
    """DI of a pair of a source and a target: how sure it is that features are the source's."""

    theta: Tensor = field("p", doc="its parameters, as one vector")


@record
class Identifiers:
    """Down: the identifier of each pair that the site is of, by the other party's name."""

    di: dict[str, Identifier]


@record
class Half:
    """One party's part of eq. 4."""

    g: Tensor = field("p", Exposure.WEIGHTS, doc="this party's half of the gradient of eq. 4 by DI")
    loss: float = field("", Exposure.METRIC, low=0, doc="its half of eq. 4")
    error: float = field("", Exposure.METRIC, low=0, doc="share of its rows that DI takes for the other party's")
    count: int = field("", Exposure.COUNT, low=LEAST, doc="rows that the half is of")


@record
class Halves:
    """Up: one for each pair, by the other party's name; none where a number was not finite."""

    halves: dict[str, Half]


@record
class Exposed:
    """Up, only with critic: features: what G makes of a mini-batch, clipped and noised."""

    f: Tensor = field("b d", Exposure.FEATURES, doc="features of a mini-batch's rows, clipped and noised")


@record
class Pull:
    """Down, only with critic: features: eq. 5 by the features of the mini-batch that the site sent last."""

    gradient: Tensor = field("b d", doc="gradient of eq. 5 by the features, DI held")


@record
class Improve:
    """Down, to sources."""

    di: dict[str, Identifier]
    models: dict[str, Handle[Contribution]]
    to: tuple[str, ...]
    guide: str = field(doc="the source whose contribution says where the last round began; empty: each knows by itself")
    show: bool = field(doc="whether to say where this round begins: a site missed the last one")


@record
class Improved:
    """Up: what the round made, sealed; nothing where a number was not finite, or there was a single row."""

    contribution: Handle[Contribution] | None


@record
class Follow:
    """Down, to targets."""

    di: dict[str, Identifier]
    contributions: dict[str, Handle[Contribution]]
    guide: str = field(doc="the source whose contribution says where the round began, if it missed the last; or empty")


@record
class Followed:
    """Up: of the sources whose contributions could be used."""

    gains: dict[str, float] = field(
        "", Exposure.STATISTIC, doc="how much tighter a source's contribution made the clusters (eq. 3)"
    )
    w: dict[str, float] = field("", Exposure.STATISTIC, low=0, doc="attention weight of each source")


@record
class Mine:
    """A site's memory. G_t and C_t never leave a target."""

    model: Weights = field(doc="G and C, batch norm's statistics among them")
    common: Weights = field(doc="what is trained, as the round began: at a source that meets others; while a site pulls")
    drift: Weights = field(doc="what eq. 5 made of G: what a target that forgets some still has; a source's while it pulls")
    beside: Weights = field(doc="D, CI, R and M; only at a source")
    rows: Tensor = field("r", doc="numbers of the rows whose clusters tell the gains; only at a target")
    points: Tensor = field("s 2", doc="their features in a plane, after the last round")
    guess: Tensor = field("s", doc="what was predicted for them")
    drawn: Tensor = field("t", doc="numbers of the rows of the mini-batch whose features were sent last")
    seed: int = field(doc="of the dropout of that mini-batch")
    key: Tensor = field("k", doc="of the noise on features that are sent: of no seed, and never sent")
    w: dict[str, float] = field(doc="attention weights of sources; only at a target")
    gains: dict[str, float] = field(doc="their gains so far, each over N w; only at a target")


@record
class State:
    """What the coordinator knows. It has no model but the one that was drawn."""

    start: Weights = field(doc="G and C as they were drawn")
    di: dict[str, dict[str, Identifier]]
    models: dict[str, Handle[Contribution]]
    begun: tuple[str, ...]
    behind: tuple[str, ...] = field(doc="sources that missed the last round, where they meet")
    guide: str = field(doc="the source that said where the last round began, if one was asked")
    errors: dict[str, dict[str, tuple[float, ...]]]
    late: tuple[str, ...] = field(doc="targets that lack a round's contributions, where they can begin anew")
    w: dict[str, dict[str, float]]
    gradients: Weights = field(doc="eq. 5 by the features that sites sent last, by site")
