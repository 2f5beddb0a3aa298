"""Programs of other simulators do the work of benchmarks/simulation.py's columns; where one is missing, nothing fails."""

from __future__ import annotations

import math
import sys
import venv
from pathlib import Path

import pytest
import torch

from benchmarks import simulation
from benchmarks.peers import common
from benchmarks.simulation import PEERS, Clients, Row, peer, shown
from tideline import nets

KEYS = ("seconds", "memory_mb", "accuracy")


def test_they_train_on_the_same_rows() -> None:
    for client in (0, 7):
        (x, y), (x_held_out, y_held_out) = common.rows(client)
        ours = simulation.holdings(client)
        assert ours.train.y is not None and ours.held_out.y is not None
        assert torch.equal(x, ours.train.x.all()) and torch.equal(y, ours.train.y)
        assert torch.equal(x_held_out, ours.held_out.x.all()) and torch.equal(y_held_out, ours.held_out.y)
    for name in ("TRAIN", "HELD_OUT", "BATCH", "RATE", "MOMENTUM", "DECAY"):
        assert getattr(common, name) == getattr(simulation, name)


def test_they_train_the_same_network() -> None:
    """The same parameters, and the same logits with the same weights."""
    ours, theirs = nets.build(simulation.WORLD), common.Net()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    x = common.digits()[0][:5]
    assert torch.equal(ours(x), theirs(x))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with nothing in it."""
    venv.create(tmp_path / "environment")
    return tmp_path / "environment"


@pytest.mark.processes
def test_an_environment_without_them_leaves_their_columns_empty(environment: Path) -> None:
    measured = {name: peer(environment, name, Clients(4), 1) for name in PEERS}
    assert all(math.isnan(number) for each in measured.values() for number in each.values())
    row = Row("4", *({name: each[key] for name, each in measured.items()} for key in KEYS), order_ms=0.1)
    assert [line.split() for line in shown(row)[:4]] == [["clients", "4", *PEERS], ["s", "a", "round"], ["MB"], ["accuracy"]]


@pytest.mark.processes
def test_a_simulator_that_fails_is_named_with_its_last_words(environment: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "pfl").mkdir()
    with pytest.raises(SystemExit, match=r"(?s)pfl failed in .*pfl_rounds.py 8 1 4 .*ModuleNotFoundError"):
        peer(environment, "pfl", Clients(8, 4), 1)


def test_a_folder_that_is_no_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulation.py", "--peers", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        simulation.main()
    assert ended.value.code == 2 and "name the folder of a virtual environment" in capsys.readouterr().err
