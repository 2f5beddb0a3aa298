"""Weights that a person brings in a file of his own: safetensors, or a state dict as torch saves it.

No other file of torch's is read anywhere, and this one without running code from it: `weights_only` admits tensors, numbers and
texts. What is read is checked, compared with the world's network by names and shapes, and copied out of the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tideline import nets
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import World
from tideline.core.settings import show
from tideline.learning.formats.transforms import times
from tideline.nets.bottleneck import BACKBONE, KINDS
from tideline.nets.layers import CLASSIFIER

SUFFIX = ".safetensors"
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
TOLD = 3  # differences that a refusal names
SAVE = "Save the network's state dict alone: torch.save(net.state_dict(), FILE), or safetensors.torch.save_file"
COUNTERS = ".num_batches_tracked"
STEM = "conv1.weight"  # as torchvision calls the first layer of its residual networks


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """The named tensors of a file, on the CPU, every number finite; `.safetensors` by its name, all else as torch saves it.

    A state dict that lies in a dict, among other things of a training's, is found if it is the only one there. The tensors may be
    maps of the file: keep what `fitted` gives. Raises DataRefused, with `context["path"]`, for a file that cannot be used.
    """
    file = Path(path)
    try:
        check_place(file)
        return checked(opened(file))
    except OSError as error:
        todo = "Check the disk, and who may read the file"
        raise DataRefused(f"{file} cannot be read ({error.strerror or error})", todo, path=str(file)) from error
    except DataRefused as error:
        raise DataRefused(f"{file}: {error.what}", error.todo, path=str(file)) from error.__cause__


def check_place(file: Path) -> None:
    if not file.exists():
        raise DataRefused("there is no such file", "Correct the path")
    if not file.is_file():
        raise DataRefused("this is not a file", "Name the file that holds the weights")


def opened(file: Path) -> Any:
    """What a file holds. Raises DataRefused for one that is damaged, or of another kind; OSError."""
    kind = "a safetensors file" if file.suffix == SUFFIX else "a state dict that torch has saved"
    try:
        if file.suffix == SUFFIX:
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mappable(file))
    except OSError:
        raise
    except Exception as error:
        # Readers raise whatever they like on damaged files. Torch's own words advise to run the code that is in one.
        raise DataRefused(f"the file cannot be read as {kind} ({type(error).__name__})", f"{SAVE}. Or copy it again") from error


def mappable(file: Path) -> bool:
    """Whether torch may map a file: an archive whose members lie in it as they are. A compressed one would give noise."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def checked(held: Any) -> dict[str, Tensor]:
    """The state dict in what was read, each tensor held to what weights are. Raises DataRefused."""
    weights = {name: tensor.detach() for name, tensor in state_dict_in(held).items()}
    for name, tensor in weights.items():
        check_tensor(name, tensor)
    return weights


def state_dict_in(held: Any) -> Mapping[str, Tensor]:
    """A mapping of tensors: what was read, or the only one in it. Raises DataRefused."""
    if not isinstance(held, Mapping):
        raise DataRefused(f"the file holds a {type(held).__name__}, no state dict", SAVE)
    if is_state_dict(held):
        return of_a_state(held)
    inside = {name: value for name, value in held.items() if is_state_dict(value)}
    if len(inside) > 1:
        names = ", ".join(map(show, inside))
        raise DataRefused(f"the file holds {len(inside)} state dicts: {names}", "Save the one that is meant, alone")
    if inside and not any(isinstance(value, Tensor) for value in held.values()):
        return next(iter(inside.values()))
    raise strange(held)


def of_a_state(weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A model's own names, where a run's final state was exported with one model in it: without the fields that it lay in."""
    own = {name.rpartition("/")[2]: tensor for name, tensor in weights.items() if "/" in name}
    return own if len(own) == len(weights) else weights


def is_state_dict(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def strange(held: Mapping[Any, Any]) -> DataRefused:
    """The refusal of a mapping that is no state dict, with the first thing in it that is no named tensor."""
    for name, value in held.items():
        if not isinstance(name, str):
            return DataRefused(f"the file holds something under {show(name)}, which is no name", SAVE)
        if not isinstance(value, Tensor):
            return DataRefused(f"{show(name)} is a {type(value).__name__}, no tensor", SAVE)
    return DataRefused("the file holds no tensors", SAVE)


def check_tensor(name: str, tensor: Tensor) -> None:
    """Raises DataRefused for a tensor that is not plain, or a number in it that is not finite."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.dtype in DTYPES
    # A view that repeats its numbers may stand for more of them than a machine can hold.
    if not plain or tensor.nbytes > tensor.untyped_storage().nbytes():
        raise DataRefused(f"{name} is no plain tensor of real numbers", "Make it dense and contiguous, and save it again")
    if not torch.isfinite(tensor).all():
        raise DataRefused(f"{name} holds a NaN or an infinity", "Train again with a lower rate, and save a network that works")


def differences(world: World, weights: Mapping[str, Tensor]) -> tuple[str, ...]:
    """A sentence for each name that is missing, has another shape or is unknown, in the network's order; none if all fit.

    Raises ConfigRefused for a world without a network.
    """
    return tuple(compare(nets.template(world), weights, classes_of(world)))


def fitted(world: World, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in the network's order and dtypes, copied out of their file. Raises ConfigRefused if they differ."""
    return dict(each_fitted(world, weights))


def each_fitted(world: World, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The same one after the other, for who needs no copy of all. Raises ConfigRefused, before the first if they differ."""
    check_fit(world, weights)
    for name, like in nets.template(world).items():
        yield name, cast(name, weights[name], like)


def check_fit(world: World, weights: Mapping[str, Tensor]) -> None:
    """Raises ConfigRefused unless the weights have the network's names and shapes. Costs no memory: no number is looked at."""
    check(world, list(differences(world, weights)))


def is_backbone(world: World, weights: Mapping[str, Tensor]) -> bool:
    """Whether weights have torchvision's own names, and the world's network is one that can be put over them."""
    return world.model in KINDS and STEM in weights


def with_backbone(world: World, weights: Mapping[str, Tensor], seed: int | None = None) -> dict[str, Tensor]:
    """The world's network over a backbone that was trained elsewhere: a state dict of torchvision's resnet18 or resnet50.

    Its `fc` is left out; bottleneck and classifier are as first drawn, from `seed`, or else from torch's global generator.
    Raises ConfigRefused for another network, and for weights that are not of its backbone.
    """
    if world.model not in KINDS:
        what = f"world.model is {world.model!r}, which has no backbone of torchvision's"
        raise ConfigRefused(what, f"Use one of: {', '.join(KINDS)}", path="world.model")
    drawn = fresh(world, seed)
    mine = {name.removeprefix(BACKBONE): like for name, like in drawn.items() if name.startswith(BACKBONE)}
    # Files of before 2018 have no counters, which nothing is computed from.
    given = {name: like for name, like in mine.items() if name.endswith(COUNTERS)} | without_fc(weights)
    check(world, list(compare(mine, given)))
    return drawn | {f"{BACKBONE}{name}": cast(name, given[name], like) for name, like in mine.items()}


def without_fc(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: w for name, w in weights.items() if name not in ("fc.weight", "fc.bias")}


def fresh(world: World, seed: int | None) -> dict[str, Tensor]:
    """The network as first drawn; with a seed, torch's global generator is left as it was."""
    if seed is None:
        return nets.weights_of(nets.build(world))
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        return nets.weights_of(nets.build(world))


def compare(template: Mapping[str, Tensor], weights: Mapping[str, Tensor], why: str = "") -> Iterator[str]:
    """What differs from a template. `why`: what is said where the classifier's shape is another."""
    for name, like in template.items():
        if name not in weights:
            yield f"{name} is missing, which is {times(like.shape)}"
        elif weights[name].shape != like.shape:
            told = why if name.startswith(CLASSIFIER) else "the network has"
            yield f"{name} is {times(weights[name].shape)}; {told}: {times(like.shape)}"
    yield from (f"{name} is not in the network" for name in weights if name not in template)


def classes_of(world: World) -> str:
    return f"this world has {world.classes} classes"


def check(world: World, found: list[str]) -> None:
    """Raises ConfigRefused with the first differences, if there are any."""
    if found:
        more = f"; and {len(found) - TOLD} more" if len(found) > TOLD else ""
        what = f"The weights do not fit {world.model}: {'; '.join(found[:TOLD])}{more}"
        raise ConfigRefused(
            what, "Give weights of this network, or name the world that they were trained for", path="world.model"
        )


def cast(name: str, w: Tensor, like: Tensor) -> Tensor:
    """A copy in the dtype of `like`. Raises ConfigRefused for numbers that it cannot hold."""
    made = torch.empty_like(w, dtype=like.dtype, memory_format=torch.contiguous_format).copy_(w)
    if not torch.isfinite(made).all():
        raise ConfigRefused(
            f"{name} holds a number that {like.dtype} cannot", "Scale it down, and save it again", path="world.model"
        )
    return made
