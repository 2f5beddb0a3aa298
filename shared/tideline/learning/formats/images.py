"""Domains that are folders of image files: a folder for each class, and -1 for none; or no folders where nothing is labelled."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.classes import composed, cut, read_lines
from tideline.learning.formats.holdings import SHARE, Rows, Sides
from tideline.learning.formats.kinds.shapes import expected
from tideline.learning.formats.surveys import SHOWN, Piece, Place, Survey, at, check_count, check_settings
from tideline.learning.formats.transforms import check_kind, times
from tideline.learning.formats.units import UNITS, Units, split_by_units, units_of_files

DECODER = PIL.__version__  # another may make other pixels of the same file
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
HELD_OUT, VALIDATION = "held_out.txt", "validation.txt"
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
        if len(world.inputs) != 3 or world.inputs[0] not in (1, 3) or world.tokens:
            what = f"the domain is a folder of images; the world expects {expected(world)}"
            raise DataRefused(
                what, "Ask for a world with inputs [channels, height, width], of 1 or 3 channels", expected=list(world.inputs)
            )
        check_settings(place.transform, OWN, "a folder of images")
        listing = listed(place.path)
        files, words = listing.files, listing.words
        check_count(len(files), "image", 1 if (place.path / HELD_OUT).exists() else 2)
        check_kind((len(files), 1, 1), np.dtype(np.uint8), world.inputs, place.transform)
        units = units_of_files(place.path, files, unit) if (unit := place.transform.unit) else None
        rows, chosen = split(place.path, files, place.transform.test, units)
        sides = Sides(*rows)
        if words is not None:
            sides = cut(map(place.classes.number, words), rows, role, lambda row: strange(place, words[row]))
        sides = replace(sides, chosen=chosen)

    def reader(rows: Rows) -> Files:
        return Files(place, tuple(files[i] for i in rows))

    return Survey(
        place,
        sides,
        pieces=lambda: pieces(place, files),
        name=files.__getitem__,
        reader=reader,
        decoder=DECODER,
        units=units,
    )


def strange(place: Place, word: str) -> DataRefused:
    what = f"the folder {word!r} is none of the classes {place.classes.describe()}"
    return DataRefused(what, place.classes.todo(word), folder=word)


def is_domain(folder: Path) -> bool:
    """Whether a folder holds images, or folders that do."""
    return any(any(images_in(f)) for f in (folder, *visible_folders(folder)))


def listed(domain: Path) -> Listing:
    """The images of a domain; none is opened. Raises DataRefused if files and class folders are mixed."""
    flat = sorted(images_in(domain))
    folders = {f.name: [f"{f.name}/{name}" for name in images_in(f)] for f in visible_folders(domain)}
    for name in folders:
        if any(visible_folders(domain / name)):
            what = f"there are folders inside the class folder {name!r}"
            raise DataRefused(what, "Put its images into the class folder itself")
    inside = sorted(each for files in folders.values() for each in files)
    if flat and inside:
        what = f"{len(flat)} images are beside the class folders and {len(inside)} inside them"
        raise DataRefused(what, "Put every image into a folder of its class (-1 if it is not known), or none")
    return Listing(tuple(inside), tuple(each.partition("/")[0] for each in inside)) if inside else Listing(tuple(flat), None)


def ignored(domain: Path) -> list[str]:
    """The files of a domain and its class folders that are not images, without hidden ones."""
    ignored = []
    for folder in (domain, *visible_folders(domain)):
        with entries(folder) as inside:
            names = [e.name for e in inside if not e.is_dir() and not e.name.startswith(".") and not is_image(e.name)]
        ignored += [f"{'' if folder == domain else folder.name + '/'}{name}" for name in names]
    return sorted(name for name in ignored if name not in (HELD_OUT, VALIDATION, UNITS))


def images_in(folder: Path) -> Iterator[str]:
    """The names of a folder's image files, including links, without hidden files."""
    with entries(folder) as inside:
        yield from (entry.name for entry in inside if is_image(entry.name) and not entry.is_dir())


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def visible_folders(folder: Path) -> list[Path]:
    """The folders in a folder, including links, without hidden ones."""
    with entries(folder) as inside:
        return sorted(folder / e.name for e in inside if e.is_dir() and not e.name.startswith("."))


def entries(folder: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """The contents of a folder. Raises DataRefused if it cannot be listed."""
    try:
        return os.scandir(folder)
    except OSError as error:
        raise DataRefused(f"{folder} cannot be listed ({error.strerror})", "Let the agent read it", path=str(folder)) from error


def split(
    domain: Path, files: tuple[str, ...], share: float = SHARE, units: Units | None = None
) -> tuple[tuple[Rows, Rows], Rows | None]:
    """Row numbers (train, held out), and those of training that are named for validation.

    Held out are the images that `held_out.txt` names; without it a share, chosen by numbers of images alone, or of
    whole units. `validation.txt`
    names those for validation.
    """
    held, chosen = (written(domain / name, files) for name in (HELD_OUT, VALIDATION))
    return split_by_units(len(files), held, chosen, share, units), chosen


def written(path: Path, files: tuple[str, ...]) -> Rows | None:
    """The rows of the images that a text file names, sorted; None without such a file."""
    if not path.exists():
        return None
    row = {composed(name): i for i, name in enumerate(files)}
    marked, lines = np.zeros(len(files), bool), read_lines(path)
    for i, line in enumerate(lines, 1):
        at_row = row.get(composed(line))
        if at_row is None or marked[at_row]:
            what = f"entry {i} of {path.name} names {'an image twice' if at_row is not None else 'no image of this domain'}"
            raise DataRefused(what, "Write each path once, relative to the domain's folder, such as 3/scan-1.png", entry=line)
        marked[at_row] = True
    return np.flatnonzero(marked).astype(np.int64)


def pieces(place: Place, files: tuple[str, ...]) -> Iterator[Piece]:
    """The images one by one; one that cannot be read is a piece without samples."""
    return map(Files(place, files), range(len(files)))


@dataclass(frozen=True)
class Files:
    """Reads images of a domain by their places in a list of names."""

    place: Place
    names: tuple[str, ...]

    def __call__(self, i: int) -> Piece:
        """One image as a piece; without samples if it cannot be read."""
        transform = self.place.transform
        try:
            x = decode(self.place.path / self.names[i])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - decoders may raise anything on damaged files; it is reported
            return Piece(i, None, transform, f"{type(error).__name__}: {error}")
        # Without a scale, 16-bit pixels are white at the largest number that they can hold.
        deep = x.dtype == np.uint16 and transform.scale is None
        return Piece(i, x[None], replace(transform, scale=WHITE_16) if deep else transform)


def decode(path: Path) -> NDArray[np.generic]:
    """One image, (H, W) or (H, W, 3), upright, as uint8, uint16, int32 or float32. Raises what Pillow raises, or ValueError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")
    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise ValueError(f"{times((height, width))} pixels; at most {MAX_PIXELS} are read")
        pages = getattr(image, "n_frames", 1) if image.format in WITH_PAGES else 1
        if pages != 1:
            raise ValueError(f"{pages} pages or frames; a sample has one")
        short = image.format == "PNG" and image.mode == "I"  # how older Pillows open 16 bits
        ImageOps.exif_transpose(image, in_place=True)
        x = as_array(image)
        return x.astype(np.uint16) if short else x


def pixels(given: object) -> NDArray[np.generic] | None:
    """An image that a person's own code opened, (H, W) or (H, W, 3), upright; None for what is no image of Pillow's."""
    return as_array(ImageOps.exif_transpose(given)) if isinstance(given, Image.Image) else None


def as_array(image: Image.Image) -> NDArray[np.generic]:
    """An image's pixels: grey keeps its depth; all else becomes RGB of 8 bits. Transparent pixels are black."""
    if image.mode in SIXTEEN:
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("I", "F"):
        return np.asarray(image)
    grey = image.mode in ("1", "L", "LA", "La")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image.convert("RGBA"))
    mode = "L" if grey else "RGB"
    return np.asarray(image if image.mode == mode else image.convert(mode))


def lost(domain: Survey, rows: Sequence[tuple[int, str]]) -> DataRefused:
    """The refusal of unreadable images. It says how many; which ones is for the owner only, in `context`."""
    what = f"{domain.place.path}: {len(rows)} of {len(domain)} {domain.what} cannot be read"
    todo = 'Repair or remove them (`tideline data check` names them), or leave them out: unreadable = "skip" in transforms.toml'
    files = [f"{domain.name(row)} ({why})" for row, why in rows[:SHOWN]]
    return DataRefused(what, todo, path=str(domain.place.path), count=len(rows), files=files)


def shape(path: Path) -> tuple[int, int, int] | None:
    """Channels, height and width from a file's header; None if it cannot be read."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            grey = image.mode in (*SIXTEEN, "1", "L", "LA", "La", "I", "F")
            return 1 if grey else 3, image.height, image.width
    except Exception:  # noqa: BLE001 - as above; such a file is not counted
        return None
