"""Networks by name."""

from __future__ import annotations

import torch

from tideline import nets


def test_few_large_images_pass_at_once() -> None:
    """A photograph's first layer takes hundreds of megabytes for every few rows; digits go by the half thousand."""
    assert nets.rows_of(torch.empty(9, 1, 28, 28)) == 512
    assert nets.rows_of(torch.empty(9, 3, 224, 224)) == 27
    assert nets.rows_of(torch.empty(0, 8)) == 512
    assert nets.rows_of(torch.empty(2, 1 << 23, device="meta")) == 1
