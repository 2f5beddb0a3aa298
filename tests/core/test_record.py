"""Records: what a field may be, and what a reply must say about it before it can be loaded at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NewType

import pytest
import torch
from torch import Tensor

from tideline.core.handle import Handle
from tideline.core.privacy import TO_BOTH, TO_COORDINATOR, TO_PEERS, Exposure
from tideline.core.record import Kind, Nothing, Undeclarable, Weights, field, leaves, record, require_exposures, specs
from tideline.core.step import Outcome, Site, step

Name = NewType("Name", str)


@record
class Point:
    """Two declared leaves."""

    x: Tensor = field("n d", Exposure.FEATURES, doc="a cloud")
    n: int = field("", Exposure.COUNT, audience=TO_BOTH)


@record
class Secret:
    """What a handle opens."""

    h: Tensor = field("d", Exposure.WEIGHTS, audience=TO_PEERS)


@record
class Told:
    """Every way to hold declared things."""

    w: Weights = field("like model", Exposure.WEIGHTS)
    point: Point
    maybe: Point | None
    points: tuple[Point, ...]
    table: dict[str, tuple[Point | None, ...]]
    covered: dict[str, Point] = field("", Exposure.SAMPLES, audience=TO_BOTH)
    handles: tuple[Handle[Secret], ...]
    named: Mapping[Name, Tensor] = field("like   model", Exposure.WEIGHTS)


def test_leaves_are_every_declared_thing_once() -> None:
    """The path says where a leaf lies; an exposure on an outer field covers what is inside."""
    found = {leaf.path: (leaf.dims, leaf.exposure, leaf.audience) for leaf in leaves(Told)}
    features, count = ("n d", Exposure.FEATURES, TO_COORDINATOR), ("", Exposure.COUNT, TO_BOTH)
    inside = {
        f"{path}.{name}": what
        for path in ("point", "maybe", "points.*", "table.*.*")
        for name, what in (("x", features), ("n", count))
    }
    weights = ("like model", Exposure.WEIGHTS, TO_COORDINATOR)
    assert found.pop("handles.*.h") == ("d", Exposure.WEIGHTS, TO_PEERS)
    assert found == {"w": weights, **inside, "covered.*": ("", Exposure.SAMPLES, TO_BOTH), "named": weights}
    require_exposures(Told)


def test_kinds_of_fields() -> None:
    """A type hint is resolved to what the archive walks."""

    kinds = {s.name: s.kind for s in specs(Told)}
    point = Kind("record", type=Point)
    assert kinds["table"] == Kind("dict", of=Kind("tuple", of=Kind("optional", of=point)))
    assert (kinds["w"], kinds["named"], kinds["maybe"]) == (Kind("weights"), Kind("weights"), Kind("optional", of=point))
    assert kinds["handles"] == Kind("tuple", of=Kind("handle", type=Secret)) and specs(Nothing) == ()


def test_records_are_frozen_and_compared_by_identity() -> None:
    """A value is never changed, and tensors are never asked for their truth."""
    point = Point(torch.zeros(1), 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.n = 2  # type: ignore[misc]
    assert point != Point(point.x, 1) and len({point, point}) == 1


def record_of(hint: Any, **declared: Any) -> type[Any]:
    """A record with one field, `x`, of a type."""
    return record(type("Made", (), {"__annotations__": {"x": hint}, "x": field(**declared)}))


HINTS = {
    "object": object,
    "anything": Any,
    "list": list[int],
    "bare dict": dict,
    "bare tuple": tuple,
    "a pair": tuple[int, int],
    "bytes": bytes,
    "complex": complex,
    "set": frozenset[int],
    "a choice": int | str,
    "an optional choice": int | str | None,
    "keys that are numbers": dict[int, int],
    "weights by number": dict[int, Tensor],
    "a plain dataclass": Exposure,
    "a function": Callable[[int], int],
    "a handle of no record": Handle[int],
    "inside": dict[str, tuple[list[int], ...]],
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_what_no_archive_can_hold_is_refused(hint: Any) -> None:
    """The refusal names the field and lists what it may be."""
    with pytest.raises(Undeclarable, match=r"Made\.x .*Use one of: Tensor, Weights"):
        specs(record_of(hint))
    with pytest.raises(Undeclarable, match="not a record"):
        specs(int)


DIMS = {
    "on a number": (int, "n"),
    "on a record": (Point, "n d"),
    "on texts": (tuple[str, ...], "n"),
    "names on weights": (Weights, "n d"),
    "like what": (Weights, "like"),
    "like two": (Weights, "like a b"),
    "like on a tensor": (Tensor, "like model"),
    "dots in the middle": (Tensor, "n ... d"),
    "dots twice": (Tensor, "... ..."),
    "arithmetic": (Tensor, "n+1"),
    "negative": (Tensor, "-1"),
    "a numeral that is no number": (Tensor, "²"),
    "commas": (Tensor, "n,d"),
}


@pytest.mark.parametrize(("hint", "dims"), DIMS.values(), ids=DIMS)
def test_dims_that_nothing_is_held_to_are_refused(hint: Any, dims: str) -> None:
    """A declared size that would not be checked is no declaration."""
    with pytest.raises(Undeclarable, match=r"Made\.x has the dims"):
        specs(record_of(hint, dims=dims))


@pytest.mark.parametrize("dims", ["", "n", "n_c K 10 ...", "...", "  n   d "])
def test_dims_of_tensors(dims: str) -> None:
    """Names, numbers, and dots at the end, also inside containers; spacing has no meaning."""
    for hint in (Tensor, tuple[Tensor, ...], Tensor | None):
        assert specs(record_of(hint, dims=dims))[0].dims == " ".join(dims.split())


@record
class Bare:
    """A field that says nothing."""

    x: Tensor


@record
class Deep:
    """A field that says nothing, far inside."""

    table: dict[str, tuple[Bare, ...]]


@record
class Toward:
    """A field for nobody."""

    x: int = field("", Exposure.COUNT, audience=frozenset())


@record
class Endless:
    """A record of its own kind."""

    rest: Endless | None


@record
class Unkept:
    """A field that no archive holds."""

    x: list[int] = field("", Exposure.COUNT)


@record
class Open:
    """A field for peers that no handle hides."""

    x: int = field("", Exposure.COUNT, audience=TO_PEERS)


@record
class Wrapped:
    """A handle of what is declared for the coordinator too."""

    h: Handle[Point]


@record
class Twice:
    """A handle of a record with a handle."""

    h: Handle[Sealing]


@record
class Sealing:
    """A record with a handle."""

    h: Handle[Secret]


UNLOADABLE = {
    "for peers and not sealed": (Open, r"Open\.x is not sealed, so the coordinator reads it"),
    "sealed and not for peers": (Wrapped, r"Wrapped\.h\.x is sealed, so nobody but peers"),
    "a handle in a sealed value": (Twice, r"h is sealed and holds the handle h\.h"),
    "undeclared": (Bare, r"Bare\.x may leave a site but does not say"),
    "undeclared inside": (Deep, r"Deep\.table\.\*\.\*\.x may leave"),
    "for nobody": (Toward, r"Toward\.x .* reaches nobody"),
    "endless": (Endless, "Endless holds itself"),
    "of no kind": (Unkept, r"Unkept\.x has the type"),
    "no record": (dict, "not a record"),
}


@pytest.mark.parametrize(("gives", "words"), UNLOADABLE.values(), ids=UNLOADABLE)
def test_a_reply_with_an_undeclared_field_does_not_load(gives: Any, words: str) -> None:
    """The step's decoration fails, so its module cannot be imported; as an order or a memory the same type is fine."""

    def run(order: Any, memory: Any, site: Site) -> Any:
        """A step."""

    run.__annotations__ = {"order": Nothing, "memory": Nothing, "site": Site, "return": Outcome[gives, Nothing]}
    with pytest.raises(Undeclarable, match=words):
        step()(run)
    run.__annotations__ |= {"order": gives, "memory": gives, "return": Outcome[Point, gives]}
    made = step(metrics=("loss",))(run)
    assert (made.name, made.takes, made.keeps, made.gives, made.metrics) == ("run", gives, gives, Point, ("loss",))
