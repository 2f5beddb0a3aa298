"""Initial weights that a user gives to a run in a file: safetensors, or a state dict as torch saves it.

This is the only file of torch's that Tideline reads, and no code in it runs: `weights_only` admits tensors, numbers and texts.
Tensors are checked, compared with the world's network by names and shapes, and copied out of the file.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TypeGuard

import torch
from safetensors.torch import load_file
from torch import Tensor

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, kind_of
from tideline.core.settings import show
from tideline.learning.formats.transforms import times
from tideline.nets.layers import CLASSIFIER

SUFFIX = ".safetensors"
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
SHOWN = 3  # differences that a refusal names
SAVE = "Save the network's state dict alone: torch.save(net.state_dict(), FILE), or safetensors.torch.save_file"


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """The named tensors of a file, on the CPU, every number finite: safetensors by its suffix, all else as torch saves it.

    In a dict of several things, such as a checkpoint, the only state dict is taken. The tensors may be maps of the file: keep the
    copies that `fitted` makes. Raises DataRefused, with `context["path"]`, for a file that cannot be used.
    """
    file = Path(path)
    try:
        if not file.exists():
            raise DataRefused("there is no such file", "Correct the path")
        if not file.is_file():
            raise DataRefused("this is not a file", "Name the file that holds the weights")
        return checked(opened(file))
    except OSError as error:
        todo = "Check the disk and the file's permissions"
        raise DataRefused(f"{file} cannot be read ({error.strerror or error})", todo, path=str(file)) from error
    except DataRefused as error:
        raise DataRefused(f"{file}: {error.what}", error.todo, path=str(file)) from error.__cause__


def opened(file: Path) -> object:
    """The contents of a file. Raises DataRefused for one that is damaged or of another kind, and OSError."""
    kind = "a safetensors file" if file.suffix == SUFFIX else "a state dict that torch has saved"
    try:
        if file.suffix == SUFFIX:
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mappable(file))
    except OSError:
        raise
    except Exception as error:
        # Readers may raise anything on damaged files. Torch's own message advises to run the code in one.
        raise DataRefused(f"the file cannot be read as {kind} ({type(error).__name__})", f"{SAVE}. Or copy it again") from error


def mappable(file: Path) -> bool:
    """Whether torch may map a file: an archive without compression. A compressed one would give noise."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def checked(contents: object) -> dict[str, Tensor]:
    """The state dict in a file's contents, its tensors checked. Raises DataRefused."""
    weights = {name: tensor.detach() for name, tensor in state_dict_in(contents).items()}
    for name, tensor in weights.items():
        check_tensor(name, tensor)
    return weights


def state_dict_in(contents: object) -> Mapping[str, Tensor]:
    """The contents as a mapping of tensors, or the only such mapping in them. Raises DataRefused."""
    if not isinstance(contents, Mapping):
        raise DataRefused(f"the file holds {kind_of(contents)}, not a state dict", SAVE)
    if is_state_dict(contents):
        # A model exported from a run's final state has the state's field before each name.
        own = {name.rpartition("/")[2]: tensor for name, tensor in contents.items() if "/" in name}
        return own if len(own) == len(contents) else contents
    inside: dict[object, Mapping[str, Tensor]] = {name: value for name, value in contents.items() if is_state_dict(value)}
    if len(inside) > 1:
        names = ", ".join(map(show, inside))
        raise DataRefused(f"the file holds {len(inside)} state dicts: {names}", "Save the one that you mean, alone")
    if inside and not any(isinstance(value, Tensor) for value in contents.values()):
        return next(iter(inside.values()))
    for name, value in contents.items():
        if not isinstance(name, str):
            raise DataRefused(f"the file holds something under {show(name)}, which is not a name", SAVE)
        if not isinstance(value, Tensor):
            raise DataRefused(f"{show(name)} is {kind_of(value)}, not a tensor", SAVE)
    raise DataRefused("the file holds no tensors", SAVE)


def is_state_dict(value: object) -> TypeGuard[Mapping[str, Tensor]]:
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def check_tensor(name: str, tensor: Tensor) -> None:
    """Raises DataRefused for a tensor that is not plain, or has a number that is not finite."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.dtype in DTYPES
    # A view that repeats its numbers may stand for more of them than a machine can hold.
    if not plain or tensor.nbytes > tensor.untyped_storage().nbytes():
        raise DataRefused(f"{name} is not a plain tensor of real numbers", "Make it dense and contiguous, and save it again")
    if not torch.isfinite(tensor).all():
        raise DataRefused(f"{name} holds a NaN or an infinity", "Train again with a lower rate, and save a network that works")


def save_torch(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict as torch saves it: tensors by name, and nothing else. Raises OSError where there is no room."""
    # Torch's own writing of files raises what is no OSError on a full disk.
    made = io.BytesIO()
    torch.save({name: w.detach().cpu().contiguous().clone() for name, w in weights.items()}, made)
    path.write_bytes(made.getbuffer())


def differences(world: World, weights: Mapping[str, Tensor]) -> tuple[str, ...]:
    """A sentence for each name that is missing, misshapen or unknown, in the network's order. ConfigRefused for no network."""
    template, names = nets.template(world), names_used(world, weights)
    head = frozenset(names[name] for name in template if name.startswith(CLASSIFIER))
    named = {names[name]: like for name, like in template.items()}
    return tuple(compare(named, weights, f"this world has {world.classes} classes", head))


def names_used(world: World, weights: Mapping[str, Tensor]) -> Mapping[str, str]:
    """Each name of the network's state dict with the one that weights have for it: its own, unless more are ours."""
    own = nets.own_names(world)
    ours = sum(name in own for name in weights)
    return {name: name for name in own} if ours > sum(name in weights for name in own.values()) else own


def fitted(world: World, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in the network's order and dtypes, copied out of their file. Raises ConfigRefused if they differ."""
    return dict(each_fitted(world, weights))


def each_fitted(world: World, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The same tensors one by one, so that no copy of all is needed. Raises ConfigRefused, before the first if they differ."""
    check_fit(world, weights)
    names = names_used(world, weights)
    for name, like in nets.template(world).items():
        yield name, cast(names[name], weights[names[name]], like)


def check_fit(world: World, weights: Mapping[str, Tensor]) -> None:
    """Raises ConfigRefused unless the weights have the network's names and shapes. Costs no memory: reads no number."""
    check(world, list(differences(world, weights)))


def compare(
    template: Mapping[str, Tensor], weights: Mapping[str, Tensor], why: str = "", head: Set[str] = frozenset()
) -> Iterator[str]:
    """The differences from a template. `why`: the reason for another shape of the head, whose names these are."""
    if prefix := prefixed([name for name in template if name not in weights], weights):
        yield f"all names in the file begin with {prefix!r}, which has to be taken off each and the file saved again"
        return
    for name, like in template.items():
        if name not in weights:
            yield f"{name} is missing, which is {times(like.shape)}"
        elif weights[name].shape != like.shape:
            reason = why if name in head else "the network has"
            yield f"{name} is {times(weights[name].shape)}; {reason}: {times(like.shape)}"
    yield from (f"{name} is not in the network" for name in weights if name not in template)


def prefixed(missing: Sequence[str], weights: Mapping[str, Tensor]) -> str:
    """What stands before the names that are missing, as wrappers of networks put it there; empty if they are not there so."""
    found = {name.removesuffix(missing[0]) for name in weights if name.endswith(f".{missing[0]}")} if missing else ()
    right = (p for p in sorted(found) if all(p + name in weights for name in missing))
    return next((p for p in right if all(name.startswith(p) for name in weights)), "")


def check(world: World, differences: list[str]) -> None:
    """Raises ConfigRefused with the first differences, if there are any."""
    if differences:
        more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        what = f"The weights do not fit {world.model}: {'; '.join(differences[:SHOWN])}{more}"
        todo = "Give weights of this network, or name the world that they were trained for"
        raise ConfigRefused(what, todo, path="world.model")


def cast(name: str, w: Tensor, like: Tensor) -> Tensor:
    """A copy in the dtype of `like`. Raises ConfigRefused for numbers that it cannot hold."""
    copy = torch.empty_like(w, dtype=like.dtype, memory_format=torch.contiguous_format).copy_(w)
    if not torch.isfinite(copy).all():
        what = f"{name} holds a number that {like.dtype} cannot"
        raise ConfigRefused(what, "Scale it down, and save it again", path="world.model")
    return copy
