"""Runs with secure sums on a stage: five sites that learn, one of them at most missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from tests.engine.present import present
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
PATIENT = {"min_replies": 4, "deadline": 10.0}
PLAYED: dict[str, tuple[Stage, RunId]] = {}


def asked(method: str = "fedavg", **more: Any) -> dict[str, Any]:
    """An experiment."""
    more = {"config": CONFIG, "secure_sums": True, **more}
    return experiment(method, more.pop("roster", ROSTER), **more)


def stage(masks: bool = True, cuts: Cuts | None = None, names: tuple[str, ...] = NAMES) -> Stage:
    """Sites whose notes outlive their processes."""
    return Stage(METHODS, sites(names), cuts, HoardingParts(), masks=masks)


@cache
def played_tiny(method: str, masks: bool, secure_sums: bool = True) -> tuple[Stage, RunId]:
    """Play a method's preset `tiny` among six sites: three are targets, or one if it takes no more, or none if it has none.

    Tests only read from the run, so it is played once for all of them.
    """
    adapts, names = Role.TARGET in resolve(METHODS, method).cast, (*NAMES, "fred")
    first = len(names) - ONE if method in TO_ONE else ONE + 2
    roster = {name: "target" if adapts and at >= first else "source" for at, name in enumerate(names)}
    known = IMAGES if method in ON_IMAGES else FEATURES
    world = {**known, "model": NETWORKS.get(method, known["model"])}
    willing = {name: replace(site, policy=site.policy | ALLOWED.get(method, frozenset())) for name, site in sites(names).items()}
    made = Stage(METHODS, willing, None, HoardingParts(), masks=masks)
    run = made.start(asked(method, roster=roster, world=world, config={}, preset="tiny", secure_sums=secure_sums))
    made.play(run)
    return made, run


def played(masks: bool = True, cuts: Cuts | None = None, **more: Any) -> tuple[Stage, RunId]:
    """Play a run to its end. Tests only read from it: without cuts, the same run is played once for all of them."""
    key = json.dumps([masks, more], sort_keys=True)
    if cuts is None and key in PLAYED:
        return PLAYED[key]
    whole = stage(masks, cuts)
    run = whole.start(asked(**more))
    whole.play(run)
    if cuts is None:
        PLAYED[key] = whole, run
    return whole, run


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
    row = present(stage.journal.order(order.id))
    return row.client
