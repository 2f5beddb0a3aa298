"""A network of tables: an embedding for each column of coded categories, the other inputs as they are beside, a hidden layer.

After Guo, Berkhahn, "Entity Embeddings of Categorical Variables" (arXiv 1604.06737).
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor, nn

from tideline.core.run import World
from tideline.core.tables.columns import Columns, code_places, starts_of
from tideline.nets.small import Net


def embedding_width(categories: int, most: int) -> int:
    """Numbers that stand for a category: half as many as there are categories, and not more than `most`."""
    return min(most, (categories + 1) // 2)


class Embedded(nn.Module):
    """Codes as embeddings, behind all other inputs: x (n, *inputs) -> (n, width)."""

    def __init__(self, inputs: int, columns: Columns, most: int) -> None:
        super().__init__()
        self.codes = code_places(columns)
        self.others = sorted(set(range(inputs)) - set(self.codes))
        sizes = [column.places for column, _ in starts_of(columns) if column.coded]
        self.embed = nn.ModuleList(nn.Embedding(size, embedding_width(size, most)) for size in sizes)
        self.width = len(self.others) + sum(embedding_width(size, most) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        if not self.codes:
            return rows
        # Methods make rows of their own, between those of sites: such a number is the nearest category.
        tables = [each for each in self.embed if isinstance(each, nn.Embedding)]
        codes = [
            rows[:, at].round().clamp(0, each.num_embeddings - 1).long() for at, each in zip(self.codes, tables, strict=True)
        ]
        return torch.cat([rows[:, self.others], *(each(code) for each, code in zip(tables, codes, strict=True))], 1)


class Tabular(Net):
    """Embeddings, a hidden layer with ReLU, a linear classifier. x: (n, *inputs) -> logits (n, classes)."""

    def __init__(self, embedded: Embedded, hidden: int, classes: int) -> None:
        super().__init__(nn.Sequential(embedded, nn.Linear(embedded.width, hidden), nn.ReLU()), nn.Linear(hidden, classes))

    @classmethod
    def of(cls, world: World, hidden: int = 64, embedding: int = 8) -> Self:
        """hidden: width of the hidden layer. embedding: the most numbers that stand for a category."""
        return cls(Embedded(math.prod(world.inputs), world.columns, embedding), hidden, world.classes)
