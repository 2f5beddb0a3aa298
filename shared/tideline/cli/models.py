"""What commands say of a model that they have written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tideline.cli.guard import output
from tideline.client.output import clean, warn
from tideline.core.settings import plain

if TYPE_CHECKING:
    from tideline.learning.model_file import Model


def show_model(model: Model, out: Path, as_json: bool, hint: str = "") -> None:
    """Print what was written; a note of the model, and what else to know, go to stderr."""
    from tideline.learning.model_file import BEST

    origin, count = model.origin, model.size
    whose = f"{origin.site}'s own model" if origin.site else "the model"
    if origin.which == BEST:
        scores = "".join(f", {name} {value:.4g}" for name, value in origin.selected.items())
        whose += f" of the best round, {origin.round}{scores},"
    text = f"Wrote {out}: {whose} of run {origin.run}, {origin.method}, {model.world.model}, {count:,} numbers"
    if origin.note:
        warn(f"Note: {origin.note}")
    if hint:
        warn(f"Note: {hint}")
    output({"file": str(out), "form": model.form, "numbers": count, **plain(origin)}, as_json, clean(text))
