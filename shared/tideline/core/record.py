"""Records: anything that is sent or kept. A record is a frozen dataclass whose fields say what they are.

    @record
    class Atoms:
        z: Tensor = field("K n d", SYNTHETIC, doc="support points")

Field types: Tensor, Weights (name -> Tensor), int, float, str, bool, records, Handle[record], dict[str, T], tuple[T, ...] and
T | None. A Handle's record travels sealed to other sites, so its fields declare the audience TO_PEERS, and no other fields do.
Dims are names bound once per message, an order's for its reply too; a number pins a size, `...` stands for any further axes. On
Weights, `like model` ties names, shapes and dtypes to the field `model` of the order. On numbers, alone or in a Tensor, `low` is
the least that is taken. A `difference` is one already, as an update less the model before: a run's wire takes none of it again.
`private` says what a reply's field is made of in a run that protects rows; a field that does not say so is refused there.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeGuard, TypeVar

from tideline.core.errors import FederationError
from tideline.core.handle import AnyHandle, Handle
from tideline.core.privacy import TO_COORDINATOR, TO_PEERS, Audience, Exposure

if TYPE_CHECKING:
    from torch import Tensor

    Weights = Mapping[str, Tensor]
    Value: TypeAlias = (
        "bool | int | float | str | Tensor | Weights | AnyHandle | Record | Mapping[str, Value] | tuple[Value, ...] | None"
    )
else:
    Weights = Mapping

    class Value:
        """What a field may hold."""


T = TypeVar("T")
DEEPEST = 32


class Record(Protocol):
    """A value whose class was made by `record`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


HOLDS = "Tensor, Weights, int, float, str, bool, a record, Handle[record], dict[str, T], tuple[T, ...], T | None"


class Undeclarable(FederationError):
    """A record's field has a type that cannot be sent or kept, or lacks its exposure."""


def field(
    dims: str = "",
    exposure: Exposure | None = None,
    *,
    audience: frozenset[Audience] = TO_COORDINATOR,
    doc: str = "",
    low: float | None = None,
    difference: bool = False,
    private: str = "",
    form: str = "",
    default: Any = dataclasses.MISSING,
) -> Any:
    """A record's field: its dims, what it exposes (required in replies), whom it may reach, and a sentence. form: how it travels,
    where that is not as it is.
    """
    meta: dict[str, Any] = {"dims": " ".join(dims.split()), "exposure": exposure, "audience": audience, "doc": doc, "low": low}
    more = {"difference": difference, "private": private, "form": form}
    meta |= {name: value for name, value in more.items() if value}
    return dataclasses.field(default=default, metadata=meta)


@typing.dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class a record: frozen, compared by identity (tensors have no truth value)."""
    made = dataclasses.dataclass(frozen=True, eq=False)(cls)
    made.__record__ = True  # type: ignore[attr-defined]
    return made


@record
class Nothing:
    """A message or a memory without content."""


# What a field's type is made of: the archive walks these.
@dataclasses.dataclass(frozen=True)
class Kind:
    """A field's type: `what` is one of tensor, weights, scalar, record, handle, dict, tuple, optional."""

    what: str
    of: Kind | None = None
    type: type[Any] = object

    @property
    def inner(self) -> Kind:
        assert self.of is not None
        return self.of


@dataclasses.dataclass(frozen=True)
class Spec:
    """One field of a record, resolved."""

    name: str
    kind: Kind
    dims: str = ""
    exposure: Exposure | None = None
    audience: frozenset[Audience] = TO_COORDINATOR
    doc: str = ""
    low: float | None = None
    difference: bool = False
    private: str = ""
    form: str = ""


def is_record(kind: object) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and getattr(kind, "__record__", False)


def specs(kind: type[Any]) -> tuple[Spec, ...]:
    """The fields of a record type, in order of declaration. Raises Undeclarable for a type that cannot be kept."""
    return resolved(typing.cast(Hashable, kind))


@functools.cache
def resolved(kind: Any) -> tuple[Spec, ...]:
    if not is_record(kind):
        raise Undeclarable(f"{kind!r} is not a record", "Decorate the class with @record")
    hints = typing.get_type_hints(kind)
    made = []
    for f in dataclasses.fields(kind):
        where = f"{kind.__name__}.{f.name}"
        made.append(spec := Spec(f.name, resolve(hints[f.name], where), **f.metadata))
        check_dims(spec.dims.split(), spec.kind, where)
    return tuple(made)


def check_dims(words: list[str], kind: Kind, where: str) -> None:
    """Dims that the archive can hold a value to: `like NAME` on Weights, names and numbers on tensors, none on the rest."""
    while kind.what in ("dict", "tuple", "optional"):
        kind = kind.inner
    if kind.what == "weights":
        good = not words or (len(words) == 2 and words[0] == "like" and words[1].isidentifier())
    else:
        names = words[:-1] if words[-1:] == ["..."] else words
        good = all(n != "like" and (n.isidentifier() or (n.isascii() and n.isdigit())) for n in names)
        good = good and (kind.what == "tensor" or not words)
    if not good:
        what = f"{where} has the dims {' '.join(words)!r}, which nothing could be held to"
        raise Undeclarable(what, 'Write names and numbers ("K n ..."), on Weights "like NAME", on other types nothing')


def resolve(hint: Any, where: str) -> Kind:
    from torch import Tensor

    hint = getattr(hint, "__supertype__", hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Tensor:
        return Kind("tensor")
    if hint in (int, float, str, bool):
        return Kind("scalar", type=hint)
    if is_record(hint):
        return Kind("record", type=hint)
    if origin is Handle and is_record(args[0]):
        return Kind("handle", type=args[0])
    if hint is Mapping:
        return Kind("weights")
    if origin in (dict, Mapping) and getattr(args[0], "__supertype__", args[0]) is str:
        return Kind("weights") if args[1] is Tensor else Kind("dict", of=resolve(args[1], where))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return Kind("tuple", of=resolve(args[0], where))
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return Kind("optional", of=resolve(next(a for a in args if a is not type(None)), where))
    raise Undeclarable(f"{where} has the type {hint!r}, which no archive can hold", f"Use one of: {HOLDS}")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One thing in a record that is sent: its dotted path and what was declared of it. sealed: it is behind a handle."""

    path: str
    dims: str
    exposure: Exposure | None
    audience: frozenset[Audience]
    doc: str
    kind: Kind
    sealed: bool = False
    difference: bool = False
    private: str = ""
    form: str = ""


def leaves(kind: type[Any], prefix: str = "") -> Iterator[Leaf]:
    """Every leaf of a record type. An exposure declared on an outer field covers what lies inside it."""
    if prefix.count(".") > DEEPEST:
        raise Undeclarable(f"{kind.__name__} holds itself, so what it exposes has no end", "Send a tuple of records instead")
    for spec in specs(kind):
        yield from leaf(spec, spec.kind, prefix + spec.name)


def leaf(spec: Spec, kind: Kind, path: str) -> Iterator[Leaf]:
    if kind.what in ("dict", "tuple"):
        yield from leaf(spec, kind.inner, path + ".*")
    elif kind.what == "optional":
        yield from leaf(spec, kind.inner, path)
    elif kind.what == "handle":
        yield from (dataclasses.replace(each, sealed=True) for each in unsealed(kind.type, path))
    elif kind.what == "record" and spec.exposure is None:
        yield from leaves(kind.type, path + ".")
    else:
        yield Leaf(
            path=path,
            dims=spec.dims,
            exposure=spec.exposure,
            audience=spec.audience,
            doc=spec.doc,
            kind=kind,
            difference=spec.difference,
            private=spec.private,
            form=spec.form,
        )


def inner_specs(kind: type[Any], outer: Spec) -> tuple[Spec, ...]:
    """The fields of a record within a field, whose exposure covers theirs if it is declared."""
    known = specs(kind)
    return known if outer.exposure is None else tuple(dataclasses.replace(each, exposure=None) for each in known)


def unsealed(kind: type[Any], path: str) -> Iterator[Leaf]:
    for each in leaves(kind, path + "."):
        if each.sealed:
            raise Undeclarable(f"{path} is sealed and holds the handle {each.path}", "Give handles beside it, not inside")
        yield each


def holds_rows(kind: type[Any]) -> bool:
    """Whether a type of memory declares rows: they are emptied after the last exchange."""
    return any(leaf.exposure is Exposure.SAMPLES for leaf in leaves(kind))


def require_exposures(kind: type[Any]) -> None:
    """A reply type with a field that does not say what it exposes, or that names the wrong readers, does not load."""
    for each in leaves(kind):
        if each.exposure is None:
            todo = 'Declare it: field("dims", Exposure...., doc="...")'
            raise Undeclarable(f"{kind.__name__}.{each.path} may leave a site but does not say what it exposes", todo)
        if not each.audience:
            what = f"{kind.__name__}.{each.path} may leave a site but reaches nobody, so no policy could refuse it"
            raise Undeclarable(what, "Declare its audience, or leave the field out")
        if each.sealed != (each.audience == TO_PEERS):
            who = "is sealed, so nobody but peers can read it" if each.sealed else "is not sealed, so the coordinator reads it"
            todo = "Declare audience=TO_PEERS for what lies in a Handle's record, and nowhere else"
            raise Undeclarable(f"{kind.__name__}.{each.path} {who}, and its audience says otherwise", todo)
