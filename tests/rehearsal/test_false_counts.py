"""What one site's false counts can do: no more than true ones could, and end no run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeVar

import torch
from torch import Generator

from tests.rehearsal.stage import WORLD
from tideline.core.asked.world import world_in
from tideline.core.phase import EXPECTED, GAINS, Folded, Replies, Turn
from tideline.core.record import Nothing
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data, Site, View
from tideline.learning.rehearsal import begin, choosing
from tideline.learning.rehearsal.client import counting, prepare
from tideline.learning.rehearsal.messages import Counts, Foretold, Voted
from tideline.learning.rehearsal.settings import Rehearsing
from tideline.learning.rehearsal.state import State
from tideline.learning.scoring.kept_outputs import Outputs

G = TypeVar("G")
ANNA, BERT, DORA = map(ClientId, ("anna", "bert", "dora"))
ROSTER = (Member(ANNA, Role.SOURCE, True), Member(BERT, Role.SOURCE, True), Member(DORA, Role.TARGET, False))
CONFIG = Rehearsing(("none", "other"), {"anna": ("a0", "a1"), "bert": ("b0", "b1")}, ("t0", "t1"))
WORLD_IN = world_in({**WORLD, "normalise": "none"})


def turn() -> Turn[Rehearsing]:
    return Turn(config=CONFIG, world=WORLD_IN, roster=ROSTER, round=1, rng=Generator())


def counts(rows: float, gained: float, lost: float = 0.0) -> Counts:
    """Of two candidates: no adaptation, right at half of the rows, and the other."""
    of_none, zero = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    n = torch.full((2,), rows, dtype=torch.float64)
    return Counts(
        rows=n, right=n / 2, gained=zero * gained, lost=zero * lost, changed=zero * (gained + lost), confidence=n * of_none
    )


def came(replies: Mapping[ClientId, G]) -> Replies[G]:
    return Replies({name: partial(replies.__getitem__, name) for name in replies})


def counted(**of: Counts) -> Folded[State]:
    state = begin(CONFIG, WORLD_IN, ROSTER, Generator())
    return choosing.counted(state, came({ClientId(name): each for name, each in of.items()}), turn())


def test_a_prediction_that_is_no_number_is_none() -> None:
    """A candidate with such ones at a site counts as one that predicts nothing there, of training rows and held-out ones."""
    fine = torch.zeros(2, 3)
    kept = {"a0": Outputs(fine, fine), "a1": Outputs(torch.full((2, 3), torch.nan), fine)}
    rows = Data(MemoryRows(torch.zeros(2, 6)), torch.tensor([0, 1]), torch.zeros(2, dtype=torch.int64), ("here",))
    site = Site(config=CONFIG, world=WORLD_IN, me=ANNA, role=Role.SOURCE, data=rows, round=1, rng=Generator(), outputs=kept.get)
    none = prepare(CONFIG, site)
    for view in (View.TRAIN, View.HELD_OUT):
        made = counting(view).run(Nothing(), none, site)
        assert made.message.rows.tolist() == [2.0, 0.0]


def test_a_gain_is_a_share_of_the_rows() -> None:
    found = counted(anna=counts(100, 0, 20), bert=counts(100, 1e15))
    assert found.tables[GAINS].values == ((0.0, -0.2), (0.0, 1.0))


def test_less_than_a_row_is_none() -> None:
    assert counted(anna=counts(100, 0, 20), bert=counts(1e-300, 1e15)).tables[GAINS].rows == ("anna",)


def test_expectations_stay_numbers() -> None:
    """Of a vote of no rows, and of a target that says that more rows change than it has."""
    state = counted(anna=counts(100, 20), bert=counts(100, 20)).state
    true = torch.tensor([100, 20, 0, 20, 60], dtype=torch.float64)
    false = torch.tensor([1e-300, 1e15, 0, 1e15, 1e15], dtype=torch.float64)
    made = choosing.voted(state, came({ANNA: Voted(true[:4], true[4]), BERT: Voted(false[:4], false[4])}), turn())
    told = choosing.foretold(made.state, came({DORA: Foretold(10, 1 << 40, 1e15)}), turn())
    ends = [value for found in (made, told) for line in found.tables[EXPECTED].values for value in line]
    assert max(map(abs, ends)) <= 1.0
