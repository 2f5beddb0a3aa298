"""FADA by separate processes on real digits: the identifier steps as if all rows lay in one place, and no row's features pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from tests.acceptance.conftest import joined
from tests.acceptance.harness import Net
from tests.acceptance.tap import Tap, tapped
from tests.laws.stage import HoardingParts, Stage
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.fada.messages import State
from tideline.archive.checks import LAX
from tideline.archive.folder import FolderParts
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.run import Digest, Role
from tideline.engine.simulation.federation import SimSite
from tideline.learning.formats.folder import read_folder
from tideline.nets.disentangling import logits

pytestmark = pytest.mark.processes
SITES = {"anna": "source", "bert": "source", "carl": "target"}
TRAIN, HELD = {"anna": 211, "bert": 223, "carl": 227}, 30  # primes, so that no axis of a network is as long by chance
PIXELS = 64
WORLD = {"inputs": [PIXELS], "classes": 10, "model": "mlp", "normalise": "none"}
RATE = 0.5
# Every half is of all rows of its site: then whoever has the rows knows the gradient.
WHOLE = {"source_rounds": 0, "rounds": 1, "identify_steps": 1, "identify_batch": 256, "identify_rate": 64 * RATE, "batch": 17}
Played = tuple[Net, Tap, dict[str, Any]]
BATCHES = (256, 17)
NUMBERS = 8  # consecutive ones are a mark that nothing else has
READ = World(inputs=(PIXELS,), classes=10, model="mlp")
GIVEN = {"method": "fada", "preset": "tiny", "config": WHOLE, "world": WORLD, "roster": SITES, "seed": 3}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Handwritten digits: as they are, in other brightness, and upside down without labels that a step could see."""
    x, y = load_digits(return_X_y=True)
    home, first, folders = tmp_path_factory.mktemp("digits"), 0, {}
    styles = {"anna": lambda x: x, "bert": lambda x: np.sqrt(x), "carl": lambda x: x[:, ::-1]}
    for name, n in TRAIN.items():
        rows = slice(first, first + n + HELD)
        first += n + HELD
        folders[name] = home / name
        folders[name].mkdir()
        made = styles[name](x[rows] / 16).astype(np.float32)
        np.savez(folders[name] / "digits.npz", x=made, y=y[rows], test_idx=np.arange(n, n + HELD))
    return folders


@pytest.fixture(scope="module")
def run(federation: Net, digits: dict[str, Path]) -> Iterator[Played]:
    """The run by processes, agents behind a tap; what people read of it."""
    with tapped(federation.grpc) as tap, federation.by_way_of(tap.port), joined(federation, digits, SITES):
        result = federation.completed(federation.run(GIVEN))
        yield federation, tap, result


@pytest.fixture(scope="module")
def start(digits: dict[str, Path]) -> State:
    """What the coordinator drew before anything happened, from the same seed in one process."""
    sites = {name: SimSite(lambda w, r, name=name: read_folder(digits[name], w, r)) for name in SITES}
    stage = Stage(METHODS, sites, parts=HoardingParts())
    run = stage.start(GIVEN)
    stage.play(run)
    return decode(State, stage.journal.rounds(run)[0].state[0][0], stage.parts, LAX)


def features(digits: dict[str, Path], start: State) -> dict[str, Tensor]:
    """f (n, 64) of each site's training rows under the network that all began with."""
    G = nets.loaded(READ, start.start).get_submodule("features")
    with torch.no_grad():
        return {name: G(rows_of(digits, name)) for name in SITES}


def rows_of(digits: dict[str, Path], name: str) -> Tensor:
    return read_folder(digits[name], READ, Role(SITES[name])).train.x.all()


def test_the_step_is_that_of_rows_in_one_place(run: Played, start: State, digits: dict[str, Path]) -> None:
    """The sum of two halves that crossed the network is the gradient of eq. 4 over both sites' rows, to 1e-6."""
    federation, _, result = run
    last = decode(State, Digest(result["state_digest"]), FolderParts(federation.folder / "parts"), LAX)
    f = {name: rows.double() for name, rows in features(digits, start).items()}
    assert {name: len(rows) for name, rows in f.items()} == TRAIN
    for source in ("anna", "bert"):
        di = start.di["carl"][source].theta.double().requires_grad_()
        n_s, n_t = TRAIN[source], TRAIN["carl"]
        is_source = torch.cat([torch.ones(n_s), torch.zeros(n_t)]).double()
        each = torch.cat([torch.full((n_s,), 1 / n_s), torch.full((n_t,), 1 / n_t)]).double()
        z = logits(di, torch.cat([f[source], f["carl"]]))
        loss = functional.binary_cross_entropy_with_logits(z, is_source, weight=each, reduction="sum")
        (g,) = torch.autograd.grad(loss, di)
        stepped = (start.di["carl"][source].theta - last.di["carl"][source].theta).double() / RATE
        assert float(g.norm()) > 1e-2
        torch.testing.assert_close(stepped, g, rtol=0, atol=1e-6)


def test_no_batch_and_no_row_is_on_the_wire(run: Played, start: State, digits: dict[str, Path]) -> None:
    """No tensor that passed has an axis as long as a batch; neither rows nor what G makes of them are among the bytes."""
    wire = run[1].all()
    shapes = [tuple(map(int, found.split(b","))) for found in re.findall(rb'"shape":\[([0-9,]+)\]', wire)]
    theta = start.di["carl"]["anna"].theta
    assert (len(theta),) in shapes, "the tap hears halves"
    assert theta[:NUMBERS].numpy().tobytes() in wire, "and what they are made of"
    assert not {*TRAIN.values(), HELD, *BATCHES} & {n for shape in shapes for n in shape}
    for name, f in features(digits, start).items():
        marks = [mark for rows in (f, rows_of(digits, name)) for mark in marks_of(rows)]
        assert len(marks) > TRAIN[name]
        assert not any(mark in wire for mark in marks)


def marks_of(rows: Tensor) -> list[bytes]:
    """Bytes of some numbers of each row, where they are not mostly zeros."""
    windows = [row[at : at + NUMBERS] for row in rows for at in (0, 16, 32)]
    return [window.numpy().tobytes() for window in windows if int((window != 0).sum()) > NUMBERS // 2]


def test_people_read_how_much_passed(run: Played) -> None:
    """Bytes by site: what went over the line is that, and framing. Every site sent some, and got some."""
    _, tap, result = run
    counted = [client[key] for client in result["clients"] for key in ("bytes_up", "bytes_down")]
    assert all(counted)
    assert sum(counted) < sum(len(flow) for flow in tap.flows) < 2 * sum(counted)
