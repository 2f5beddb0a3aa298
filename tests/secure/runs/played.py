"""Runs with secure sums on a stage: five sites that learn, one of them at most missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.laws.case import ALLOWED, NETWORKS, ON_IMAGES
from tests.laws.stage import Cuts, HoardingParts, Stage
from tests.synthetic import FEATURES, IMAGES, NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.run import Role, RunId
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import Status

Choose = Callable[[list[Order]], list[Order]]
ROSTER = dict.fromkeys(NAMES, "source")
CONFIG = {"rounds": 2, "epochs": 1, "batch": 16, "rate": 0.05}
KEYS, SHARES, VALUES, SURVIVORS, UNMASK = "train keys", "train shares", "train", "train survivors", "train unmask"
TO_ONE, ONE = ("fdan",), 1  # methods that adapt to one target
PHASES = (KEYS, SHARES, VALUES, SURVIVORS, UNMASK)


def asked(method: str = "fedavg", **more: Any) -> dict[str, Any]:
    """An experiment."""
    more = {"config": CONFIG, "secure_sums": True, **more}
    return experiment(method, more.pop("roster", ROSTER), **more)


def stage(masks: bool = True, cuts: Cuts | None = None, names: tuple[str, ...] = NAMES) -> Stage:
    """Sites whose notes outlive their processes."""
    return Stage(METHODS, sites(names), cuts, HoardingParts(), masks=masks)


def played_tiny(method: str, masks: bool, **more: Any) -> tuple[Stage, RunId]:
    """A method's preset `tiny`, with three sources and three targets, one where it takes no more, or none of six sites."""
    adapts, names = Role.TARGET in resolve(METHODS, method).cast, (*NAMES, "fred")
    first = len(names) - ONE if method in TO_ONE else ONE + 2
    roster = {name: "target" if adapts and at >= first else "source" for at, name in enumerate(names)}
    known = IMAGES if method in ON_IMAGES else FEATURES
    world = {**known, "model": NETWORKS.get(method, known["model"])}
    willing = {name: replace(site, policy=site.policy | ALLOWED.get(method, frozenset())) for name, site in sites(names).items()}
    made = Stage(METHODS, willing, None, HoardingParts(), masks=masks)
    run = made.start(asked(method, roster=roster, world=world, config={}, preset="tiny", **more))
    made.play(run)
    return made, run


def played(masks: bool = True, choose: Choose | None = None, cuts: Cuts | None = None, **more: Any) -> tuple[Stage, RunId]:
    """A run from beginning to end."""
    made = stage(masks, cuts)
    run = made.start(asked(**more))
    made.play(run, choose)
    return made, run


def ended(stage: Stage, run: RunId) -> str:
    """The digest of the final state of a run that has completed."""
    row = stage.row(run)
    assert row.status is Status.COMPLETED, row.cause
    assert row.state_digest is not None
    return row.state_digest


def missing(stage: Stage, name: str, phase: str, numbers: tuple[int, ...] = (1,)) -> Choose:
    """Everybody answers but for one site, in one exchange of these rounds."""

    def choose(orders: list[Order]) -> list[Order]:
        return [o for o in orders if o.phase != phase or o.round not in numbers or client_of(stage, o) != name]

    return choose


def client_of(stage: Stage, order: Order) -> str:
    row = stage.journal.order(order.id)
    assert row is not None
    return row.client
