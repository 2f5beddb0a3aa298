"""Evidence without labels: neighbours, agreement, what a change of labels is worth."""

from __future__ import annotations

import torch

from tideline.numerics.labels.confidence import consistency, disagreement, evidence, neighbours

LINE = torch.tensor([[0.0], [1.0], [2.1], [10.0], [11.0]])


def test_neighbours_are_the_nearest_others() -> None:
    """Never the row itself; blocks of rows make no difference."""
    assert neighbours(LINE, 2).sort(1).values.tolist() == [[1, 2], [0, 2], [0, 1], [2, 4], [2, 3]]
    z = torch.randn(2500, 3, generator=torch.Generator().manual_seed(0))
    near = neighbours(z, 4)
    distance = torch.cdist(z, z).fill_diagonal_(torch.inf)
    assert torch.allclose(distance.gather(1, near).sort(1).values, distance.topk(4, largest=False).values, atol=1e-5)


def test_fewer_rows_than_neighbours() -> None:
    """All the others are neighbours; a single row has none, and nothing to agree with."""
    assert neighbours(LINE[:3], 5).shape == (3, 2)
    assert consistency(torch.zeros(1), neighbours(LINE[:1], 5)) == 0.0


def test_consistency_and_disagreement() -> None:
    """Shares of pairs, and of rows."""
    near = neighbours(LINE, 1)
    assert consistency(torch.tensor([0, 0, 0, 1, 1]), near) == 1.0
    assert consistency(torch.tensor([0, 0, 1, 1, 1]), near) == 0.8
    assert disagreement(torch.tensor([0, 1, 2]), torch.tensor([0, 2, 2])) == 1 / 3


def test_evidence_of_a_change() -> None:
    """Better agreement per changed label; nothing changed is no evidence; the other way round is its negative."""
    near, plain, better = neighbours(LINE, 1), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 0, 0, 1, 1])
    assert abs(evidence(better, plain, near) - (1.0 - 0.8) / 0.2) < 1e-12
    assert evidence(plain, better, near) == -evidence(better, plain, near)
    assert evidence(plain, plain, near) == 0.0
