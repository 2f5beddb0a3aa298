"""Settings: frozen dataclasses whose fields carry their bounds, and the one reader that checks a mapping against them.

    @dataclass(frozen=True)
    class Config:
        rounds: int = setting(10, low=1, doc="rounds of averaging")

`parse(Config, {"rounds": 0})` raises ConfigRefused: it names the setting, the bound and the value.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar, overload

from tideline.core.errors import ConfigRefused

T = TypeVar("T")
EMPTY: Mapping[Any, Any] = types.MappingProxyType({})


class Settings(Protocol):
    """A frozen dataclass of settings, such as a method's config."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


if TYPE_CHECKING:
    Plain: TypeAlias = "bool | int | float | str | Sequence[Plain] | Mapping[str, Plain] | None"
else:

    class Plain:
        """What JSON can say. A mark for the reader, which takes such a value as it is."""


SCALARS: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}
WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def setting(
    default: Any = dataclasses.MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    doc: str = "",
    kept: bool = False,
    later: bool = False,
    sizes: Mark | None = None,
) -> Any:
    """A dataclass field with its bounds (inclusive), its allowed values and a sentence of documentation.

    kept: a setting that stays at the coordinator, such as one that says something of other sites. Sites have its default.
    later: a setting of a method that was released without it. Sites hear of another value than its default alone, as earlier
    versions refuse what they do not know.
    sizes: what it sizes in a site's training, a mark such as RATE or pull("rate").
    """
    meta = {"low": low, "high": high, "choices": choices, "doc": doc, "kept": kept, "later": later, "sizes": sizes}
    if isinstance(default, Mapping):
        return dataclasses.field(default_factory=lambda: default, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def unsaid(settings: Settings) -> tuple[str, ...]:
    """The names of settings that sites are not told of, and have the default of."""
    found = ((f.name, f.metadata, getattr(settings, f.name) == f.default) for f in dataclasses.fields(settings))
    return tuple(name for name, marks, default in found if marks.get("kept") or (marks.get("later") and default))


def parse(kind: type[T], given: Mapping[str, Any], where: str = "") -> T:
    """`kind` built from plain data. Raises ConfigRefused with `context["path"]`, the dotted place of what is wrong."""
    if not isinstance(given, Mapping):
        raise refuse(where, given, "should be a mapping of settings")
    if unfolded := getattr(kind, "unfolded", None):  # what people write in a shorter form
        given = unfolded(given, where)
    hints = hints_of(typing.cast(Hashable, kind))
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}  # type: ignore[arg-type]
    for key in given:
        if key not in fields:
            path, todo = join(where, str(key)), f"Use one of: {', '.join(sorted(fields))}{nearest(str(key), sorted(fields))}"
            raise ConfigRefused(f"{path} is not a known setting", todo, path=path)
    values = {name: read(hints[name], given[name], join(where, name), fields[name].metadata) for name in given}
    for name, f in fields.items():
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            path = join(where, name)
            raise ConfigRefused(f"{path} is missing", f"Add {name}: {f.metadata.get('doc', '')}", path=path)
    return kind(**values)


@functools.cache
def hints_of(kind: Hashable) -> Mapping[str, Any]:
    """The types of a dataclass's fields, worked out once: to evaluate them takes longer than all the rest."""
    return types.MappingProxyType(typing.get_type_hints(kind))


@overload
def plain(value: Settings | Mapping[str, Any]) -> dict[str, Plain]: ...
@overload
def plain(value: object) -> Plain: ...
def plain(value: Any) -> Any:
    """The inverse of `parse`: dataclasses and enums as JSON-ready data, defaults included."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, frozenset):
        return sorted((plain(v) for v in value), key=repr)
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


def read(hint: Any, value: Any, path: str, meta: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
    """One value checked against its type and its bounds."""
    if hint is Plain:
        return value
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return read(meant(args, value), value, path, meta)
    if origin is tuple:
        return read_tuple(args, value, path, meta)
    if origin is frozenset:
        return frozenset(read_tuple((*args, ...), value, path, meta))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise refuse(path, value, "should be a mapping")
        return types.MappingProxyType({str(k): read(args[1], v, join(path, str(k)), meta) for k, v in value.items()})
    if dataclasses.is_dataclass(origin or hint):
        return parse(typing.cast(type, origin or hint), value, path)
    return bounded(read_scalar(hint, value, path), path, meta)


def meant(args: tuple[Any, ...], value: Any) -> Any:
    """The one of a union's types that a value is given for: of its own type, or a dataclass for a mapping; else the first."""
    kinds = [kind for kind in args if kind is not type(None)]
    mapping = isinstance(value, Mapping)
    return next((kind for kind in kinds if (dataclasses.is_dataclass(kind) if mapping else type(value) is kind)), kinds[0])


def read_tuple(args: tuple[Any, ...], value: Any, path: str, meta: Mapping[str, Any]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise refuse(path, value, "should be a list")
    kinds = args if args[-1] is not ... else (args[0],) * len(value)
    if len(kinds) != len(value):
        raise refuse(path, value, f"should be a list of {len(kinds)}")
    return tuple(read(kind, v, f"{path}[{i}]", meta) for i, (kind, v) in enumerate(zip(kinds, value, strict=True)))


def read_scalar(hint: Any, value: Any, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        words = [str(m.value) for m in hint]
        if value not in words:
            raise refuse(path, value, f"should be one of {', '.join(words)}{guess(value, words)}")
        return hint(value)
    base = getattr(hint, "__supertype__", hint)
    if not isinstance(value, SCALARS[base]) or (isinstance(value, bool) and base is not bool):
        raise refuse(path, value, f"should be {WORDS[base]}")
    if base is float and not finite(value):
        raise refuse(path, value, "should be a number that is finite and fits 64 bits")
    return base(value)


def finite(value: Any) -> bool:
    """Whether a number is one that JSON and a float can hold. A whole number may be too large for either."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def bounded(value: Any, path: str, meta: Mapping[str, Any]) -> Any:
    low, high, choices = meta.get("low"), meta.get("high"), meta.get("choices")
    if choices is not None and value not in choices:
        words = [str(c) for c in choices]
        raise refuse(path, value, f"should be one of {', '.join(words)}{guess(value, words)}")
    if low is not None and value < low:
        raise refuse(path, value, f"should be at least {number(low)}")
    if high is not None and value > high:
        raise refuse(path, value, f"should be at most {number(high)}")
    return value


def refuse(path: str, value: Any, should: str) -> ConfigRefused:
    return ConfigRefused(f"{path or 'the experiment'} is {show(value)}; it {should}", "Correct the value", path=path)


def number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else repr(bound)


def show(value: Any) -> str:
    try:
        shown = repr(value)
    except ValueError:
        return "a whole number of thousands of digits"
    return shown if len(shown) <= 80 else shown[:77] + "..."


def nearest(word: str, words: Sequence[str]) -> str:
    """A guess at what was meant, or nothing."""
    close = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def guess(value: Any, words: Sequence[str]) -> str:
    return nearest(value, words) if isinstance(value, str) else ""


def join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


# What a setting sizes in a site's training. What holds all methods to an owner's limits reads these marks, and knows no names.


class Sizes(StrEnum):
    """RATE: how far a step of a site goes along a gradient. PULL: draws weights back in each step, by so much of a rate. BATCH:
    rows of a mini-batch. STEPS: mini-batches that an answer is made of in place of epochs; 0: epochs. ROWS: rows of which one
    gradient is that is told as it is. EPOCHS, ROUNDS: how often rows are seen, and answers given. ELSEWHERE: it sizes no step
    that a site takes on its rows, though its name may sound like it.
    """

    RATE = "rate"
    PULL = "pull"
    BATCH = "batch"
    STEPS = "steps"
    ROWS = "rows"
    EPOCHS = "epochs"
    ROUNDS = "rounds"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Mark:
    """of: the setting beside it that it goes with: the rate of a pull, the mini-batch of steps."""

    sizes: Sizes
    of: str = ""


RATE, BATCH, ROWS = Mark(Sizes.RATE), Mark(Sizes.BATCH), Mark(Sizes.ROWS)
EPOCHS, ROUNDS, ELSEWHERE = Mark(Sizes.EPOCHS), Mark(Sizes.ROUNDS), Mark(Sizes.ELSEWHERE)


def pull(of: str) -> Mark:
    """The mark of a weight decay or a proximal term. of: the rate whose steps it acts in."""
    return Mark(Sizes.PULL, of)


def steps(of: str) -> Mark:
    """The mark of a number of mini-batches. of: their size."""
    return Mark(Sizes.STEPS, of)


def marks_in(config: type[Settings], at: str = "") -> Iterator[tuple[str, Mark]]:
    """The marks of a method's settings by their path, those of settings within settings too."""
    for each in dataclasses.fields(config):
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            yield from marks_in(type(default), f"{at}{each.name}.")
        elif (mark := each.metadata.get("sizes")) is not None:
            yield f"{at}{each.name}", Mark(mark.sizes, f"{at}{mark.of}" if mark.of else "")
