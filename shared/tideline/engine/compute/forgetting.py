"""What a site's memory does not hold on to: its rows.

A field of a memory that is declared SAMPLES is empty once the site has answered the plan's last exchange. Until then the memory
needs them, so that every exchange of a run has the same rows. Afterwards they would be a second copy of the site's data that
nobody knows of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from tideline.core.privacy import Exposure
from tideline.core.record import Kind, Spec, Undeclarable, specs

T = TypeVar("T")
EMPTY: Mapping[str, Any] = {"dict": {}, "weights": {}, "tuple": (), "optional": None}
NESTED = ("record", "dict", "tuple", "optional")


def without_rows(memory: T) -> T:
    """A memory whose rows are gone: of a tensor (n, ...) none is left, a mapping is empty. Raises Undeclarable."""
    changed = {spec.name: left_of(spec, getattr(memory, spec.name)) for spec in specs(type(memory))}
    return dataclasses.replace(memory, **changed)  # type: ignore[type-var]


def left_of(spec: Spec, value: Any) -> Any:
    if spec.exposure is None:
        return within(spec.kind, value)
    return emptied(spec, value) if spec.exposure is Exposure.SAMPLES else value


def within(kind: Kind, value: Any) -> Any:
    """What a value without a declaration of its own holds, each by its own."""
    if kind.what == "record":
        return without_rows(value)
    if kind.what == "dict" and kind.inner.what in NESTED:
        return {name: within(kind.inner, each) for name, each in value.items()}
    if kind.what == "tuple" and kind.inner.what in NESTED:
        return tuple(within(kind.inner, each) for each in value)
    return value if kind.what != "optional" or value is None else within(kind.inner, value)


def emptied(spec: Spec, value: Any) -> Any:
    if spec.kind.what == "tensor":
        return value[:0]
    if spec.kind.what in EMPTY:
        return EMPTY[spec.kind.what]
    raise Undeclarable(f"{spec.name} is declared as rows, and cannot be empty", "Keep rows in a Tensor, a mapping or a tuple")
