"""A site's own model as a run has left it in the agent's home: the last one, and that of the run's best round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path

from tideline.core.algorithm import AnyAlgorithm, load_methods, plan_of, round_of
from tideline.core.asked.scoring import Selection
from tideline.core.asked.world import ALL, world_in
from tideline.core.errors import NotFound
from tideline.core.record import Weights
from tideline.core.run import RunId
from tideline.engine.ports.site import Head
from tideline.learning.around.class_shares import correction_in
from tideline.learning.around.medians import medians_in
from tideline.learning.in_world import statistics_in
from tideline.learning.model_file import BEST, FINAL, Model, Origin
from tideline.learning.normalising import constants
from tideline_agent.home.identity import recall
from tideline_agent.home.runs import (
    MODEL,
    RUNS,
    UNFINISHED,
    is_over,
    keepsakes,
    made_whole,
    memory_of,
    method_of,
    one_of,
    scoring_in,
    weights_in,
)
from tideline_agent.vault import FolderVault, RunBrief


def own_model(home: Path, run: RunId, methods: str, which: str = FINAL) -> Model:
    """The site's own model, as the run has left it here so far. Raises NotFound, MemoryLost."""
    kept = one_of(keepsakes(home, run, methods), MODEL, run)
    known, vault = load_methods(methods), FolderVault(home / RUNS)
    brief, head, memo = vault.brief(run), vault.head(run), recall(home)
    algorithm = method_of(known, brief)
    sites, config = algorithm.site_models, algorithm.configure(brief["config"])
    if sites is None or head is None:
        raise NotFound(f"With {algorithm.name} a site has no model of its own", "See `tideline run export` at the coordinator")
    weights: Weights = kept if which == FINAL else best_weights(vault, run, algorithm, brief, head)
    world, options = world_in(brief["world"]), sites.options(config)
    origin = Origin(
        method=algorithm.name,
        run=run,
        which=which,
        round=round_in(algorithm, brief, head, which),
        site="" if memo is None else memo.name,
        metrics=finite(head.metrics if which == FINAL or head.best is None else head.best.metrics),
        note="" if is_over(vault, run, known) else UNFINISHED,
    )
    own = made_whole(vault, run, world, dict(weights), sites.form)
    memory = memory_of(vault, run, algorithm.memory, best=which == BEST)
    return Model(
        world=replace(world, trains=ALL, normalise=None),
        weights=own,
        form=sites.form,
        options=options,
        origin=origin,
        scaling=world.scaling.named,
        statistics=constants(world.scaling) or statistics_in(memory),
        medians=medians_in(memory),
        correction=correction_in(memory),
    )


def best_weights(vault: FolderVault, run: RunId, algorithm: AnyAlgorithm, brief: RunBrief, head: Head) -> Weights:
    """The site's model at the run's best scoring. Raises NotFound where it was told of none, or had no model then."""
    if scoring_in(brief).selection is Selection.NONE:
        what = f"Run {run} selects by no score, so none of its rounds is the best"
        raise NotFound(what, "Leave --which out", path="which")
    if head.best is None:
        what = f"Of run {run} this site has not been told which round is the best"
        raise NotFound(what, "Wait for the next order of the run, or leave --which out", path="which")
    memory, config = memory_of(vault, run, algorithm.memory, best=True), algorithm.configure(brief["config"])
    sites = algorithm.site_models
    found = {} if sites is None else weights_in(sites, brief, config, memory)
    if not found:
        what = f"At the best round of run {run} this site had no model of its own yet"
        raise NotFound(what, "Leave --which out", path="which")
    return found


def round_in(algorithm: AnyAlgorithm, brief: RunBrief, head: Head, which: str) -> int | None:
    """The round of a model: the run's last, or that of the scoring that found the best."""
    if which == BEST and head.best is not None:
        plan = plan_of(algorithm, algorithm.configure(brief["config"]), scoring_in(brief))
        return round_of(plan, head.best.cursor) if head.best.cursor < len(plan) else None
    rounds = brief["config"].get("rounds")
    return rounds if isinstance(rounds, int) else None


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if isfinite(value)}


def hint_of(home: Path, run: RunId, which: str) -> str:
    """What whoever gets the last model should know: that another one, the best, is kept beside it. Empty where none is."""
    head = FolderVault(home / RUNS).head(run)
    if which == BEST or head is None or head.best is None or head.best.memory == head.memory:
        return ""
    return "This is the last model; that of the best round is kept beside it: --which best writes it"
