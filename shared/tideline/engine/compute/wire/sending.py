"""How a site packs its replies: the seed of a step, and what rounding left out of the messages before."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tideline.archive.checks import LAX
from tideline.archive.errors import PartMissing
from tideline.archive.parts import Parts
from tideline.archive.reader import decode
from tideline.archive.wire.packing import Packing
from tideline.archive.writer import encode
from tideline.core.record import Weights, record
from tideline.core.settings import EMPTY
from tideline.engine.model.orders import Files, Purpose, seed_for
from tideline.engine.ports.site import Job


@record
class Unsent:
    """What rounding left out of the last message of each field, in bfloat16, by the step that gives it and the field's path."""

    fields: tuple[str, ...]
    numbers: tuple[Tensor, ...]


def sending(packing: Packing | None, job: Job, step: str, parts: Parts, feedback: bool) -> Packing | None:
    """How a step's reply is written. feedback: whether what was left out before is added, and what is left out now noted."""
    if packing is None:
        return None
    feedback = feedback and packing.wire.feedback
    return replace(
        packing,
        seed=seed_for(job.seed, Purpose.WIRE, job.cursor, job.client),
        before=unsent_before(job, parts) if feedback else EMPTY,
        left={} if feedback else None,
        coarse=[],
        at=step,
    )


def unsent_before(job: Job, parts: Parts) -> Weights:
    """What the messages before left out. Where that is damaged or gone, nothing: the next messages are rounded as the first."""
    if job.unsent is None:
        return EMPTY
    try:
        kept = decode(Unsent, job.unsent, parts, LAX)
    except PartMissing:
        return EMPTY
    return dict(zip(kept.fields, kept.numbers, strict=True))


def unsent_after(packing: Packing | None, parts: Parts) -> Files:
    """The file of what was left out so far; none where this message was not rounded."""
    if packing is None or not packing.left:
        return ()
    # Half of the bytes: three digits of what is a fraction of a step are enough.
    left = {name: t.to(torch.bfloat16) for name, t in sorted({**packing.before, **packing.left}.items())}
    return encode(Unsent(tuple(left), tuple(left.values())), parts, LAX).files
