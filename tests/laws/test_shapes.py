"""Every method plays rows of every shape, by any network, or says before anybody is asked why it cannot, and what would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.laws import results
from tests.laws.case import Case, cases
from tests.synthetic import CLASSES, HELD_OUT, TRAIN, Rows
from tests.synthetic import blobs as gaussians
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.simulation.federation import SimSite
from tideline.nets import registry

VOCABULARY = 12
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "vector": {"inputs": [8], "model": "mlp", "normalise": "none"},
    "image": {"inputs": [2, 8, 8], "model": "lenet_bn"},
    "sequence": {"inputs": [2, 16], "model": "conv1d"},
    "volume": {"inputs": [1, 4, 4, 4], "model": "conv3d"},
    "film": {"inputs": [1, 2, 2, 2, 2], "model": "mlp"},
    "tokens": {"inputs": [6], "model": "tokens", "dtype": "int64", "vocabulary": VOCABULARY},
}
# Networks that the process adds. What declares needs that a network of one's own does not say how to meet refuses them.
FOREIGN: Mapping[str, Mapping[str, Any]] = {
    "convolutions": {"inputs": [1, 8, 8], "model": {"name": "convolutions", "options": {"width": 5}}},
    "recurrent": {"inputs": [1, 8, 8], "model": {"name": "sequence", "options": {"hidden": [7]}}},
}
NEEDS_MORE = {"fedsr": "which layer could emit a mean", "gaussian_heads": "which learns its features"}
IMAGES, ALL_BUT_TOKENS = ("image",), tuple(kind for kind in WORLDS if kind != "tokens")
# What a method takes, where it is not everything; and of what it says that it lacks.
TAKES: Mapping[str, tuple[str, ...]] = {
    "ladd": IMAGES,
    "ladd_pl": IMAGES,
    "fedwca": ALL_BUT_TOKENS,
    "kd3a": ALL_BUT_TOKENS,
    "adabn": ("image", "sequence", "volume"),  # networks with batch norm
    "gaussian_heads": (),  # features that nobody learns
}


@dataclass(frozen=True)
class Opener:
    """How a site opens rows of any world: a class is where numbers are large, or which token ids are frequent."""

    domain: int

    def __call__(self, world: World, role: Role) -> Rows:
        return Rows(drawn(TRAIN, self.domain, 0, world), drawn(HELD_OUT, self.domain, 1, world))


def drawn(n: int, domain: int, seed: int, world: World) -> Data:
    if not world.tokens:
        return gaussians(n, domain, seed, world.inputs)
    rng = torch.Generator().manual_seed(1000 * seed + domain)
    y = torch.arange(n) % CLASSES
    own = y[:, None] * (VOCABULARY // CLASSES) + torch.randint(VOCABULARY // CLASSES, (n, *world.inputs), generator=rng)
    return Data(MemoryRows(own), y, torch.zeros(n, dtype=torch.int64), (f"domain-{domain}",))


@dataclass(frozen=True)
class Shaped(Case):
    """A method with rows of a shape, or with somebody else's network."""

    kind: str = ""

    def experiment(self, **more: Any) -> dict[str, Any]:
        return {**super().experiment(**more), "world": {"classes": CLASSES, **(WORLDS | FOREIGN)[self.kind]}}

    def sites(self) -> dict[str, SimSite]:
        return {name: replace(site, open_site_data=Opener(i)) for i, (name, site) in enumerate(super().sites().items())}


def shape_params(kinds: Iterable[str], quick: Callable[[str, str], bool]) -> pytest.MarkDecorator:
    """Parametrise a test over methods and kinds of worlds; pairs that are not quick come at night."""
    night = pytest.mark.nightly(job="methods")
    pairs = [(case.name, kind) for case in cases(METHODS) for kind in kinds]
    params = [pytest.param(Shaped(p[0], METHODS, p[1]), id="-".join(p), marks=() if quick(*p) else night) for p in pairs]
    return pytest.mark.parametrize("case", params)


# In the quick tier one method plays all shapes. Token ids have to be embedded first: one method does, and one refuses them.
@shape_params(WORLDS, lambda method, kind: method == "fedavg" or (method, kind) in (("stlf", "tokens"), ("fedwca", "tokens")))
def test_a_method_plays_rows_of_a_shape_or_says_why_not(case: Shaped) -> None:
    """It ends, or is refused at the start in a sentence that names the method or the network, with a way out."""
    if case.kind in TAKES.get(case.name, tuple(WORLDS)):
        stage, run = case.played(case.stage())
        result = stage.result(run)
        assert result["status"] == "completed", result["cause"]
        return
    with pytest.raises(ConfigRefused) as refusal:
        case.stage().start(case.experiment())
    said = str(refusal.value)
    assert (case.name in said or WORLDS[case.kind]["model"] in said) and refusal.value.todo


@pytest.fixture
def foreign_networks() -> Iterator[None]:
    """Add the networks for one test."""
    registry.use(["tests.nets.foreign:NETWORKS"])
    yield
    registry.use([])


@pytest.mark.usefixtures("foreign_networks")
@shape_params(FOREIGN, lambda method, kind: method == "fedavg" or (method, kind) == ("stlf", "recurrent"))
def test_a_method_takes_any_network_or_says_what_is_missing(case: Shaped) -> None:
    """It ends in models of that network, which predict as the result says."""
    if case.name in NEEDS_MORE:
        with pytest.raises(ConfigRefused, match=NEEDS_MORE[case.name]):
            case.played()
        return
    stage, run = case.played()
    result = stage.result(run)
    assert result["status"] == "completed", result["cause"]
    assert result["world"]["model"] == FOREIGN[case.kind]["model"]
    results.models_are_what_it_says(case)
