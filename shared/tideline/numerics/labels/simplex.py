"""The probability simplex: vectors of weights that are not negative and sum to one."""

from __future__ import annotations

import torch
from torch import Tensor


def project(v: Tensor) -> Tensor:
    """The nearest point of the probability simplex in Euclidean distance, for each vector of (..., K).

    The projection is max(v - t, 0) with the one threshold t at which the entries sum to one. Entries are sorted in falling order
    u_1, u_2, ...; t = (u_1 + ... + u_r - 1) / r for the largest r with u_r > t (Held, Wolfe and Crowder, 1974). O(K log K).
    """
    # Moving all entries alike changes nothing, and with the largest at zero no digits are lost to a common offset.
    v = v - v.amax(dim=-1, keepdim=True)
    u = v.sort(dim=-1, descending=True).values
    r = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    t = (u.cumsum(dim=-1) - 1) / r
    last = (u > t).sum(dim=-1, keepdim=True) - 1
    return (v - t.gather(-1, last)).clamp_min(0)
