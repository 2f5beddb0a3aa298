"""Domains that are folders of image files: a folder for each class, and -1 for none; or no folders where nothing is labelled."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tideline.core.errors import DataRefused
from tideline.core.run import Role, World
from tideline.learning.formats.classes import composed, cut, read_lines
from tideline.learning.formats.holdings import Rows, Sides, split_marked, split_rows
from tideline.learning.formats.surveys import TOLD, Piece, Place, Survey, at, check_count, check_settings
from tideline.learning.formats.transforms import Transform, check_kind, times

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
HELD_OUT = "held_out.txt"
OWN = ("invert", "unreadable")
# A header of a few bytes can promise any number of pixels, and a step has the memory of a site to share.
MAX_PIXELS = 1 << 26
WHITE_16 = 65535.0
SIXTEEN = ("I;16", "I;16L", "I;16B", "I;16N")
WITH_PAGES = ("PNG", "TIFF", "WEBP")


@dataclass(frozen=True)
class Listing:
    """The image files of a domain, `/` between folder and name, sorted; and the class folder of each, or None."""

    files: tuple[str, ...]
    words: tuple[str, ...] | None


def survey(place: Place, world: World, role: Role) -> Survey:
    """One domain's split and labels, from the names of files and folders alone."""
    with at(place.path):
        if len(world.inputs) == 1:
            what = f"the domain is a folder of images; the world expects {world.inputs[0]} features"
            raise DataRefused(what, "Ask for a world with inputs [channels, height, width]", expected=list(world.inputs))
        check_settings(place.transform, OWN, "a folder of images")
        found = listed(place.path)
        check_count(len(found.files), "image", 1 if (place.path / HELD_OUT).exists() else 2)
        check_kind((len(found.files), 1, 1), np.dtype(np.uint8), world.inputs, place.transform)
        rows = split(place.path, found.files)
        sides = Sides(*rows)
        if found.words is not None:
            sides = cut(map(place.classes.number, found.words), rows, role, lambda row: strange(place, found, row))
    return Survey(
        path=place.path,
        transform=place.transform,
        sides=sides,
        pieces=lambda: pieces(place, found.files),
        name=found.files.__getitem__,
    )


def strange(place: Place, found: Listing, row: int) -> DataRefused:
    """The refusal of a class folder that is none."""
    assert found.words is not None
    word = found.words[row]
    what = f"the folder {word!r} is none of the classes {place.classes.told()}"
    return DataRefused(what, place.classes.todo(word), folder=word)


def is_domain(folder: Path) -> bool:
    """Whether a folder holds images, or folders that do."""
    return any(any(images_in(f)) for f in (folder, *visible_folders(folder)))


def listed(domain: Path) -> Listing:
    """The images of a domain, found without opening one. Raises DataRefused where flat files and folders are mixed."""
    flat = sorted(images_in(domain))
    folders = {f.name: [f"{f.name}/{name}" for name in images_in(f)] for f in visible_folders(domain)}
    for name in folders:
        if any(visible_folders(domain / name)):
            what = f"there are folders inside the class folder {name!r}"
            raise DataRefused(what, "Put its images into the class folder itself")
    inside = sorted(each for files in folders.values() for each in files)
    if flat and inside:
        what = f"{len(flat)} images lie beside the class folders and {len(inside)} inside them"
        raise DataRefused(what, "Put every image into a folder of its class (-1 if it is not known), or none")
    return Listing(tuple(inside), tuple(each.partition("/")[0] for each in inside)) if inside else Listing(tuple(flat), None)


def ignored(domain: Path) -> list[str]:
    """The files of a domain, and of its class folders, that are no images; hidden ones are not told."""
    found = []
    for folder in (domain, *visible_folders(domain)):
        with entries(folder) as inside:
            names = [e.name for e in inside if not e.is_dir() and not e.name.startswith(".") and not is_image(e.name)]
        found += [f"{'' if folder == domain else folder.name + '/'}{name}" for name in names]
    return sorted(name for name in found if name != HELD_OUT)


def images_in(folder: Path) -> Iterator[str]:
    """The names of a folder's image files, links among them, wherever they lead; hidden ones are not data."""
    with entries(folder) as found:
        for entry in found:
            if is_image(entry.name) and not entry.is_dir():
                yield entry.name


def is_image(name: str) -> bool:
    """Whether a file's name says that it is an image."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def visible_folders(folder: Path) -> list[Path]:
    """The folders in a folder, links to folders among them, but for hidden ones."""
    with entries(folder) as found:
        return sorted(folder / e.name for e in found if e.is_dir() and not e.name.startswith("."))


def entries(folder: Path) -> Any:
    """What is in a folder. Raises DataRefused where it cannot be listed."""
    try:
        return os.scandir(folder)
    except OSError as error:
        raise DataRefused(f"{folder} cannot be listed ({error.strerror})", "Let the agent read it", path=str(folder)) from error


def split(domain: Path, files: tuple[str, ...]) -> tuple[Rows, Rows]:
    """The images that `held_out.txt` names are held out; without it a fifth, by the number of images alone."""
    path = domain / HELD_OUT
    if not path.exists():
        return split_rows(len(files))
    row = {composed(name): i for i, name in enumerate(files)}
    marked, lines = np.zeros(len(files), bool), read_lines(path)
    for i, line in enumerate(lines, 1):
        at_row = row.get(composed(line))
        if at_row is None or marked[at_row]:
            what = f"entry {i} of {HELD_OUT} names {'an image twice' if at_row is not None else 'no image of this domain'}"
            raise DataRefused(what, "Write paths as seen from the domain's folder, such as 3/scan-1.png", entry=line)
        marked[at_row] = True
    return split_marked(marked)


def pieces(place: Place, files: tuple[str, ...]) -> Iterator[Piece]:
    """The images one after the other; one that cannot be read is said to be so."""
    for i, name in enumerate(files):
        try:
            x = decode(place.path / name)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - decoders raise whatever they like on damaged files; told, never passed over
            yield Piece(i, None, place.transform, f"{type(error).__name__}: {error}")
        else:
            yield Piece(i, x[None], white(x, place.transform))


def white(x: NDArray[np.generic], transform: Transform) -> Transform:
    """Where nothing else is said, 16-bit pixels are white at the largest number that they can hold."""
    return replace(transform, scale=WHITE_16) if x.dtype == np.uint16 and transform.scale is None else transform


def decode(path: Path) -> NDArray[np.generic]:
    """One image, (H, W) or (H, W, 3), upright, as uint8, uint16, int32 or float32. Raises what Pillow raises, or ValueError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")
    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"{times((height, width))} pixels are more than {MAX_PIXELS}")
        pages = getattr(image, "n_frames", 1) if image.format in WITH_PAGES else 1
        if pages != 1:
            raise ValueError(f"{pages} pages or frames; a sample is one")
        short = image.format == "PNG" and image.mode == "I"  # how older Pillows open 16 bits
        x = as_array(ImageOps.exif_transpose(image))
        return x.astype(np.uint16) if short else x


def as_array(image: Image.Image) -> NDArray[np.generic]:
    """An image's pixels: grey stays grey, of whatever depth; all else becomes RGB of 8 bits. What is transparent is black."""
    if image.mode in SIXTEEN:
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("I", "F"):
        return np.asarray(image)
    grey = image.mode in ("1", "L", "LA", "La")
    if transparent(image):
        image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image.convert("RGBA"))
    return np.asarray(image.convert("L" if grey else "RGB"))


def transparent(image: Image.Image) -> bool:
    """Whether an image says that parts of it may be transparent."""
    return image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info


def lost(domain: Survey, rows: Sequence[tuple[int, str]]) -> DataRefused:
    """The refusal of unreadable images. Its sentence tells how many; which ones is for the owner's eyes, in `context`."""
    what = f"{domain.path}: {len(rows)} of {len(domain)} images cannot be read"
    todo = 'Mend or remove them (`tideline data check` names them), or leave them out: unreadable = "skip" in transforms.toml'
    files = [f"{domain.name(row)} ({why})" for row, why in rows[:TOLD]]
    return DataRefused(what, todo, path=str(domain.path), count=len(rows), files=files)


def shape(path: Path) -> tuple[int, int, int] | None:
    """Channels, height and width as a file's header has them; None where it cannot be read."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            grey = image.mode in (*SIXTEEN, "1", "L", "LA", "La", "I", "F")
            return 1 if grey else 3, image.height, image.width
    except Exception:  # noqa: BLE001 - as above; here it is only not counted
        return None
