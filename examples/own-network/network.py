"""A network of one's own: rows in, a number for each class out."""

import torch
from torch import nn


class Digits(nn.Module):
    """Two convolutions with batch norm, a hidden layer, and the head `fc`."""

    def __init__(self, channels: int, classes: int, width: int, drop: float) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, stride=2),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.hidden = nn.Linear(2 * width * 16, 64)
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, channels, 8, 8) -> (n, classes)."""
        h = self.hidden(self.convolutions(x).flatten(1))
        return self.fc(self.drop(torch.relu(self.norm(h))))


def digits_net(world, width: int = 8, drop: float = 0.2) -> nn.Module:
    """What `--networks network:digits_net` names."""
    return Digits(world.inputs[0], world.classes, width, drop)
