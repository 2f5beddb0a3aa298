"""What a site's owner may take out of the agent's home: read from the vault on this machine, told to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tideline.archive.errors import PartMissing
from tideline.core.algorithm import load_methods, resolve
from tideline.core.errors import Malformed, MemoryLost, NotFound
from tideline.core.run import EMPTY, RunId
from tideline.core.settings import nearest
from tideline_agent.vault import FolderVault

if TYPE_CHECKING:
    from torch import Tensor

# Why a site may have nothing to take, and no name is wrong.
SELDOM = "some methods keep nothing, others only at targets and only after their last exchanges"
TRIES = 5  # a working agent replaces its memory now and then; the next look finds the new one whole


def remembered(home: Path) -> list[dict[str, Any]]:
    """The runs that an agent's home remembers: run, method, role, and the place in the plan of its last answer."""
    vault = FolderVault(home / "runs")
    rows = []
    for run in vault.runs():
        head, brief = vault.head(run), vault.brief(run)
        assert head is not None, "runs are those with a head"
        rows.append({"run": run, "method": brief["method"], "role": brief["role"], "cursor": head.cursor})
    return rows


def keepsakes(home: Path, run: RunId, methods: str) -> Mapping[str, Mapping[str, Tensor]]:
    """Everything that the run's method lets the owner take; nothing before the first answer. Raises NotFound, MemoryLost."""
    vault = FolderVault(home / "runs")
    brief = brief_of(vault, run)
    if vault.head(run) is None:
        return EMPTY
    algorithm = resolve(load_methods(methods), brief["method"])
    config = algorithm.configure(brief["config"])
    return algorithm.keepsakes(config, memory_of(vault, run, algorithm.memory))


def brief_of(vault: FolderVault, run: RunId) -> dict[str, Any]:
    """What a run is. Raises NotFound: here the id was typed by the owner, so nobody else is to blame for an odd one."""
    try:
        return vault.brief(run)
    except (Malformed, OSError):
        raise NotFound(f"{run[:80]!r} cannot name a run", "Use an id from `tideline site list`") from None


def memory_of(vault: FolderVault, run: RunId, kind: type[Any]) -> Any:
    """The site's memory of a run."""
    from tideline.archive.checks import LAX
    from tideline.archive.reader import decode

    for _ in range(TRIES):
        head = vault.head(run)
        if head is None or not head.memory:
            break
        try:
            return decode(kind, head.memory[0][0], vault.parts(run), LAX)
        except PartMissing:
            continue
    raise MemoryLost(f"The memory of run {run} is not whole in {vault.folder.parent}", "Try again; see whether the agent works")


def one_of(found: Mapping[str, Mapping[str, Tensor]], name: str, run: RunId) -> Mapping[str, Tensor]:
    """A keepsake by name. Raises NotFound with the names that there are."""
    if name in found:
        return found[name]
    names = sorted(found)
    if names:
        what = f"Of run {run} nothing named {name!r} is kept at this site; kept are: {', '.join(names)}"
        raise NotFound(what, f"Use one of these names{nearest(name, names)}, see `tideline site list --run {run}`")
    what = f"Of run {run} nothing is kept at this site yet, so nothing named {name!r}"
    raise NotFound(what, f"See `tideline site list --run {run}`; {SELDOM}")
