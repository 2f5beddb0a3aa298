"""A follower's life with wandb, in a process: what it writes, and how it ends. It prints what went wrong, if that is one of ours.

python -m tests.tracking.lives FOLDER ROUNDS HOW [N]

HOW: `on` ends with the run going on; `over` writes all of it; `killed` dies when the rounds are written; `dying` is `over`, but
dies before its n-th call of wandb; `bereft` loses wandb's own process after half of the rounds, and goes on.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from tideline.core.errors import FederationError, Unreachable
from tideline.tracking import to_wandb
from tideline.tracking.pages import Card, Ending, ModelFile, Page, Point

DEAD = 9
RUN = "5f0c1a9be2d4"
CARD = Card(run=RUN, name="digits", created=1000.0, parameters={"config.rounds": "6"}, tags={"tideline.run": RUN})


def points(rounds: int) -> list[Point]:
    keys = ("accuracy/a", "accuracy")
    return [Point(key, step, step / 8, 1000.0 + step) for step in range(1, rounds + 1) for key in keys]


def main(folder: str, rounds: str, how: str, n: str = "0") -> None:
    """Ends with 9 if it died, with 1 behind an error of ours."""
    try:
        live(to_wandb.opened(folder, None, "digits"), int(rounds), how, int(n))
    except FederationError as error:
        sys.exit(f"{type(error).__name__}: {error.what}. {error.todo}")


def live(tracker: to_wandb.Wandb, rounds: int, how: str, n: int) -> None:
    if how == "dying":
        dying(tracker, n)
    page = tracker.page(CARD)
    if page.over:
        return
    page.set_tags({"tideline.status": "running"})
    if how == "bereft":
        page = bereft(tracker, page, points(rounds // 2), points(rounds))
    page.write(points(rounds), 0)
    if how == "killed":
        os._exit(DEAD)
    if how in ("over", "dying", "bereft"):
        end(page)
    tracker.finish(RUN)


def end(page: Page) -> None:
    """A report, a model, and how the run ended."""
    with tempfile.TemporaryDirectory() as name:
        for file in ("report.html", "model"):
            (Path(name) / file).write_text(file)
        page.attach(Path(name), [ModelFile(Path(name) / "model", "", {"tideline.epsilon": "2"})])
    page.close(Ending("completed", 9.0))


def bereft(tracker: to_wandb.Wandb, page: Page, half: list[Point], whole: list[Point]) -> Page:
    """The page that is there behind the death of wandb's own process, which the one before says."""
    page.write(half, 0)
    (own,) = [each for each in psutil.Process().children() if "wandb-core" in each.name()]
    own.kill()
    to_wandb.PATIENCE_SECONDS = 2.0
    try:
        page.write(whole, 0)
    except Unreachable:
        return tracker.page(CARD)
    sys.exit("nobody noticed")


def dying(tracker: to_wandb.Wandb, n: int) -> None:
    """Have the n-th call of wandb kill this process, and wandb's own with it, before it does anything."""
    from wandb import Config, Run

    calls = count(1)
    of_run = ("log", "log_artifact", "finish")
    for of, names in ((tracker._package, ("init",)), (to_wandb.Wandb, ("artifact",)), (Run, of_run), (Config, ("update",))):
        deadly(of, names, calls, n)


def deadly(of: Any, names: Sequence[str], calls: Iterator[int], n: int) -> None:
    def replaced(function: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            if next(calls) >= n:
                os._exit(DEAD)
            return function(*given, **more)

        return call

    for name in names:
        setattr(of, name, replaced(getattr(of, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
