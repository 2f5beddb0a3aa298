"""Parts in a directory that several coordinators may share."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from pathlib import Path

from tideline.archive.folder import LEFT_SECONDS, FolderParts, modified, room
from tideline.core.errors import ConfigRefused, StorageFull

OWN = "parts"  # of the home: nobody else writes there


class DirectoryParts(FolderParts):
    """Parts as files. What is under way to a shared directory lies in a folder of each coordinator's own beneath it.

    Two that continued one upload would mix their bytes, and one that starts would sweep what another is writing.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        super().__init__(folder, tmp="tmp" if folder == home / OWN else f"tmp-{own_name(home)}")

    def begin(self) -> None:
        """See that files can be made, and forget what killed processes left half done. Raises ConfigRefused."""
        probe = self._tmp / f"probe-{uuid.uuid4()}"
        try:
            with suppress(StorageFull), room(probe):  # a full disk is no reason: a coordinator that runs makes room
                probe.touch()
            self.sweep()  # the probe with the rest
            self.sweep_strays()
        except OSError as cause:
            raise refused(self.folder, cause) from None

    def sweep_strays(self) -> None:
        """Forget what coordinators left that do not come back: their homes are gone."""
        before = time.time() - LEFT_SECONDS
        for leftover in self.folder.glob("tmp-*/*"):
            if modified(leftover) < before:
                leftover.unlink(missing_ok=True)


def refused(folder: Path, cause: OSError) -> ConfigRefused:
    """The refusal of a folder that cannot be made or written."""
    why = cause.strerror or type(cause).__name__
    return ConfigRefused(f"Parts cannot be kept in {folder}: {why}", "Give --parts a directory that you may write", path="parts")


def own_name(home: Path) -> str:
    """A name that no other coordinator has; a home keeps its own."""
    path = home / "parts.id"
    if not path.exists() or not path.read_text():
        home.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex)
    return path.read_text()
