"""What a tracker is to a follower: pages, one for each run, on which nothing is written twice.

A page is found again by the run's id, and says itself how far it is. So a follower has no memory of its own: one that was
killed between any two of its writes goes on by what it reads there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tideline.client.output import clean
from tideline.core.errors import ConfigRefused, FederationError
from tideline.core.settings import EMPTY

OFTEN, MOST_SAID = 1000, 300  # points that are written together; characters of a tracker's own words


@dataclass(frozen=True)
class Point:
    """A number of one round. at: seconds since the epoch, when the coordinator heard it."""

    key: str
    step: int
    value: float
    at: float


@dataclass(frozen=True)
class Card:
    """What stands on top of a page. created: seconds since the epoch; parent: the run that it belongs to, as its reference or in
    its rehearsal; parameters: what was asked for; tags: what may change.
    """

    run: str
    name: str
    created: float
    parent: str | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    tags: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class Ending:
    """How a run ended. ended: seconds since the epoch."""

    status: str
    ended: float
    tags: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class ModelFile:
    """A model beside the other files of a run. site: whose own it is; empty: the run's. lineage: where it comes from."""

    path: Path
    site: str
    lineage: Mapping[str, str]


class Page(Protocol):
    """What a tracker has of one run.

    mark: the last event of the run up to which everything stands here. over: all of it does, or a person has deleted the page.
    """

    mark: int
    over: bool

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Write tags that changed."""

    def write(self, points: Sequence[Point], mark: int) -> None:
        """Write the points that do not stand here, then the mark."""

    def attach(self, folder: Path, models: Sequence[ModelFile]) -> None:
        """Write all files below a folder in the place of those of the same name, and register the models if that is wanted."""

    def close(self, ending: Ending) -> None:
        """Write how the run ended; from then on the page is over."""


class Tracker(Protocol):
    """A tracker. Calls raise Unreachable where it does not answer as it should, which may pass, and Refused."""

    name: str

    def page(self, card: Card) -> Page:
        """A run's page, found or made."""

    def written(self) -> frozenset[str]:
        """The runs whose pages are over."""


def unwritten(points: Iterable[Point], last: Mapping[str, int]) -> list[Point]:
    """The points behind the last step of their key, each once. Points of a key come in the order of their steps, and stand so."""
    found, steps = [], dict(last)
    for point in points:
        if point.step > steps.get(point.key, -1):
            steps[point.key] = point.step
            found.append(point)
    return found


def rows_of(points: Sequence[Point]) -> Iterator[dict[str, float]]:
    """Numbers of one step in as few rows as there are: a key once in each."""
    row: dict[str, float] = {}
    for point in points:
        if point.key in row:
            yield row
            row = {}
        row[point.key] = point.value
    yield row


def wanting(package: str, extra: str) -> ConfigRefused:
    """The refusal of a tracker whose package is not installed."""
    todo = f"Install it beside tideline: pip install 'tideline[{extra}]'"
    return ConfigRefused(f"--to {extra} needs the package {package}, which is not installed here", todo, path="to")


def said(cause: BaseException) -> str:
    """A tracker's own words, on one line and not too many of them."""
    words = " ".join(clean(str(cause) or type(cause).__name__).split())
    return words if len(words) <= MOST_SAID else f"{words[:MOST_SAID]}…"


def trouble(error: FederationError) -> str:
    """An error in one sentence."""
    return f"{error.what}. {error.todo}" if error.todo else error.what
