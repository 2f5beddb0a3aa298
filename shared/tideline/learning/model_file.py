"""The file of a model: safetensors with the network's own names, and in its metadata what the model is and where it comes from.

`safetensors.torch.load_file` reads it as any state dict. Equal models give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from tideline import __version__, nets
from tideline.core.algorithm import NETWORK
from tideline.core.asked.normalise import NO_SCALING, Normalise, Place, Scaling
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused, Refused
from tideline.core.record import Weights
from tideline.core.settings import EMPTY, Plain, parse, plain, setting
from tideline.core.tables.columns import filled_places
from tideline.learning.normalising import Statistics, layered
from tideline.learning.rows.filled import Filling, Medians, row_of
from tideline.learning.weights import SUFFIX, check_tensor
from tideline.nets import forms

KEY = "tideline.model"  # of the metadata
# Versions of the format: of a model that is none of the others; that normalises its rows; knows shares of classes; of a vote; of
# one of tables whose columns are declared.
PLAIN, NORMALISED, CORRECTED, VOTING, FORMAT = 1, 2, 3, 4, 5
VOTE = "vote"  # the form of a model that averages others
INSIDE = "normalisation."  # before the names of the tensors that it normalises by
CORRECTION, SHARES = "prior.correction", "prior.shares"  # names of tensors: what is added to logits; shares at the sources
MEDIANS = "missing.medians"  # the name of a tensor: what missing cells are filled by
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
    scaling         how it normalises rows, if it does, and by what; None: by the statistics of the rows that it is given
    members         of a vote: models whose probabilities are averaged; it has no weights of its own
    correction      what it adds to its logits, (classes,) float32, for the shares of the classes where it is used
    source_shares   (classes,) float64, by which such a correction can be found for the rows that it is given
    medians         what it fills missing cells by, if its world has columns with this rule
    """

    world: World
    weights: Weights
    form: str = NETWORK
    options: Mapping[str, Plain] = field(default_factory=lambda: EMPTY)
    origin: Origin = field(default_factory=Origin)
    scaling: Normalise = NO_SCALING
    statistics: Statistics | None = None
    members: tuple[Member, ...] = ()
    correction: Tensor | None = None
    source_shares: Tensor | None = None
    medians: Medians | None = None

    @property
    def by_given(self) -> bool:
        """Whether it normalises by the rows that it is given."""
        if self.members:
            return any(member.model.by_given for member in self.members)
        return self.scaling.kind is not Scaling.NONE and self.statistics is None

    @property
    def size(self) -> int:
        """How many numbers its weights have, those of all members together."""
        return sum(w.numel() for w in self.weights.values()) + sum(each.model.size for each in self.members)

    @property
    def own(self) -> dict[str, Tensor]:
        """The weights by the network's own names; a form that has more than the network keeps its names."""
        if self.members:
            return {f"{i}.{name}": w for i, each in enumerate(self.members) for name, w in tensors_of(each.model).items()}
        names = nets.own_names(self.world) if self.form == NETWORK else {}
        return {names.get(name, name): w for name, w in self.weights.items()}


@dataclass(frozen=True)
class Member:
    """A model with its share of a vote."""

    share: float
    model: Model


def vote_of(members: Sequence[tuple[float, Model]], origin: Origin) -> Model:
    """A model that averages the probabilities of others, by shares of sum 1. Raises ConfigRefused for others' classes."""
    first = members[0][1]
    for _, other in members[1:]:
        check_classes(other.world, first.world)
        check_columns(other.world, first.world)
    world = replace(first.world, normalise=None)
    return Model(world=world, weights=EMPTY, form=VOTE, origin=origin, members=tuple(Member(*each) for each in members))


@dataclass(frozen=True)
class About:
    """The metadata, strictly as they are written."""

    format: int = setting(low=1, doc="the version of the format")
    world: Mapping[str, Plain] = setting(doc="network, inputs, classes and their names")
    form: str = setting(doc="what is built of the network")
    options: Mapping[str, Plain] = setting(doc="of the form")
    normalisation: Mapping[str, Plain] | None = setting(
        doc="how rows are normalised, and where; null: they are not, which the first format says of all models"
    )
    digest: str = setting(doc="SHA-256 of the tensors")
    origin: Origin = setting(doc="where the model comes from")
    prior: bool = setting(False, doc="whether it has tensors of shares of classes, from the third format on")
    missing: bool = setting(False, doc="whether it has a tensor of medians for missing cells, from the fifth format on")


def packed(model: Model) -> bytes:
    """The bytes of a model's file."""
    # A single key: the order of several would not be the same each time.
    return save(tensors_of(model), {KEY: json.dumps(said_of_file(model), sort_keys=True, ensure_ascii=False)})


def said_of_file(model: Model) -> dict[str, Plain]:
    """The metadata as plain data. What is not there, versions before read as well."""
    said = plain(about_of(model))
    return {name: value for name, value in said.items() if value or name not in ("prior", "missing")}


def tensors_of(model: Model) -> dict[str, Tensor]:
    """All tensors of a model's file."""
    return {name: w.detach().cpu().contiguous().clone() for name, w in (model.own | inside(model)).items()}


def about_of(model: Model) -> About:
    """The metadata. Those of a vote's members stand in its options."""
    normalises = model.scaling.kind is not Scaling.NONE
    members: list[Plain] = [{"share": each.share, "about": said_of_file(each.model)} for each in model.members]
    shares = shares_in(model)
    return About(
        format=max(version_of(model), NORMALISED if normalises else PLAIN),
        world=plain_world(model.world),
        form=model.form,
        options={"members": members} if members else model.options,
        normalisation=normalisation_of(model) if normalises else None,
        digest=digest_of(tensors_of(model)),
        origin=model.origin,
        prior=shares,
        missing=model.medians is not None,
    )


def version_of(model: Model) -> int:
    """The version of the format that has what a model has."""
    return FORMAT if model.world.columns else VOTING if model.members else CORRECTED if shares_in(model) else PLAIN


def shares_in(model: Model) -> bool:
    return model.correction is not None or model.source_shares is not None


def inside(model: Model) -> dict[str, Tensor]:
    """The tensors of a file beside the weights."""
    by = model.statistics
    return ({} if by is None else {f"{INSIDE}mean": by.mean, f"{INSIDE}scale": by.scale}) | of_shares(model)


def of_shares(model: Model) -> dict[str, Tensor]:
    medians = None if model.medians is None else model.medians.values
    named = {CORRECTION: model.correction, SHARES: model.source_shares, MEDIANS: medians}
    return {name: w for name, w in named.items() if w is not None}


def normalisation_of(model: Model) -> dict[str, Plain]:
    """The kind, where it is done, and by what: rows that are given, or tensors, the tails drawn in or not."""
    by = model.statistics
    said: dict[str, Plain] = {"kind": model.scaling.kind.value, "at": model.scaling.at.value}
    return {**said, "by": "rows" if by is None else "tensors", "tails": by is not None and by.tails}


@dataclass(frozen=True)
class Normalisation:
    """The same as it is read."""

    kind: Scaling = setting(doc="what the statistics are of")
    at: Place = setting(doc="inputs or features")
    by: str = setting(choices=("rows", "tensors"), doc="the rows that are given, or tensors of the file")
    tails: bool = setting(doc="whether tails are drawn in")


def module_of(model: Model, device: str = "cpu") -> nn.Module:
    """What predicts, in evaluation mode: the form's module, which normalises and corrects by itself where it is known by what."""
    if model.members:
        voters = [module_of(each.model, device) for each in model.members]
        return forms.Vote(voters, [each.share for each in model.members]).eval()
    net = forms.loaded(model.form, model.world, model.weights, model.options, device)
    net = net if model.statistics is None else layered(net, model.statistics, model.scaling.at, device)
    net = net if model.medians is None else nn.Sequential(Filling(row_of(model.medians, model.world)).to(device), net).eval()
    return net if model.correction is None else Correcting(net, model.correction.to(device)).eval()


class Correcting(nn.Module):
    """A network whose logits are corrected: x (n, *inputs) -> (n, classes)."""

    by: Tensor

    def __init__(self, net: nn.Module, by: Tensor) -> None:
        super().__init__()
        self.network = net
        self.register_buffer("by", by)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x) + self.by
        return logits


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
    return assembled(about_in(said), tensors)


def assembled(about: About, tensors: Weights) -> Model:
    """The model of metadata and tensors. Raises DataRefused, ConfigRefused."""
    world = world_in(about.world)
    for name, w in tensors.items():
        check_tensor(name, w)
    if digest_of(tensors) != about.digest:
        raise DataRefused("the tensors are not those that its metadata name", AGAIN)
    if about.form == VOTE:
        return replace(vote_of(members_in(about, tensors), about.origin), world=world)
    scaling, by = normalisation_in(about, world, tensors)
    names = {own: name for name, own in nets.own_names(world).items()} if about.form == NETWORK else {}
    correction, shares = prior_in(about, world, tensors)
    beside = {f"{INSIDE}mean", f"{INSIDE}scale"} if by is not None else set()
    beside |= ({CORRECTION, SHARES} if about.prior else set()) | ({MEDIANS} if about.missing else set())
    weights = {names.get(own, own): w for own, w in tensors.items() if own not in beside}
    model = Model(
        world=world,
        weights=weights,
        form=about.form,
        options=about.options,
        origin=about.origin,
        scaling=scaling,
        statistics=by,
        correction=correction,
        source_shares=shares,
        medians=medians_in(about, world, tensors),
    )
    forms.check(model.form, world, weights, model.options)
    return model


@dataclass(frozen=True)
class Voter:
    """A member as it is read."""

    share: float = setting(low=0.0, high=1.0, doc="of the vote")
    about: Mapping[str, Plain] = setting(doc="its own metadata")


@dataclass(frozen=True)
class Voters:
    members: tuple[Voter, ...] = setting(doc="the models that vote")


def members_in(about: About, tensors: Weights) -> list[tuple[float, Model]]:
    """The members of a vote. Raises DataRefused where there is none, or where one votes on others' votes."""
    voters = parse(Voters, about.options, "options").members
    made = []
    for i, voter in enumerate(voters):
        own = parse(About, voter.about, f"options.members[{i}].about")
        if own.form == VOTE:
            raise DataRefused("a member of its vote is a vote itself", AGAIN)
        prefix = f"{i}."
        mine = {name.removeprefix(prefix): w for name, w in tensors.items() if name.startswith(prefix)}
        made.append((voter.share, assembled(own, mine)))
    if not made:
        raise DataRefused("it is a vote without members", AGAIN)
    return made


def normalisation_in(about: About, world: World, tensors: Weights) -> tuple[Normalise, Statistics | None]:
    """How rows are normalised, and the file's tensors for it. Raises DataRefused where these do not fit."""
    if about.normalisation is None:
        return NO_SCALING, None
    said = parse(Normalisation, about.normalisation, "normalisation")
    scaling = Normalise(said.kind, said.at)
    if said.by == "rows":
        return scaling, None
    k = world.inputs[0] if said.at is Place.INPUTS else nets.width(world)
    mean, scale = tensors.get(f"{INSIDE}mean"), tensors.get(f"{INSIDE}scale")
    fits = mean is not None and scale is not None and mean.shape == (k,) and scale.shape in ((k,), (k, k))
    if mean is None or scale is None or not fits or {mean.dtype, scale.dtype} != {torch.float64}:
        raise DataRefused(f"it normalises by tensors that are not there, or not of {k} numbers", AGAIN)
    return scaling, Statistics(mean, scale, said.tails)


def medians_in(about: About, world: World, tensors: Weights) -> Medians | None:
    """What missing cells are filled by. Raises DataRefused where it does not fit the columns."""
    found = tensors.get(MEDIANS) if about.missing else None
    wanted = len(filled_places(world.columns))
    if (found is None) != (not wanted) or (found is not None and (found.shape != (wanted,) or found.dtype is not torch.float64)):
        raise DataRefused(f"it fills {wanted} columns by medians that are not there", AGAIN)
    return None if found is None else Medians(found)


def prior_in(about: About, world: World, tensors: Weights) -> tuple[Tensor | None, Tensor | None]:
    """The correction of logits, and the sources' shares. Raises DataRefused where they do not fit."""
    if not about.prior:
        return None, None
    correction, shares = tensors.get(CORRECTION), tensors.get(SHARES)
    for name, w, kind in ((CORRECTION, correction, torch.float32), (SHARES, shares, torch.float64)):
        if w is not None and (w.shape != (world.classes,) or w.dtype is not kind):
            raise DataRefused(f"its tensor {name} is not one of {world.classes} classes", AGAIN)
    if correction is None and shares is None:
        raise DataRefused("it corrects by shares of classes that are not there", AGAIN)
    return correction, shares


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
        what = f"it is of format {version}, and this version reads up to {FORMAT}"
        raise DataRefused(what, "Install the version that wrote it")
    try:
        about = parse(About, given, "")
    except ConfigRefused as error:
        raise DataRefused(f"its metadata are damaged: {error.what}", AGAIN) from error
    return about


def weights_for(world: World, model: Model) -> Weights:
    """A model's weights, for a run in this world to begin from. Raises ConfigRefused for another network, and other classes."""
    check_network(world, model)
    check_classes(model.world, world)
    check_columns(model.world, world)
    check_scaling(world, model)
    return model.weights


def check_columns(theirs: World, ours: World) -> None:
    """Raises ConfigRefused where both declare columns, and not alike: the same input would be another thing."""
    if theirs.columns and ours.columns and theirs.columns != ours.columns:
        pairs = zip(theirs.columns, ours.columns, strict=False)
        odd = next((b.name for a, b in pairs if a != b), "of one more than the other")
        what = f"the file holds a model of other columns: the first that differs is {odd!r}"
        raise ConfigRefused(what, "Declare the columns as the model's run did, in its order", path="weights")


def check_scaling(world: World, model: Model) -> None:
    """Raises ConfigRefused for a model that was trained on rows that were normalised otherwise than the world's are."""
    theirs, ours = model.scaling, world.scaling
    if (theirs.kind, theirs.at) == (ours.kind, ours.at):
        return
    what = f"the file holds a model of rows with normalise: {said_of(theirs)}; world.normalise is {said_of(ours)}"
    raise ConfigRefused(what, "Normalise rows as those were that the weights were trained on", path="weights")


def check_encoder(world: World, model: Model) -> None:
    """The same for a model of which the encoder is taken: what was done behind it is no matter."""
    before = model if model.scaling.at is Place.INPUTS else replace(model, scaling=NO_SCALING)
    check_scaling(world if world.scaling.at is Place.INPUTS else replace(world, normalise=None), before)


def said_of(by: Normalise) -> str:
    return by.kind.value if by.at is Place.INPUTS else f"{by.kind.value}, at: features"


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
