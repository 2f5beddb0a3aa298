"""Weights that a person brings: a file that is named by its digest, one part of the store, which waits for runs that name it."""

from __future__ import annotations

import re

from tideline.core.errors import ConfigRefused
from tideline.core.run import ClientId, RunId
from tideline.engine.model.files import Files
from tideline.engine.model.runs import JOIN, RunRow

# Under which an upload is noted, beside those of sites. No run is called so: no site's part is taken for weights, or told of.
UPLOADER = RunId("weights"), ClientId("people")
START = JOIN - 1  # the place of a run's reference to them: before what is kept from its first state on
DIGEST = re.compile("[0-9a-f]{64}")
UPLOAD = "Upload the file with PUT /weights/{digest}, or start the run with `tideline run start`, which does that"


def check_name(weights: str) -> None:
    """Raises ConfigRefused for what names no file that was uploaded. Nothing: a run without weights."""
    if weights and not DIGEST.fullmatch(weights):
        raise ConfigRefused(
            f"weights is {weights[:80]!r}; it should be the SHA-256 of a file that was uploaded, 64 hexadecimal digits",
            UPLOAD,
            path="weights",
        )


def gone(weights: str) -> ConfigRefused:
    """The refusal of a file that is not here: never uploaded, or collected since."""
    return ConfigRefused(
        f"There are no weights {weights[:12]} here: they were not uploaded, or nothing needed them for an hour and they are gone",
        UPLOAD,
        path="weights",
    )


def initial_weights_of(run: RunRow) -> Files:
    """The file that a run begins from, with its bytes; nothing for a run that brings none."""
    return ((run.spec.initial_weights, run.spec.initial_weights_bytes),) if run.spec.initial_weights else ()
