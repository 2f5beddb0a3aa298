"""What a network is here, for the coordinator to compare with what it is there (tideline.engine.model.joins)."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from tideline.core.asked.world import World
from tideline.core.run import NetworkPrint
from tideline.core.settings import SCALARS
from tideline.nets import foreign, registry
from tideline.nets.apart import alone, evaluated, probe
from tideline.nets.foreign import DRAWING, Key, key_of
from tideline.nets.options import all_options

MOST_OUTPUTS = 64


def print_of(world: World) -> NetworkPrint | None:
    """The network's print; None of a built-in one, which is the same wherever this version is. Raises ConfigRefused."""
    return None if registry.is_built_in(world.model) else known_print(key_of(world))


@lru_cache(maxsize=foreign.HELD)
def known_print(key: Key) -> NetworkPrint:
    options = sorted(all_options(key.build, key.world).items())
    net = foreign.copied(key.world)
    tensors = [(net_name, tensor) for net_name, tensor in foreign.tensors(net)]
    lines = (*(f"the option {name} = {worded(value)}" for name, value in options), *(line(*each) for each in tensors))
    return NetworkPrint(lines, outputs(net, key.world))


def worded(value: object) -> str:
    """An option's value, the same in every process. What no file can say is a default of the builder's own: its type alone, as
    its words may have an address in memory, or a path of this machine's.
    """
    return repr(value) if is_plain(value) else f"a {type(value).__name__}"


def is_plain(value: object) -> bool:
    """Whether a value is a scalar, or a list of them."""
    return all(map(is_plain, value)) if isinstance(value, (list, tuple)) else value is None or type(value) in SCALARS


def line(name: str, tensor: Tensor) -> str:
    """A tensor in words."""
    return f"{name} of {'x'.join(map(str, tensor.shape)) or 'one number'} {str(tensor.dtype).removeprefix('torch.')}"


def outputs(net: nn.Module, world: World) -> tuple[float, ...]:
    """What the network gives for the probe with weights that depend on their names and shapes alone."""
    with DRAWING, alone(), torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(fixed(name, parameter))
        given = evaluated(lambda: net.eval()(probe(world)))
    assert isinstance(given, Tensor)
    found = [float(f"{value:.6g}") for value in given.flatten()[:MOST_OUTPUTS].tolist()]
    return tuple(found) if all(map(math.isfinite, found)) else ()


def fixed(name: str, like: Tensor) -> Tensor:
    """Numbers of a size that keeps outputs moderate: of matrices and kernels by what enters, of the rest around 1."""
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)
    drawn = torch.rand(like.shape, generator=torch.Generator().manual_seed(seed), device="cpu") * 2 - 1
    entering = like[0].numel() if like.dim() > 1 else 0
    made = drawn * math.sqrt(3 / entering) if entering else 1 + 0.1 * drawn if name.endswith("weight") else 0.1 * drawn
    return made.to(like.dtype)
