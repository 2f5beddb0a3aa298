"""Steps of an optimiser as the step at hand computes: mini-batches added up, gradients scaled, and one try more without room.

Scaled gradients of float16: Micikevicius et al., "Mixed Precision Training", ICLR 2018 (arXiv 1710.03740).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tideline.core.asked.computing import Precision
from tideline.core.errors import StepFailed
from tideline.nets.computing import CUDA, HALVED, Here, here

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
FIRST_SCALE = 1024.0  # of float16's gradients; it falls by half where one overflows, in a step that is left out then
READ_EVERY = 256  # losses that wait on a GPU to be read: to read one waits for all work before it
LEAST = 2  # rows of a part of a mini-batch: batch norm has no variance of one
TODO = "Lower config.batch, add computing: {precision: bfloat16}, or have more memory for the process (--gpu-memory)"


def fused(parameters: Iterable[nn.Parameter]) -> bool | None:
    """An optimiser's option for one kernel in place of many: on GPUs. On the CPU it would change last digits."""
    return True if all(each.device.type == CUDA for each in parameters) else None


class Steps:
    """Takes mini-batches, and steps after each, or after as many as the run adds up. One for each training.

    clip: if not 0, the largest norm of the gradient of the network's parameters; longer ones are shortened to it.
    """

    def __init__(self, net: nn.Module, loss: Loss, optimiser: Optimizer, clip: float = 0.0) -> None:
        self.net, self.loss, self.optimiser, self.clip = net, loss, optimiser, clip
        self._here: Here = here()
        self._every = self._here.asked.accumulate
        half = self._here.precision is Precision.FLOAT16
        self._scaler = torch.amp.GradScaler(self._here.device, init_scale=FIRST_SCALE) if half else None
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._first, self._rows, self._halved = 0, 0, False

    def take(self, x: Tensor, y: Tensor) -> Tensor:
        """A mini-batch's loss before the step, detached, on its device: whoever reads it waits for the device.

        Where the device has no room for it, its halves pass one after the other, from then on. The gradient is of the same rows;
        batch norm and dropout see each half alone. Raises StepFailed where there is none for a half.
        """
        if not self._waiting:
            self._begin()
        self._waiting.append((x, y))
        value = None if self._halved else self._tried(x, y)
        if value is None and not self._halved:
            self._halve()
        if value is None:
            value = self._in_halves(x, y)
        if len(self._waiting) == self._every:
            self.flush()
        return value

    def flush(self) -> None:
        """Step by the mini-batches that wait, at the end of an epoch or of the training; without any, nothing."""
        if not self._waiting:
            return
        self._waiting.clear()
        moving = [p for group in self.optimiser.param_groups for p in group["params"]]
        if self._scaler:
            self._scaler.unscale_(self.optimiser)
        if self._rows != self._first:
            for p in moving:
                if p.grad is not None:
                    p.grad.mul_(self._first / self._rows)
        if self.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        if self._scaler is None:
            self.optimiser.step()
        else:
            self._scaler.step(self.optimiser)
            self._scaler.update()

    def _begin(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self._first = self._rows = 0

    def _tried(self, x: Tensor, y: Tensor) -> Tensor | None:
        """As `_add`; None where there is no room. What the failed pass holds is free when this returns."""
        try:
            return self._add(x, y)
        except torch.OutOfMemoryError:
            if len(x) < 2 * LEAST:
                raise no_room(len(x), "") from None
            return None

    def _halve(self) -> None:
        """All that waits anew, but for the last, in halves: a backward pass that failed may have added a part of a gradient."""
        self._halved = True
        self._here.say(HALVED)
        if self._here.device == CUDA:
            torch.cuda.empty_cache()
        self._begin()
        for x, y in self._waiting[:-1]:
            self._in_halves(x, y)

    def _in_halves(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of both halves, each counted by its rows."""
        if len(x) < 2 * LEAST:
            return self._add(x, y)
        try:
            parts = [(len(part), self._add(part, own)) for part, own in zip(x.tensor_split(2), y.tensor_split(2), strict=True)]
        except torch.OutOfMemoryError:
            raise no_room(len(x), ", nor for half of it") from None
        return torch.stack([value * (n / len(x)) for n, value in parts]).sum()

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        """Add rows' gradient, counted by how many they are, in units of the first rows since the last step."""
        value = self.loss(self.net, x, y)
        self._first = self._first or len(x)
        counted = value if len(x) == self._first else value * (len(x) / self._first)
        (counted if self._scaler is None else self._scaler.scale(counted)).backward()  # type: ignore[no-untyped-call]
        self._rows += len(x)
        return value.detach()


def no_room(rows: int, half: str) -> StepFailed:
    return StepFailed(f"The device has no room for a mini-batch of {rows} rows{half}", TODO, error="OutOfMemoryError")


class MeanLoss:
    """The mean of losses of mini-batches, each counted by its rows. Those on a GPU are read many at once."""

    def __init__(self) -> None:
        self._mean, self._seen = 0.0, 0
        self._unread: list[tuple[Tensor, int]] = []

    def add(self, value: Tensor, rows: int) -> None:
        self._unread.append((value, rows))
        if value.device.type == "cpu" or len(self._unread) == READ_EVERY:
            self._read()

    @property
    def value(self) -> float:
        self._read()
        return self._mean

    def _read(self) -> None:
        for value, rows in self._numbers():
            self._seen += rows
            self._mean += (value - self._mean) * rows / self._seen
        self._unread.clear()

    def _numbers(self) -> Iterator[tuple[float, int]]:
        if len(self._unread) == 1:
            yield float(self._unread[0][0]), self._unread[0][1]
        elif self._unread:
            yield from zip(torch.stack([value for value, _ in self._unread]).tolist(), [n for _, n in self._unread], strict=True)
