"""Reading a site's data folder, and refusing what cannot be used."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.numerics.examples import for_all
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import split_rows
from tideline.learning.formats.inspection import inspect
from tideline.learning.formats.transforms import prepare

WORLD = World(inputs=(1, 8, 8), classes=3)
VECTORS = World(inputs=(4,), classes=3)
DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def images(n: int = 10, side: int = 8) -> np.ndarray:
    """Images (n, side, side) uint8, all different."""
    return np.random.default_rng(n).integers(0, 256, (n, side, side)).astype(np.uint8)


def labels(n: int = 10) -> np.ndarray:
    return np.arange(n) % 3


def write(folder: Path, name: str = "a", **arrays: Any) -> Path:
    path = folder / f"{name}.npz"
    np.savez_compressed(path, **arrays)
    return path


def refused(folder: Path, said: str, role: Role = Role.SOURCE, world: World = WORLD, file: Path | None = None) -> None:
    """The folder is refused with these words, naming the file and what to do."""
    with pytest.raises(DataRefused) as refusal:
        read_folder(folder, world, role)
    assert said in refusal.value.what
    assert refusal.value.todo
    assert refusal.value.context["path"] == str(file or folder)
    assert str(file or folder) in refusal.value.what


def test_a_source_has_its_rows_and_labels(tmp_path: Path) -> None:
    """Rows, labels and domains of a source lie side by side, in the order of the file."""
    x, y = images(), labels()
    write(tmp_path, x=x, y=y)
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    for data, rows in zip((holdings.train, holdings.held_out), split_rows(10), strict=True):
        assert torch.equal(data.x.all(), prepare(x[rows], WORLD.inputs))
        assert data.y is not None and data.y.tolist() == y[rows].tolist()
        assert data.y.dtype == data.domain.dtype == torch.int64
        assert data.domains == ("a",)


def test_every_file_is_a_domain(tmp_path: Path) -> None:
    """Files are taken in the order of their names, images of different sizes become one; other files are ignored."""
    write(tmp_path, "b", x=images(20, side=5), y=labels(20))
    write(tmp_path, "a", x=images(10, side=16), y=labels(10))
    write(tmp_path, ".a", x=images(4))
    (tmp_path / "notes.txt").write_text("not data")
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    assert holdings.train.domains == holdings.held_out.domains == ("a", "b")
    assert holdings.train.domain.tolist() == [0] * 8 + [1] * 16
    assert holdings.held_out.domain.tolist() == [0] * 2 + [1] * 4
    assert holdings.train.x.all().shape == (24, 1, 8, 8)


def test_test_idx_decides_the_split(tmp_path: Path) -> None:
    x = images()
    write(tmp_path, x=x, y=labels(), test_idx=np.array([9, 0, 4]))
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    assert torch.equal(holdings.held_out.x.all(), prepare(x[[0, 4, 9]], WORLD.inputs))
    assert holdings.held_out.y is not None and holdings.held_out.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize("role", list(Role))
def test_a_domain_may_lie_on_one_side(tmp_path: Path, role: Role) -> None:
    """Where it says so itself, as long as the site has rows on both sides; one row is enough for it."""
    x = images(6)
    write(tmp_path, "a", x=x, y=labels(6), test_idx=np.array([], int))
    write(tmp_path, "b", x=x[:3], y=labels(3), test_idx=np.arange(3))
    write(tmp_path, "c", x=x[:1], y=labels(1), test_idx=np.array([], int))
    holdings = read_folder(tmp_path, WORLD, role)
    assert torch.equal(holdings.train.x.all(), prepare(np.concatenate([x, x[:1]]), WORLD.inputs))
    assert torch.equal(holdings.held_out.x.all(), prepare(x[:3], WORLD.inputs))
    assert holdings.train.domain.tolist() == [0] * 6 + [2] and holdings.held_out.domain.tolist() == [1] * 3
    assert inspect(tmp_path, WORLD, role).usable


@pytest.mark.parametrize(("held", "said"), [([], "holds out 0 of 20"), (range(10), "holds out 20 of 20")])
def test_a_site_has_rows_on_both_sides(tmp_path: Path, held: Any, said: str) -> None:
    for name in "ab":
        write(tmp_path, name, x=images(), y=labels(), test_idx=np.array(held, int))
    refused(tmp_path, said)
    assert [x["what"] for x in inspect(tmp_path, WORLD, Role.SOURCE).refused] == [f"{tmp_path} {said} samples"]


@pytest.mark.parametrize("role", list(Role))
def test_the_role_does_not_move_rows(tmp_path: Path, role: Role) -> None:
    x = images()
    write(tmp_path, x=x, y=labels())
    assert torch.equal(read_folder(tmp_path, WORLD, role).held_out.x.all(), prepare(x[split_rows(10)[1]], WORLD.inputs))


def test_many_rows_are_read_in_pieces(tmp_path: Path) -> None:
    """More rows than are converted at once come out as if they had been converted together."""
    x = images(700, side=5)
    write(tmp_path, x=x)
    assert torch.equal(read_folder(tmp_path, WORLD, Role.PEER).train.x.all(), prepare(x[split_rows(700)[0]], WORLD.inputs))


def test_a_target_keeps_no_training_labels(tmp_path: Path) -> None:
    """After reading, a target's labels exist for its held-out rows alone, in memory of their own."""
    n = 20_000
    y = np.full(n, 7, np.int64)
    y[split_rows(n)[1]] = 2
    write(tmp_path, x=images(n, side=1), y=y)
    tracemalloc.start()
    holdings = read_folder(tmp_path, WORLD, Role.TARGET)
    traced, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert holdings.train.y is None
    assert holdings.view(View.TRAIN, Role.SOURCE).y is None
    assert holdings.held_out.y is not None and holdings.held_out.y.eq(2).all()
    assert holdings.held_out.y.untyped_storage().nbytes() == y.nbytes // 5
    assert traced < y.nbytes


@pytest.mark.parametrize("filler", [-1.0, np.nan, 99.0, 0.5])
def test_a_targets_training_labels_may_be_anything(tmp_path: Path, filler: float) -> None:
    write(tmp_path, x=images(), y=np.where(np.isin(np.arange(10), [3]), 1.0, filler), test_idx=np.array([3]))
    held = read_folder(tmp_path, WORLD, Role.TARGET).held_out
    assert held.y is not None and held.y.tolist() == [1]


@pytest.mark.parametrize("role", [Role.TARGET, Role.PEER])
def test_labels_are_optional_but_for_a_source(tmp_path: Path, role: Role) -> None:
    """Targets and peers may come without y; then nothing is labelled."""
    write(tmp_path, x=images())
    holdings = read_folder(tmp_path, WORLD, role)
    assert not holdings.train.labelled
    assert not holdings.held_out.labelled


def test_a_target_may_have_one_class(tmp_path: Path) -> None:
    write(tmp_path, x=images(), y=np.zeros(10, int))
    assert read_folder(tmp_path, WORLD, Role.TARGET).held_out.labelled


def test_classes_are_counted_over_the_site(tmp_path: Path) -> None:
    write(tmp_path, "a", x=images(), y=np.zeros(10, int))
    write(tmp_path, "b", x=images(), y=np.ones(10, int))
    assert read_folder(tmp_path, WORLD, Role.SOURCE).train.labelled


def test_whole_floats_are_labels(tmp_path: Path) -> None:
    write(tmp_path, x=images(), y=labels().astype(np.float32))
    assert read_folder(tmp_path, WORLD, Role.SOURCE).train.labelled


def test_features_are_read_unchanged(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    write(tmp_path, x=x, y=labels())
    assert np.array_equal(read_folder(tmp_path, VECTORS, Role.SOURCE).train.x.all().numpy(), x[split_rows(10)[0]])


def test_transforms_apply_to_their_domain(tmp_path: Path) -> None:
    """A table of transforms.toml changes the domain of its name and no other."""
    for name in ("a", "b"):
        write(tmp_path, name, x=np.full((5, 8, 8), 16, np.uint8))
    (tmp_path / "transforms.toml").write_text("[a]\nscale = 16\ninvert = true\n")
    data = read_folder(tmp_path, WORLD, Role.TARGET).train
    assert data.x.all()[data.domain == 0].eq(0.0).all()
    assert torch.allclose(data.x.all()[data.domain == 1], torch.tensor(16 / 255))


def test_memory_is_the_result_and_one_domain(tmp_path: Path) -> None:
    """Raw arrays of several domains are never in memory together (only NumPy's share is measured)."""
    for name in "abcd":
        write(tmp_path, name, x=images(1000, side=40))
    tracemalloc.start()
    read_folder(tmp_path, WORLD, Role.TARGET)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    raw, chunk = 1000 * 40 * 40, 256 * 40 * 40 * (1 + 4)
    assert peak < raw + chunk + 1_000_000


def test_what_is_no_folder_of_data_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none", "There is no data folder")
    refused(tmp_path, "holds no .npz, .npy, .csv or .parquet file")
    refused(write(tmp_path, x=images()), "is not a folder")


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short", None, "cut"])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, content: bytes | str | None) -> None:
    """Files of another kind under the name .npz, a folder, and a file that was copied in part."""
    path = tmp_path / "a.npz"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content if isinstance(content, bytes) else write(tmp_path, x=images(), y=labels()).read_bytes()[:-100])
    refused(tmp_path, "cannot be read as an .npz file", file=path)


@for_all(200, st.integers(0, 10**6), st.integers(1, 255), st.booleans())
def test_damage_is_refused_or_harmless(place: int, change: int, packed: bool) -> None:
    """One changed byte gives a refusal or holdings of the right shape, never another error."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.npz"
        (np.savez_compressed if packed else np.savez)(path, x=images(4), y=labels(4), test_idx=np.array([1]))
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= change
        path.write_bytes(content)
        with contextlib.suppress(DataRefused):
            holdings = read_folder(name, WORLD, Role.SOURCE)
            assert holdings.train.x.shape == WORLD.inputs


@pytest.mark.filterwarnings("ignore")
@for_all(300, st.sampled_from(["x", "y", "test_idx"]), st.integers(0, 127), st.integers(1, 255))
def test_a_wrong_header_is_refused_or_harmless(key: str, place: int, change: int) -> None:
    """A changed header under a fitting checksum gives a refusal or holdings, never another error."""
    arrays: dict[str, Any] = {"x": images(4), "y": labels(4), "test_idx": np.array([1])}
    with tempfile.TemporaryDirectory() as name:
        with zipfile.ZipFile(Path(name) / "a.npz", "w") as archive:
            for member, array in arrays.items():
                stream = io.BytesIO()
                np.save(stream, array)
                content = bytearray(stream.getvalue())
                content[place] ^= change if member == key else 0
                archive.writestr(f"{member}.npy", content)
        with contextlib.suppress(DataRefused):
            assert read_folder(name, WORLD, Role.SOURCE).train.x.shape == WORLD.inputs


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_changed_samples_are_refused(tmp_path: Path, save: Callable[..., None]) -> None:
    """A single changed byte among the samples is noticed: checksums are compared."""
    path = tmp_path / "a.npz"
    save(path, x=images(100))
    content = path.read_bytes()
    for place in range(300, len(content) - 300, 101):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        refused(tmp_path, "cannot be read as an .npz file", Role.TARGET, file=path)


def ragged(*sizes: int) -> np.ndarray:
    """An object array of images of different sizes."""
    out = np.empty(len(sizes), object)
    out[:] = [np.zeros((s, s), np.uint8) for s in sizes]
    return out


OBJECTS = np.array([0] * 10, object)
LABELLED = {"x": images(), "y": labels()}
# What is said, and the arrays that it is said of.
UNUSABLE: list[tuple[str, dict[str, Any]]] = [
    ("x is an array of Python objects", {"x": ragged(8, 9, 10), "y": labels(3)}),
    ("y is an array of Python objects", {"x": images(), "y": OBJECTS}),
    ("test_idx is an array of Python objects", {**LABELLED, "test_idx": OBJECTS}),
    ("there is no array x", {"images": images(), "y": labels()}),
    ("x has 10 rows and y has 9", {"x": images(), "y": labels(9)}),
    ("y has shape (10, 3)", {"x": images(), "y": np.eye(3)[labels()]}),
    ("not whole numbers", {"x": images(), "y": labels() + 0.5}),
    ("not whole numbers", {"x": images(), "y": np.full(10, np.nan)}),
    ("not whole numbers", {"x": images(), "y": np.array(list("abcabcabca"))}),
    ("there are pixels outside 0 to 1, the scale", {"x": images().astype(np.float32), "y": labels()}),
    ("x has 1 rows", {"x": images(1), "y": labels(1)}),
    ("x has 1 rows", {"x": images(1)}),
    ("x has 0 rows", {"x": images(0)}),
    ("x is a single number", {"x": np.uint8(3)}),
    ("test_idx names row 10; the rows are 0 to 9", {**LABELLED, "test_idx": np.array([10])}),
]


@pytest.mark.parametrize(("said", "arrays"), UNUSABLE)
def test_arrays_that_cannot_be_used_are_refused(tmp_path: Path, said: str, arrays: dict[str, Any]) -> None:
    refused(tmp_path, said, file=write(tmp_path, **arrays))


@pytest.mark.parametrize("label", [-2, 3, np.inf, 2**40])
def test_labels_out_of_range_are_refused(tmp_path: Path, label: float) -> None:
    """Labels lie in 0 .. classes - 1; the refusal names the one that does not."""
    path = write(tmp_path, x=images(), y=np.where(np.arange(10) == 5, label, labels()), test_idx=np.array([3]))
    refused(tmp_path, f"y holds the label {label:g}; the world has the classes 0 to 2", file=path)


@pytest.mark.parametrize(("role", "todo"), [(Role.SOURCE, "Number"), (Role.PEER, "Leave y out"), (Role.TARGET, "Leave y out")])
@pytest.mark.parametrize(("label", "said"), [(-2, "label -2 among the held-out rows; "), (0.5, "rows (float64) are not")])
def test_held_out_labels_are_refused_as_such(tmp_path: Path, role: Role, todo: str, label: float, said: str) -> None:
    """Where only the held-out rows are wrong that is said; whose labels are optional is told to leave them out."""
    path = write(tmp_path, x=images(), y=np.where(np.arange(10) == 5, label, labels()), test_idx=np.array([5]))
    with pytest.raises(DataRefused, match=re.escape(said)) as refusal:
        read_folder(tmp_path, WORLD, role)
    assert refusal.value.todo.startswith(todo) and refusal.value.context["path"] == str(path)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.float32])
def test_labels_that_are_all_unknown_are_none(tmp_path: Path, kind: type[np.generic]) -> None:
    """-1 for every row is the same as no y: nothing is labelled, a source is refused, and so is a file beside labelled ones."""
    path = write(tmp_path, x=images(), y=np.full(10, -1, kind))
    for role in (Role.TARGET, Role.PEER):
        holdings = read_folder(tmp_path, WORLD, role)
        assert not holdings.train.labelled and not holdings.held_out.labelled
    refused(tmp_path, "no file has labels, but the site is a source")
    write(tmp_path, "b", x=images(), y=labels())
    refused(tmp_path, "has no labels while other files have", Role.TARGET, file=path)


@pytest.mark.parametrize("role", [Role.SOURCE, Role.PEER])
def test_one_class_is_refused(tmp_path: Path, role: Role) -> None:
    """Who trains on labels needs two classes among the training rows; a second one held out does not count."""
    write(tmp_path, x=images(), y=np.where(np.arange(10) == 3, 2, 1), test_idx=np.array([3]))
    refused(tmp_path, "all training rows are of class 1", role)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    x = np.ones((10, 4))
    x[6, 2] = value
    refused(tmp_path, "first in row 6", world=VECTORS, file=write(tmp_path, x=x, y=labels()))


def test_another_width_is_refused(tmp_path: Path) -> None:
    """Features are as wide as the world says; the refusal carries both numbers."""
    path = write(tmp_path, x=np.ones((10, 5)), y=labels())
    with pytest.raises(DataRefused, match="5; the world expects 4 features") as refusal:
        read_folder(tmp_path, VECTORS, Role.SOURCE)
    assert refusal.value.context == {"expected": [4], "got": [5], "path": str(path)}


def test_more_samples_than_memory_are_refused(tmp_path: Path) -> None:
    """As large as the world asks for, before room is made for them; `tideline data check` says the same."""
    write(tmp_path, x=images(20_000, side=1), y=labels(20_000))
    world = World(inputs=(1, 8000, 8000), classes=3)
    refused(tmp_path, "20000 samples of 1 x 8000 x 8000 take 5120.0 GB, more than this machine has", world=world)
    (told,) = inspect(tmp_path, world, Role.SOURCE).refused
    assert "more than this machine has" in told["what"]


@pytest.mark.parametrize("role", list(Role))
def test_labels_in_some_files_only_are_refused(tmp_path: Path, role: Role) -> None:
    """A folder is labelled as a whole or not at all; the refusal names the file without labels."""
    write(tmp_path, "a", x=images(), y=labels())
    refused(tmp_path, "has no labels while other files have", role, file=write(tmp_path, "b", x=images()))


def test_a_source_without_labels_is_refused(tmp_path: Path) -> None:
    write(tmp_path, x=images())
    refused(tmp_path, "no file has labels, but the site is a source")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(("[b]\nscale = 16", "there is no domain b"), ("[a]\ngamma = 2", "a.gamma is not a known setting")),
        *(("[a]\nscale = 0", "a.scale is 0.0; it should be at least"), ("a = 16", "a is 16; it should be a mapping")),
        *(("[a\nscale = 16", "cannot be read as TOML"), ("[a]\nmean = [0.5, 0.5]", "")),
    ],
)
def test_bad_transforms_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """transforms.toml must be TOML, name domains that exist, and set what can be set."""
    domain = write(tmp_path, x=images(), y=labels())
    path = tmp_path / "transforms.toml"
    path.write_text(text)
    refused(tmp_path, said or "mean has 2 numbers", file=path if said else domain)


def test_the_manual_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if "data-from-python" in page and "def site" in block:
            continue  # these blocks are held by tests/docs/test_python.py
        exec(compile(block, str(DOCS), "exec"), {})
    out = capsys.readouterr().out.strip()
    assert out and out in page
