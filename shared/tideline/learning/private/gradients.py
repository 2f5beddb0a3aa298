"""Gradients of single rows, by torch.func; those of linear maps and convolutions from what went in and came out.

The loss is written for one row, and vmap puts rows side by side. The gradient of W in W a + b is g a^T, g the gradient of what
comes out (Goodfellow 2015, arXiv 1510.01799): where a row passes the map once, with one vector, it is kept as these two. A
convolution is such a map of each window of its input. All else has parameters of its own for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import conv2d, linear
from torch.overrides import TorchFunctionMode

from tideline.learning.private.convolved import windows_product
from tideline.learning.stepping import Loss

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Outer:
    """Matrices of m rows, each the product of a column and a line: column (m, a), line (m, b)."""

    column: Tensor
    line: Tensor

    def whole(self) -> Tensor:
        """(m, a, b)."""
        return self.column[:, :, None] * self.line[:, None, :]


Found = Tensor | Outer
RowGradients = Callable[[Parameters, Tensor, Tensor], Mapping[str, Found]]


class WithLoss(nn.Module):
    """A network with its loss as one module, so that the loss sees the parameters that are put in place of the network's."""

    def __init__(self, net: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of one row: x (*inputs), y () -> scalar."""
        return self.loss(self.net, x[None], y[None])


@dataclass(eq=False)
class Passed:
    """What m rows' inputs (m, ...) became by a map of a weight and a bias that train: (m, ...), of which gradients are asked."""

    weight: str
    bias: str | None
    how: tuple[Any, ...]
    inputs: Tensor
    out: Tensor

    def gradients(self, g: Tensor, shape: torch.Size) -> Mapping[str, Found]:
        """Of the weight, of a shape, and of the bias; g: that of what came out."""
        if self.how:
            g = g.flatten(0, -4).unflatten(0, (len(g), -1))
            weight: Found = windows_product(self.inputs.reshape(*g.shape[:2], *self.inputs.shape[-3:]), g, shape, *self.how)
            return {self.weight: weight} | ({self.bias: g.sum((1, 3, 4))} if self.bias else {})
        line, column = (each.reshape(len(g), -1, each.shape[-1]) for each in (self.inputs, g))
        once = line.shape[1] == 1
        weight = Outer(column[:, 0], line[:, 0]) if once else torch.bmm(column.transpose(1, 2), line)
        return {self.weight: weight} | ({self.bias: column.sum(1)} if self.bias else {})


class Seen(torch.autograd.Function):
    """Leaves what came out as it is, and shows it and what went in as they are for all rows."""

    generate_vmap_rule = False

    @staticmethod
    def forward(out: Tensor, inputs: Tensor, keep: Callable[[Tensor, Tensor], None]) -> Tensor:
        raise NotImplementedError("only rows that are side by side are seen")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is needed."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, out: Tensor, inputs: Tensor, keep: Callable[[Tensor, Tensor], None]) -> tuple[Tensor, int]:
        out, inputs = (
            each.expand(info.batch_size, *each.shape) if at is None else each.movedim(at, 0)
            for each, at in zip((out, inputs), in_dims, strict=False)
        )
        if not out.requires_grad:
            out = out.detach().requires_grad_()
        keep(inputs.detach(), out)
        return out, 0


class Watched(TorchFunctionMode):
    """Maps by weights that train, while rows pass: nothing of their gradients goes to the weights, and what passed is noted.

    own: the parameters that rows have for themselves, in place of `parameters`.
    """

    def __init__(self, own: Parameters, parameters: Parameters, passed: list[Passed]) -> None:
        super().__init__()
        self.names, self.parameters, self.passed = {id(p): name for name, p in own.items()}, parameters, passed

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = self.names.get(id(args[1])) if func in (linear, conv2d) and len(args) > 1 else None
        if name is None or kwargs or (func is conv2d and not plain(*args[3:])):
            return func(*args, **(kwargs or {}))
        inputs, _, bias, *how = (*args, None)[: max(3, len(args))]
        of_bias = self.names.get(id(bias))

        def keep(inputs: Tensor, out: Tensor) -> None:
            self.passed.append(Passed(name, of_bias, tuple(how), inputs, out))

        out = func(inputs, self.parameters[name], bias if of_bias is None else self.parameters[of_bias], *how)
        return Seen.apply(out, inputs, keep)


def plain(*how: Any) -> bool:
    """Whether a convolution has all four of stride, padding, dilation and groups, in numbers, and is of one group."""
    return len(how) == 4 and all(isinstance(each, tuple) for each in how[:3]) and how[3] == 1


def row_gradients(net: nn.Module, loss: Loss) -> RowGradients:
    """A function that gives each row's gradient: parameters, x (m, *inputs), y (m,) -> (m, *shape) of each parameter."""
    whole = WithLoss(net, loss)

    def gradients(parameters: Parameters, x: Tensor, y: Tensor) -> Mapping[str, Found]:
        passed: list[Passed] = []

        def of_row(own: Parameters, x: Tensor, y: Tensor) -> Tensor:
            with Watched(own, parameters, passed):
                loss_of_row: Tensor = functional_call(whole, {f"net.{name}": p for name, p in own.items()}, (x, y))
            return loss_of_row

        with torch.enable_grad():
            own = {name: p.detach().expand(len(x), *p.shape).requires_grad_() for name, p in parameters.items()}
            total = vmap(of_row, randomness="different")(own, x, y).sum()
            asked = [*own.values(), *(each.out for each in passed)]
            found = torch.autograd.grad(total, asked, allow_unused=True) if total.requires_grad else [None] * len(asked)
        parts: dict[str, list[Found]] = {name: [] if g is None else [g] for name, g in zip(own, found, strict=False)}
        for each, g in zip(passed, found[len(own) :], strict=True):
            if g is not None:
                for name, part in each.gradients(g, parameters[each.weight].shape).items():
                    parts[name].append(part)
        return {name: summed(each, own[name]) for name, each in parts.items()}

    return gradients


def summed(parts: Sequence[Found], own: Tensor) -> Found:
    """The gradient of a parameter by all that uses it: the parts' sum, as it is where there is one."""
    if len(parts) == 1:
        return parts[0]
    total = torch.zeros_like(own)
    for part in parts:
        total = total + (part.whole() if isinstance(part, Outer) else part)
    return total.detach()


def flat(found: Found) -> Tensor:
    """Gradients (m, *shape) in lines: (m, numbers)."""
    return (found.whole() if isinstance(found, Outer) else found).flatten(1)
