"""The features that frozen encoders made of a site's rows, in the agent's home: runs over the same weights share them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tideline.core.errors import FederationError
from tideline.core.run import RunId
from tideline_agent.home.runs import RUNS
from tideline_agent.vault import FolderVault

FEATURES = "features"  # the folder in a home, beside the vault's


def clear_features(home: Path) -> int:
    """Delete those that no run in the home needs any more; the bytes that were freed."""
    folder = home / FEATURES
    if not folder.is_dir():
        return 0
    # Imported here: it loads torch, and few homes have any.
    from tideline.engine.compute.feature_files import forget_but

    return forget_but(folder, needed(FolderVault(home / RUNS)))


def needed(vault: FolderVault) -> frozenset[str]:
    """The digests of the frozen weights of all runs that are there, those that have not answered yet among them."""
    found = set[str]()
    for folder in vault.folder.iterdir():
        with suppress(FederationError):
            found.add(vault.brief(RunId(folder.name)).get("base", ""))
    return frozenset(found)
