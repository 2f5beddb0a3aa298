"""Folders of images: what is read, what is held out, and what is refused."""

from __future__ import annotations

import logging
import os
import struct
import tracemalloc
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.learning.images_on_disk import picture, save, save_classes
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import Holdings, split_rows
from tideline.learning.formats.images import decode
from tideline.learning.formats.transforms import Transform, prepare

WORLD = World(inputs=(3, 8, 8), classes=3)
NAMED = World(inputs=(3, 8, 8), classes=3, class_names=("cat", "dog", "owl"))


def refused(folder: Path, said: str, role: Role = Role.SOURCE, world: World = WORLD) -> DataRefused:
    """The folder is refused with these words and something to do; the refusal."""
    with pytest.raises(DataRefused) as refusal:
        read_folder(folder, world, role)
    assert said in refusal.value.what
    assert refusal.value.todo and refusal.value.context["path"]
    return refusal.value


def everything(holdings: Holdings) -> tuple[torch.Tensor, list[int]]:
    """All rows in the order of the domain, of ten: x and y."""
    rows = np.argsort(np.concatenate(split_rows(10)))
    assert holdings.train.y is not None and holdings.held_out.y is not None
    x, y = torch.cat([holdings.train.x.all(), holdings.held_out.x.all()]), torch.cat([holdings.train.y, holdings.held_out.y])
    return x[rows], y[rows].tolist()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A data folder with one domain of ten images in three numbered classes."""
    save_classes(tmp_path / "ward", {"0": 4, "1": 3, "2": 3})
    return tmp_path


def test_folders_are_classes(site: Path) -> None:
    """Every image is a row, in the order of the relative paths, with its folder's number; nothing but its own pixels is in it."""
    x, y = everything(read_folder(site, WORLD, Role.SOURCE))
    files = sorted((site / "ward").rglob("*.png"))
    assert y == [0] * 4 + [1] * 3 + [2] * 3
    for row, file in zip(x, files, strict=True):
        assert torch.equal(row, prepare(decode(file)[None], WORLD.inputs)[0])
    assert read_folder(site, WORLD, Role.SOURCE).train.domains == ("ward",)


def test_images_are_read_as_the_same_pixels_in_npz_are(tmp_path: Path) -> None:
    """Saved as files or as one array, the same pixels become the same samples, to rounding."""
    pixels = np.stack([picture(i, 11, 9) for i in range(10)])
    for i, x in enumerate(pixels):
        save(tmp_path / "files" / "ward" / f"{i:02}.png", x)
    (tmp_path / "array").mkdir()
    np.savez(tmp_path / "array" / "ward.npz", x=pixels)
    for inputs in ((3, 8, 8), (1, 8, 8), (3, 11, 9)):
        files, array = (read_folder(tmp_path / n, World(inputs=inputs), Role.TARGET) for n in ("files", "array"))
        assert torch.allclose(files.train.x.all(), array.train.x.all(), atol=1e-6)
        assert torch.allclose(files.held_out.x.all(), array.held_out.x.all(), atol=1e-6)


def test_names_of_the_world_number_the_folders(tmp_path: Path) -> None:
    """Sites that lack classes agree with sites that have all of them."""
    save_classes(tmp_path / "a" / "ward", {"dog": 5, "owl": 5})
    save_classes(tmp_path / "b" / "ward", {"cat": 5, "owl": 5})
    assert set(everything(read_folder(tmp_path / "a", NAMED, Role.SOURCE))[1]) == {1, 2}
    assert set(everything(read_folder(tmp_path / "b", NAMED, Role.SOURCE))[1]) == {0, 2}


def test_names_of_the_folder_number_the_folders(tmp_path: Path) -> None:
    """classes.txt does where the world has no names; with a world of names it has to agree."""
    save_classes(tmp_path / "ward", {"dog": 5, "owl": 5})
    (tmp_path / "classes.txt").write_text("owl\n\ndog\ncat\n")
    assert set(everything(read_folder(tmp_path, WORLD, Role.SOURCE))[1]) == {0, 1}
    assert "names class 0 'owl'; the world names it 'cat'" in refused(tmp_path, "classes.txt", world=NAMED).what
    (tmp_path / "classes.txt").write_text("cat\ndog\nowl\n")
    assert set(everything(read_folder(tmp_path, NAMED, Role.SOURCE))[1]) == {1, 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"a\nb\n", "2 names for 3 classes"), (b"a\nb\na\n", "'a' cannot name one class alone"), (b"\xff", "cannot be read")],
)
def test_bad_lists_of_classes_are_refused(site: Path, text: bytes, said: str) -> None:
    (site / "classes.txt").write_bytes(text)
    refused(site, said)


def test_an_unknown_folder_is_refused_with_what_is_known(tmp_path: Path) -> None:
    save_classes(tmp_path / "ward", {"cat": 5, "dogs": 5})
    error = refused(tmp_path, "'dogs' is none of the classes cat, dog, owl", world=NAMED)
    assert "did you mean dog?" in error.todo
    assert "classes.txt" in refused(tmp_path, "'cat' is none of the classes 0 to 2").todo


@pytest.mark.parametrize("folder", ["3", "-2", "1.5", "1_0", "²"])
def test_folders_that_are_no_numbers_of_classes(tmp_path: Path, folder: str) -> None:
    save_classes(tmp_path / "ward", {"00": 5, folder: 5})
    refused(tmp_path, "is none of the classes 0 to 2")


def test_accents_are_compared_by_what_they_look_like(tmp_path: Path) -> None:
    """A file system that takes letters apart changes no class and no held-out file."""
    name = "Öl-Bild"
    save_classes(tmp_path / "Stätte" / unicodedata.normalize("NFD", name), {".": 6})
    save_classes(tmp_path / "Stätte" / "dog", {".": 4})
    (tmp_path / "Stätte" / "held_out.txt").write_text(f"{name}/00.png\ndog/01.png\n", encoding="utf-8")
    world = World(inputs=(3, 8, 8), classes=2, class_names=(unicodedata.normalize("NFC", name), "dog"))
    holdings = read_folder(tmp_path, world, Role.SOURCE)
    assert holdings.train.domains == ("Stätte",)
    assert holdings.held_out.y is not None and sorted(holdings.held_out.y.tolist()) == [0, 1]


def test_images_without_folders_have_no_labels(tmp_path: Path) -> None:
    """Then a source is refused, and told where labels would come from."""
    for i in range(5):
        save(tmp_path / "ward" / f"{i}.PNG", picture(i))
    assert not read_folder(tmp_path, WORLD, Role.TARGET).held_out.labelled
    assert "DOMAIN/CLASS/" in refused(tmp_path, "no file has labels, but the site is a source").todo


def test_a_target_judges_held_out_labels_alone(site: Path) -> None:
    """What its other folders are called does not matter; training labels are gone."""
    (site / "ward" / "2").rename(site / "ward" / "unknown")
    (site / "ward" / "held_out.txt").write_text("0/00.png\n1/00.png\n")
    holdings = read_folder(site, WORLD, Role.TARGET)
    assert holdings.train.y is None and holdings.held_out.y is not None and holdings.held_out.y.tolist() == [0, 1]
    (site / "ward" / "held_out.txt").write_text("0/00.png\nunknown/00.png\n")
    assert "leave the labels out" in refused(site, "'unknown' is none of the classes", Role.TARGET).todo


def test_a_fifth_is_held_out_by_number_alone(site: Path) -> None:
    before = read_folder(site, WORLD, Role.TARGET).held_out.x.all()
    for i, file in enumerate(sorted((site / "ward").rglob("*.png"))):
        file.rename(site / "ward" / f"{i}.png")
    assert torch.equal(read_folder(site, WORLD, Role.TARGET).held_out.x.all(), before)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0/00.png\n0/99.png\n", "entry 2 of held_out.txt names no image"),
        ("0/00.png\n\n0/00.png\n", "entry 2 of held_out.txt names an image twice"),
        ("../ward/0/00.png\n", "entry 1 of held_out.txt names no image"),
        ("", "holds out 0 of 10"),
    ],
)
def test_a_bad_list_of_held_out_images_is_refused(site: Path, text: str, said: str) -> None:
    """What it names is told to the owner, not in the sentence that leaves the site."""
    (site / "ward" / "held_out.txt").write_text(text)
    error = refused(site, said)
    assert "99.png" not in str(error) and ("99" not in text or error.context["entry"] == "0/99.png")


def test_a_domain_of_images_may_lie_on_one_side(site: Path) -> None:
    """An empty list holds out nothing, where another domain does; one image is enough for it."""
    save(site / "next" / "1" / "0.png", picture(7))
    (site / "next" / "held_out.txt").write_text("")
    holdings = read_folder(site, WORLD, Role.SOURCE)
    assert holdings.train.domain.tolist().count(holdings.train.domains.index("next")) == 1
    assert len(holdings.train) == 9 and len(holdings.held_out) == 2
    (site / "next" / "held_out.txt").write_text("1/0.png\n")
    assert len(read_folder(site, WORLD, Role.SOURCE).held_out) == 3


def test_all_images_cannot_be_held_out(site: Path) -> None:
    files = sorted(f.relative_to(site / "ward").as_posix() for f in (site / "ward").rglob("*.png"))
    (site / "ward" / "held_out.txt").write_text("\n".join(files))
    refused(site, "holds out 10 of 10")


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "tif", "tiff", "webp", "JPG"])
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    """An even grey survives every format, and a file's content counts, not its name."""
    for i in range(2):
        save(tmp_path / "a" / f"{i}.{suffix}", np.full((8, 8, 3), 128, np.uint8))
    save(tmp_path / "a" / "x.png", np.full((8, 8, 3), 128, np.uint8)).rename(tmp_path / "a" / "x.jpg")
    assert torch.allclose(read_folder(tmp_path, WORLD, Role.TARGET).train.x.all(), torch.tensor(128 / 255), atol=0.01)


def test_modes(tmp_path: Path) -> None:
    grey = np.linspace(0, 255, 64).reshape(8, 8).astype(np.uint8)
    for mode, shape in (("1", (8, 8)), ("L", (8, 8)), ("P", (8, 8, 3)), ("RGB", (8, 8, 3)), ("CMYK", (8, 8, 3))):
        path = tmp_path / f"{mode}.tif"
        Image.fromarray(grey).convert(mode).save(path)
        x = decode(path)
        assert x.shape == shape and x.dtype == np.uint8
        if mode not in ("1", "P"):
            assert np.abs(x.reshape(8, 8, -1)[..., 0].astype(int) - grey).max() <= 1


def test_sixteen_bits(tmp_path: Path) -> None:
    """16-bit grey keeps its depth, and is white at 65535 unless the owner says otherwise."""
    x = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    for name in ("a.png", "b.png", "c.tif"):
        save(tmp_path / "ward" / name, x)
    read = read_folder(tmp_path, World(inputs=(1, 8, 8)), Role.TARGET)
    assert torch.allclose(read.train.x.all()[0, 0], torch.from_numpy(x / 65535).float())
    (tmp_path / "transforms.toml").write_text("[ward]\nscale = 131070\n")
    assert float(read_folder(tmp_path, World(inputs=(1, 8, 8)), Role.TARGET).train.x.all().max()) == 0.5


def test_floats_and_wide_integers(tmp_path: Path) -> None:
    """Floats lie in 0 to 1, 32-bit integers need a scale, NaN is refused with its row."""
    for i in range(2):
        save(tmp_path / "a" / f"{i}.tif", np.full((8, 8), 0.25, np.float32))
    assert read_folder(tmp_path, WORLD, Role.TARGET).train.x.all().eq(0.25).all()
    save(tmp_path / "a" / "0.tif", np.full((8, 8), np.nan, np.float32))
    refused(tmp_path, "NaN or infinity, first in row 0", Role.TARGET)
    save(tmp_path / "a" / "0.tif", np.full((8, 8), 7, np.int32))
    refused(tmp_path, "the pixels are int32, whose white is unknown", Role.TARGET)


def test_transparent_is_black(tmp_path: Path) -> None:
    """Alpha is composed over black: opaque stays, half is half, nothing is black; grey stays grey."""
    x = np.full((1, 3, 4), 200, np.uint8)
    x[0, :, 3] = [255, 128, 0]
    assert decode(save(tmp_path / "a.png", x))[0, :, 0].tolist() == [200, 100, 0]
    grey = Image.fromarray(x[..., 0]).convert("LA")
    grey.putalpha(Image.fromarray(x[..., 3]))
    grey.save(tmp_path / "b.png")
    assert decode(tmp_path / "b.png").tolist() == [[200, 100, 0]]
    Image.fromarray(x[..., 0]).save(tmp_path / "c.png", transparency=200)
    assert decode(tmp_path / "c.png").tolist() == [[0, 0, 0]]


def test_images_stand_upright(tmp_path: Path) -> None:
    x = np.zeros((8, 4), np.uint8)
    x[0] = 255
    image = Image.fromarray(x)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    image.save(tmp_path / "a.png", exif=exif)
    assert decode(tmp_path / "a.png").shape == (4, 8)
    assert decode(tmp_path / "a.png")[:, -1].tolist() == [255] * 4


def test_transforms_apply(tmp_path: Path) -> None:
    """invert, mean and std do what they do to arrays; settings of tables are refused."""
    for i in range(2):
        save(tmp_path / "a" / f"{i}.png", np.full((8, 8), 51, np.uint8))
    (tmp_path / "transforms.toml").write_text("[a]\ninvert = true\nmean = [0.5]\nstd = [0.5]\n")
    expected = prepare(np.full((1, 8, 8), 51, np.uint8), WORLD.inputs, Transform(invert=True, mean=(0.5,), std=(0.5,)))
    assert torch.equal(read_folder(tmp_path, WORLD, Role.TARGET).train.x.all(), expected)
    (tmp_path / "transforms.toml").write_text('[a]\nlabel = "y"\n')
    refused(tmp_path, "label has no meaning for a folder of images", Role.TARGET)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 255
    path.write_bytes(content)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere.png")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def animated(path: Path) -> None:
    frames = [Image.fromarray(picture(i)) for i in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def bomb(path: Path) -> None:
    """A few bytes that promise 40000 x 40000 pixels."""
    head = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + head
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + struct.pack(">I", zlib.crc32(chunk)))


SPOILT: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"this is no image"),
    **{spoil.__name__: spoil for spoil in (flipped, dangling, pipe, animated, bomb)},
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_unreadable_images_are_refused(site: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture) -> None:
    """All are counted; which they are is told here and not in the sentence that leaves the site."""
    spoil(site / "ward" / "1" / "01.png")
    SPOILT["text"](site / "ward" / "2" / "00.png")
    error = refused(site, "2 of 10 images cannot be read")
    assert "01.png" not in str(error) and 'unreadable = "skip"' in error.todo
    files = error.context["files"]
    assert isinstance(files, list) and [name.partition(" ")[0] for name in files] == ["1/01.png", "2/00.png"]
    assert "1/01.png" in caplog.text


def test_the_first_ten_are_named(tmp_path: Path) -> None:
    save_classes(tmp_path / "ward", {"0": 20, "1": 20})
    for file in (tmp_path / "ward" / "1").iterdir():
        SPOILT["text"](file)
    error = refused(tmp_path, "20 of 40 images cannot be read")
    assert error.context["count"] == 20 and len(list(error.context["files"])) == 10  # type: ignore[call-overload]


def test_unreadable_images_are_left_out_if_the_owner_says_so(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others stay on their side of the split, with their labels, and the log says how many are gone."""
    save_classes(site / "next", {"0": 5, "2": 5})
    whole = read_folder(site, WORLD, Role.SOURCE)
    train, held = split_rows(10)
    assert whole.train.y is not None
    for row in (int(train[2]), int(held[0])):
        SPOILT["text"](sorted((site / "ward").rglob("*.png"))[row])
    (site / "transforms.toml").write_text('[ward]\nunreadable = "skip"\n')
    caplog.set_level(logging.WARNING)
    left = read_folder(site, WORLD, Role.SOURCE)
    assert "2 of 10 images cannot be read and are left out" in caplog.text
    first = len(split_rows(10)[0])  # of the other domain, which comes before
    gone, gone_held = first + 2, len(split_rows(10)[1])
    for name, at in (("x", gone), ("y", gone), ("domain", gone)):
        before, after = (each.x.all() if name == "x" else getattr(each, name) for each in (whole.train, left.train))
        assert torch.equal(after, torch.cat([before[:at], before[at + 1 :]])), name
    assert torch.equal(
        left.held_out.x.all(), torch.cat([whole.held_out.x.all()[:gone_held], whole.held_out.x.all()[gone_held + 1 :]])
    )


def test_leaving_out_all_of_a_side_is_refused(site: Path) -> None:
    (site / "ward" / "held_out.txt").write_text("0/00.png\n")
    SPOILT["text"](site / "ward" / "0" / "00.png")
    (site / "transforms.toml").write_text('[ward]\nunreadable = "skip"\n')
    refused(site, "1 of 10 images cannot be read")


def test_leaving_out_a_class_is_judged_again(tmp_path: Path) -> None:
    save_classes(tmp_path / "ward", {"0": 9, "1": 1})
    (tmp_path / "ward" / "held_out.txt").write_text("0/00.png\n")
    SPOILT["text"](tmp_path / "ward" / "1" / "00.png")
    (tmp_path / "transforms.toml").write_text('[ward]\nunreadable = "skip"\n')
    refused(tmp_path, "all training rows are of class 0")


def test_hidden_and_other_files_are_no_data(site: Path) -> None:
    """Neither what begins with a dot nor what is no image; an empty class is no mistake."""
    before = read_folder(site, WORLD, Role.SOURCE).train.x.all()
    for name in ("._00.png", ".hidden.png", "notes.txt", "Thumbs.db"):
        (site / "ward" / "0" / name).write_text("x")
    (site / "ward" / ".thumbnails").mkdir()
    save(site / "ward" / ".thumbnails" / "a.png", picture(0))
    (site / "ward" / "cat").mkdir()
    (site / "empty" / "0").mkdir(parents=True)
    assert torch.equal(read_folder(site, WORLD, Role.SOURCE).train.x.all(), before)


def test_empty_folders_are_no_domain(tmp_path: Path) -> None:
    (tmp_path / "ward" / "0").mkdir(parents=True)
    refused(tmp_path, "no folder of images")


@pytest.mark.parametrize("flat", [True, False])
def test_one_image_is_no_domain(tmp_path: Path, flat: bool) -> None:
    save(tmp_path / "ward" / ("0.png" if flat else "0/0.png"), picture(0))
    refused(tmp_path, "there is 1 image", Role.TARGET)


def test_folders_of_which_it_is_unclear_what_they_are(site: Path) -> None:
    """Files beside class folders, folders inside them, and images where a world has features."""
    refused(site, "is a folder of images; the world expects 4 features", world=World(inputs=(4,), classes=3))
    beside = save(site / "ward" / "0.png", picture(0))
    refused(site, "1 images are beside the class folders and 10 inside them")
    beside.unlink()
    save(site / "ward" / "0" / "more" / "0.png", picture(0))
    refused(site, "there are folders inside the class folder '0'")


def test_links_are_followed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of files and of folders, also out of the data folder: a link is its owner's word."""
    before = read_folder(site, WORLD, Role.SOURCE).train.x.all()
    other = tmp_path_factory.mktemp("other")
    (other / "site").mkdir()
    (site / "ward" / "0").rename(other / "zeros")
    (site / "ward" / "0").symlink_to(other / "zeros")
    (site / "ward" / "1" / "00.png").rename(other / "one.png")
    (site / "ward" / "1" / "00.png").symlink_to(other / "one.png")
    (other / "site" / "ward").symlink_to(site / "ward")
    for folder in (site, other / "site"):
        assert torch.equal(read_folder(folder, WORLD, Role.SOURCE).train.x.all(), before)


def test_nothing_is_written(site: Path) -> None:
    folders = [site, site / "ward", *(site / "ward").iterdir()]
    for folder in folders:
        folder.chmod(0o555)
    read_folder(site, WORLD, Role.SOURCE)
    for folder in folders:
        folder.chmod(0o755)


def test_two_domains_of_one_name_are_refused(site: Path) -> None:
    np.savez(site / "ward.npz", x=np.zeros((4, 8, 8), np.uint8))
    refused(site, "ward and ward.npz are both the domain ward")


def test_kinds_may_be_mixed(site: Path) -> None:
    np.savez(site / "scans.npz", x=np.zeros((10, 8, 8), np.uint8), y=np.arange(10) % 3)
    holdings = read_folder(site, WORLD, Role.SOURCE)
    assert holdings.train.domains == ("scans", "ward") and len(holdings.train) == 16


def test_no_second_copy_of_the_set(tmp_path: Path) -> None:
    """Beside the result one image is in memory (NumPy's share is measured)."""
    for i in range(40):
        save(tmp_path / "ward" / f"{i}.png", np.zeros((100, 100, 3), np.uint8))
    read_folder(tmp_path, WORLD, Role.TARGET)
    tracemalloc.start()
    read_folder(tmp_path, WORLD, Role.TARGET)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 100 * 100 * 3
