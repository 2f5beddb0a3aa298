"""Rows of what an owner's function gives, in their order and a batch at a time: to predict them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import part_size
from tideline.core.settings import nearest
from tideline.learning.formats import scan
from tideline.learning.formats.folder import log_owners
from tideline.learning.formats.holdings import split_rows
from tideline.learning.formats.scan import Part
from tideline.learning.sites.module import site_at
from tideline.learning.sites.named import PREFIX
from tideline.learning.sites.sides import NONE, Side, side_of
from tideline.learning.sites.site import NAMES, Site, check_names

FIRST = ("test", "validation", "train")  # what is predicted, if it is there
TRAIN = "train"


def scan_python(place: str, world: World, part: str = "", held_out: bool = False) -> Iterator[Part]:
    """The rows of one dataset that the function at MODULE:NAME gives, or of its folder, with whatever labels there are.

    part: train, validation or test; "": the first of test, validation and train that is there, or what is held out. A part is
    called after the dataset, and its rows by their numbers in it. Raises DataRefused as `read_python`, ConfigRefused for no part.
    """
    site = site_at(place)
    if site.folder is not None:
        check_no_part(part)
        yield from scan.scan(site.folder, world)
        return
    try:
        check_names(site, world)
        name = chosen(site, part, held_out)
        side = side_of(getattr(site, name), world, NAMES[name])
        yield from parts_of(side, name, held_of(site, name, len(side)), labelled=site.labels is not False)
    except DataRefused as error:
        log_owners(error)
        raise DataRefused(f"--data {PREFIX}{place}: {error.what}", error.todo, **error.context) from error


def check_no_part(part: str) -> None:
    """Raises ConfigRefused: a folder has domains."""
    if part:
        what = f"--part {part} names a dataset of a function, and the data are a folder"
        raise ConfigRefused(what, "Leave --part out; --held-out takes the rows that training never sees", path="part")


def chosen(site: Site, part: str, held_out: bool) -> str:
    """The dataset that is meant. Raises ConfigRefused for one that is not there."""
    there = [name for name in FIRST if getattr(site, name) is not None]
    if part and part not in there:
        todo = f"Use one of: {', '.join(there)}{nearest(part, there)}"
        raise ConfigRefused(f"--part {part}: the function gives no such dataset", todo, path="part")
    return part or next(name for name in there if not (held_out and name == "validation"))


def held_of(site: Site, name: str, n: int) -> NDArray[np.bool_]:
    """(n,) whether a row is held out from training: all for testing, or without any the usual share of those to train on."""
    held = np.full(n, name == "test")
    if name == TRAIN and site.test is None and n > 1:
        held[split_rows(n)[1]] = True
    return held


def parts_of(side: Side, name: str, held: NDArray[np.bool_], labelled: bool) -> Iterator[Part]:
    size = part_size(side.rows.shape)
    for start in range(0, len(side), size):
        rows = np.arange(start, min(start + size, len(side)))
        x = side.rows.batch(torch.from_numpy(rows))
        y = side.labels(rows) if labelled else np.full(len(rows), NONE, np.int64)
        yield Part(domain=name, names=tuple(map(str, rows.tolist())), x=x, y=y, held=held[rows])
