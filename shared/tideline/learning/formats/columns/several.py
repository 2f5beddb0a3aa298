"""A world that fits the folders of several sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tideline.core.asked.world import World, world_in
from tideline.core.errors import DataRefused
from tideline.core.tables.columns import width_of
from tideline.learning.formats.columns.proposing import are_plain, proposed
from tideline.learning.formats.inspection import FolderReport, modelled
from tideline.learning.formats.kinds.shapes import expected

SAY = "Give the run's world: --world FILE; or check these folders one by one"


def common_world(reports: Sequence[FolderReport]) -> World:
    """One that fits all folders, as far as each has one. Raises DataRefused where they differ."""
    for report in reports:
        if report.world is None:
            raise DataRefused(f"{report.folder}: no world could be guessed", SAY)
    worlds = [world_in(report.world or {}) for report in reports]
    world = with_classes(worlds, reports)
    tables = [domain.columns for report in reports for domain in report.domains]
    if all(tables) and not (all(map(are_plain, tables)) and len({each.inputs for each in worlds}) == 1):
        columns = proposed(tables)
        if not columns:
            raise DataRefused("The folders' tables have no column in common that is a number or has few categories", SAY)
        return modelled(replace(world, columns=columns, inputs=(width_of(columns),)))
    odd = next((at for at, each in enumerate(worlds) if (each.inputs, each.dtype) != (world.inputs, world.dtype)), None)
    if odd is not None:
        what = f"{reports[0].folder} and {reports[odd].folder} have samples of other shapes or types"
        raise DataRefused(f"{what}: {expected(world)}, and {expected(worlds[odd])}", SAY)
    return replace(world, vocabulary=max(each.vocabulary for each in worlds))


def with_classes(worlds: Sequence[World], reports: Sequence[FolderReport]) -> World:
    """The first world with the classes of all that have labels: all names, or the largest number."""
    labelled = [
        world for world, report in zip(worlds, reports, strict=True) if any(each.labelled for each in report.domains)
    ] or list(worlds)
    if all(world.class_names for world in labelled):
        names = tuple(sorted({name for world in labelled for name in world.class_names}))
        return replace(worlds[0], classes=len(names), class_names=names)
    if any(world.class_names for world in labelled):
        raise DataRefused("Some folders name their classes, and some number them", SAY)
    return replace(worlds[0], classes=max(world.classes for world in labelled), class_names=())
