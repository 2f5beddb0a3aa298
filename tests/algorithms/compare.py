"""Models beside each other, and what a site keeps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from tests.laws.stage import Stage
from tests.laws.values import raw
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.run import ClientId

M = TypeVar("M")


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    """Return True if weights are equal, bit for bit."""
    return a.keys() == b.keys() and all(raw(a[name]) == raw(b[name]) for name in a)


def close(a: Mapping[str, Tensor], b: Mapping[str, Tensor], atol: float = 1e-6, rtol: float = 1e-5) -> None:
    """Check that weights are equal but for rounding."""
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=atol, rtol=rtol)


def memory_of(stage: Stage, run: Any, name: str, kind: type[M]) -> M:
    """Return what a site keeps at the end."""
    vault = stage.vaults[ClientId(name)]
    head = vault.head(run)
    assert head is not None
    return decode(kind, head.memory[0][0], vault.parts(run), LAX)
