"""Runs whose targets predict at their own shares of the classes: what it gains, what it costs, and what it is refused for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.synthetic import Rows, experiment
from tideline.algorithms import METHODS
from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, Refused, RosterRefused
from tideline.core.phase import Turn
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data
from tideline.engine.model.experiment import read_experiment
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.around.class_shares import asked, pooled

CLASSES, D = 3, 4
EVEN, FEW = (1 / 3, 1 / 3, 1 / 3), (0.8, 0.15, 0.05)
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
WORLD: Mapping[str, Any] = {"inputs": [D], "classes": CLASSES, "model": "linear", "normalise": "none"}


@dataclass(frozen=True)
class Mixed:
    """Clouds that overlap, the same at every site, whose classes have these shares."""

    seed: int
    shares: tuple[float, ...] = EVEN
    train: int = 300

    def drawn(self, n: int, rng: torch.Generator) -> Data:
        y = torch.multinomial(torch.tensor(self.shares), max(n, 1), replacement=True, generator=rng)[:n]
        x = 1.5 * torch.eye(CLASSES, D)[y] + torch.randn(n, D, generator=rng)
        return Data(MemoryRows(x), y, torch.zeros(n, dtype=torch.int64), ("d",))

    def __call__(self, world: World, role: Role) -> Rows:
        rng = torch.Generator().manual_seed(self.seed)
        return Rows(self.drawn(self.train, rng), self.drawn(400, rng))


def federation(seed: int, shares: tuple[float, ...] = EVEN, train: int = 300) -> Federation:
    source_shares = (0.25, 0.25, 0.5)
    return Federation(
        METHODS,
        {
            "anna": SimSite(Mixed(3 * seed)),
            "bert": SimSite(Mixed(3 * seed + 1, source_shares)),
            "carl": SimSite(Mixed(3 * seed + 2, shares, train)),
        },
    )


def asks(**more: Any) -> dict[str, Any]:
    config = {"rounds": 6, "epochs": 2, "rate": 0.1, "batch": 32}
    return {**experiment("fedavg", ROSTER, config=config, preset=None), "world": WORLD, "prior": "em", **more}


def at_carl(on: Federation, given: Mapping[str, Any]) -> dict[str, Any]:
    result = on.run(on.start(dict(given)))
    assert result["status"] == "completed", result["cause"]
    return next(dict(client) for client in result["clients"] if client["name"] == "carl")


def gains(shares: tuple[float, ...], seeds: range) -> list[float]:
    """Of the same model at the target: its accuracy corrected, less that without."""
    found = (at_carl(federation(seed, shares), asks(seed=seed)) for seed in seeds)
    return [client["accuracy"] - client["source_only"] for client in found]


@pytest.mark.nightly(job="services")
def test_it_gains_where_shares_differ() -> None:
    """More than five points, of a target with one class in most rows."""
    assert min(found := gains(FEW, range(3))) > 0.05, found


@pytest.mark.nightly(job="services")
def test_it_costs_little_where_they_do_not() -> None:
    """Less than a point on average, over ten seeds."""
    found = gains((0.29, 0.29, 0.42), range(10))
    assert sum(found) / len(found) > -0.01, found


@pytest.mark.parametrize("train", [0, 1])
def test_few_rows_move_little(train: int) -> None:
    """Estimates are drawn towards the sources' shares; of no row there is none."""
    client = at_carl(federation(0, FEW, train), asks())
    assert abs(client["accuracy"] - client["source_only"]) < 0.1
    assert train or client["accuracy"] == client["source_only"]


def test_sources_are_scored_as_they_are() -> None:
    result = (on := federation(1, FEW)).run(on.start(asks()))
    assert all(c["accuracy"] == c["source_only"] for c in result["clients"] if c["role"] == "source")
    assert result["prior"] == "em" and result["phases"][1]["name"] == "class_counts"
    counts = [clause for clause in result["contract"] if clause["phase"] == "class_counts"]
    assert [clause["exposure"] for clause in counts] == ["count"]
    assert result["generalization"] is None  # the target's rows have part in its predictions


def test_all_scores_are_of_corrected_predictions() -> None:
    """The table of scores, and confusions in the end."""
    on = federation(2, FEW)
    result: Any = on.run(on.start(asks(config={"rounds": 4, "rate": 0.1, "confusion": True})))
    carl = next(client for client in result["clients"] if client["name"] == "carl")
    assert result["scores"]["carl"]["accuracy"]["value"] == pytest.approx(carl["accuracy"]) != carl["source_only"]
    counts = torch.tensor(result["phases"][-1]["tables"]["confusion of carl"]["values"])
    assert float(counts.diagonal().sum() / counts.sum()) == pytest.approx(carl["accuracy"])


def test_without_it_nothing_is_asked() -> None:
    """The default, also where it is written out."""
    result = (on := federation(0)).run(on.start(asks(prior="source")))
    assert "class_counts" not in {clause["phase"] for clause in result["contract"]} and result["prior"] == "source"
    given = asks()
    del given["prior"]
    assert read_experiment(given).prior is Prior.SOURCE


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"prior": "en"}, "prior", "one of source, em"),
        ({"roster": {"anna": "source", "carl": "target"}}, "prior", "and there is one"),
        ({"roster": {"anna": "source", "bert": "source"}}, "prior", "the roster has no target"),
    ],
)
def test_what_it_is_refused_for(change: Mapping[str, Any], path: str, words: str) -> None:
    with pytest.raises(ConfigRefused) as refusal:
        federation(0).start(asks(**change))
    assert refusal.value.context["path"] == path and words in f"{refusal.value.what} {refusal.value.todo}"


def test_sites_without_labels_or_rows() -> None:
    """Who was to have labels may have none; and classes without a row have no shares."""
    turn = Turn(config=None, world=World(), roster=(Member(ClientId("a"), Role.PEER, False),), round=1, rng=torch.Generator())
    with pytest.raises(RosterRefused, match="and there is none"):
        asked(None, turn)
    with pytest.raises(DataRefused, match="no row to train on"):
        pooled(None, {"a": type("Zero", (), {"counts": torch.zeros(3)})()}, turn)  # type: ignore[arg-type]


@pytest.mark.nightly(job="services")
def test_a_candidate_that_corrects() -> None:
    """A rehearsal tries it beside the same without; a site that plays keeps corrected predictions."""
    names = ("anna", "bert", "dora", "carl")
    on = Federation(METHODS, {name: SimSite(Mixed(i, FEW if name == "carl" else EVEN)) for i, name in enumerate(names)})
    roster = dict.fromkeys(names[:3], "source") | {"carl": "target"}
    candidates = [{"label": "site + em", "method": "fedavg", "world": {"normalise": "site"}, "prior": "em"}]
    given = asks(roster=roster, prior="source", rehearse={"candidates": candidates}, then="run")
    result: Any = on.run(on.start(given))
    assert result["status"] == "completed", result["cause"]
    assert result["verdict"]["candidates"] == ["no adaptation", "site + em"]
    rows = [on.journal.run(run) for run in result["verdict"]["runs"].values()]
    assert [row.spec.scoring.prior for row in rows if row is not None] == [Prior.SOURCE, Prior.EM]
    with pytest.raises(Refused) as refusal:
        on.start({**given, "roster": ROSTER})
    assert refusal.value.context["path"] == "rehearse.candidates[0].prior"
