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

import torch
from torch import Tensor

from tideline import __version__, nets
from tideline.core.asked.computing import Precision
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.record import Weights
from tideline.core.rows import MemoryRows, Rows
from tideline.core.run import Digest
from tideline.core.settings import plain
from tideline.engine.compute.feature_files import HEADER, SUFFIX, forget, read, write
from tideline.engine.compute.turns.reproducible import reproducible
from tideline.learning.loading.ahead import in_parts
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
