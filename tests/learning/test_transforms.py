"""Raw arrays become the world's inputs, normalised where the world says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file
from torch import Tensor

import tideline
from tests.frozen.played import FEATURES, begun, drawn
from tests.learning.test_model_file import changed, model
from tests.synthetic import sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.client.answers import RunResult
from tideline.core.asked.normalise import Normalise, Place, Scaling
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused, Refused
from tideline.core.rows import MemoryRows
from tideline.core.run import Role, RunId
from tideline.core.settings import parse
from tideline.core.step import View
from tideline.experiments.simulation import models_of
from tideline.learning.exporting import export_model
from tideline.learning.formats.transforms import PLAIN, Transform, prepare
from tideline.learning.model_file import Model, packed, read_model, weights_for
from tideline.learning.normalising import Normaliser, constants, normalised, own_statistics
from tideline.learning.prediction import Classifier, predict_data
from tideline.learning.rows.decoded import DecodedRows
from tideline.learning.weights import read_weights

GREY, RGB = (1, 28, 28), (3, 28, 28)


@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]))),
    st.tuples(st.sampled_from([1, 3]), st.integers(1, 40), st.integers(1, 40)),
)
def test_any_image_fits_any_world(x: np.ndarray, inputs: tuple[int, int, int]) -> None:
    """Images of every size and colour come out as contiguous float32 of the world's shape, between 0 and 1."""
    out = prepare(x, inputs)
    assert out.shape == (len(x), *inputs)
    assert out.dtype == torch.float32
    assert out.is_contiguous()
    assert torch.equal(out, out.clamp(0.0, 1.0))


@given(st.integers(0, 255), st.integers(1, 40), st.sampled_from([1, 3]))
def test_flat_images_keep_their_value(value: int, side: int, channels: int) -> None:
    """Resizing and changing colours leave an even grey area as it was."""
    out = prepare(np.full((2, side, side), value, np.uint8), (channels, 28, 28))
    assert torch.allclose(out, torch.tensor(value / 255), atol=1e-5)


def test_images_of_the_right_size_are_only_scaled() -> None:
    """Where the size fits, pixels are the raw values divided by 255, to the bit."""
    x = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert torch.equal(prepare(x, (1, 16, 16))[0, 0], torch.arange(256.0).reshape(16, 16) / 255)


def test_shrinking_averages() -> None:
    """Antialiasing: shrinking a fine checkerboard gives grey, not one of its two colours."""
    x = (np.indices((21, 21)).sum(axis=0) % 2 * 255).astype(np.uint8)[None]
    assert torch.allclose(prepare(x, (1, 7, 7)), torch.tensor(0.5), atol=0.1)


def test_colours_become_grey_by_rec_601() -> None:
    """Pure red, green and blue have the published weights, to the nearest of 256 shades."""
    x = np.zeros((3, 4, 4, 3), np.uint8)
    for i in range(3):
        x[i, :, :, i] = 255
    assert torch.allclose(prepare(x, (1, 4, 4))[:, 0, 0, 0], torch.tensor([0.299, 0.587, 0.114]), atol=0.5 / 255)


def test_grey_becomes_colour_by_repeating() -> None:
    out = prepare(np.random.default_rng(0).integers(0, 256, (2, 28, 28)).astype(np.uint8), RGB)
    assert torch.equal(out[:, 0], out[:, 1]) and torch.equal(out[:, 1], out[:, 2])


def test_channels_are_moved_to_the_front() -> None:
    x = np.zeros((1, 28, 28, 3), np.uint8)
    x[..., 0] = 255
    assert prepare(x, RGB).mean(dim=(0, 2, 3)).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float64, ">f4"])
def test_scale_is_the_raw_value_of_white(dtype: Any) -> None:
    """With scale = 16 the value 16 becomes 1.0, whatever the array's type."""
    out = prepare(np.full((2, 8, 8), 16, dtype), GREY, Transform(scale=16.0))
    assert torch.allclose(out, torch.tensor(1.0))


def test_floats_are_taken_as_they_are() -> None:
    assert torch.allclose(prepare(np.full((2, 8, 8), 0.25), GREY), torch.tensor(0.25))


def test_small_overshoot_is_cut() -> None:
    """Pixels a little outside the range, as sharp resizing leaves them, are clipped and not refused."""
    out = prepare(np.array([[[-0.02, 1.02]]], np.float32), (1, 1, 2))
    assert out.flatten().tolist() == [0.0, 1.0]


def test_invert_swaps_black_and_white() -> None:
    assert prepare(np.zeros((2, 28, 28), np.uint8), GREY, Transform(invert=True)).eq(1.0).all()


def test_mean_and_std_come_last() -> None:
    """Per channel: (value - mean) / std, after scaling and inverting."""
    transform = Transform(invert=True, mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    assert prepare(np.zeros((1, 28, 28), np.uint8), RGB, transform)[0, :, 0, 0].tolist() == [1.0, 1.0, 0.0]


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_features_pass_unchanged(x: np.ndarray) -> None:
    assert np.array_equal(prepare(x, (4,)).numpy(), x)


def test_features_keep_whole_numbers() -> None:
    """uint8 features, such as counts of words, are not divided by 255."""
    assert prepare(np.array([[0, 200]], np.uint8), (2,)).tolist() == [[0.0, 200.0]]


def test_features_may_be_standardised() -> None:
    assert prepare(np.array([[1.0, 6.0]]), (2,), Transform(mean=(1.0, 2.0), std=(1.0, 4.0))).tolist() == [[0.0, 1.0]]


def test_the_raw_array_is_left_alone() -> None:
    x = np.full((2, 28, 28), 0.5, np.float32)
    prepare(x, GREY, Transform(scale=2.0)).zero_()
    assert np.all(x == 0.5)


REFUSALS: list[tuple[np.ndarray, tuple[int, ...], Transform, str]] = [
    (np.zeros((2, 5), np.float32), (4,), PLAIN, "5; the world expects 4 features"),
    (np.zeros((2, 8, 8), np.float32), (64,), PLAIN, "8 x 8; the world expects 64 features"),
    (np.zeros((2, 64), np.float32), GREY, PLAIN, "64; the world expects images"),
    (np.zeros((2, 3, 8, 8), np.uint8), GREY, PLAIN, "channels last"),
    (np.zeros((2, 8, 8, 4), np.uint8), GREY, PLAIN, "8 x 8 x 4"),
    (np.zeros((2, 0, 8), np.uint8), GREY, PLAIN, "0 x 8"),
    (np.zeros((2, 8, 8), np.uint16), GREY, PLAIN, "whose white is unknown"),
    (np.zeros((2, 8, 8), complex), GREY, PLAIN, "not numbers"),
    (np.array([["a"], ["b"]]), (1,), PLAIN, "not numbers"),
    (np.full((2, 8, 8), 7.0), GREY, PLAIN, "pixels outside 0 to 1, the scale"),
    (np.full((2, 8, 8), -1.0), GREY, PLAIN, "pixels outside 0 to 1"),
    (np.array([[1.0], [np.nan]]), (1,), PLAIN, "first in row 1"),
    (np.array([[1.0], [-np.inf]]), (1,), PLAIN, "first in row 1"),
    (np.array([[1e300]]), (1,), PLAIN, "too large for float32"),
    (np.array([[1e30]]), (1,), Transform(std=(1e-9,)), "too large for float32"),
    (np.zeros((2, 4)), (4,), Transform(invert=True), "invert"),
    (np.zeros((2, 8, 8)), RGB, Transform(mean=(0.1, 0.2)), "mean has 2 numbers"),
    (np.zeros((2, 8, 8)), (2, 8, 8), PLAIN, "the world's inputs are 2 x 8 x 8"),
]


@pytest.mark.parametrize(("x", "inputs", "transform", "said"), REFUSALS)
def test_refusals(x: np.ndarray, inputs: tuple[int, ...], transform: Transform, said: str) -> None:
    """Arrays that do not fit are refused, with what was found and what to do."""
    with pytest.raises(DataRefused) as refusal:
        prepare(x, inputs, transform)
    assert said in refusal.value.what
    assert refusal.value.todo


@pytest.mark.parametrize("table", [{"scale": 0}, {"scale": -1}, {"std": [0.0]}, {"invert": 1}, {"mean": 0.5}, {"gamma": 2}])
def test_bad_settings_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigRefused):
        parse(Transform, table)


IMAGES = World(inputs=(3, 8, 8), classes=3, model="lenet")
TABLE = World(inputs=(4,), classes=2, model="mlp")
SCALES = torch.tensor([0.01, 1.0, 4e6, 1.0])


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def of(world: World, kind: Scaling, x: Tensor | None = None) -> Model:
    """A model that was drawn, which normalises by rows x, or by those that it will be given."""
    by = constants(Normalise(kind)) if x is None else own_statistics([x], kind, x.shape[1])
    return replace(model(world), scaling=Normalise(kind), statistics=by)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sites", "should be one of none, shared, site, site_whiten, imagenet, given (did you mean site?)"),
        ({"kind": "site", "where": "inputs"}, "world.normalise.where is not a known setting"),
        ("site_whiten", "which is for vectors, and the rows are images"),
        ({"kind": "site", "at": "features"}, "the whole network trains"),
        ({"mean": [0.5], "std": [1.0, 1.0, 1.0]}, "has 1 means and 3 spreads for 3 channels"),
        ({"mean": [0.5] * 3, "std": [1.0, 0.0, 1.0]}, "std has 0; a spread is above 0"),
        ({"kind": "site", "mean": [0.5] * 3, "std": [1.0] * 3}, "is site, and has constants beside"),
        ("given", "has 0 means and 0 spreads"),
    ],
)
def test_what_a_world_cannot_normalise_by(given: Any, words: str) -> None:
    with pytest.raises(ConfigRefused) as refusal:
        world_in({"inputs": [3, 8, 8], "classes": 3, "normalise": given})
    assert words in str(refusal.value) and refusal.value.context["path"].startswith("world.normalise")


def test_imagenet_is_for_three_channels() -> None:
    with pytest.raises(ConfigRefused, match="for images of 3 channels"):
        world_in({"inputs": [1, 8, 8], "classes": 3, "normalise": "imagenet"})


@pytest.mark.parametrize(
    "given", ["none", "site", "imagenet", {"mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 3.0]}, {"kind": "site"}]
)
def test_a_world_is_written_as_it_was_read(given: Any) -> None:
    world = world_in({"inputs": [3, 8, 8], "classes": 3, "normalise": given})
    assert world_in(plain_world(world)) == world
    assert "normalise" not in plain_world(World()) and World().scaling.kind is Scaling.NONE


def test_constants_are_those_of_each_channel() -> None:
    x, by = rows(5, 3, 8, 8), constants(Normalise(Scaling.IMAGENET))
    assert by is not None and torch.allclose(normalised(x, by)[:, 1], (x[:, 1] - 0.456) / 0.224)
    own = own_statistics([x[:2], x[2:]], Scaling.SITE, 3)
    z = normalised(x, own)
    assert torch.allclose(z.mean((0, 2, 3)), torch.zeros(3), atol=1e-5) and torch.allclose(
        z.std((0, 2, 3)), torch.ones(3), atol=0.01
    )


@pytest.mark.parametrize("kind", [Scaling.SITE, Scaling.SITE_WHITEN])
def test_batches_and_whole_are_the_same_bytes(kind: Scaling) -> None:
    """Whether rows lie in memory or are decoded, and in whichever batches they are read."""
    x = rows(700, 4) * SCALES
    by = Normaliser(own_statistics([x], kind, 4))
    lazy = by.rows(DecodedRows(len(x), (4,), lambda i: x[i], numbers=True))
    picked = torch.tensor([3, 3, 699, 0])
    assert torch.equal(lazy.all(), by.rows(MemoryRows(x)).all()) and lazy.plain
    assert torch.equal(lazy.batch(picked), lazy.all()[picked])
    assert torch.allclose(lazy.all().std(0), torch.ones(4), atol=0.2)


@pytest.mark.parametrize("rows_", [0, 1])
def test_one_row_has_no_spread(rows_: int) -> None:
    with pytest.raises(DataRefused, match=f"Of {rows_} rows there is no mean and spread"):
        own_statistics([rows(rows_, 4)], Scaling.SITE, 4)


@pytest.mark.parametrize("kind", [pytest.param(Scaling.SITE, marks=pytest.mark.nightly(job="numbers")), Scaling.SITE_WHITEN])
def test_a_model_with_its_statistics_inside(tmp_path: Path, kind: Scaling) -> None:
    """Written and read, in torch and ONNX, it predicts raw rows as its network does normalised ones."""
    pytest.importorskip("onnxscript")
    import onnxruntime

    x = rows(50, 4) * SCALES
    made = of(TABLE, kind, x)
    (file := tmp_path / "m.safetensors").write_bytes(packed(made))
    read = read_model(file)
    assert packed(read) == packed(made) and not read.by_given
    assert made.statistics is not None
    expected = nets.loaded(TABLE, made.weights)(normalised(x, made.statistics)).softmax(1).detach()
    assert torch.equal(tideline.load(file).predict(x).probabilities, expected)
    export_model(read, tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert torch.allclose(torch.from_numpy(session.run(["probabilities"], {"x": x.numpy()})[0]), expected, atol=1e-5)
    export_model(read, tmp_path / "m.pt", "torch")
    assert read_weights(tmp_path / "m.pt").keys() == load_file(file).keys()


@pytest.mark.nightly(job="numbers")
def test_images_in_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    made = of(IMAGES, Scaling.IMAGENET)
    export_model(made, tmp_path / "m.onnx", "onnx")  # which compares the two
    assert made.statistics is not None and (tmp_path / "m.onnx").exists()


def test_a_model_that_normalises_by_what_it_is_given(tmp_path: Path) -> None:
    """All of it, in two passes; one row is refused, and ONNX has no place for it."""
    made, x = of(TABLE, Scaling.SITE), rows(50, 4) * SCALES
    (file := tmp_path / "m.safetensors").write_bytes(packed(made))
    ready = tideline.load(file)
    assert ready.model.by_given
    expected = Classifier(of(TABLE, Scaling.SITE, x)).predict(x).probabilities
    assert torch.equal(ready.predict(x).probabilities, expected) and not len(ready.predict(x[:0]).names)
    (folder := tmp_path / "data").mkdir()
    lines = [",".join(map(str, each)) for each in x.tolist()]
    (folder / "rows.csv").write_text("\n".join(["a,b,c,d", *lines]) + "\n")
    predict_data(ready, folder, out := tmp_path / "rows.out.csv")
    said = [float(line.split(",")[3]) for line in out.read_text().splitlines()[1:]]
    assert torch.allclose(torch.tensor(said), expected[:, 0], atol=1e-5)
    with pytest.raises(DataRefused, match="Of 1 rows there is no mean and spread"):
        ready.predict(x[:1])
    with pytest.raises(Refused, match="normalises by the rows that it is given") as refusal:
        export_model(made, tmp_path / "m.onnx", "onnx")
    assert "Export a site's own model at the site" in refusal.value.todo


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda about: about["normalisation"].update(kind="other"), "normalisation.kind"),
        (lambda about: about["normalisation"].pop("at"), "normalisation.at is missing"),
        (lambda about: about["normalisation"].update(by="rows"), "missing, unknown or of another shape"),
        (lambda about: about.update(normalisation=None), "missing, unknown or of another shape"),
        (lambda about: about["world"].update(inputs=[5]), "not of 5 numbers"),
    ],
)
def test_its_metadata_are_read_strictly(tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str) -> None:
    (file := tmp_path / "m.safetensors").write_bytes(packed(of(TABLE, Scaling.SITE, rows(9, 4))))
    changed(file, change)
    with pytest.raises(DataRefused) as refused:
        read_model(file)
    assert words in refused.value.what


def test_weights_are_of_rows_that_were_normalised_alike() -> None:
    made = of(TABLE, Scaling.SITE, rows(9, 4))
    assert weights_for(replace(TABLE, normalise=Normalise(Scaling.SITE)), made) is made.weights
    with pytest.raises(ConfigRefused, match="normalise: site; world"):
        weights_for(TABLE, made)


FIVE: Mapping[str, Any] = {"mean": [0.5] * 64, "std": [2.0] * 64, "at": "features"}


@pytest.mark.parametrize("kind", ["site", "site_whiten", FIVE], ids=["site", "site_whiten", "constants"])
def test_features_of_a_frozen_encoder(kind: Any) -> None:
    """They are normalised behind it; the model normalises them there, and is right on as many rows as the result says."""
    by = kind if isinstance(kind, dict) else {"kind": kind, "at": "features"}
    federation, run = begun(drawn(), world={**FEATURES, "normalise": by})
    result: Any = federation.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["world"]["normalise"] == by
    ((_, made),) = models_of(federation, RunId(run), cast(RunResult, result), METHODS)
    assert made.scaling.at is Place.FEATURES and made.by_given == (by is not FIVE)
    for client in result["clients"]:
        site = sites()[client["name"]].open_site_data(World(inputs=(8,)), Role.TARGET)
        held, ready = site.view(View.HELD_OUT, Role.TARGET), Classifier(made)
        if made.by_given:
            ready = ready.normalising_by([site.view(View.LEARN, Role.TARGET).x.all()])
        assert int((ready.predict(held.x.all()).classes == held.y).sum()) == round(client["accuracy"] * len(held))


def test_features_there_are_none_of() -> None:
    """Where layers of the encoder train; and constants for another number of them."""
    with pytest.raises(ConfigRefused, match="layers before the head train"):
        begun(drawn(), world={**FEATURES, "normalise": {"kind": "site", "at": "features"}}, trains=["features.*"])
    with pytest.raises(ConfigRefused, match="2 constants, and the encoder of mlp gives 64 features"):
        begun(drawn(), world={**FEATURES, "normalise": {"mean": [0.0, 0.0], "std": [1.0, 1.0], "at": "features"}})
