"""Pages as folders of event files, which TensorBoard reads. Needs tensorboard (`tideline[tensorboard]`).

Each start of a follower writes a file of its own, behind those before it: TensorBoard reads them in their order, and what a kill
left half written at the end of one is read by nobody. How far a folder is, its own files say.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tideline.client.output import replace_file
from tideline.core.errors import ConfigRefused, Unreachable
from tideline.tracking.pages import Card, Ending, ModelFile, Page, Point, unwritten, wanting

PATTERN = "events.out.tfevents.*"
ABOUT = "tideline.json"  # of each folder: whose it is, its tags, and whether it is over
PARAMETERS = "parameters"
VERSION = "brain.Event:2"
STRANGE = re.compile(r"[^\w.-]+", re.ASCII)


def opened(uri: str | None) -> TensorBoard:
    """Raises ConfigRefused without a folder, or without the package."""
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        raise wanting("tensorboard", "tensorboard") from None
    if not uri or "://" in uri:
        raise ConfigRefused("Nothing says where TensorBoard's files go", "Give --uri, a folder such as runs", path="uri")
    folder = Path(uri).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise ConfigRefused(f"--uri {folder} cannot be made: {cause.strerror}", "Choose another folder", path="uri") from None
    return TensorBoard(folder)


class TensorBoard:
    """A folder with a folder for each run."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def written(self) -> frozenset[str]:
        with writing(self.folder):
            found = [about_of(each.parent) for each in self.folder.glob(f"*/{ABOUT}")]
        return frozenset(str(each["run"]) for each in found if each.get("over") is True and "run" in each)

    def page(self, card: Card) -> Page:
        name = STRANGE.sub("-", card.name).strip("-.")[:60]
        with writing(self.folder):
            folder = self.folder / f"{name or 'run'}-{STRANGE.sub('-', card.run)}"
            folder.mkdir(parents=True, exist_ok=True)
            page = TensorBoardPage(folder, card.run)
            page.describe(card)
        return page


class TensorBoardPage:
    """One run's folder."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.mark = folder, 0  # events are read from the first on: the files say what they have
        about = about_of(folder)
        self._tags: dict[str, str] = about.get("tags", {})
        self.over, self._run = about.get("over") is True, run
        self._last = last_steps(folder)
        self._file = next_file(folder)

    def describe(self, card: Card) -> None:
        """Write the parameters, as a table, unless they are there."""
        if self.over or PARAMETERS in self._last:
            return
        from tensorboard.plugins.text.summary_v2 import text_pb

        rows = "\n".join(f"| {cell(name)} | {cell(value)} |" for name, value in sorted(card.parameters.items()))
        self._append([self._event(text_pb(PARAMETERS, f"| parameter | value |\n|---|---|\n{rows}"), 0, card.created)])
        self._last[PARAMETERS] = 0

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._note({**self._tags, **tags}, over=self.over)

    def write(self, points: Sequence[Point], mark: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        new = unwritten(points, self._last)
        self._append([self._event(Summary(value=[Summary.Value(tag=p.key, simple_value=p.value)]), p.step, p.at) for p in new])
        self._last |= {point.key: point.step for point in new}

    def attach(self, folder: Path, models: Sequence[ModelFile]) -> None:
        with writing(self.folder):
            shutil.copytree(folder, self.folder, dirs_exist_ok=True)

    def close(self, ending: Ending) -> None:
        self._note({**self._tags, **ending.tags, "tideline.status": ending.status}, over=True)

    def _note(self, tags: dict[str, str], over: bool) -> None:
        about = {"run": self._run, "over": over, "tags": tags}
        with writing(self.folder):
            replace_file(self.folder / ABOUT, json.dumps(about, indent=1) + "\n")
        self._tags, self.over = tags, over

    def _event(self, summary: Any, step: int, at: float) -> bytes:
        from tensorboard.compat.proto.event_pb2 import Event

        made: bytes = Event(wall_time=at, step=step, summary=summary).SerializeToString()
        return made

    def _append(self, events: Sequence[bytes]) -> None:
        """Write events to this start's file."""
        if events:
            with writing(self.folder):
                append_records(self._file, events)


def append_records(path: Path, events: Sequence[bytes]) -> None:
    """Write events behind those of a file; the first one of a new file says what it is."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("ab") as file:
        writer = RecordWriter(file)
        if file.tell() == 0:
            writer.write(Event(wall_time=time.time(), file_version=VERSION).SerializeToString())
        for event in events:
            writer.write(event)


def last_steps(folder: Path) -> dict[str, int]:
    """The last step of each tag in a folder's files, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    last: dict[str, int] = {}
    for path in sorted(folder.glob(PATTERN)):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                last[value.tag] = max(last.get(value.tag, -1), event.step)
    return last


def next_file(folder: Path) -> Path:
    """A file behind those that are there, whatever the clock says."""
    numbers = [int(path.name.split(".")[3]) for path in folder.glob(PATTERN) if path.name.split(".")[3].isdecimal()]
    number = max(int(time.time()), max(numbers, default=0) + 1)
    return folder / f"{PATTERN[:-1]}{number:010d}.tideline"


def about_of(folder: Path) -> dict[str, Any]:
    """What a folder says of itself; nothing where it does not, or is another's."""
    try:
        found = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("tags"), dict) else {}


def cell(text: str) -> str:
    """A text in a table of Markdown, as it is: TensorBoard shows Markdown, and HTML inside."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", escaped)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what the disk says into Unreachable: it may have room again."""
    try:
        yield
    except OSError as cause:
        what = f"{cause.filename or folder} cannot be written: {cause.strerror or cause}"
        raise Unreachable(what, "Make room, or correct its rights") from None
