"""What commands print and write: texts from elsewhere made harmless, sizes, times; and files and folders of --out."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import typer

from tideline.core.errors import ConfigRefused


def clean(text: str) -> str:
    """A text from elsewhere, without anything that would steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def warn(text: str) -> None:
    """A line on stderr."""
    typer.echo(clean(text), err=True)


def counted(n: int, noun: str, plural: str = "") -> str:
    """A number with its noun, such as `1 site` and `2 sites`."""
    return f"{n} {noun if n == 1 else plural or f'{noun}s'}"


def size(count: int) -> str:
    """Bytes in the largest decimal unit, such as `1.5 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def day(at: float) -> str:
    """A moment to the minute, in this machine's time; as a number, if no calendar has it."""
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def check_out(out: Path, suffix: str) -> None:
    """Raises ConfigRefused for a file with another suffix, or without its folder."""
    if out.suffix != suffix:
        raise ConfigRefused(f"--out {out} does not end in {suffix}", f"Name the file {out.with_suffix(suffix).name}", path="out")
    if not out.parent.is_dir():
        raise ConfigRefused(f"There is no folder {out.parent}", "Make it, or correct --out", path="out")


def make_folder(out: Path) -> None:
    """Make the folder of --out. Raises ConfigRefused."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise ConfigRefused(f"--out {out} cannot be made: {cause.strerror}", "Choose another folder", path="out") from None


def replace_file(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """The same of bytes."""
    made = path.with_name(f".{path.name}")
    made.write_bytes(content)
    made.replace(path)
