"""All rows of a data folder in their order, a batch at a time: to predict them, whatever they were kept for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats import arrays, images
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.folder import CHUNK, FILES, kind_of, name_of, survey_all
from tideline.learning.formats.kinds.shapes import check_values, convert
from tideline.learning.formats.surveys import Piece, Survey, at

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a domain.

    names   of each row, for its owner: its file, or a row's number from 0
    x       (b, *inputs) float32, or int64 of token ids
    y       (b,) int64, -1 where there is no label
    held    (b,) whether it is held out
    """

    domain: str
    names: tuple[str, ...]
    x: Tensor
    y: NDArray[np.int64]
    held: NDArray[np.bool_]


def scan(folder: Path, world: World) -> Iterator[Part]:
    """Every row of a folder that an agent takes, but images that may be skipped. Raises DataRefused as `read_folder` does."""
    for survey in surveys_of(folder, world):
        with at(survey.place.path):
            yield from parts_of(survey, world)


def surveys_of(folder: Path, world: World) -> list[Survey]:
    """The first pass, with every label that can be read; as a target's, where training labels are none of the world's."""
    try:
        return survey_all(folder, world, Role.PEER)
    except DataRefused:
        return survey_all(folder, world, Role.TARGET)


def parts_of(survey: Survey, world: World) -> Iterator[Part]:
    """One domain."""
    y, held, lost = labels_of(survey), held_of(survey), list[tuple[int, str]]()
    files = kind_of(survey.place.path) in FILES
    for piece in pieces_of(survey):
        if piece.x is None:
            lost.append((piece.start, piece.why))
            continue
        check_values(piece.known, world, piece.transform, piece.start)
        for start in range(0, len(piece.x), CHUNK):
            rows = range(piece.start + start, piece.start + min(start + CHUNK, len(piece.x)))
            x = convert(piece.x[start : start + CHUNK], world, piece.transform)
            names = tuple(map(survey.name if files else str, rows))
            at_rows = slice(rows.start, rows.stop)
            yield Part(domain=name_of(survey.place.path), names=names, x=x, y=y[at_rows], held=held[at_rows])
    if lost and survey.place.transform.unreadable != "skip":
        raise images.lost(survey, lost)
    if lost:
        text = "%s: %d of %d %s cannot be read and are left out"
        log.warning(text, survey.place.path, len(lost), len(survey), survey.what)


def pieces_of(survey: Survey) -> Iterator[Piece]:
    """A domain's samples as they are stored; of an array some at a time."""
    if kind_of(survey.place.path) != ".npz":
        return survey.pieces()
    transform = survey.place.transform
    return (Piece(start, x, transform) for start, x in arrays.streamed(survey.place.path))


def labels_of(survey: Survey) -> NDArray[np.int64]:
    """(n,), -1 where there is no label."""
    y, sides = np.full(len(survey), UNKNOWN, np.int64), survey.sides
    for rows, labels in ((sides.train, sides.y_train), (sides.held, sides.y_held)):
        if labels is not None:
            y[rows] = labels
    return y


def held_of(survey: Survey) -> NDArray[np.bool_]:
    held = np.zeros(len(survey), bool)
    held[survey.sides.held] = held[survey.sides.unscored] = True
    return held
