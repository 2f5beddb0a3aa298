"""Where to compute: a device by name, or the best that there is; and how much of a GPU's memory a process may take."""

from __future__ import annotations

import os
from functools import lru_cache

import torch
from torch import nn

from tideline.core.asked.computing import GPU_MEMORY
from tideline.core.errors import ConfigRefused, DeviceMissing
from tideline.nets.computing import CPU, CUDA

AUTO, MPS = "auto", "mps"
CLOSE = 1e-3


def chosen(device: str) -> str:
    """The device of that name. auto: a GPU of CUDA if there is one; of Apple if its numbers are right; else the CPU."""
    if device != AUTO:
        return device
    if torch.cuda.is_available():
        return CUDA
    return MPS if torch.backends.mps.is_available() and computes_rightly(MPS) else CPU


def present(device: str) -> None:
    """Raises DeviceMissing for a GPU that is not there, and for a word that names no device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        what = f"--device {device}: there is no such device on this machine that torch can use"
        raise DeviceMissing(what, "See the driver and the build of torch, or use --device cpu", device=device) from None


@lru_cache(maxsize=4)
def computes_rightly(device: str) -> bool:
    """Whether a small step on a device gives what it gives on the CPU."""
    try:
        return torch.allclose(probed(device), probed(CPU), rtol=CLOSE, atol=CLOSE)
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def probed(device: str) -> torch.Tensor:
    """The gradient of the first layer of a small network of fixed numbers, on the CPU."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        first = nn.Conv2d(3, 4, 3)
        net = nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)).to(device)
        x = torch.randn(4, 3, 8, 8).to(device)
    nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 0, 1]).to(device)).backward()  # type: ignore[no-untyped-call]
    assert first.weight.grad is not None
    return first.weight.grad.cpu()


def share_in(environment: str | None) -> float:
    """The share that was written. Raises ConfigRefused for what is none."""
    try:
        share = float(environment) if environment else 1.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        what = f"--gpu-memory is {environment}; it should be a share of the GPU's memory, above 0 and at most 1"
        raise ConfigRefused(what, "Write such as 0.5", path="gpu_memory")
    return share


def limit_memory(device: str) -> None:
    """Hold this process to its share of a GPU's memory; more is an OutOfMemoryError here, and none of others' steps fail."""
    share = share_in(os.environ.get(GPU_MEMORY))
    if share < 1 and torch.device(device).type == CUDA and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share, torch.device(device))
