"""Weights that a person brings in a file: read without running code from it, held to the network, or refused with reasons."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.nets.foreign import Convolutions
from tests.numerics.examples import for_all
from tideline import nets
from tideline.core.asked.world import World, world_in
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.learning.backbones import start
from tideline.learning.weights import differences, fitted, read_weights
from tideline.nets import registry

WORLD = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")
SUFFIXES = pytest.mark.parametrize("suffix", [".safetensors", ".pth"])


def weights(world: World = WORLD) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return nets.weights_of(nets.build(world))


def write(path: Path, held: Any) -> Path:
    if path.suffix == ".safetensors":
        save_file(held, path)
    else:
        torch.save(held, path)
    return path


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Equal names, in their order, dtypes and bits."""
    return list(a) == list(b) and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def refused(path: Path, said: str) -> DataRefused:
    """The file is refused with these words, its path and something to do; the refusal."""
    with pytest.raises(DataRefused) as refusal:
        read_weights(path)
    error = refusal.value
    assert said in error.what, error.what
    assert str(path) in error.what and error.context["path"] == str(path) and error.todo
    assert "weights_only" not in str(error), "torch's advice to run the file's code"
    return error


@SUFFIXES
def test_a_file_gives_what_was_saved(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"net{suffix}", weights())
    read = read_weights(str(path))
    assert same(fitted(WORLD, read), weights()) and read.keys() == weights().keys()


def test_an_old_file_of_torch_is_read(tmp_path: Path) -> None:
    """What torch saved before it wrote archives, as many published weights are."""
    torch.save(weights(), tmp_path / "net.pth", _use_new_zipfile_serialization=False)
    assert same(read_weights(tmp_path / "net.pth"), weights())


def test_a_compressed_archive_is_read(tmp_path: Path) -> None:
    """An archive that was packed anew is not mapped, which would give the packed bytes as numbers."""
    kept, packed = write(tmp_path / "kept.pth", weights()), tmp_path / "packed.pth"
    with zipfile.ZipFile(kept) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    assert same(read_weights(packed), weights())


def test_parameters_are_tensors(tmp_path: Path) -> None:
    """A dict of parameters is read as one of tensors, which ask for no gradient."""
    read = read_weights(write(tmp_path / "net.pth", dict(nets.build(WORLD).named_parameters())))
    assert not any(isinstance(w, nn.Parameter) or w.requires_grad for w in read.values())


@pytest.mark.parametrize("name", ["state_dict", "model", "net"])
def test_a_state_dict_inside_is_found(tmp_path: Path, name: str) -> None:
    optimiser = torch.optim.SGD(nets.build(WORLD).parameters(), lr=0.1, momentum=0.9).state_dict()
    held = {"epoch": 3, name: weights(), "optimizer": optimiser, "notes": {}, "best": None}
    assert same(read_weights(write(tmp_path / "net.tar", held)), weights())


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"model": {"a": torch.ones(1)}, "ema": {"a": torch.ones(1)}}, "holds 2 state dicts: 'model', 'ema'"),
        ({"model": {"a": torch.ones(1)}, "b": torch.ones(1)}, "'model' is a dict, not a tensor"),
        ({"a": torch.ones(1), "b": 2.5}, "'b' is a float, not a tensor"),
        ({"net": {"inner": {"a": torch.ones(1)}}}, "'net' is a dict, not a tensor"),
        ({1: torch.ones(1)}, "under 1, which is not a name"),
        ({}, "holds no tensors"),
        ([torch.ones(1)], "holds a list, not a state dict"),
        (torch.ones(3), "holds a Tensor, not a state dict"),
        ({"a": torch.tensor([1.0, float("nan")])}, "a holds a NaN or an infinity"),
        ({"a": torch.tensor([float("-inf")])}, "a holds a NaN or an infinity"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "a is not a plain tensor"),
        ({"a": torch.ones(2, device="meta")}, "a is not a plain tensor"),
        ({"a": torch.ones(1).expand(10**13)}, "a is not a plain tensor"),
        ({"a": torch.ones(2).to(torch.float8_e5m2)}, "a is not a plain tensor"),
    ],
)
def test_what_is_no_state_dict(tmp_path: Path, held: Any, said: str) -> None:
    refused(write(tmp_path / "net.pth", held), said)


def test_numbers_of_a_safetensors_file_are_finite_too(tmp_path: Path) -> None:
    refused(write(tmp_path / "net.safetensors", {"a": torch.tensor([float("nan")])}), "a holds a NaN")


@SUFFIXES
def test_what_is_no_file(tmp_path: Path, suffix: str) -> None:
    refused(tmp_path / f"none{suffix}", "no such file")
    (tmp_path / f"folder{suffix}").mkdir()
    refused(tmp_path / f"folder{suffix}", "not a file")
    refused(tmp_path / f"{'n' * 300}{suffix}", "cannot be read")


@SUFFIXES
@for_all(40, data=st.data())
def test_a_file_that_was_cut(tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = write(folder / f"whole{suffix}", {"a": torch.ones(20), "b": torch.zeros(2, 3)}).read_bytes()
    path = folder / f"cut{suffix}"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    refused(path, "cannot be read as a s")


@SUFFIXES
@for_all(60, data=st.data())
def test_damage_is_refused_or_harmless(tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject) -> None:
    """Any byte may be another: then there are finite tensors, or a refusal, and nothing else."""
    folder = tmp_path_factory.mktemp("damaged")
    path = write(folder / f"net{suffix}", {"a": torch.ones(20), "b": torch.zeros(2, 3)})
    held = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(held)
    try:
        read = read_weights(path)
    except DataRefused as error:
        assert error.context["path"] == str(path)
    else:
        assert all(bool(torch.isfinite(w).all()) for w in read.values())


@pytest.mark.parametrize("held", [b"", b"weights", b"PK\x05\x06" + bytes(18), b"\x89PNG\r\n\x1a\n", bytes(100)])
@SUFFIXES
def test_what_is_another_kind_of_file(tmp_path: Path, suffix: str, held: bytes) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_bytes(held)
    refused(path, "cannot be read as a s")


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    """A pickle that makes a folder when it is opened, bare and in an archive of torch's; a whole network, which is code."""
    made = tmp_path / "made"
    hostile = f"cos\nmkdir\n(S'{made}'\ntR.".encode()
    bare = tmp_path / "bare.pth"
    bare.write_bytes(hostile)
    refused(bare, "(UnpicklingError)")
    kept, packed = write(tmp_path / "kept.pth", weights()), tmp_path / "packed.pth"
    with zipfile.ZipFile(kept) as old, zipfile.ZipFile(packed, "w") as new:
        for member in old.infolist():
            new.writestr(member.filename, hostile if member.filename.endswith("data.pkl") else old.read(member))
    refused(packed, "(UnpicklingError)")
    refused(write(tmp_path / "net.pth", nets.build(WORLD)), "(UnpicklingError)")
    assert not made.exists()


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda w: {n: t for n, t in w.items() if n != name}


def test_what_fits_has_no_differences() -> None:
    w = weights()
    assert differences(WORLD, w) == ()
    assert differences(WORLD, {name: w[name].double() for name in reversed(w)}) == ()


def test_differences_stand_in_the_networks_order() -> None:
    """What is missing or has another shape by the network's names, then what it does not have."""
    w = without("features.backbone.3.bias")(weights(World(inputs=(3, 8, 8), classes=7, model="lenet_bn")))
    assert differences(WORLD, {"extra": torch.ones(2), **w}) == (
        "features.backbone.0.weight is 16 x 3 x 5 x 5; the network has: 16 x 1 x 5 x 5",
        "features.backbone.3.bias is missing, which is 32",
        "classifier.weight is 7 x 128; this world has 3 classes: 3 x 128",
        "classifier.bias is 7; this world has 3 classes: 3",
        "extra is not in the network",
    )


def test_fitted_names_three_and_counts_the_rest() -> None:
    with pytest.raises(ConfigRefused) as refusal:
        fitted(WORLD, {"extra": torch.ones(2)})
    what, count = refusal.value.what, len(weights()) + 1
    assert what.startswith("The weights do not fit lenet_bn: features.backbone.0.weight is missing")
    assert what.count("is missing") == 3 and what.endswith(f"; and {count - 3} more")
    assert refusal.value.todo and refusal.value.context["path"] == "world.model"
    with pytest.raises(ConfigRefused) as refusal:
        fitted(WORLD, weights() | {"extra": torch.ones(2)})
    assert refusal.value.what == "The weights do not fit lenet_bn: extra is not in the network"


def test_a_world_without_a_network_is_refused() -> None:
    for asked in (differences, fitted, start):
        with pytest.raises(ConfigRefused) as refusal:
            asked(World(model="lenett"), weights())
        assert refusal.value.context["path"] == "world.model"


def test_fitted_gives_the_networks_order_and_dtypes() -> None:
    """Half or double precision becomes the network's; a network can be filled with it."""
    w = weights()
    given = {name: w[name].to(torch.float64 if w[name].is_floating_point() else torch.int32) for name in reversed(w)}
    got = fitted(WORLD, given)
    assert same(got, w)
    assert same(nets.weights_of(nets.loaded(WORLD, got)), w)


def test_fitted_is_a_copy(tmp_path: Path) -> None:
    """Neither the file nor the given tensors change it, nor does it change them; views are laid out anew."""
    w = weights() | {"features.bottleneck.linear.weight": weights()["features.bottleneck.linear.weight"].T.contiguous().T}
    got = fitted(WORLD, w)
    assert all(t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes for t in got.values())
    assert not any(got[name].data_ptr() == w[name].data_ptr() for name in w)
    path = write(tmp_path / "net.pth", weights())
    kept = fitted(WORLD, read_weights(path))
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert same(kept, weights())


def test_numbers_that_the_network_cannot_hold() -> None:
    w = weights()
    w["classifier.bias"] = torch.tensor([0.0, 1e300, 0.0], dtype=torch.float64)
    with pytest.raises(ConfigRefused, match=r"classifier.bias holds a number that torch.float32 cannot"):
        fitted(WORLD, w)


def test_an_exported_state_with_one_model_is_a_file_of_weights(tmp_path: Path) -> None:
    """Without the fields that it lay in; of two models, whose names would be the same, nothing is taken for the other."""
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    save_file({"f/features.1.weight": torch.ones(2), "g/classifier.weight": torch.zeros(3)}, one)
    assert set(read_weights(one)) == {"features.1.weight", "classifier.weight"}
    save_file({"models/0/features.1.weight": torch.ones(2), "models/1/features.1.weight": torch.zeros(2)}, two)
    assert all("/" in name for name in read_weights(two))


@pytest.fixture
def world() -> Iterator[World]:
    """A world of a network that the process adds."""
    registry.use(["tests.nets.foreign:convolutions"])
    yield world_in({"inputs": [1, 8, 8], "classes": 3, "model": "convolutions"})
    registry.use([])


def test_its_own_state_dict_is_taken(world: World) -> None:
    module = Convolutions(world)
    net = nets.loaded(world, fitted(world, module.state_dict())).eval()
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(net(x), module.eval()(x))


def test_so_are_the_names_that_a_run_has(world: World) -> None:
    weights = nets.weights_of(nets.build(world))
    assert all(torch.equal(each, weights[name]) for name, each in fitted(world, weights).items())


def test_differences_are_named_as_the_file_names_them(world: World) -> None:
    weights = dict(Convolutions(World(inputs=(1, 8, 8), classes=5), width=4).state_dict())
    del weights["norm.bias"]
    assert differences(world, weights) == (
        "norm.bias is missing, which is 4",
        "fc.weight is 5 x 4; this world has 3 classes: 3 x 4",
        "fc.bias is 5; this world has 3 classes: 3",
    )
    with pytest.raises(ConfigRefused, match=r"fc\.weight is 5 x 4"):
        fitted(world, weights)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.net."])
def test_a_prefix_of_all_names_is_named(world: World, prefix: str) -> None:
    """As DataParallel, torch.compile and Lightning put one before them."""
    state = {prefix + name: w for name, w in Convolutions(world).state_dict().items()}
    with pytest.raises(ConfigRefused, match=f"all names in the file begin with '{prefix}', which has to be taken off"):
        fitted(world, state)


def test_where_no_name_is_known_its_own_are_missing(world: World) -> None:
    with pytest.raises(ConfigRefused, match=r"fit convolutions: conv\.weight is missing"):
        fitted(world, {"hidden.weight": torch.ones(2, 2)})
