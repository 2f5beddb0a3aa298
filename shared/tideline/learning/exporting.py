"""A model written as one of several kinds of file, known by its suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tideline.core.errors import ConfigRefused, Refused
from tideline.core.settings import nearest
from tideline.learning.model_file import WHICH, Model, inside, packed
from tideline.learning.onnx_file import save_onnx
from tideline.learning.weights import SUFFIX, save_torch


def written_torch(model: Model, path: Path) -> None:
    """A state dict, with the tensors that rows are normalised by beside. Raises Refused for a model that takes them of rows."""
    if model.by_given:
        what = "The model normalises by the rows that it is given, which a state dict has no place for"
        raise Refused(what, "Use --format safetensors; or export a site's own model at the site: it has its statistics inside")
    save_torch(model.own | inside(model), path)


# By the name of a format: its suffixes, the first the usual one, and what writes it.
FORMATS: Mapping[str, tuple[tuple[str, ...], Callable[[Model, Path], object]]] = {
    "safetensors": ((SUFFIX,), lambda model, path: path.write_bytes(packed(model))),
    "torch": ((".pt", ".pth"), written_torch),
    "onnx": ((".onnx",), save_onnx),
}
SUFFIXES = tuple(suffix for suffixes, _ in FORMATS.values() for suffix in suffixes)


def check_which(asked: str) -> str:
    """The name of one of a run's models. Raises ConfigRefused."""
    if asked not in WHICH:
        raise ConfigRefused(
            f"There is no model {asked!r}", f"Use one of: {', '.join(WHICH)}{nearest(asked, WHICH)}", path="which"
        )
    return asked


def format_of(out: Path, asked: str | None) -> str:
    """The format of a file that is to be written. Raises ConfigRefused for an unknown one, and for a suffix of another."""
    if asked is not None and asked not in FORMATS:
        what, todo = f"There is no format {asked!r}", f"Use one of: {', '.join(FORMATS)}{nearest(asked, tuple(FORMATS))}"
        raise ConfigRefused(what, todo, path="format")
    found = next((name for name, (suffixes, _) in FORMATS.items() if out.suffix in suffixes), None)
    if found is None or asked not in (None, found):
        wanted = FORMATS[asked][0] if asked else SUFFIXES
        raise ConfigRefused(
            f"--out {out} does not end in {' or '.join(wanted)}", f"Name the file {out.with_suffix(wanted[0]).name}", path="out"
        )
    if not out.parent.is_dir():
        raise ConfigRefused(f"There is no folder {out.parent}", "Make it, or correct --out", path="out")
    return found


def export_model(model: Model, out: Path, kind: str) -> None:
    """Write a model, whole or not at all. kind: a name in FORMATS. Raises Refused errors."""
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        FORMATS[kind][1](model, temporary)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
