"""The model that a rehearsal chose for a target: a candidate's, or a vote of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tideline.client.answers import RunResult
from tideline.core.errors import NotFound, Refused
from tideline.learning.around.class_shares import UNCORRECTED
from tideline.learning.model_file import Model, Origin, vote_of

SHOWN = 5  # targets in a sentence


@dataclass(frozen=True)
class Chosen:
    """What was chosen for a target: the run of each candidate with its weight, by candidate."""

    target: str
    runs: Mapping[str, str]
    weights: Mapping[str, float]


def chosen_for(result: RunResult, target: str | None) -> Chosen:
    """target: may be left out where there is one. Raises NotFound for another name, and Refused before anything was chosen."""
    run, verdict = result["run"], result.get("verdict")
    if not verdict or not verdict["runs"]:
        what = f"The rehearsal {run} has trained nothing for its targets"
        raise NotFound(what, "Start it with then: run, as tideline adapt does", path="run")
    found = {each["name"]: each["chosen"] for each in verdict["targets"]}
    if not found:
        raise Refused(f"The rehearsal {run} has chosen nothing yet", f"Wait for it: tideline run watch {run}", path="run")
    todo = f"Name one: --site {' or '.join(list(found)[:SHOWN])}"
    if target is None and len(found) > 1:
        raise NotFound("Each target may have another model", todo, path="site")
    name = next(iter(found)) if target is None else target
    if name not in found:
        raise NotFound(f"{name} is no target of the rehearsal", todo, path="site")
    return Chosen(name, verdict["runs"], found[name])


def chosen_model(result: RunResult, of: Chosen, model_in: Callable[[str, str], Model]) -> Model:
    """The candidate's model, or a vote of several. model_in(run, target): a run's model for a target. Raises Refused errors."""
    models = [(share, one_of(of, name, model_in)) for name, share in of.weights.items()]
    if len(models) == 1:
        return models[0][1]
    client = next((each for each in result["clients"] if each["name"] == of.target), None)
    metrics = {} if client is None or client["accuracy"] is None else {"accuracy": client["accuracy"]}
    uncorrected = any(model.source_shares is not None for _, model in models)
    note = f"A vote of {', '.join(of.weights)}, chosen by rehearsal{f'. {UNCORRECTED}' if uncorrected else ''}"
    digest = result["state_digest"] or ""
    origin = Origin(method=result["method"], run=result["run"], site=of.target, state_digest=digest, metrics=metrics, note=note)
    return vote_of(models, origin)


def one_of(of: Chosen, name: str, model_in: Callable[[str, str], Model]) -> Model:
    try:
        return model_in(of.runs[name], of.target)
    except NotFound as error:
        if len(of.weights) == 1:
            raise
        raise NotFound(f"{name}, which votes for {of.target}: {error.what}", error.todo, **error.context) from error
