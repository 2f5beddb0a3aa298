"""Gradients of single rows, by torch.func; those of a linear map's weight as the two vectors whose product they are.

The gradient of W in W a + b is g a^T, g the gradient of what comes out (Goodfellow 2015, arXiv 1510.01799). It is kept so where a
row passes the map once, with one vector, and nothing else uses W. All else is a tensor for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

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


class Watched(TorchFunctionMode):
    """While one row passes: the first map of one vector by a weight that trains takes the weight as it is, without its gradient.

    added: zeros by the weight's name that are added to what comes out, so that its gradient is theirs. inputs: what went in (b,).
    """

    def __init__(self, parameters: Parameters, added: Parameters) -> None:
        super().__init__()
        self.names, self.added, self.inputs = {id(parameters[name]): name for name in added}, added, dict[str, Tensor]()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = self.names.get(id(args[1])) if func is linear and len(args) > 1 else None
        if name is None or name in self.inputs or args[0].numel() != args[1].shape[1]:
            return func(*args, **(kwargs or {}))
        self.inputs[name] = args[0].reshape(-1)
        out = func(args[0], args[1].detach(), *args[2:], **(kwargs or {}))
        return out + self.added[name].to(out.dtype)


def row_gradients(net: nn.Module, loss: Loss) -> RowGradients:
    """A function that gives each row's gradient: parameters, x (m, *inputs), y (m,) -> (m, *shape) of each parameter."""
    whole = WithLoss(net, loss)

    def gradients(parameters: Parameters, x: Tensor, y: Tensor) -> Mapping[str, Found]:
        added = {name: p.new_zeros(len(p)) for name, p in parameters.items() if p.ndim == 2}

        def of_row(x: Tensor, y: Tensor) -> tuple[Any, Parameters]:
            def value(parameters: Parameters, added: Parameters) -> tuple[Tensor, Parameters]:
                with Watched(parameters, added) as seen:
                    loss_of_row: Tensor = functional_call(whole, {f"net.{name}": p for name, p in parameters.items()}, (x, y))
                return loss_of_row, seen.inputs

            found: tuple[Any, ...] = vjp(value, parameters, added, has_aux=True)
            loss_of_row, back, inputs = found
            with torch.no_grad():  # nobody asks for gradients of gradients, which `grad` would prepare for
                return back(torch.ones_like(loss_of_row)), inputs

        (direct, through), inputs = vmap(of_row, randomness="different")(x, y)
        outer = {name: Outer(through[name], line) for name, line in inputs.items()}
        return {name: together(each, outer.get(name)) for name, each in direct.items()}

    return gradients


def together(direct: Tensor, through: Outer | None) -> Found:
    """The gradient of a parameter by what uses it `through` a map that was watched, and by all else: say, a penalty on weights.

    Where nothing else does, vmap gives the same zeros to all rows, in one place: that is of the network and not of the rows.
    """
    if through is None:
        return direct
    if (len(direct) == 1 or direct.stride(0) == 0) and not bool(direct[0].any()):
        return through
    return direct + through.whole()


def flat(found: Found) -> Tensor:
    """Gradients (m, *shape) in lines: (m, numbers)."""
    return (found.whole() if isinstance(found, Outer) else found).flatten(1)
