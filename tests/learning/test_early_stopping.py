"""Early stopping: which epochs are trained, whose weights stay, and which rows decide."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.laws.laws import EVERYTHING
from tests.learning.rows_in_memory import data_of, site_of
from tests.synthetic import FEATURES, HELD_OUT, TRAIN, blobs, experiment
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.core.settings import parse
from tideline.core.step import Data, View
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.early_stopping import BestEpoch
from tideline.learning.fit import fit_at
from tideline.learning.local_training import LocalTraining, TrainingOptions, patience_of

WORLD = parse(World, FEATURES)


class Scripted:
    """A loss that is 1 in training and, in evaluation mode, the next of a script."""

    def __init__(self, *values: float) -> None:
        self.values, self.asked = list(values), 0

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if net.training:
            return net(x).sum() * 0 + sum(p.sum() for p in net.parameters())
        self.asked += 1
        return torch.tensor(self.values[self.asked - 1])


def line(n: int = 8) -> Data:
    return data_of(torch.ones(n, 2), torch.zeros(n, dtype=torch.int64))


def trained(*values: float, patience: int, epochs: int = 6, validation: Data | None = None, steps: int = 0) -> tuple[float, int]:
    """How many epochs' steps the weights have moved by in the end, one each; and how often the loss was asked for."""
    net = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(net.weight)
    loss, held = Scripted(*values), line(4) if validation is None else validation
    by = torch.optim.SGD(net.parameters(), lr=1.0)
    site = site_of(line(), WORLD, Role.SOURCE, validation=held)
    fit_at(site, net, loss, by, epochs=epochs, batch=8, patience=patience, steps=steps)
    assert net.training
    return -float(net.weight.detach()[0, 0]), loss.asked


@pytest.mark.parametrize(
    ("values", "patience", "found"),
    [
        ((3, 2, 1, 2, 3, 4), 2, (3, 5)),  # two worse ones after the third
        ((3, 2, 1, 2, 0.5, 4), 2, (5, 6)),  # one worse one is borne
        ((3, 3, 3, 3, 3, 3), 2, (1, 3)),  # alike is not better: the first stays
        ((6, 5, 4, 3, 2, 1), 1, (6, 6)),  # all epochs
        ((1, 2, 3, 4, 5, 6), 100, (1, 6)),  # too patient to stop, the best stays all the same
        ((float("nan"),) * 6, 3, (3, 3)),  # no number: the last weights stay
        ((float("nan"), 2, 3, 4, 5, 6), 2, (2, 4)),
    ],
)
def test_the_best_epoch_stays(values: tuple[float, ...], patience: int, found: tuple[float, int]) -> None:
    assert trained(*values, patience=patience) == found


def test_without_patience_nothing_is_asked() -> None:
    assert trained(patience=0) == (6, 0)


def test_rows_without_labels_stop_nothing() -> None:
    assert trained(patience=1, validation=replace(line(4), y=None)) == (6, 0)


def test_a_number_of_steps_ends_in_a_last_look() -> None:
    assert trained(3, 2, 4, 5, patience=9, steps=4) == (2, 4)


def test_two_copies_at_most_and_counters_stay() -> None:
    """Batch norm's statistics are part of the best epoch, its counter is not; no more than one copy is held."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    by = torch.optim.SGD(net.parameters(), lr=0.1)
    stopping = BestEpoch(net, Scripted(2.0, 1.0), by, line(4), 5)
    for _ in range(2):
        stopping.over()
    floats = [w for w in net.state_dict().values() if w.is_floating_point()]
    assert len(stopping._kept) == len(floats)
    net[1].running_mean.fill_(7.0)  # type: ignore[union-attr,operator]
    stopping.restore()
    assert float(net[1].running_mean[0]) == 0.0  # type: ignore[union-attr,index]


def test_what_is_trained_beside_the_network_is_restored_too() -> None:
    net, beside = nn.Linear(2, 1, bias=False), nn.Parameter(torch.zeros(1))
    stopping = BestEpoch(net, Scripted(1.0, 2.0), torch.optim.SGD([*net.parameters(), beside], lr=1.0), line(4), 5)
    stopping.over()
    with torch.no_grad():
        beside.fill_(3.0)
    assert not stopping.over()
    stopping.restore()
    assert float(beside.detach()) == 0.0


def test_patience_is_found_among_settings_and_their_groups() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Grouped:
        encoder: TrainingOptions = TrainingOptions(patience=3)
        rounds: int = 2

    assert (patience_of(LocalTraining(patience=2)), patience_of(Grouped()), patience_of(LocalTraining())) == (2, 3, 0)
    assert patience_of(None) == 0


class Shelf:
    """A site's rows, which notes who looks at which."""

    def __init__(self, looked: list[tuple[str, View]], name: str, labelled: bool = True) -> None:
        self.looked, self.name, self.labelled = looked, name, labelled

    def view(self, view: View, role: Role) -> Data:
        self.looked.append((self.name, view))
        n = {View.TRAIN: TRAIN, View.LEARN: TRAIN - 6, View.VALIDATION: 6, View.HELD_OUT: HELD_OUT}[view]
        data = blobs(n, 0, 3 + n)
        hidden = not self.labelled or (role is Role.TARGET and view is not View.HELD_OUT)
        return replace(data, y=None) if hidden else data


def played(config: dict[str, Any], roster: dict[str, str], unlabelled: tuple[str, ...] = (), **more: Any) -> Any:
    looked: list[tuple[str, View]] = []
    sites = {name: SimSite(lambda w, r, n=name: Shelf(looked, n, n not in unlabelled), EVERYTHING) for name in roster}  # type: ignore[misc]
    with closing(Federation(METHODS, sites)) as on:
        result = on.run(on.start(experiment(more.pop("method", "fedavg"), roster, config=config, **more)))
    assert result["status"] == "completed", result["cause"]
    return result, looked


def test_sites_leave_validation_rows_out_of_training() -> None:
    """Those with labels; a target, whose training has none, and a site without labels learn from all of their rows."""
    roster = {"anna": "source", "bert": "target", "carl": "source"}
    result, looked = played({"patience": 1, "epochs": 3}, roster, unlabelled=("carl",))
    seen = {name: {view for n, view in looked if n == name} for name in roster}
    assert seen["anna"] == {View.VALIDATION, View.LEARN, View.HELD_OUT}
    assert seen["bert"] == {View.TRAIN, View.HELD_OUT}
    assert View.LEARN not in seen["carl"]
    assert next(c["samples"] for c in result["clients"] if c["name"] == "anna") == TRAIN - 6


def test_without_patience_runs_are_as_they_were() -> None:
    result, looked = played({}, {"anna": "source", "bert": "target"})
    assert {view for _, view in looked} == {View.TRAIN, View.HELD_OUT}
    same, _ = played({"patience": 0}, {"anna": "source", "bert": "target"})
    assert result["state_digest"] == same["state_digest"]


def test_patience_changes_what_is_trained() -> None:
    roster = {"anna": "source", "bert": "target"}
    ends = [played({"patience": p, "epochs": 8, "rate": 0.5}, roster)[0]["state_digest"] for p in (1, 1, 8)]
    assert ends[0] == ends[1]


def test_where_the_coordinator_trains_it_is_refused() -> None:
    with pytest.raises(ConfigRefused, match="the coordinator trains, which has no rows for validation") as refused:
        played({"patience": 2}, {"anna": "source", "bert": "target"}, method="central")
    assert refused.value.context["path"] == "config.patience"


@pytest.mark.parametrize("odd", [-1, 1.5, "two"])
def test_odd_patience(odd: Any) -> None:
    with pytest.raises(ConfigRefused, match="patience"):
        parse(LocalTraining, {"patience": odd}, "config")


@pytest.mark.parametrize("method", ["fedsr", "fdan", "kd3a", "fada", "fedavg_shot", "stlf", "feddadil", "hfedf", "local"])
def test_methods_of_all_kinds_take_it(method: str) -> None:
    config = {"encoder": {"patience": 1}} if method == "feddadil" else {"patience": 1}
    played(config, {"anna": "source", "bert": "source", "carl": "target"}, method=method)
