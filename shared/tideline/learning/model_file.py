"""The file of a model: safetensors with the network's own names, and in its metadata what the model is and where it comes from.

`safetensors.torch.load_file` reads it as any state dict. Equal models give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tideline import __version__, nets
from tideline.core.algorithm import NETWORK
from tideline.core.errors import ConfigRefused, DataRefused, Refused
from tideline.core.record import Weights
from tideline.core.run import EMPTY, World, plain_world, world_in
from tideline.core.settings import Plain, parse, plain, setting
from tideline.learning.weights import SUFFIX, check_tensor
from tideline.nets import forms

KEY = "tideline.model"  # of the metadata
FORMAT = 1
WHICH = FINAL, BEST = "final", "best"  # models of a run or a site
AGAIN = "Export the model again, and copy the whole file"
OURS = "Give a .safetensors file of `tideline run export` or `tideline site export`: it says which network it is of"


@dataclass(frozen=True)
class Origin:
    """Where a model comes from."""

    method: str = setting("", doc="the method's name")
    run: str = setting("", doc="the run's id")
    which: str = setting(FINAL, choices=WHICH, doc="the run's last model, or that of its best round")
    round: int | None = setting(None, doc="the round of the model: of the best, that of the scoring that found it")
    site: str = setting("", doc="whose own model it is; empty: the run's")
    state_digest: str = setting(
        "", doc="of the run's state that it is of: the last, or that of the best round; empty where it is not known"
    )
    metrics: Mapping[str, float] = setting(
        EMPTY, doc="the site's in that round, or of a run's model the mean accuracy over sites"
    )
    selected: Mapping[str, float] = setting(EMPTY, doc="of the best: the score that selects, the mean over sites, where known")
    note: str = setting("", doc="what to know of it, in a sentence")
    tideline: str = setting(__version__, doc="the version that wrote the file")


@dataclass(frozen=True)
class Model:
    """A model: weights by the names that they have here, and what they are loaded into.

    form, options   a name in tideline.nets.forms, and what it is given
    """

    world: World
    weights: Weights
    form: str = NETWORK
    options: Mapping[str, Plain] = field(default_factory=lambda: EMPTY)
    origin: Origin = field(default_factory=Origin)

    @property
    def own(self) -> dict[str, Tensor]:
        """The weights by the network's own names; a form that has more than the network keeps its names."""
        names = nets.own_names(self.world) if self.form == NETWORK else {}
        return {names.get(name, name): w for name, w in self.weights.items()}


@dataclass(frozen=True)
class About:
    """The metadata, strictly as they are written."""

    format: int = setting(low=1, doc="the version of the format")
    world: Mapping[str, Plain] = setting(doc="network, inputs, classes and their names")
    form: str = setting(doc="what is built of the network")
    options: Mapping[str, Plain] = setting(doc="of the form")
    normalisation: Mapping[str, Plain] | None = setting(doc="what is done to samples first: always null in this format")
    digest: str = setting(doc="SHA-256 of the tensors")
    origin: Origin = setting(doc="where the model comes from")


def packed(model: Model) -> bytes:
    """The bytes of a model's file."""
    tensors = {name: w.detach().cpu().contiguous().clone() for name, w in model.own.items()}
    about = About(
        format=FORMAT,
        world=plain_world(model.world),
        form=model.form,
        options=model.options,
        normalisation=None,
        digest=digest_of(tensors),
        origin=model.origin,
    )
    # A single key: the order of several would not be the same each time.
    return save(tensors, {KEY: json.dumps(plain(about), sort_keys=True, ensure_ascii=False)})


def digest_of(tensors: Weights) -> str:
    """SHA-256 of names, dtypes, shapes and numbers."""
    made = hashlib.sha256()
    for name, w in sorted(tensors.items()):
        made.update(json.dumps([name, str(w.dtype), list(w.shape)]).encode())
        made.update(w.contiguous().view(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def is_model(path: Path) -> bool:
    """Whether a file says that it is a model's: one of weights alone does not."""
    if path.suffix != SUFFIX or not path.is_file():
        return False
    try:
        with safe_open(path, "pt") as file:
            return KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def read_model(path: Path | str) -> Model:
    """The model of a file, its tensors on the CPU. Raises DataRefused, with `context["path"]`, for a file that is none."""
    file = Path(path)
    try:
        return unpacked(file)
    except Refused as error:
        raise DataRefused(f"{file}: {error.what}", error.todo, path=str(file)) from error


def unpacked(file: Path) -> Model:
    said, tensors = contents(file)
    about = about_in(said)
    world = world_in(about.world)
    for name, w in tensors.items():
        check_tensor(name, w)
    if digest_of(tensors) != about.digest:
        raise DataRefused("the tensors are not those that its metadata name", AGAIN)
    names = {own: name for name, own in nets.own_names(world).items()} if about.form == NETWORK else {}
    weights = {names.get(own, own): w for own, w in tensors.items()}
    model = Model(world=world, weights=weights, form=about.form, options=about.options, origin=about.origin)
    forms.check(model.form, world, weights, model.options)
    return model


def contents(file: Path) -> tuple[str, dict[str, Tensor]]:
    """The metadata of a model's file, and its tensors, copied out of it. Raises DataRefused."""
    if not file.is_file():
        raise DataRefused("there is no such file", "Correct the path")
    try:
        with safe_open(file, "pt") as opened:
            said = (opened.metadata() or {}).get(KEY)
            if said is None:
                what = "the file holds weights, and does not say of which network"
                raise DataRefused(what, OURS)
            return said, {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        todo = OURS if file.suffix in (".pt", ".pth", ".onnx") else AGAIN
        raise DataRefused(f"the file cannot be read as safetensors ({type(error).__name__})", todo) from error


def about_in(said: str) -> About:
    """The metadata. Raises DataRefused, or ConfigRefused for settings that are none."""
    try:
        given = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise DataRefused("its metadata are damaged: they are no JSON", AGAIN) from error
    version = given.get("format") if isinstance(given, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise DataRefused(
            f"it is of format {version}, and this version reads up to {FORMAT}", "Install the version that wrote it"
        )
    try:
        about = parse(About, given, "")
    except ConfigRefused as error:
        raise DataRefused(f"its metadata are damaged: {error.what}", AGAIN) from error
    if about.normalisation is not None:
        raise DataRefused("it asks for a normalisation, which this version has none of", "Install the version that wrote it")
    return about


def weights_for(world: World, model: Model) -> Weights:
    """A model's weights, for a run in this world to begin from. Raises ConfigRefused for another network, and other classes."""
    check_network(world, model)
    check_classes(model.world, world)
    return model.weights


def check_network(world: World, model: Model) -> None:
    """Raises ConfigRefused for a model of another network, or of more than one."""
    if model.form != NETWORK:
        what = f"the file holds a model of the form {model.form}, which is more than a network"
        raise ConfigRefused(what, "Give a model that is the network alone; `tideline predict` takes this one", path="weights")
    theirs, ours = network_of(model.world), network_of(world)
    if theirs != ours:
        what = f"the file holds a model of {named(model.world)}; world.model is {named(world)}"
        raise ConfigRefused(what, "Give weights of this network, or name the network that they are of", path="weights")


def network_of(world: World) -> Plain:
    """The network, its options among it."""
    return {name: value for name, value in plain_world(world).items() if name in ("model", "options")}


def named(world: World) -> str:
    """The network in words."""
    said = plain_world(world)["model"]
    return said if isinstance(said, str) else json.dumps(said, sort_keys=True)


def check_classes(theirs: World, ours: World) -> None:
    """Raises ConfigRefused where both name their classes, and not alike."""
    if theirs.classes != ours.classes:
        what = f"the file holds a model of {theirs.classes} classes; this world has {ours.classes}"
        raise ConfigRefused(what, "Give a model of these classes", path="weights")
    pairs = zip(theirs.class_names, ours.class_names, strict=False)
    odd = next(((i, a, b) for i, (a, b) in enumerate(pairs) if a != b), None)
    if odd is not None:
        what = f"the file's class {odd[0]} is {odd[1]!r}; here it is {odd[2]!r}"
        raise ConfigRefused(what, "Give a model of these classes, or correct class_names", path="weights")
