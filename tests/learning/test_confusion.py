"""Which classes are taken for which."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.budgets import examples
from tideline.core.asked.world import World
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.record import Nothing
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.learning.evaluate import ROWS, Confusion, confused
from tideline.learning.scoring.score_tables import OF_ALL, table

WORLD = World(inputs=(1,), classes=3)


def offer(state: Any, turn: Any) -> dict[ClientId, Any]:
    return {}


def shifted(order: Any, memory: Any, site: Site, x: Tensor) -> Tensor:
    """Takes each row for what its feature says."""
    return nn.functional.one_hot(x[:, 0].long(), 3).float()


def site(x: list[int], y: list[int] | None) -> Site:
    rows = Data(
        MemoryRows(torch.tensor(x).float().view(-1, 1)),
        None if y is None else torch.tensor(y),
        torch.zeros(len(x)).long(),
        ("d",),
    )
    return Site(None, WORLD, ClientId("anna"), Role.TARGET, rows, 1, torch.Generator())


def counted(at: Site) -> Tensor:
    step = confused(offer, shifted).step
    assert step is not None
    outcome = step.run(Nothing(), Nothing(), at)
    assert isinstance(outcome.memory, Nothing)
    assert dict(outcome.metrics) == {}
    found: Tensor = outcome.message.counts
    return found


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40), st.sampled_from([1, ROWS // 20]))
def test_counts_are_those_of_the_rows(pairs: list[tuple[int, int]], times: int) -> None:
    """A row of the matrix for each class, a column for each prediction; parts of ROWS rows add up."""
    pairs = pairs * times
    found = counted(site([x for x, _ in pairs], [y for _, y in pairs]))
    assert found.tolist() == [[sum(p == (guess, y) for p in pairs) for guess in range(3)] for y in range(3)]


def test_a_site_without_labels_sends_zeros() -> None:
    """It is asked like all others, and its roster does not tell whether it can be scored."""
    assert counted(site([1, 2], None)).tolist() == [[0] * 3] * 3


def test_classes_have_their_names() -> None:
    """Unless they are longer than a table's names may be."""
    for names, first in ((("mug", "bike", "x"), "is mug"), (("mug", "bike", "x" * 300), "is 0")):
        world = World(inputs=(1,), classes=3, class_names=names)
        assert table(torch.zeros(3, 3), world).rows[0] == first


def told(**counts: list[list[int]]) -> Any:
    phase = confused(offer, shifted)
    replies = {ClientId(name): lambda c=c: Confusion(torch.tensor(c)) for name, c in counts.items()}  # type: ignore[misc]
    return phase.fold("state", Replies(replies), Turn(None, WORLD, (), 1, torch.Generator()))


def test_people_see_each_site_and_all_together() -> None:
    """Sites without a row stand nowhere; of one site alone there is no sum."""
    one, other = [[1, 2, 0], [0, 3, 0], [0, 0, 4]], [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    seen = told(anna=one, bert=other, carl=[[0] * 3] * 3)
    assert isinstance(seen, Folded)
    assert set(seen.tables) == {"confusion of anna", "confusion of bert", OF_ALL}
    assert seen.tables[OF_ALL].values == ((1, 3, 1), (0, 3, 0), (1, 0, 4))
    assert seen.tables[OF_ALL].rows == ("is 0", "is 1", "is 2")
    assert seen.tables[OF_ALL].columns == ("taken for 0", "taken for 1", "taken for 2")
    assert set(told(anna=one).tables) == {"confusion of anna"}
    assert told(anna=[[0] * 3] * 3) == "state"


def test_of_many_sites_only_the_sum_is_told() -> None:
    """As many tables as a round may have, and no more."""
    seen = told(**{f"s{i}": [[1, 0, 0], [0, 1, 0], [0, 0, 1]] for i in range(32)})
    assert set(seen.tables) == {OF_ALL}
    assert seen.tables[OF_ALL].values == ((32, 0, 0), (0, 32, 0), (0, 0, 32))
