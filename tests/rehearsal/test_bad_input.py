"""What an experiment that rehearses is refused for: each with its place, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rehearsal.stage import SHORT, WORLD, experiment, federation
from tideline.core.errors import Refused

TWO = {"anna": "source", "bert": "source", "dora": "target"}
MANY = {"anna": "source", "bert": "source", **{f"site-{i}": "target" for i in range(834)}}
TOKENS = {"inputs": [6], "classes": 3, "model": "tokens", "dtype": "int64", "vocabulary": 9}
IMAGES = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet"}
BAD: list[tuple[dict[str, Any], str, str]] = [
    (experiment("fedavgg"), "rehearse.candidates[0].method", "fedavg"),
    (experiment(SHORT, SHORT), "rehearse.candidates[0]", "two candidates"),
    (experiment({**SHORT, "config": {"round": 1}}), "rehearse.candidates[0].config.round", "rounds"),
    (experiment({**SHORT, "world": {"classes": 4}}), "rehearse.candidates[0].world.classes", "cannot differ"),
    (experiment(SHORT, rehearse={"on": 0}), "rehearse.on", "all"),
    (experiment(SHORT, rehearse={"on": "some"}), "rehearse.on", "all"),
    (experiment(SHORT, rehearse={"rule": "best"}), "rehearse.rule", "vote"),
    (experiment(SHORT, world=IMAGES, rehearse={"mode": "heads"}), "rehearse.mode", "full"),
    (experiment(SHORT, world=TOKENS), "rehearse", "token ids"),
    (experiment(SHORT, roster={"anna": "source"}), "roster", "Only anna"),
    (experiment(SHORT, roster={"dora": "target"}), "roster", "labels"),
    (experiment(SHORT, roster={"anna": "source", "dora": "target"}), "roster", "then: run"),
    (experiment(SHORT, roster={"anna": "source", "bert": "source"}, then="run"), "then", "target"),
    (experiment({**SHORT, "label": "a\nb"}), "rehearse.candidates[0].label", "shown on a line"),
    (experiment({**SHORT, "world": {"normalise": "imagenet"}}), "rehearse.candidates[0].world.normalise", "3 channels"),
    (
        experiment({**SHORT, "world": {"normalise": "shared"}}, roster=TWO),
        "rehearse.candidates[0].world.normalise",
        "there is one",
    ),
    (experiment(SHORT, world={**WORLD, "normalise": "shared"}, roster=TWO), "world.normalise", "there is one"),
    (experiment(SHORT, roster=MANY), "roster", "room for 769"),
    (experiment(SHORT, reference={"method": "local"}), "reference", "no adaptation"),
    ({**experiment(SHORT), "rehearse": None, "method": "fedavg", "then": "run"}, "then", "rehearse"),
    ({**experiment(SHORT), "rehearse": None, "method": "rehearsal", "config": {}}, "method", "no method"),
]


def test_it_is_refused_at_its_place(subtests: pytest.Subtests) -> None:
    """And nothing of it is written."""
    on = federation()
    for given, path, words in BAD:
        with subtests.test(path, words=words):
            with pytest.raises(Refused) as error:
                on.start(given)
            assert error.value.context["path"] == path, error.value
            assert words in f"{error.value.what} {error.value.todo}"
    assert on.journal.run_ids() == ()
