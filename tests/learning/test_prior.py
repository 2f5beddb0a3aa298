"""Models that correct what they predict for shares of the classes: in files, and by the rows that they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import tideline
from tests.learning.test_model_file import changed, model
from tideline import nets
from tideline.core.asked.normalise import Normalise, Scaling
from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.exporting import export_model
from tideline.learning.model_file import CORRECTION, SHARES, Model, Origin, packed, read_model, vote_of, weights_for
from tideline.learning.normalising import own_statistics
from tideline.learning.prediction import Classifier, predict_data
from tideline.learning.weights import read_weights
from tideline.numerics.labels.prior import reweighted, shifted_prior

TABLE = World(inputs=(4,), classes=3, model="mlp")
BY = torch.tensor([1.0, -2.0, 0.5])
EVEN = torch.full((3,), 1 / 3, dtype=torch.float64)
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))


def own() -> Model:
    return replace(model(TABLE), correction=BY)


def of_run() -> Model:
    return replace(model(TABLE), source_shares=EVEN)


def plain(x: Tensor = X) -> Tensor:
    return nets.loaded(TABLE, model(TABLE).weights)(x).detach()


def test_a_sites_model_has_its_correction_inside(tmp_path: Path) -> None:
    """Written and read, as a state dict and in ONNX; a run begins from its weights as they are."""
    (file := tmp_path / "m.safetensors").write_bytes(packed(own()))
    read = read_model(file)
    assert packed(read) == packed(own()) and weights_for(TABLE, read).keys() == own().weights.keys()
    assert torch.equal(tideline.load(file).predict(X).probabilities, (plain() + BY).softmax(1))
    export_model(read, tmp_path / "m.pt", "torch")
    assert read_weights(tmp_path / "m.pt").keys() == load_file(file).keys() > {CORRECTION}


@pytest.mark.nightly(job="numbers")
def test_in_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    import onnxruntime

    made = replace(own(), scaling=Normalise(Scaling.SITE), statistics=own_statistics([X], Scaling.SITE, 4))
    export_model(made, tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(["probabilities"], {"x": X.numpy()})[0])
    assert torch.allclose(found, Classifier(made).predict(X).probabilities, atol=1e-5)


def test_a_runs_model_corrects_by_the_rows_that_it_is_given(tmp_path: Path) -> None:
    """All of them, where it is asked to; without a word it predicts as it is."""
    (file := tmp_path / "m.safetensors").write_bytes(packed(of_run()))
    ready = tideline.load(file)
    p = plain().softmax(1)
    assert torch.equal(ready.predict(X).probabilities, p)
    expected = reweighted(p, EVEN, shifted_prior(p, EVEN)).float()
    assert torch.allclose(ready.correcting_by(X.split(7)).predict(X).probabilities, expected, atol=1e-5)
    assert torch.equal(ready.correcting_by([]).predict(X).probabilities, p)
    (folder := tmp_path / "data").mkdir()
    (folder / "rows.csv").write_text("\n".join(["a,b,c,d", *(",".join(map(str, row)) for row in X.tolist())]) + "\n")
    predict_data(ready, folder, out := tmp_path / "rows.out.csv", prior=Prior.EM)
    said = [float(line.split(",")[3]) for line in out.read_text().splitlines()[1:]]
    assert torch.allclose(torch.tensor(said), expected[:, 0], atol=1e-5)


def test_members_of_a_vote_correct_each_by_itself(tmp_path: Path) -> None:
    """Those that know the sources' shares; the others vote as they are."""
    (file := tmp_path / "m.safetensors").write_bytes(packed(vote_of([(0.5, of_run()), (0.5, own())], Origin())))
    expected = 0.5 * Classifier(of_run()).correcting_by([X]).predict(X).probabilities
    expected = expected + 0.5 * Classifier(own()).predict(X).probabilities
    assert torch.allclose(tideline.load(file).correcting_by([X]).predict(X).probabilities, expected, atol=1e-6)


@pytest.mark.parametrize(("made", "words"), [(own(), "corrected for its own site's already"), (model(TABLE), "its run had none")])
def test_models_that_do_not_know_the_sources_shares(made: Model, words: str) -> None:
    with pytest.raises(DataRefused, match=words):
        Classifier(made).correcting_by([X])


@pytest.mark.parametrize(
    ("made", "change", "words"),
    [
        (own(), lambda about: about["world"].update(classes=4), f"{CORRECTION} is not one of 4 classes"),
        (of_run(), lambda about: about["world"].update(classes=4), f"{SHARES} is not one of 4 classes"),
        (own(), lambda about: about.update(prior=False), "missing, unknown or of another shape"),
        (model(TABLE), lambda about: about.update(prior=True), "shares of classes that are not there"),
        (own(), lambda about: about.update(prior="em"), "prior"),
    ],
)
def test_its_metadata_are_read_strictly(
    tmp_path: Path, made: Model, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    (file := tmp_path / "m.safetensors").write_bytes(packed(made))
    changed(file, change)
    with pytest.raises(DataRefused) as refused:
        read_model(file)
    assert words in refused.value.what
