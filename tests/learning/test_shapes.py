"""Arrays of any shape: what becomes of them, what is refused and how, and which world is guessed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tideline
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.engine.compute.features import digest_of_rows
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import inspect
from tideline.learning.model_file import Model
from tideline.learning.prediction import Classifier, predict_data
from tideline.learning.sites.site import Site, holdings_of
from tideline.nets import build, weights_of

RNG = np.random.default_rng(0)
Y = np.arange(20) % 2
WORDS: Mapping[str, Any] = {"inputs": [12], "classes": 2, "model": "tokens", "dtype": "int64", "vocabulary": 50}


def tokens(**changed: Any) -> World:
    return world_in({**WORDS, **changed})


def ids() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 50, (20, 12))


def write(folder: Path, kind: str, x: np.ndarray[Any, Any]) -> None:
    """Save rows and labels as the domain `a`, in one .npz file or in two .npy files."""
    folder.mkdir(exist_ok=True)
    if kind == "npz":
        np.savez(folder / "a.npz", x=x, y=Y)
    else:
        np.save(folder / "a.npy", x)
        np.save(folder / "a.y.npy", Y)


def read(folder: Path, world: World, role: Role = Role.SOURCE, **more: Any) -> torch.Tensor:
    return read_folder(folder, world, role, **more).train.x.all()


@pytest.mark.parametrize("shape", [(6, 40), (2, 5, 6, 7), (2, 3, 4, 3, 4)], ids=["sequences", "volumes", "films"])
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_numbers_of_any_rank_stay_as_they_are(tmp_path: Path, shape: tuple[int, ...], kind: str) -> None:
    x = RNG.normal(size=(20, *shape)).astype(np.float32) * 100
    write(tmp_path, kind, x)
    world = World(inputs=shape, classes=2)
    rows = read(tmp_path, world)
    assert rows.shape == (16, *shape) and all(any(np.array_equal(row, each) for each in x) for row in rows.numpy())
    assert torch.equal(read(tmp_path, world, held=10), rows)


def test_a_single_channel_needs_no_axis(tmp_path: Path) -> None:
    x = RNG.normal(size=(20, 5, 6, 7))
    np.savez(tmp_path / "a.npz", x=x, y=Y)
    assert read(tmp_path, World(inputs=(1, 5, 6, 7), classes=2)).shape == (16, 1, 5, 6, 7)


@pytest.mark.parametrize(("dtype", "white"), [("uint8", 255), ("uint16", 65535), ("float32", 1)])
@pytest.mark.parametrize("layout", ["first", "last"])
def test_images_of_many_channels(tmp_path: Path, dtype: str, white: int, layout: str) -> None:
    """Channels are found where they fit, all stay, and whole numbers are scaled by what their type can hold."""
    x = RNG.integers(0, 200, (20, 5, 8, 8)).astype(dtype)
    np.savez(tmp_path / "a.npz", x=x if layout == "first" else np.moveaxis(x, 1, -1), y=Y)
    rows = read(tmp_path, World(inputs=(5, 8, 8), classes=2)).numpy()
    assert all(any(np.allclose(row, each / white) for each in x) for row in rows)
    assert read(tmp_path, World(inputs=(5, 4, 4), classes=2)).shape == (16, 5, 4, 4)


def test_where_channels_are_may_have_to_be_said(tmp_path: Path) -> None:
    x = RNG.integers(0, 200, (20, 8, 8, 8)).astype("uint8")
    np.savez(tmp_path / "a.npz", x=x, y=Y)
    world = World(inputs=(8, 8, 8), classes=2)
    with pytest.raises(DataRefused, match="first axis or the last") as refusal:
        read(tmp_path, world)
    assert 'layout = "first"' in refusal.value.todo
    (tmp_path / "transforms.toml").write_text('[a]\nlayout = "first"\n')
    first = read(tmp_path, world)
    (tmp_path / "transforms.toml").write_text('[a]\nlayout = "last"\n')
    assert torch.equal(read(tmp_path, world), first.permute(0, 3, 1, 2))


def test_colours_may_be_the_first_axis(tmp_path: Path) -> None:
    x = RNG.integers(0, 255, (20, 3, 8, 8)).astype("uint8")
    np.savez(tmp_path / "a.npz", x=x, y=Y)
    (tmp_path / "transforms.toml").write_text('[a]\nlayout = "first"\n')
    rows = read(tmp_path, World(inputs=(3, 8, 8), classes=2)).numpy()
    assert all(any(np.allclose(row, each / 255) for each in x) for row in rows)


@pytest.mark.parametrize("held", [1 << 20, 10])
@pytest.mark.parametrize("role", [Role.SOURCE, Role.TARGET])
def test_token_ids_are_never_floats(tmp_path: Path, held: int, role: Role) -> None:
    x = ids() + (1 << 21)
    write(tmp_path, "npy", x)
    data = read_folder(tmp_path, tokens(vocabulary=(1 << 21) + 50), role, held=held).train
    rows = data.x.all()
    assert data.x.dtype is rows.dtype is torch.int64 and data.x.at(torch.arange(3)).dtype is torch.int64
    assert all(any(np.array_equal(row, each) for each in x) for row in rows.numpy())


BAD: Mapping[str, tuple[np.ndarray[Any, Any], str]] = {
    "beyond": (np.where(np.arange(240).reshape(20, 12) == 50, 77, 1), "row 4: a token id is beyond the vocabulary, 0 to 49"),
    "negative": (np.where(np.arange(240).reshape(20, 12) == 50, -3, 1), "row 4: a token id is below 0"),
    "floats": (np.ones((20, 12)), "x holds float64; the world expects token ids"),
    "shape": (np.ones((20, 11), int), "a sample of x is 11; the world expects 12 token ids"),
    "rank": (np.ones((20, 3, 4), int), "a sample of x is 3 x 4; the world expects 12 token ids"),
    "huge": (np.full((20, 12), 2**63, np.uint64), "row 0: a token id is beyond"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_token_ids_are_refused_by_row(tmp_path: Path, name: str) -> None:
    x, said = BAD[name]
    np.savez(tmp_path / "a.npz", x=x, y=Y)
    with pytest.raises(DataRefused, match=said) as refusal:
        read(tmp_path, tokens())
    words = str(refusal.value).replace(str(tmp_path), "")
    assert "77" not in words and "-3" not in words and refusal.value.todo
    for train in ((x, Y), list(zip(x, Y, strict=True))):
        with pytest.raises(DataRefused):
            holdings_of(Site(train=train), tokens(), Role.SOURCE)


@pytest.mark.parametrize(
    ("x", "inputs", "said"),
    [
        (np.ones((20, 6, 41)), (6, 40), "a sample of x is 6 x 41; the world expects sequences of 6 x 40"),
        (np.ones((20, 8, 8, 9)), (1, 8, 8, 8), "a sample of x is 8 x 8 x 9; the world expects volumes of 1 x 8 x 8 x 8"),
        (np.ones((20, 8, 8, 8)), (6, 40), "the world expects sequences"),
        (np.ones((20, 240)), (6, 40), "a sample of x is 240"),
        (np.ones((20, 6, 40), complex), (6, 40), "not numbers"),
        (np.full((20, 6, 40), np.nan), (6, 40), "NaN or infinity, first in row 0"),
        (np.ones((20, 8, 8)), (4, 8, 8), "the world expects images of 4 x 8 x 8"),
        (np.ones((20, 8, 8, 4), np.int64), (4, 8, 8), "whose white is unknown"),
        (np.ones((20, 0, 8, 8)), (1, 8, 8, 8), r"x has the shape \(20, 0, 8, 8\)"),
        (np.ones(20), (6, 40), "a sample of x is a single number; the world expects sequences"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, x: np.ndarray[Any, Any], inputs: tuple[int, ...], said: str) -> None:
    for name in ("npz", "npy"):
        folder = tmp_path / name
        write(folder, name, x)
        with pytest.raises(DataRefused, match=said) as refusal:
            read(folder, World(inputs=inputs, classes=2))
        assert refusal.value.todo and "a.np" in str(refusal.value)


def test_volumes_of_several_shapes_in_one_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (4, 2)})
    with pytest.raises(DataRefused, match="samples of different sizes"):
        read(tmp_path, World(inputs=(1, 2, 2, 2), classes=2), Role.TARGET)


@pytest.mark.parametrize("text", ["scale = 2", "invert = true", 'layout = "first"', "mean = [0.5]"])
def test_settings_that_token_ids_have_no_use_for(tmp_path: Path, text: str) -> None:
    np.savez(tmp_path / "a.npz", x=ids(), y=Y)
    (tmp_path / "transforms.toml").write_text(f"[a]\n{text}\n")
    with pytest.raises(DataRefused, match="is set, but the samples are token ids"):
        read(tmp_path, tokens())


def test_npy_files_that_are_cut_off_or_pickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", RNG.normal(size=(20, 6, 40)))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-100])
    with pytest.raises(DataRefused, match="cannot be read as an"):
        read(tmp_path, World(inputs=(6, 40), classes=2), Role.TARGET)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (2, 3)})
    with pytest.raises(DataRefused, match="Python objects"):
        read(tmp_path, World(inputs=(6, 40), classes=2), Role.TARGET)


def test_what_lies_beside_an_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", RNG.normal(size=(20, 6, 40)))
    for key, value in (("y", Y), ("test_idx", np.arange(5)), ("validation_idx", np.arange(5, 8))):
        np.save(tmp_path / f"a.{key}.npy", value)
    report = inspect(tmp_path, None, None)
    (domain,) = report.domains
    assert (domain.name, domain.kind, domain.held_out, domain.validation) == ("a", ".npy", 5, 3)
    assert not report.ignored and report.usable


GUESSED: Mapping[str, tuple[np.ndarray[Any, Any], dict[str, Any]]] = {
    "sequences": (RNG.normal(size=(20, 6, 40)), {"inputs": [6, 40], "model": "conv1d"}),
    "pictures": (RNG.uniform(size=(20, 16, 16)), {"inputs": [1, 16, 16], "model": "lenet"}),
    "bytes": (RNG.integers(0, 255, (20, 9, 40)).astype("uint8"), {"inputs": [1, 9, 40], "model": "lenet"}),
    "bands": (RNG.integers(0, 255, (20, 9, 40, 7)).astype("uint8"), {"inputs": [7, 9, 40], "model": "lenet"}),
    "bands first": (RNG.uniform(size=(20, 7, 9, 40)), {"inputs": [7, 9, 40], "model": "lenet"}),
    "volumes": (RNG.normal(size=(20, 1, 9, 8, 9)), {"inputs": [1, 9, 8, 9], "model": "conv3d"}),
    "volumes without channels": (RNG.normal(size=(20, 24, 20, 24)), {"inputs": [1, 24, 20, 24], "model": "conv3d"}),
    "films": (RNG.normal(size=(20, 1, 2, 3, 2, 3)), {"inputs": [1, 2, 3, 2, 3], "model": "mlp"}),
    "token ids": (ids(), {"inputs": [12], "model": "tokens", "dtype": "int64", "vocabulary": 50}),
    "counts": (RNG.integers(0, 9, (20, 12)), {"inputs": [12], "model": "mlp"}),
    "amounts": (ids() * 10 ** (np.arange(12) % 4), {"inputs": [12], "model": "mlp"}),
}


@pytest.mark.parametrize("name", GUESSED)
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_a_world_is_guessed(tmp_path: Path, name: str, kind: str) -> None:
    x, expected = GUESSED[name]
    write(tmp_path, kind, x)
    report = inspect(tmp_path, None, None)
    assert report.world is not None and dict(report.world) == {**expected, "classes": 2, "sizes": {}}
    assert report.usable, report.refused


def test_a_world_of_numbers_is_written_as_before() -> None:
    assert plain_world(World(inputs=(4,))) == {"inputs": [4], "classes": 10, "model": "lenet", "sizes": {}}
    assert world_in(plain_world(tokens())) == tokens()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"inputs": []}, "has 0 sizes"),
        ({"inputs": [1] * 6}, "has 6 sizes"),
        ({"vocabulary": 0}, "world.vocabulary is missing"),
        ({"dtype": "float32"}, "rows are no token ids"),
        ({"dtype": "int32"}, "should be one of float32, int64"),
        ({"normalise": "shared"}, "rows are token ids"),
        ({"normalise": {"mean": [0.0], "std": [1.0]}}, "rows are token ids"),
    ],
)
def test_worlds_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigRefused, match=said):
        world_in({**WORDS, **changed})


def test_a_model_of_token_ids_predicts(tmp_path: Path) -> None:
    world = tokens()
    model = Classifier(Model(world, weights_of(build(world))))
    found = model.predict(ids())
    assert torch.equal(model.predict(torch.from_numpy(ids())).probabilities, found.probabilities)
    np.savez(tmp_path / "a.npz", x=ids(), y=Y)
    scores = predict_data(model, tmp_path, tmp_path / "out.csv")
    assert scores["rows"] == 20
    for x, said in ((ids() + 1.5, "takes token ids"), (ids() - 1, "Row .*: a token id is below 0"), (ids() + 9, "beyond")):
        with pytest.raises(DataRefused, match=said):
            model.predict(x)


def test_token_ids_of_a_program() -> None:
    x = np.where(Y[:, None] == 1, 3, 7) * np.ones((20, 6), int)
    world = {"model": "tokens", "dtype": "int64", "vocabulary": 9}
    sites = {"a": Site(train=(x, Y)), "b": Site(train=list(zip(torch.from_numpy(x), Y.tolist(), strict=True)))}
    run = tideline.simulate(method="fedavg", preset="tiny", sites=sites, world=world)
    assert run.result.data["status"] == "completed" and run.result.data["world"]["inputs"] == [6]


def test_digests_of_rows_tell_types_apart(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 12), int), y=Y)
    whole = read_folder(tmp_path, tokens(), Role.TARGET).train.x
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 24), np.float32), y=Y)
    floats = read_folder(tmp_path, World(inputs=(24,), classes=2), Role.TARGET).train.x
    assert digest_of_rows(whole) != digest_of_rows(floats)
