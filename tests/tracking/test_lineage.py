"""Where a model comes from: what its rows have paid, and which data it was made of, as far as their owners say."""

from __future__ import annotations

from tests.engine.test_private_runs import asked
from tests.laws.stage import Stage
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.client.answers import RunResult
from tideline.core.run import ClientId
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.said.disclosed import Disclosed
from tideline.tracking.cards import lineage_of


def played(**more: object) -> RunResult:
    """A run's result, of sites of which two disclose their data."""
    stage = Stage(METHODS, sites())
    for name, digest in (("anna", "b3-a"), ("carl", "b3-c")):
        told = Disclosed.of("", "", digest)
        stage.agents[ClientId(name)].owner.discloses = lambda project, told=told: told  # type: ignore[misc]
    run = stage.start(asked(**more))  # type: ignore[arg-type]
    assert stage.play(run).status == "completed"
    found: RunResult = result_of(stage.journal, run, stage.clock.now(), history=True)  # type: ignore[assignment]
    return found


def test_what_a_private_run_has_cost() -> None:
    result = played()
    paid = [each["epsilon"] for each in result["clients"]]
    assert lineage_of(result, "")["tideline.epsilon"] == f"{max(each for each in paid if each is not None):.6g}"
    assert "tideline.epsilon" not in lineage_of(played(privacy=None), "")


def test_which_data_owners_disclose() -> None:
    result = played(privacy=None)
    assert {each["name"]: each["data"] for each in result["clients"]} == {"anna": "b3-a", "bert": None, "carl": "b3-c"}
    assert lineage_of(result, "anna")["tideline.data"] == "anna b3-a, carl b3-c"
