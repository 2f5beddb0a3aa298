"""Functions that give a site's data, as owners write them: those that work and those that do not."""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.learning.sites.site import Site

X, Y = torch.rand(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
NUMBER = 7


class Rows:
    """A dataset whose row 17 may not be read."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.broken and index == 17:
            raise OSError("patient 8")
        return X[index], int(Y[index])


def good() -> Site:
    """A Site."""
    return Site(train=Rows())


def as_dict() -> dict[str, object]:
    """Sides by name."""
    return {"train": (X[:20], Y[:20]), "test": (X[20:], Y[20:])}


def as_three() -> tuple[object, ...]:
    """Train, validation, test."""
    return (X[:20], Y[:20]), (X[20:24], Y[20:24]), (X[24:], Y[24:])


def alone() -> Rows:
    """A dataset to train and to test on."""
    return Rows()


def arrays() -> tuple[Tensor, Tensor]:
    """x and y."""
    return X, Y


def raises() -> Site:
    """Its words hold data."""
    raise KeyError("patient 7")


def nothing() -> None:
    """It forgot to return."""


def misspelt() -> dict[str, object]:
    """A key that there is not."""
    return {"train": Rows(), "tests": Rows()}


def keyed() -> dict[str, object]:
    """A dict of something else."""
    return {"train": Rows(), "patient 9": X}


def refuses() -> Site:
    """An error of ours has words of the owner's."""
    return Site(train=Rows(), role="patient 10")


def odd_names() -> dict[str, object]:
    """A text in place of several."""
    return {"train": Rows(), "class_names": "patient 11"}


def row_17() -> Rows:
    """One row is lost."""
    return Rows(broken=True)


def in_two() -> dict[str, object]:
    """Train and validation."""
    return {"train": (X[:20], Y[:20]), "validation": (X[20:], Y[20:])}


def half_labelled() -> tuple[Tensor, Tensor]:
    """Every second row has a label."""
    return X, torch.where(torch.arange(30) % 2 == 0, Y, -1)


def unlabelled() -> Site:
    """Labels that are said to be none."""
    return Site(train=Rows(), labels=False)


def other_names() -> Site:
    """Classes of other names than a run's."""
    return Site(train=Rows(), class_names=["a", "b", "d"])


def wide() -> Tensor:
    """Rows of five numbers."""
    return torch.rand(6, 5)


def in_a_folder() -> str:
    """The folder `ward` where the process runs."""
    return "ward"


def beyond() -> tuple[Tensor, Tensor]:
    """A class more than there are."""
    return X, torch.arange(30) % 4
