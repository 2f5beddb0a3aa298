"""Whether the verdict of a rehearsal still holds for rows that a site has now. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tideline.core.algorithm import REHEARSAL, load_methods
from tideline.core.asked.world import world_in
from tideline.core.errors import DataRefused, NotFound
from tideline.core.run import Digest, Role, RunId
from tideline.core.step import View
from tideline.engine.compute.step_runner import Base, StepRunner
from tideline.engine.ports.site import OpenSiteData
from tideline.learning.loading.ahead import in_parts
from tideline.learning.normalising import moments_of
from tideline.learning.rehearsal.messages import Compared, moments_in
from tideline.learning.rehearsal.state import width
from tideline.nets import of_features
from tideline.numerics.rehearsal.drift import Drift, Holds, drift
from tideline.numerics.rehearsal.shifts import Shift
from tideline_agent.home.runs import RUNS, memory_of
from tideline_agent.vault import FolderVault


def drift_of(home: Path, run: RunId, open_site_data: OpenSiteData, device: str = "cpu") -> Drift:
    """Of the rows that are there now, all of them, against those that the rehearsal adapted to.

    Raises NotFound for a run that is no rehearsal, or that this site was no target of; DataRefused, MemoryLost.
    """
    vault = FolderVault(home / RUNS)
    brief = vault.brief(run)
    if brief["method"] != REHEARSAL:
        what = f"Run {run} is no rehearsal, so it has no verdict"
        raise NotFound(what, "See `tideline site list`: the method of a rehearsal is rehearsal")
    kept = memory_of(vault, run, Compared)
    if brief["role"] != Role.TARGET or not kept.labelled.count:
        what = f"This site keeps no verdict of run {run}: it was no target of it, or it has not come so far"
        raise NotFound(what, "Rehearse with this site as a target: tideline adapt")
    runner = StepRunner(load_methods(), vault.parts, open_site_data, device)
    world = world_in(brief["world"])
    base = Base(Digest(brief["base"]), 1, run) if "base" in brief else None
    seen = runner.seen_world(world, base)
    site_data = runner.opened(world, Role.TARGET, base if of_features(seen) else None).site_data
    views = [site_data.view(view, Role.TARGET).x for view in (View.TRAIN, View.HELD_OUT)]
    new = moments_of((part for x in views for part in in_parts(x)), width(seen))
    if not new.count:
        raise DataRefused("There are no rows to compare", "Name the folder of the new rows: --data DIR")
    rehearsed = [Shift(*map(float, each)) for each in kept.shifts.tolist()]
    return drift(new, moments_in(kept.own), moments_in(kept.labelled), rehearsed)


SENTENCES = {
    Holds.AS_IT_WAS: "The verdict holds: the rows are like those that were adapted to.",
    Holds.REHEARSED: "The rows have moved, to a shift that was rehearsed: adapt to them as well, with tideline adapt.",
    Holds.NO: "The verdict does not hold: the rows have moved to where nothing was rehearsed. Adapt again: tideline adapt",
}


def said_of(found: Drift) -> Iterator[str]:
    """The answer, and the numbers that it follows from."""
    yield SENTENCES[found.holds]
    pairs = (
        ("means", found.moved.of_means, found.most.of_means),
        ("spreads", found.moved.of_spreads, found.most.of_spreads),
    )
    for name, moved, most in pairs:
        yield f"  {name} have moved by {moved:.2f}; up to {most:.2f} is no drift for so many rows"
    if found.nearest is not None:
        yield f"  the nearest shift that was rehearsed is {found.nearest:.2f} away; from 1.00 on none is like it"
