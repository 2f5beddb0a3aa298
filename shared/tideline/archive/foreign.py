"""Tensors of a safetensors file that another program wrote.

The header is read by our own rules, with our limits, but for three that are no safety: its metadata may be any, buffers begin at
a multiple of 8 bytes, and whole numbers of every width are known.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.layout import LIMITS, META, Entry, Limits
from tideline.archive.rules import DTYPES

ITEM_BYTES: Mapping[str, int] = {**layout.ITEM_BYTES, "I32": 4, "I16": 2, "I8": 1}
KNOWN: Mapping[str, torch.dtype] = {**DTYPES, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8}
ALIGN = 8


def tensors_in(view: memoryview, limits: Limits = LIMITS) -> dict[str, Tensor]:
    """The named tensors of a whole file, over its bytes: nothing is copied. Raises the named errors of archive.errors."""
    raw, start = layout.read_header(view, limits)
    raw.pop(META, None)
    layout.few_enough(len(raw), limits)
    if start % ALIGN:
        raise errors.Misaligned(f"The buffers begin at byte {start}, which is no multiple of {ALIGN}")
    entries = layout.entries_in(raw, len(view) - start, limits, ITEM_BYTES)
    return {name: tensor_at(view, start, each) for name, each in entries.items()}


def tensor_at(view: memoryview, start: int, entry: Entry) -> Tensor:
    """One tensor. `start`: where the file's buffers begin."""
    dtype = KNOWN[entry.dtype]
    if entry.begin == entry.end:
        return torch.empty(entry.shape, dtype=dtype)
    count = (entry.end - entry.begin) // ITEM_BYTES[entry.dtype]
    return torch.frombuffer(view, dtype=dtype, count=count, offset=start + entry.begin).view(entry.shape)
