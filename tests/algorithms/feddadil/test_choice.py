"""FedDaDiL: which prediction a target trusts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from tests.algorithms.feddadil.played import memory, played
from tests.algorithms.lies import night_params
from tests.synthetic import CLASSES
from tideline.algorithms.feddadil import Config, client, feddadil, server, target
from tideline.algorithms.feddadil.messages import Described

PLAIN_LABELS = [0, 0, 1, 1, 1]
NEAR_ITS_OLD_LABEL, NEAR_ITS_NEW_LABEL = [0.0, 0.1, 5.0, 5.03, 5.1], [0.0, 0.1, 0.25, 5.0, 5.1]
GUESS = {"none": PLAIN_LABELS, "committee": [0, 0, 0, 1, 1], "rows": PLAIN_LABELS, "sites": PLAIN_LABELS}


def chosen(z: list[float], settings: Config, contrast: float = 0.3, **labels: list[int]) -> tuple[str, Mapping[str, float]]:
    """The choice among guesses of these labels, for rows at these places of a line."""
    guess = {name: torch.eye(2)[torch.tensor(each)] for name, each in (GUESS | labels).items()}
    return target.choice(guess, torch.tensor(z)[:, None], settings, contrast)


def test_the_guard_trusts_what_does_not_hinge_on_weighing() -> None:
    """Equal labels under both weighings: the committee. Other labels, and neighbours that disagree with it: no adaptation."""
    guard = Config(neighbours=1)
    between = [0.5, 1.0, 2.0, 3.05, 5.0]
    assert chosen(between, guard)[0] == "committee"
    name, found = chosen(NEAR_ITS_OLD_LABEL, guard, sites=[0, 1, 1, 1, 1])
    assert (name, found["s"]) == ("none", 0.2)
    assert found["rho"] < 0


def test_the_guard_asks_for_more_where_there_is_nothing_to_weigh() -> None:
    """One source, or sources of equal size: no labels hinge on the weighing, and that tells nothing."""
    guard, between = Config(neighbours=1), [0.0, 1.0, 2.05, 3.0, 4.0]
    assert chosen(between, guard, contrast=0.0)[0] == "none"
    assert chosen(NEAR_ITS_NEW_LABEL, guard, contrast=0.0)[0] == "committee"


def test_neighbours_can_speak_against_adapting() -> None:
    """Even where nothing hinges on the weighing, as with labels that are distributed quite otherwise at the target."""
    name, found = chosen(NEAR_ITS_OLD_LABEL, Config(neighbours=1))
    assert (name, found["s"]) == ("none", 0.0)
    assert found["rho"] <= -0.2


def test_a_target_of_one_row_is_left_alone() -> None:
    """It has no neighbours."""
    guess = {name: torch.tensor([[0.9, 0.1]]) for name in ("none", "rows", "sites", "committee")}
    assert target.choice(guess, torch.zeros(1, 2), Config(), 0.0) == ("none", {"s": 0.0, "rho": 0.0})


def test_the_contrast_of_sources() -> None:
    """Shares of 3/4 and 1/4 instead of halves: a quarter of the weight moves. One source: none."""
    heads = client.blank_heads(3, 2, 4)

    def reported(rows: int) -> Described:
        return Described(
            rows, torch.zeros(4), torch.ones(4), *(torch.zeros(0, dtype=torch.int64),) * 2, *(torch.zeros(0, 4),) * 2
        )

    assert server.standardised(heads, [reported(30), reported(10)]).contrast == 0.25
    assert server.standardised(heads, [reported(30)]).contrast == 0.0
    assert server.standardised(heads, [reported(30), reported(30)]).contrast == 0.0


def test_the_guard_trusts_neighbours() -> None:
    """Where it hinges, the committee must agree better with the neighbours of what it changed."""
    name, found = chosen(NEAR_ITS_NEW_LABEL, Config(neighbours=1), sites=[0, 1, 1, 1, 1])
    assert name == "committee"
    assert found["rho"] >= 0.2


def test_only_the_last_passes_are_averaged() -> None:
    """Three adaptations are kept of five."""
    stage, run = played(rounds=5, adapt_every=1, points=6)
    assert sorted(memory(stage, run, "carl").candidates) == ["e3", "e4", "e5", "r3", "r4", "r5"]


@pytest.mark.parametrize("choice", ["own", "committee", *night_params("none", "r", "e")])
def test_the_exported_classifier_predicts_what_the_site_predicts(choice: str) -> None:
    """Its arrays alone, as the page explains them, give the prediction that is fixed; no evidence is looked for then."""
    stage, run = played(choice=choice, encoder_rounds=0)
    config, mine = feddadil.configure(stage.row(run).spec.config), memory(stage, run, "carl")
    assert (mine.chosen, mine.evidence) == (choice, {})
    a = feddadil.keepsakes(config, mine)["classifier"]
    z, total = mine.z, torch.zeros(len(mine.z), CLASSES)
    own = (z - a["shift"]) / a["stretch"]
    own = own / own.square().mean(1, keepdim=True).sqrt()
    for scale, x in (("own", own), ("common", (z - a.get("common_shift", 0)) / a.get("common_stretch", 1))):
        for share, W, b in zip(*(a.get(f"{scale}_{part}", ()) for part in ("share", "weight", "bias")), strict=True):
            total += share * (x @ W.mT + b).softmax(1)
    expected = target.guesses(mine, mine.heads, mine.z, mine.guess, config)[choice]
    assert torch.allclose(total, expected, atol=1e-5), choice
