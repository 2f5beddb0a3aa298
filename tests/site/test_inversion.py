"""An operator's weights that are made to read single rows: what stops them, and that the attack is one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from tests.site.inversion import ATTACK, crafted, read_rows, read_rows_of_units, recovered
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import State
from tideline.archive.reader import decode
from tideline.core.asked.world import World, world_in
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.site.rules import FREE, InitialWeights, RunRules, SiteRules

WORLD = {"inputs": [10], "classes": 3, "model": "mlp"}
ROWS = 200


class Rows:
    """Two hundred rows of unit variance."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(1)
        self.x, self.y = torch.randn(ROWS, 10, generator=draw), torch.randint(0, 3, (ROWS,), generator=draw)

    def view(self, view: View, role: Role) -> Data:
        return Data(MemoryRows(self.x), self.y, torch.zeros(ROWS, dtype=torch.int64), ("d",))


def attacked(rules: SiteRules, **config: Any) -> tuple[dict[str, Any], Tensor]:
    """The attack's result, and the rows that it reads from it."""
    federation = Federation(METHODS, {"anna": SimSite(lambda world, role: Rows(), rules=rules)})
    before = crafted(world_in(WORLD))
    given = {"method": "fedavg", "world": WORLD, "roster": {"anna": "source"}, "config": {**ATTACK, **config}}
    result = federation.run(federation.start({**given, "weights": federation.bring([save(before)])}))
    if result["status"] != "completed":
        return result, torch.empty(0, 10)
    return result, read_rows(before, decode(State, result["state_digest"], federation.parts).model)


def test_the_attack_reads_rows_where_nothing_is_bound() -> None:
    """To four digits and more, in one run: so what follows is worth something."""
    result, guesses = attacked(FREE)
    rows = Rows().x
    assert result["status"] == "completed" and recovered(rows, guesses) >= 20
    assert int((torch.cdist(rows.double(), guesses).amin(dim=1) < 1e-4).sum()) >= 8


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (SiteRules(), "weights that a user brings"),
        (SiteRules(RunRules(weights=InitialWeights.ANY)), "config.rate of 100, which is bound to 10"),
        (SiteRules(RunRules(weights=InitialWeights.ANY), bounds={"batch_share": 0.5}), "config.batch of 1e+06 is more than 50%"),
    ],
)
def test_the_default_policy_stops_it(rules: SiteRules, words: str) -> None:
    """The run stalls with what the owner does not allow; nothing is read of any row."""
    result, guesses = attacked(rules)
    assert words in result["cause"] and result["status"] == "stalled", result["cause"]
    assert recovered(Rows().x, guesses) == 0


def test_clipping_bounds_how_far_one_site_moves_brought_weights() -> None:
    """It hides no row, and says so: what is read is as many rows as before."""
    rules = replace(FREE, runs=replace(FREE.runs, clip=0.5))
    result, guesses = attacked(rules)
    assert result["status"] == "completed" and recovered(Rows().x, guesses) >= 20
    before = crafted(world_in(WORLD))
    federation = Federation(METHODS, {"anna": SimSite(lambda world, role: Rows(), rules=rules)})
    given = {"method": "fedavg", "world": WORLD, "roster": {"anna": "source"}, "config": ATTACK}
    ended = federation.run(federation.start({**given, "weights": federation.bring([save(before)])}))
    after = decode(State, ended["state_digest"], federation.parts).model
    moved = sum(float((after[name] - w).double().square().sum()) for name, w in before.items() if w.is_floating_point())
    assert moved**0.5 == pytest.approx(0.5, rel=1e-3)


@pytest.mark.nightly(job="numbers")
def test_noise_in_a_private_run_hides_what_the_attack_reads() -> None:
    """Where nothing else is bound, and the run's epsilon is no small one."""
    privacy = {"rows": ROWS, "epsilon": 8, "delta": 1e-3, "rate": 1.0, "score_noise": 30.0}
    federation = Federation(METHODS, {"anna": SimSite(lambda world, role: Rows(), rules=FREE)})
    before = crafted(world_in(WORLD))
    given = {"method": "fedavg", "world": WORLD, "roster": {"anna": "source"}, "config": {**ATTACK, "batch": ROWS}}
    weights = federation.bring([save(before)])
    result = federation.run(federation.start({**given, "privacy": privacy, "weights": weights}))
    assert result["status"] == "completed", result["cause"]
    guesses = read_rows(before, decode(State, result["state_digest"], federation.parts).model)
    assert int((torch.cdist(Rows().x.double(), guesses).amin(dim=1) < 0.1).sum()) == 0


def test_numbers_to_normalise_by_are_brought_as_well() -> None:
    """Far from the rows, they leave single ones above thresholds that are drawn."""
    shifted = {**WORLD, "normalise": {"mean": [2.0] * 10, "std": [1.0] * 10}}
    federation = Federation(METHODS, {"anna": SimSite(lambda world, role: Rows(), rules=SiteRules())})
    run = federation.start({"method": "fedavg", "world": shifted, "roster": {"anna": "source"}, "config": {"rounds": 1}})
    assert "normalised by numbers of the run's user" in federation.run(run)["cause"]


def of_the_last_batch(rules: SiteRules) -> tuple[dict[str, Any], Tensor]:
    """An attack with drawn weights: each step undoes those before it, and the last mini-batch has two rows."""
    federation = Federation(METHODS, {"anna": SimSite(lambda world, role: Rows(), rules=rules)})
    config = {"batch": ROWS - 2, "rate": 0.1, "mu": 10.0, "momentum": 0.0, "weight_decay": 0.0}
    given = {"method": "fedprox", "world": {**WORLD, "normalise": "none"}, "roster": {"anna": "source"}}
    ended = [federation.run(federation.start({**given, "config": {**config, "rounds": rounds}})) for rounds in (0, 1)]
    if ended[1]["status"] != "completed":
        return ended[1], torch.empty(0, 10)
    before, after = (decode(State, each["state_digest"], federation.parts).model for each in ended)
    return ended[1], read_rows_of_units(before, after)


def test_the_last_mini_batch_is_not_all_that_an_answer_is_made_of() -> None:
    """Where nothing is bound, its two rows are read to four digits; by the default policy, the run stalls."""
    rows = Rows().x.double()
    _, guesses = of_the_last_batch(FREE)
    assert int((torch.cdist(rows, guesses).amin(dim=1) < 1e-4).sum()) == 2
    result, guesses = of_the_last_batch(SiteRules())
    assert "config.rate x config.mu is 1: an answer would be made of its last mini-batches" in result["cause"]
    assert not len(guesses)


def test_the_world_of_the_attack() -> None:
    """Its weights are a network's of the world."""
    assert isinstance(world_in(WORLD), World) and len(crafted(world_in(WORLD))) == 4
