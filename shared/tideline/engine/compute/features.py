"""A site's rows as the features of a frozen encoder: computed once, and kept in a file (`feature_files`).

Its name is that of the run's frozen weights, and a digest of the encoder, of where it computes, and of the rows as they were
transformed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tideline import __version__, nets
from tideline.core.asked.computing import Precision
from tideline.core.errors import DataRefused
from tideline.core.record import Weights
from tideline.core.rows import Augment, MemoryRows, Rows
from tideline.core.run import Digest, Role, World
from tideline.core.settings import plain
from tideline.core.step import Data, View
from tideline.engine.compute.feature_files import HEADER, SUFFIX, forget, read, write
from tideline.engine.compute.inline import reproducible
from tideline.engine.ports.site import SiteData
from tideline.learning.formats.holdings import Holdings
from tideline.learning.loading.ahead import in_parts
from tideline.learning.loading.augmented import augmented_data
from tideline.learning.model_file import digest_of
from tideline.learning.rows import scratch
from tideline.nets.fingerprint import print_of
from tideline.nets.layers import backbone_of

SEED = 0


@dataclass(frozen=True)
class Encoder:
    """The frozen part of a network at one place.

    base: the digest of its file. folder: where features are kept; None: in memory, or a scratch file. precision: of the step that
    asks for them, in which they are computed.
    """

    world: World
    weights: Weights
    device: str
    threads: int
    base: Digest
    folder: Path | None = None
    precision: Precision = Precision.FLOAT32

    def rows(self, rows: Rows) -> Rows:
        """The features (n, d) of rows. Raises DataRefused where the disk has no room, or a feature is not finite."""
        d = nets.width(self.world)
        if not len(rows):
            return MemoryRows(torch.empty(0, d))
        if self.folder is None:
            return held(self.computed(rows), len(rows), d)
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.base}.{self.name_of(rows)}{SUFFIX}"
        found = read(file, len(rows), d)
        if found is None:
            write(file, self.computed(rows), len(rows), d)
            forget(self.folder)
            found = read(file, len(rows), d)
        if found is None:
            raise DataRefused(f"The features in {self.folder} cannot be read back", "Check the disk, and begin again")
        return found

    def computed(self, rows: Rows) -> Iterator[Tensor]:
        """Part after part, (b, d) each, in evaluation mode."""
        world = replace(self.world, trains=World().trains)
        empty = {name: torch.zeros(like.shape, dtype=like.dtype) for name, like in nets.template(world).items()}
        encoder = nets.loaded(world, empty | dict(self.weights), self.device).eval().get_submodule("features")
        for part in in_parts(rows):
            with reproducible(SEED, self.threads, self.device), torch.no_grad():
                made: Tensor = encoder(part.to(self.device)).float().cpu()
            if not torch.isfinite(made).all():
                todo = "Look at the values of the rows, and at the weights that the run brings"
                raise DataRefused(f"The frozen encoder of {self.world.model} gives features that are not finite", todo)
            yield made

    def name_of(self, rows: Rows) -> str:
        """What the features depend on, as one digest."""
        here = [torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.device(self.device).type, self.threads]
        here += [] if self.precision is Precision.FLOAT32 else [self.precision.value]
        # Of a network that is not built in, too, what it computes: its code may have changed since, and its weights not.
        network = [self.world.model, plain(self.world.options), list(self.world.inputs), plain(print_of(self.world)), __version__]
        network += [self.world.vocabulary] if self.world.tokens else []
        said = [HEADER, here, network, digest_of(backbone_of(self.weights)), digest_of_rows(rows)]
        return hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=32).hexdigest()


def digest_of_rows(rows: Rows) -> str:
    """Of all numbers of rows, as they are after their transforms."""
    kind = [] if rows.dtype is torch.float32 else [str(rows.dtype)]
    made = hashlib.blake2b(json.dumps([len(rows), list(rows.shape), *kind]).encode(), digest_size=32)
    for part in in_parts(rows):
        made.update(part.contiguous().numpy().data)
    return made.hexdigest()


def held(parts: Iterator[Tensor], n: int, d: int) -> Rows:
    """Features where nothing of them is kept."""
    into, done = scratch.room((n, d)), 0
    for part in parts:
        into.tensor[done : done + len(part)] = part
        done += len(part)
    return into


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
