"""What an agent would read where a function gives its data, reported to its owner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import Rows
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.formats.holdings import Holdings
from tideline.learning.formats.inspection import ClassCount, DomainReport, FolderReport, Samples, as_data, inspect, modelled
from tideline.learning.formats.transforms import times
from tideline.learning.loading.ahead import in_parts
from tideline.learning.sites.inferring import inferred
from tideline.learning.sites.module import site_at
from tideline.learning.sites.named import PREFIX
from tideline.learning.sites.site import DOMAIN, Site, holdings_of

KIND = "python"


def inspect_python(place: str, world: World | None, role: Role | None) -> FolderReport:
    """The report on what the function gives. Without a world one that fits is found; without a role its Site says it.

    Raises DataRefused where the function cannot be called, or gives nothing that can be read.
    """
    site = site_at(place)
    acts = role or Role(site.role)
    if site.folder is not None:
        return inspect(site.folder, world, acts)
    try:
        return reported(place, site, world or fitting(place, site), acts, world is not None)
    except ConfigRefused as error:
        raise DataRefused(error.what, error.todo) from error


def fitting(place: str, site: Site) -> World:
    """A world that a site fits. Raises ConfigRefused, DataRefused."""
    found, _ = inferred({"model": "mlp"}, {f"--data {PREFIX}{place}": site})
    return modelled(world_in(found))


def reported(place: str, site: Site, world: World, role: Role, given: bool) -> FolderReport:
    refused, domain = None, DomainReport(DOMAIN, KIND)
    try:
        domain = counted(holdings_of(site, world, role), world, role)
    except DataRefused as error:
        refused = as_data(error)
        domain = DomainReport(DOMAIN, KIND, refused=refused)
    return FolderReport(
        folder=f"{PREFIX}{place}",
        role=role.value,
        world=plain_world(world),
        given=given,
        domains=(domain,),
        ignored=(),
        refused=(refused,) if refused else (),
    )


def counted(holdings: Holdings, world: World, role: Role) -> DomainReport:
    """Rows, classes and values of what was read."""
    train, held = holdings.train, holdings.held_out
    classes: tuple[ClassCount, ...] = ()
    if held.y is not None:
        scored = np.bincount(held.y.numpy(), minlength=world.classes)
        learnt = None if train.y is None else np.bincount(train.y.numpy(), minlength=world.classes)
        names = world.class_names or tuple(map(str, range(world.classes)))
        classes = tuple(
            ClassCount(name, None if learnt is None else int(learnt[i]), int(scored[i])) for i, name in enumerate(names)
        )
    bare = 0 if train.bare is None else len(train.bare)
    return DomainReport(
        name=DOMAIN,
        kind=KIND,
        samples=len(train) + bare + len(held),
        validation=len(holdings.view(View.VALIDATION, role)),
        held_out=len(held),
        bare=bare,
        unscored=0,
        labelled=held.y is not None,
        classes=classes,
        content=content_of([rows for rows in (train.x, train.bare, held.x) if rows is not None], world),
    )


def content_of(several: Sequence[Rows], world: World) -> Samples:
    """The rows' shape, and the range of their values as networks see them."""
    ends = [(float(part.min()), float(part.max())) for rows in several for part in in_parts(rows)]
    low, high = min((low for low, _ in ends), default=None), max((high for _, high in ends), default=None)
    return Samples(shapes={times(world.inputs): sum(map(len, several))}, types={}, low=low, high=high, unreadable=())
