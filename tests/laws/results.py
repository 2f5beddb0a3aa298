"""Law 8, of what a completed run ends in: its models, its scores, and that it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.laws.case import Bar, Case
from tests.laws.stage import Stage
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import NoModel
from tideline.core.phase import SCORE_NAMES
from tideline.core.run import ClientId, Role, RunId
from tideline.core.step import View
from tideline.engine.model.runs import Status
from tideline.experiments.results import BY_GIVEN, Ended
from tideline.learning.around.class_shares import UNCORRECTED
from tideline.learning.model_file import Model, packed, read_model
from tideline.learning.prediction import Classifier


def models_are_what_it_says(case: Case) -> None:
    """A completed run's models, written and read again, predict held-out rows as its result says, to the row; or it says why not.

    A site's own model is in its memory or in the coordinator's final state, and where it is in both it is the same.
    """
    stage, run = case.played()
    ended = Ended(stage.result(run), case.methods)
    if ended.method.no_model:
        assert NoModel in map(type, ended.method.result), f"declare what {case.name} ends in: Algorithm.result"
        return
    state = decode(ended.method.state, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    of_run = ended.of_run(state)
    scored = 0
    for client in ended.result["clients"]:
        own = [
            model for model in (memory_model(stage, run, ended, client["name"]), ended.of_site(state, client["name"])) if model
        ]
        assert len({packed(without_statistics(model)) for model in own}) <= 1, (
            f"{client['name']} and the coordinator have other models of its own"
        )
        for model in filter(None, (of_run, *own)):
            if client["accuracy"] is not None:
                check_predictions(case, model, client)
                scored += 1
    assert scored, "no site that is scored has a model: declare where it is"


def without_statistics(model: Model) -> Model:
    """A site's own statistics and shares of classes are at the site alone."""
    plain = replace(model, correction=None, source_shares=None)
    if plain.scaling.kind.own:
        plain = replace(plain, statistics=None)
    note = model.origin.note.replace(BY_GIVEN, "").replace(UNCORRECTED, "").strip()
    return replace(plain, origin=replace(model.origin, note=note))


def memory_model(stage: Stage, run: RunId, ended: Ended, site: str) -> Model | None:
    vault = stage.vaults[ClientId(site)]
    head = vault.head(run)
    if head is None or not head.memory:
        return None
    return ended.of_memory(decode(ended.method.memory, head.memory[0][0], vault.parts(run), LAX), site)


def check_predictions(case: Case, model: Model, client: Mapping[str, Any]) -> None:
    """The file's model is right on as many of the site's held-out rows as the result says."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(packed(model))
        read = read_model(path)
    assert packed(read) == packed(model)
    site = case.sites()[client["name"]].open_site_data(model.world, Role(client["role"]))
    data, ready = site.view(View.HELD_OUT, Role.SOURCE), Classifier(read)
    exact = model.origin.note.replace(UNCORRECTED, "").strip() in ("", BY_GIVEN)
    if model.by_given:
        ready = ready.normalising_by(site.view(View.LEARN, Role.TARGET).x.parts())
    if UNCORRECTED in model.origin.note and client["role"] == "target":
        ready = ready.correcting_by(site.view(View.LEARN, Role.TARGET).x.parts())
    right = int((ready.predict(data.x.all()).classes == data.y).sum())
    assert right == round(client["accuracy"] * len(data)) or not exact, (case.name, client["name"], right)


def scores_are_told(case: Case) -> None:
    """The last scoring tells each score of every site that has an accuracy, and that accuracy is the one in its table."""
    stage, run = case.played()
    result = stage.result(run)
    reported = {c["name"]: c["accuracy"] for c in result["clients"] if c["accuracy"] is not None}
    assert reported and result["recall"]
    for site, accuracy in reported.items():
        scores = result["scores"][site]
        assert scores.keys() == set(SCORE_NAMES), (case.name, site)
        assert scores["accuracy"]["value"] == pytest.approx(accuracy)
        assert all(0 <= each["low"] <= each["value"] <= each["high"] <= 1 for each in scores.values())


def learns(case: Case, bar: Bar) -> None:
    """On held-out rows of the small shift the method clears its bar."""
    stage = case.stage()
    run = stage.start(case.experiment(preset=bar.preset, config=dict(bar.config)))
    row = stage.play(run)
    assert row.status is Status.COMPLETED, row.cause
    reported = [c for c in stage.result(run)["clients"] if c["accuracy"] is not None and bar.role in ("", c["role"])]
    assert reported
    assert sum(c["accuracy"] for c in reported) / len(reported) >= bar.accuracy
