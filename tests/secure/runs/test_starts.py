"""What is said of a run with secure sums before anybody is asked: its contract, and what no sum can be of."""

from __future__ import annotations

from typing import Any

import pytest
from safetensors.torch import save

from tests.secure.runs.played import CONFIG, asked, ended, played, stage
from tests.synthetic import NAMES
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import RosterRefused
from tideline.core.privacy import contract_digest
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.model.experiment import UPLOADER

ADAPTED = {**dict.fromkeys(("anna", "bert", "carl"), "source"), **dict.fromkeys(("dora", "emil"), "target")}
IMPOSSIBLE: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "more keys than a message has": ("fedavg", 190, {"secure_sums": {"ahead": 64}}, "Write ahead: 63 in secure_sums"),
    "more sites than a sum has": ("fedavg", 3501, {"secure_sums": {"ahead": 1}}, "3501 sites are asked in train"),
    "two sites": ("fedavg", 2, {}, "2 sites are asked in train"),
    "fewer than the run wants": ("fedavg", 4, {"secure_sums": {"sites": 5}}, "lower secure_sums.sites"),
    "two that adapt": ("fedavg_shot", 0, {"roster": ADAPTED}, "2 sites are asked in adapt"),
    "one source": (
        "fedavg_shot",
        0,
        {"roster": {"anna": "source", **dict.fromkeys(("carl", "dora", "emil"), "target")}},
        "1 site is asked in source",
    ),
}


@pytest.mark.parametrize(("method", "many", "more", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_no_sum_can_be_of_is_refused_at_the_start(method: str, many: int, more: dict[str, Any], words: str) -> None:
    """With what to write, before anybody is asked, and when an experiment is checked."""
    found, names = stage(), tuple(f"site{i:04d}" for i in range(many))
    given = asked(method, **{"roster": dict.fromkeys(names, "source"), "config": {"rounds": 64}, **more})
    with pytest.raises(RosterRefused) as refusal:
        found.start(given)
    assert words in f"{refusal.value.what}. {refusal.value.todo}" and found.waiting() == []
    with pytest.raises(RosterRefused):
        found.run_service.check(given, Identity())


@pytest.mark.nightly(job="numbers")
def test_as_many_keys_as_a_message_has_are_let_in() -> None:
    """With as many rounds at once as the refusal said. Of fewer rounds than that there are fewer keys."""
    names = tuple(f"site{i:03d}" for i in range(190))
    roster = dict.fromkeys(names, "source")
    stage().start(asked(roster=roster, config={**CONFIG, "rounds": 64}, secure_sums={"ahead": 63}))
    stage().start(asked(roster=roster, config={**CONFIG, "rounds": 63}, secure_sums={"ahead": 64}))


@pytest.mark.parametrize("masks", [True, False])
def test_an_exchange_that_asks_nobody_is_left_out(masks: bool) -> None:
    """A run that brings its source model needs no source, and makes no keys for the sums of what sources send."""
    found, roster = stage(masks), dict.fromkeys(NAMES, "target")
    digest = found.parts.put([save(nets.weights_of(nets.build(World(inputs=(8,), classes=3, model="mlp"))))])
    found.journal.add_parts([digest], *UPLOADER, found.clock.now())
    run = found.start(asked("fedavg_shot", roster=roster, config={"rounds": 1, "epochs": 1, "batch": 16}, weights=digest))
    found.play(run)
    ended(found, run)
    asked_in = {found.row(run).fact(order.cursor).phase for order in found.journal.orders(run) if order.cursor >= 0}
    assert "adapt" in asked_in and not {each for each in asked_in if each.split()[0] == "source"}


def test_the_contract_that_is_shown_before_is_the_runs() -> None:
    found, run = played(True)
    assert found.compute.describe("fedavg", secure_sums=True).digest == contract_digest(found.row(run).contract)
