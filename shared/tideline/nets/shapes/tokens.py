"""A small network of token ids: an embedding, one layer of attention, the mean over the steps, a hidden layer.

Vaswani et al., "Attention Is All You Need", 2017 (arXiv 1706.03762), one layer of the encoder, with the norms first (Xiong et
al., 2020, arXiv 2002.04745) and positions that are learnt.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline.core.asked.world import World
from tideline.nets.shapes.sequences import check_option
from tideline.nets.small import Net

SPREAD = 0.02  # of embeddings and positions at first
NONE = -1


class Embedded(nn.Module):
    """Token ids (n, t) int64 -> their mean after one layer of attention (n, q). Steps with the id `padding` count for nothing."""

    def __init__(self, vocabulary: int, steps: int, width: int, heads: int, padding: int) -> None:
        super().__init__()
        self.heads, self.padding = heads, padding
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(steps, width))
        for drawn in (self.embedding.weight, self.positions):
            nn.init.normal_(drawn, std=SPREAD)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, ids: Tensor) -> Tensor:
        there = (ids != self.padding).unsqueeze(-1)  # (n, t, 1)
        z = self.embedding(ids) + self.positions
        z = z + self.out(self.attention(self.norm1(z), there))
        z = self.norm3(z + self.narrow(functional.gelu(self.wide(self.norm2(z)))))
        mean: Tensor = (z * there).sum(1) / there.sum(1).clamp(min=1)
        return mean

    def attention(self, z: Tensor, there: Tensor) -> Tensor:
        """z (n, t, q) -> like z: each step is a mean of all that are there."""
        n, t, q = z.shape
        query, key, value = self.mixed(z).view(n, t, 3, self.heads, q // self.heads).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT * (q // self.heads) ** -0.5
        # The lowest number, not infinity: a row of nothing but padding has no NaN.
        scores = scores.masked_fill(~there.view(n, 1, 1, t), torch.finfo(scores.dtype).min)
        seen: Tensor = (scores.softmax(-1) @ value).transpose(1, 2).reshape(n, t, q)
        return seen


class Tokens(Net):
    """x: token ids (n, t) int64 -> logits (n, classes)."""

    def __init__(self, embedded: Embedded, width: int, classes: int) -> None:
        super().__init__(nn.Sequential(embedded, nn.Linear(width, width), nn.ReLU()), nn.Linear(width, classes))

    @classmethod
    def of(cls, world: World, width: int = 64, heads: int = 4, padding: int = NONE) -> Self:
        """For a world of token ids; padding: the id of steps that are not there, -1 for none. Raises ConfigRefused."""
        check_option("heads", heads, heads >= 1, "Give 1 or more")
        check_option("width", width, width >= 1 and width % heads == 0, f"Give a multiple of {heads}, the number of heads")
        check_option("padding", padding, NONE <= padding < world.vocabulary, "Give a token id, or -1 for none")
        body = Embedded(vocabulary=world.vocabulary, steps=world.inputs[0], width=width, heads=heads, padding=padding)
        return cls(body, width, world.classes)
