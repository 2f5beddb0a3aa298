"""What sites hear of deleted runs: each asks for those of which it still has files, so that who was away hears it, too."""

from __future__ import annotations

from collections.abc import Sequence

from tideline.core.run import RunId
from tideline.engine.model.accounts import Client
from tideline.engine.ports.journal import Journal


def deleted_among(journal: Journal, client: Client, runs: Sequence[RunId]) -> tuple[RunId, ...]:
    """Of these runs those that were deleted here, of projects that the client serves; of others it learns nothing."""
    found = journal.tombstones([run for run in runs if run.isprintable()])
    return tuple(each.run for each in found if each.project in client.projects)
