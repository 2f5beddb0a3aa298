"""How steps compute, on its way from the experiment to the site and into the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.errors import Undeclared
from tideline.core.asked.computing import Computing, Precision
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, StepFailed
from tideline.core.run import Digest, OrderId, Role, RunId, RunSpec
from tideline.core.settings import plain
from tideline.engine.compute.step_runner import guarded
from tideline.engine.model.brief import Brief
from tideline.engine.model.experiment import read_experiment
from tideline.engine.model.joins import check_join
from tideline.engine.model.orders import Reply
from tideline.engine.simulation.federation import Federation
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest
from tideline.nets import registry

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
COMPUTED = {"device": "cuda", "precision": "bfloat16", "deterministic": False}


class Cramped(nn.Module):
    """A network of a device that has room for eight rows while it trains."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, 5), nn.Linear(5, classes)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled() and len(x) > 8:
            raise torch.OutOfMemoryError("no room")
        made: Tensor = self.fc2(torch.relu(self.fc1(x)))
        return made


def cramped(world: World) -> nn.Module:
    """Its builder."""
    return Cramped(world.inputs[0], world.classes)


NETWORKS = {"cramped": cramped}


@pytest.fixture
def known() -> Iterator[None]:
    """What the process adds, for one test."""
    registry.use([f"{__name__}:NETWORKS"])
    yield
    registry.use([])


def played(batch: int, **more: Any) -> tuple[dict[str, Any], list[str]]:
    """A run of that network, and what its sites noted."""
    asked = experiment("fedavg", ROSTER, **more)
    asked["world"] = {**asked["world"], "model": "cramped"}
    asked["config"] = {**asked.get("config", {}), "batch": batch}
    federation = Federation(METHODS, sites())
    run = federation.start(asked)
    result = federation.run(run)
    events = federation.journal.events(run)
    return result, [str(each.data) for each in events if "mini-batch" in str(each.data) or "batch_halved" in str(each.data)]


@pytest.mark.usefixtures("known")
def test_a_mini_batch_without_room_passes_in_halves() -> None:
    """The run goes on, to nearly the same weights, and each site that trains notes it."""
    result, notes = played(16)
    assert result["status"] == "completed" and notes
    assert not played(4)[1], "a last row alone joins the batch before it, which then has five"


@pytest.mark.usefixtures("known")
def test_no_room_for_a_half_either_says_what_to_do() -> None:
    """In the result, for each site."""
    result, _ = played(32)
    assert result["status"] == "stalled"
    words = {each["what"] for client in result["clients"] for each in client["failures"]}
    assert any("nor for half of it" in each and "Lower config.batch" in each for each in words)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("secret rows"), "no room in the device's memory. Lower config.batch"),
        (
            RuntimeError("adaptive_max_pool2d_backward_cuda does not have a deterministic implementation, but you set"),
            "computing.deterministic is yes. Write deterministic: auto",
        ),
        (RuntimeError("secret rows"), "The step train raised RuntimeError"),
    ],
)
def test_errors_of_a_device_say_what_to_do(error: Exception, words: str) -> None:
    """And none of torch's own words, which may hold data."""

    def fail() -> None:
        raise error

    with pytest.raises(StepFailed, match=words) as failed:
        guarded("train", fail)
    assert "secret" not in str(failed.value)


def spec(computing: Computing | None) -> RunSpec:
    """A run that says how to compute, or does not."""
    known = {"method": "m", "config": {}, "seed": 0, "contract": Digest(""), "keeps": False}
    return RunSpec(id=RunId("r"), world=World(inputs=(8,)), computing=computing, **known)  # type: ignore[arg-type]


def answer(**facts: Any) -> Reply:
    """An answer to a join."""
    return Reply(OrderId("o"), facts={"labelled": True, **facts})


def test_a_site_tells_how_it_computes_where_it_is_asked() -> None:
    """A run that says nothing of it takes no answer with more in it, as from before."""
    check_join(spec(Computing()), answer(computed=COMPUTED, abilities=["computing"]))
    check_join(spec(None), answer())
    with pytest.raises(Undeclared, match="holds more"):
        check_join(spec(None), answer(computed=COMPUTED))
    with pytest.raises(Undeclared, match="upgrade its agent"):
        check_join(spec(Computing()), answer(abilities=["computing"]))


@pytest.mark.parametrize(
    "given",
    [
        "cuda",
        {**COMPUTED, "rows": 3},
        {**COMPUTED, "precision": "float8"},
        {**COMPUTED, "deterministic": "maybe"},
        {**COMPUTED, "device": "NVIDIA H100 of the third floor"},
        {"device": "cuda"},
    ],
    ids=str,
)
def test_what_else_a_site_may_say_is_refused(given: Any) -> None:
    """A closed form, so that nothing else passes."""
    with pytest.raises(Undeclared):
        check_join(spec(Computing()), answer(computed=given, abilities=["computing"]))


def test_the_section_is_read_with_the_place_of_a_mistake() -> None:
    """And is part of what a run's digest is of; absent it is not there."""
    asked = experiment("fedavg", ROSTER)
    assert read_experiment(asked).computing is None
    read = read_experiment({**asked, "computing": {"precision": "bfloat16"}}).computing
    assert read == Computing(precision=Precision.BFLOAT16)
    with pytest.raises(ConfigRefused, match=r"did you mean bfloat16\?") as refused:
        read_experiment({**asked, "computing": {"precision": "bfloat"}})
    assert refused.value.context["path"] == "computing.precision" and plain(read)["deterministic"] == "auto"


def test_an_owner_approves_how_a_run_computes() -> None:
    """It is part of what the ledger says, and of the digest that an approval is of; absent it adds nothing to either."""

    def brief(computing: Computing | None) -> Brief:
        known = {"method": "m", "config": {}, "world": World(), "threads": 1, "keeps": False, "contract": (), "role": Role.SOURCE}
        return Brief(**known, computing=computing)  # type: ignore[arg-type]

    low = Computing(precision=Precision.BFLOAT16)
    assert len({intent_digest(brief(each)) for each in (None, Computing(), low)}) == 3
    assert "computing" not in facts_of(brief(None)) and facts_of(brief(low))["computing"] == plain(low)
    assert "computing: precision: bfloat16, compile: False, accumulate: 1, deterministic: auto" in brief_in_words(brief(low))
    assert not any("computing" in line for line in brief_in_words(brief(None)))
