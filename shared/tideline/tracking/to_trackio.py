"""Pages in a Trackio of this machine: a database for each project, in a folder. Needs trackio (`tideline[trackio]`).

What is written goes through a thread of Trackio's own. Each write therefore ends with `finish`, and is read back: what does not
stand there counts as not written.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused, Refused, Unreachable
from tideline.tracking.pages import Card, Ending, ModelFile, Page, Point, rows_of, said, unwritten, wanting

FOLDER, ELSEWHERE = "TRACKIO_DIR", ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
OVER = "tideline.over"  # a number that stands behind all others
FILES = "files"


def opened(uri: str | None, project: str | None) -> Trackio:
    """Raises ConfigRefused without the package, and where its settings say that it is elsewhere."""
    for name in ELSEWHERE:
        if os.environ.get(name):
            what = f"{name} is set, and a follower writes into a Trackio of its own machine alone: it reads there how far it is"
            raise ConfigRefused(what, "Unset it; `trackio sync` sends on what is written", path="to")
    if uri and "://" in uri:
        raise ConfigRefused(f"--uri is {uri[:80]!r}", "Give a folder: Trackio's database goes there", path="uri")
    if uri:
        os.environ[FOLDER] = str(Path(uri).expanduser().absolute())
    try:
        with quiet():
            import trackio
    except ImportError:
        raise wanting("trackio", "trackio") from None
    return Trackio(trackio, project or "tideline")


class Trackio:
    """A project."""

    name = "trackio"

    def __init__(self, package: Any, project: str) -> None:
        self._package, self._project = package, project

    def written(self) -> frozenset[str]:
        with answering():
            runs = self._package.Api().runs(self._project) if self._project in self._package.SQLiteStorage.get_projects() else ()
            found = [(run.config or {}, last_steps(self._package, self._project, run.name)) for run in runs]
        return frozenset(str(config["tideline.run"]) for config, last in found if OVER in last and "tideline.run" in config)

    def page(self, card: Card) -> Page:
        return TrackioPage(self._package, self._project, card)


class TrackioPage:
    """One run there. Events are read from the first on: the database says which numbers it has."""

    def __init__(self, package: Any, project: str, card: Card) -> None:
        self._package, self._project, self._card = package, project, card
        self._name = f"{card.name} {card.run}"
        self._config = {**card.parameters, **card.tags}
        self.mark = 0
        with answering():
            self._last = last_steps(package, project, self._name)
        self.over = OVER in self._last

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._config |= tags  # written with the next numbers

    def write(self, points: Sequence[Point], mark: int) -> None:
        new = unwritten(points, self._last)
        if not new:
            return
        with self._run() as run:
            for step, of in groupby(new, key=lambda point: point.step):
                for batch in rows_of(list(of)):
                    run.log(batch, step=step)
        wanted = {point.key: point.step for point in new}
        with answering():
            self._last = last_steps(self._package, self._project, self._name)
        if any(self._last.get(key, -1) < step for key, step in wanted.items()):
            raise Unreachable("Trackio has not written what it was given", "Check that its folder has room and is not locked")

    def attach(self, folder: Path, models: Sequence[ModelFile]) -> None:
        with self._run() as run:
            made = self._package.Artifact(f"{self._card.run}-{FILES}", FILES)
            made.add_dir(folder)
            run.log_artifact(made, overwrite=True)

    def close(self, ending: Ending) -> None:
        self.set_tags({**ending.tags, "tideline.status": ending.status})
        self.write([Point(OVER, 0, 1.0, ending.ended)], self.mark)
        self.over = True

    @contextlib.contextmanager
    def _run(self) -> Iterator[Any]:
        """Trackio's run, for a block at whose end everything is written."""
        with answering(), quiet():
            run = self._package.init(
                self._project,
                name=self._name,
                group=self._card.parent or self._card.run,
                config=self._config,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            try:
                yield run
            finally:
                self._package.finish()


def last_steps(package: Any, project: str, run: str) -> dict[str, int]:
    """The last step of each key of a run; nothing of a run that is not there."""
    if project not in package.SQLiteStorage.get_projects():
        return {}
    last: dict[str, int] = {}
    for row in package.SQLiteStorage.get_logs(project, run):
        for key in row.keys() - {"timestamp", "step"}:
            last[key] = max(last.get(key, -1), int(row["step"]))
    return last


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Trackio prints what it does among a command's answers."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Turn Trackio's errors into Unreachable, where waiting may help, and Refused."""
    try:
        yield
    except OSError as cause:
        raise Unreachable(f"Trackio cannot write: {said(cause)}", "Make room, or correct its folder's rights") from None
    except ValueError as cause:
        raise Refused(f"Trackio refuses: {said(cause)}", "Check --experiment", path="experiment") from None
