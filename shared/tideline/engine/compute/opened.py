"""A site's data as the steps of a run see them: changed at random, filled, normalised, as features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tideline.core.asked.normalise import Place, Scaling
from tideline.core.asked.world import World
from tideline.core.rows import Augment, Rows, check_whole
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.core.tables.columns import code_places, filled_places
from tideline.engine.ports.site import SiteData
from tideline.learning.formats.holdings import Holdings
from tideline.learning.loading.ahead import in_parts
from tideline.learning.loading.augmented import augmented_data
from tideline.learning.normalising import Normaliser, Statistics, constants, own_statistics
from tideline.learning.rows.filled import Filler, Medians, cells_of, medians_of, row_of


class RowsToRows(Protocol):
    """What makes other rows of rows: an encoder, say."""

    def rows(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True)
class ByView:
    """Data that are no Holdings: encoded view by view."""

    site_data: SiteData
    encoder: RowsToRows
    known: dict[tuple[View, Role], Data]

    def view(self, view: View, role: Role) -> Data:
        if (view, role) not in self.known:
            self.known[view, role] = encoded(self.site_data.view(view, role), self.encoder)
        return self.known[view, role]


@dataclass(frozen=True)
class AugmentedByView:
    """Data that are no Holdings, whose rows to train on are changed at random."""

    site_data: SiteData
    by: Augment

    def view(self, view: View, role: Role) -> Data:
        data = self.site_data.view(view, role)
        return augmented_data(data, self.by) if view in (View.TRAIN, View.LEARN) else data


def augmented_site(site_data: SiteData, by: Augment) -> SiteData:
    """The same data, of which the rows to train on are changed at random where they are drawn."""
    if not by.on:
        return site_data
    if not isinstance(site_data, Holdings):
        return AugmentedByView(site_data, by)
    return replace(site_data, train=augmented_data(site_data.train, by))


def encoded(data: Data, encoder: RowsToRows) -> Data:
    """The same rows as features; labels and domains stay."""
    return replace(data, x=encoder.rows(data.x), bare=None if data.bare is None else encoder.rows(data.bare))


def encoded_site(site_data: SiteData, encoder: RowsToRows) -> SiteData:
    """All of a site's data as features, or otherwise as other rows: each passes through the encoder once. Raises DataRefused."""
    if not isinstance(site_data, Holdings):
        return ByView(site_data, encoder, {})
    return replace(site_data, train=encoded(site_data.train, encoder), held_out=encoded(site_data.held_out, encoder))


@dataclass(frozen=True)
class Opened:
    """A site's data as its steps see them. normalised_by: statistics that were found here, if the world asks for such."""

    site_data: SiteData
    normalised_by: Statistics | None = None


def normalised_site(opened: Opened, world: World, role: Role, shared: Statistics | None) -> Opened:
    """The same data normalised, as far as is known by what: constants, what sites share, or their own. Raises DataRefused."""
    kind = world.scaling.kind
    by = shared if kind is Scaling.SHARED else constants(world.scaling)
    if kind.own:
        rows = opened.site_data.view(View.LEARN, role).x
        if kind is Scaling.SITE_WHITEN:
            check_whole(len(rows), rows.shape, f"normalise: {kind}")
        left = code_places(world.columns) if world.scaling.at is Place.INPUTS else ()
        by = own_statistics(in_parts(rows), kind, rows.shape[0], left)
    if by is None:
        return opened
    return Opened(encoded_site(opened.site_data, Normaliser(by)), by if kind.found else None)


def filled_site(opened: Opened, world: World, role: Role, shared: Medians | None) -> Opened:
    """The same data without missing cells: by what sites share, or as long as that is not known, by their own medians."""
    if not world.fills:
        return opened
    by = shared
    if by is None:
        places = filled_places(world.columns)
        by = Medians(medians_of(cells_of(opened.site_data.view(View.LEARN, role).x.parts(), places), 1)[1])
    return Opened(encoded_site(opened.site_data, Filler(row_of(by, world))))


def uncached_in(site_data: SiteData) -> int:
    """How many of a site's rows are decoded at each use."""
    return site_data.uncached if isinstance(site_data, Holdings) else 0
