"""A model that predicts: rows in memory, and those of a data folder or of what an owner's function gives."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tideline.core.asked.normalise import Place
from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import dtype_of
from tideline.core.settings import Plain
from tideline.core.tables.columns import code_places, filled_places
from tideline.learning.formats.kinds.shapes import beyond
from tideline.learning.formats.scan import Part, scan
from tideline.learning.formats.transforms import times
from tideline.learning.model_file import Model, module_of, read_model
from tideline.learning.normalising import encoder_in, own_statistics
from tideline.learning.rows.filled import filled, row_of
from tideline.learning.scoring.correcting import correction
from tideline.learning.sites.named import place_in
from tideline.learning.sites.scan import check_no_part, scan_python
from tideline.nets import features, registry, rows_of, width
from tideline.nets.computing.devices import AUTO, chosen
from tideline.numerics.labels.scores import wilson

DIGITS = 9  # of a probability that is written: what float32 holds


@dataclass(frozen=True)
class Predictions:
    """What a model says of n rows.

    classes        (n,) int64, numbers of the likeliest classes
    names          their names; their numbers in words where the classes have none
    probabilities  (n, classes) float32, each row of sum 1

    >>> import torch, tideline
    >>> tideline.Predictions(torch.tensor([1]), ("owl",), torch.tensor([[0.25, 0.75]])).names
    ('owl',)
    """

    classes: Tensor
    names: tuple[str, ...]
    probabilities: Tensor


class Classifier(nn.Module):
    """A model that is ready to predict. `network` is what was trained; `class_names` are texts, one for each class.

    >>> import torch, tideline
    >>> from tideline import nets
    >>> from tideline.core.run import World
    >>> from tideline.learning.model_file import Model
    >>> world = World(inputs=(4,), classes=2, model="mlp")
    >>> model = Model(world, nets.weights_of(nets.build(world)))
    >>> tideline.Classifier(model)(torch.rand(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(self, model: Model, device: str = "cpu") -> None:
        super().__init__()
        self.model, self.world, self.device = model, model.world, device
        self.network = module_of(model, device)
        self.class_names = model.world.class_names or tuple(map(str, range(model.world.classes)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or logarithms of probabilities: x (n, *inputs) -> (n, classes)."""
        logits: Tensor = self.network(x)
        return logits

    def predict(self, x: Tensor | NDArray[np.generic]) -> Predictions:
        """Classes and probabilities of rows x (n, *inputs), in evaluation mode. Raises DataRefused for other rows."""
        x = rows_in(x, self.world)
        if tuple(x.shape[1:]) != self.world.inputs:
            what = f"A row is {times(x.shape[1:])}; the model takes {times(self.world.inputs)}"
            raise DataRefused(what, "Give rows of this shape, as the first axis")
        given, x = x, self.known(x)
        if self.world.tokens:
            check_tokens(x, self.world)
        elif not bool(torch.isfinite(x).all()):
            row = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0])
            raise DataRefused(f"Row {row} holds NaN or infinity", "Remove or fill such rows", row=row)
        if self.model.by_given and len(x):
            return self.normalising_by(torch.split(given, rows_of(given))).predict(given)
        p = torch.cat([self.outputs(part) for part in torch.split(given, rows_of(given))]) if len(x) else self.none()
        classes = p.argmax(1)
        return Predictions(classes, tuple(self.class_names[i] for i in classes.tolist()), p)

    def known(self, x: Tensor) -> Tensor:
        """Rows (n, *inputs) with 0 for the missing cells that the model fills."""
        places = list(filled_places(self.world.columns))
        return x.index_copy(1, torch.tensor(places), x[:, places].nan_to_num(0.0)) if places else x

    def outputs(self, x: Tensor) -> Tensor:
        """Probabilities of so many rows as fit at once, on the CPU: x (b, *inputs) -> (b, classes)."""
        self.eval()
        device = next((w.device for w in self.network.state_dict().values()), torch.device(self.device))
        with torch.no_grad():
            logits: Tensor = self(x.to(device))
            return logits.softmax(1).cpu()

    def normalising_by(self, parts: Iterable[Tensor]) -> Classifier:
        """The same model, which normalises by the statistics of rows that come in parts (b, *inputs). Labels have no part in it.

        Raises DataRefused for fewer than two rows.
        """
        if self.model.members:
            return self.voting_by(list(parts))
        scaling, k, left = self.model.scaling, self.world.inputs[0], code_places(self.world.columns)
        if self.model.medians is not None:
            by = row_of(self.model.medians, self.world)
            parts = (filled(part, by) for part in parts)
        if scaling.at is Place.FEATURES:
            encoder, k, left = encoder_in(self.network), width(self.world), ()
            parts = (features(encoder, part, self.device) for part in parts)
        return Classifier(replace(self.model, statistics=own_statistics(parts, scaling.kind, k, left)), self.device)

    def voting_by(self, parts: Sequence[Tensor]) -> Classifier:
        """The same of a vote, whose members normalise each by itself."""
        return self.voting(lambda own: Classifier(own, self.device).normalising_by(parts).model if own.by_given else own)

    def voting(self, made: Callable[[Model], Model]) -> Classifier:
        """The same vote of other members."""
        members = tuple(replace(each, model=made(each.model)) for each in self.model.members)
        return Classifier(replace(self.model, members=members), self.device)

    def correcting_by(self, parts: Iterable[Tensor]) -> Classifier:
        """The same model, corrected for the shares of the classes in rows that come in parts (b, *inputs). Labels have no part.

        Of a vote, members that know the shares where they learnt. Raises DataRefused for a model that does not know them.
        """
        members = self.model.members
        if any(each.model.source_shares is not None for each in members):
            known = list(parts)
            return self.voting(
                lambda own: own if own.source_shares is None else Classifier(own, self.device).correcting_by(known).model
            )
        if self.model.by_given:
            known = list(parts)
            return self.normalising_by(known).correcting_by(known)
        shares = self.model.source_shares
        if shares is None:
            own = "it is corrected for its own site's already" if self.model.correction is not None else "its run had none"
            what = f"The model does not know the classes' shares where it learnt: {own}"
            raise DataRefused(what, "Leave --prior out, or give the model of a run with prior: em")
        plain = Classifier(replace(self.model, correction=None), self.device)
        p = [plain.outputs(each) for part in parts for each in torch.split(part, rows_of(part))]
        by = correction(shares, torch.cat(p) if p else self.none())
        return Classifier(replace(self.model, correction=by), self.device)

    def none(self) -> Tensor:
        """Probabilities of no rows (0, classes)."""
        return torch.zeros(0, self.world.classes)


def rows_in(given: object, world: World) -> Tensor:
    """A tensor or an array as float32, or int64 of token ids. Raises DataRefused for anything else."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "biuf":
        given = torch.from_numpy(np.ascontiguousarray(given))
    if not isinstance(given, Tensor) or given.is_complex():
        what = f"The rows are a {type(given).__name__}, and not an array of numbers"
        raise DataRefused(what, "Give a tensor or an array (n, inputs)")
    if world.tokens and given.is_floating_point():
        what = f"The rows are {str(given.dtype).removeprefix('torch.')}; the model takes token ids, whole numbers"
        raise DataRefused(what, "Give an array (n, inputs) of int64")
    return given.to(dtype_of(world))


def check_tokens(x: Tensor, world: World) -> None:
    """Raises DataRefused, with the row, for token ids that are not of the vocabulary."""
    bad = ((x < 0) | (x >= world.vocabulary)).flatten(1).any(1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise DataRefused(f"Row {row}: {beyond(x[row], world.vocabulary)}", "Correct or remove such rows", row=row)


def load(
    path: Path | str, device: str = "cpu", networks: Mapping[str, registry.Build] | Iterable[str] | None = None
) -> Classifier:
    """The model of a file as a module, ready to predict. Raises DataRefused for a file that is none.

    networks: of a network of your own, its function by name, or its place MODULE:NAME.

    >>> import pathlib, tideline
    >>> from tideline import nets
    >>> from tideline.core.run import World
    >>> from tideline.learning.model_file import Model, packed
    >>> world = World(inputs=(4,), classes=2, model="mlp")
    >>> model = Model(world, nets.weights_of(nets.build(world)))
    >>> written = pathlib.Path("model.safetensors").write_bytes(packed(model))
    >>> tideline.load("model.safetensors").class_names
    ('0', '1')
    """
    with registry.beside(networks):
        return Classifier(read_model(path), device_of(device))


def device_of(name: str) -> str:
    """Where to compute; `auto`: a GPU if there is one. Raises ConfigRefused for a device that is not there."""
    if name == AUTO:
        return chosen(name)
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigRefused(f"There is no device {name!r} here", "Use --device cpu, or auto", path="device") from None
    return name


@dataclass
class Tally:
    """Predictions counted against labels."""

    classes: int
    rows: int = 0
    counts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.counts = torch.zeros(self.classes, self.classes, dtype=torch.int64)  # by label and prediction

    def add(self, y: Tensor, predicted: Tensor) -> None:
        """Count rows. y (b,), -1 without a label; predicted (b,)."""
        known = y >= 0
        self.rows += len(y)
        places = y[known] * self.classes + predicted[known]
        self.counts += torch.bincount(places, minlength=self.classes**2).view(self.classes, self.classes)

    def scores(self, names: Sequence[str]) -> dict[str, Plain]:
        """Rows, those with a label, and if there are any the accuracy and each class's recall, with intervals."""
        right, of = self.counts.diagonal().tolist(), self.counts.sum(1).tolist()
        scored: dict[str, Plain] = {"rows": self.rows, "labelled": sum(of)}
        if not sum(of):
            return scored
        recall: dict[str, Plain] = {name: share(a, n) for name, a, n in zip(names, right, of, strict=True) if n}
        return {**scored, "accuracy": share(sum(right), sum(of)), "recall": recall}


def share(right: int, of: int) -> dict[str, Plain]:
    """A share with its rows and Wilson's 95 % interval."""
    low, high = wilson(right, of)
    return {"value": right / of, "rows": of, "low": low, "high": high}


def predict_data(
    model: Classifier, data: Path | str, out: Path, held_out: bool = False, part: str = "", prior: Prior = Prior.SOURCE
) -> dict[str, Plain]:
    """Predict rows into a CSV file, which appears whole or not at all; the scores, where rows have labels.

    Of a model that normalises by the rows that it is given, all rows of the data are read twice; with the prior `em` once more.

    data: a folder, or python:MODULE:NAME. held_out: only rows that training never sees. part: of what a function gives.
    The columns: domain, row, class, and a probability for each class. Raises DataRefused, ConfigRefused.
    """
    place = place_in(data)
    if place is None:
        check_no_part(part)

    def rows() -> Iterator[Part]:
        return scan(Path(data), model.world) if place is None else scan_python(place, model.world, part, held_out)

    if model.model.by_given:
        model = model.normalising_by(each.x for each in rows())
    if prior is Prior.EM:
        model = model.correcting_by(each.x for each in rows())
    temporary = out.with_name(f".{out.name}.tmp")
    tally = Tally(model.world.classes)
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            for each, found in predicted(model, rows(), held_out, file):
                tally.add(torch.from_numpy(each.y[each.held]) if held_out else torch.from_numpy(each.y), found.classes)
        if not tally.rows:
            raise DataRefused(f"{data} holds no row to predict", "Leave --held-out out, or correct the data", path=str(data))
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return {"file": str(out), **tally.scores(model.class_names)}


def predicted(model: Classifier, rows: Iterator[Part], held_out: bool, file: TextIO) -> Iterator[tuple[Part, Predictions]]:
    """Each part of some data with its predictions, which are then in the file."""
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["domain", "row", "class", *(f"p({name})" for name in model.class_names)])
    for part in rows:
        wanted = [i for i in range(len(part.y)) if part.held[i] or not held_out]
        found = model.predict(part.x[wanted])
        for i, name, p in zip(wanted, found.names, found.probabilities.tolist(), strict=True):
            lines.writerow([part.domain, part.names[i], name, *(f"{each:.{DIGITS}g}" for each in p)])
        yield part, found
