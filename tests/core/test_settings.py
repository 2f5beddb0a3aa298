"""Settings: what a person writes wrongly is answered with its place, its bound, its value and a guess at what was meant."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.core.errors import ConfigRefused
from tideline.core.recent import Recent
from tideline.core.run import ClientId, Role
from tideline.core.settings import EMPTY, parse, plain, setting


@dataclass(frozen=True)
class Inner:
    """Settings inside settings."""

    rate: float = setting(0.1, low=0.001, high=1.0, doc="a rate")


@dataclass(frozen=True)
class Config:
    """A setting of every kind."""

    rounds: int = setting(doc="how often")
    inner: Inner = field(default_factory=Inner)
    kind: str = setting("mean", choices=("mean", "median"))
    role: Role = setting(Role.SOURCE)
    roles: tuple[Role, ...] = setting(())
    sizes: Mapping[str, int] = setting(EMPTY, low=1)
    inputs: tuple[int, ...] = setting((1, 2), low=1, high=4096)
    quick: bool = setting(False)
    least: int | None = setting(None, low=1, high=1234567)
    many: tuple[Inner, ...] = setting(())
    table: Mapping[str, Inner] = setting(EMPTY)
    client: ClientId = setting(ClientId("north"))
    free: Mapping[str, Any] = setting(EMPTY)


WRONG: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "unknown": ({"round": 3}, "config.round", ("not a known setting", "did you mean rounds?")),
    "unknown inside": ({"inner": {"rat": 1}}, "config.inner.rat", ("did you mean rate?",)),
    "unknown and far": ({"xyz": 3}, "config.xyz", ("Use one of: client, free",)),
    "missing": ({}, "config.rounds", ("config.rounds is missing", "how often")),
    "text for int": ({"rounds": "3"}, "config.rounds", ("'3'", "a whole number")),
    "float for int": ({"rounds": 3.0}, "config.rounds", ("3.0", "a whole number")),
    "truth value for int": ({"rounds": True}, "config.rounds", ("True", "a whole number")),
    "null for int": ({"rounds": None}, "config.rounds", ("None", "a whole number")),
    "truth value for float": ({"inner": {"rate": True}}, "config.inner.rate", ("True", "a number")),
    "NaN": ({"inner": {"rate": math.nan}}, "config.inner.rate", ("nan", "finite")),
    "infinity": ({"inner": {"rate": math.inf}}, "config.inner.rate", ("inf", "finite")),
    "a number beyond floats": ({"inner": {"rate": 10**400}}, "config.inner.rate", ("1000", "finite")),
    "a number beyond printing": ({"least": 1 << 20_000}, "config.least", ("thousands of digits", "at most 1234567")),
    "too low": ({"inner": {"rate": 0}}, "config.inner.rate", ("0", "at least 0.001")),
    "too high": ({"inner": {"rate": 2}}, "config.inner.rate", ("2", "at most 1")),
    "too high, every digit": ({"least": 1234568}, "config.least", ("1234568", "at most 1234567")),
    "an item": ({"inputs": [1, 0]}, "config.inputs[1]", ("0", "at least 1")),
    "an item's type": ({"inputs": [1, "2"]}, "config.inputs[1]", ("'2'", "a whole number")),
    "no list": ({"inputs": 3}, "config.inputs", ("3", "a list")),
    "a text is no list": ({"inputs": "12"}, "config.inputs", ("'12'", "a list")),
    "a value": ({"sizes": {"d": 0}}, "config.sizes.d", ("0", "at least 1")),
    "no mapping": ({"sizes": [1]}, "config.sizes", ("[1]", "a mapping")),
    "choice": ({"kind": "medain"}, "config.kind", ("'medain'", "mean, median", "did you mean median?")),
    "enum": ({"role": "sorce"}, "config.role", ("'sorce'", "source, target, peer", "did you mean source?")),
    "an enum in a list": ({"roles": ["source", 7]}, "config.roles[1]", ("7", "one of source")),
    "a number beyond printing for an enum": ({"role": 1 << 20_000}, "config.role", ("thousands of digits", "one of source")),
    "a number beyond printing for a list": ({"inputs": 1 << 20_000}, "config.inputs", ("thousands of digits", "a list")),
    "a list for an enum": ({"role": ["source"]}, "config.role", ("one of source",)),
    "number for truth value": ({"quick": 1}, "config.quick", ("1", "true or false")),
    "number for text": ({"kind": 1}, "config.kind", ("1", "a text")),
    "number for a name": ({"client": 1}, "config.client", ("1", "a text")),
    "optional": ({"least": 0}, "config.least", ("0", "at least 1")),
    "settings in a list": ({"many": [{}, {"rate": 3}]}, "config.many[1].rate", ("3", "at most 1")),
    "settings in a mapping": ({"table": {"a": {"rate": -1}}}, "config.table.a.rate", ("-1", "at least 0.001")),
    "a list for settings": ({"inner": [1]}, "config.inner", ("[1]", "a mapping of settings")),
    "null for settings": ({"inner": None}, "config.inner", ("None", "a mapping of settings")),
    "a long value": ({"kind": "x" * 500}, "config.kind", ("xxx...",)),
}


@pytest.mark.parametrize(("given", "path", "words"), WRONG.values(), ids=WRONG)
def test_a_refusal_names_place_bound_and_value(given: dict[str, Any], path: str, words: tuple[str, ...]) -> None:
    """The place is in the words and, for programs, in the context."""
    base = {} if path == "config.rounds" else {"rounds": 1}
    with pytest.raises(ConfigRefused) as seen:
        parse(Config, base | given, "config")
    assert seen.value.context["path"] == path
    for word in (path, *words):
        assert word in str(seen.value)
    assert len(str(seen.value)) < 400


def test_what_is_no_mapping_is_refused_at_the_top() -> None:
    """A file that holds a list or nothing is answered in the same way."""
    answers: list[Any] = [None, [], "rounds", 3]
    for answer in answers:
        with pytest.raises(ConfigRefused, match="the experiment is"):
            parse(Config, answer)


def test_bounds_are_inclusive_and_types_are_made() -> None:
    """The bounds themselves are fine; whole numbers become floats, words enums, lists tuples."""
    made = parse(Config, {"rounds": 1, "inner": {"rate": 1}, "roles": ["peer"], "least": 1, "sizes": {"d": 1}, "inputs": [4096]})
    assert (made.inner.rate, type(made.inner.rate)) == (1.0, float)
    assert (made.roles, made.inputs, dict(made.sizes)) == ((Role.PEER,), (4096,), {"d": 1})
    assert parse(Config, {"rounds": 1, "least": None}).least is None


def test_what_was_read_cannot_be_changed() -> None:
    """Mappings are read-only, also where they are given by a caller that keeps them."""
    mine = {"d": 3}
    made = parse(Config, {"rounds": 1, "sizes": mine})
    mine["d"] = 4
    assert made.sizes["d"] == 3
    with pytest.raises(TypeError):
        made.sizes["d"] = 5  # type: ignore[index]


words = st.text(min_size=1, max_size=8)
inners = st.builds(Inner, st.floats(0.001, 1.0))
configs = st.builds(
    Config,
    rounds=st.integers(-(2**70), 2**70),
    inner=inners,
    kind=st.sampled_from(["mean", "median"]),
    role=st.sampled_from(Role),
    roles=st.lists(st.sampled_from(Role), max_size=3).map(tuple),
    sizes=st.dictionaries(words, st.integers(1, 9), max_size=3),
    inputs=st.lists(st.integers(1, 4096), max_size=3).map(tuple),
    quick=st.booleans(),
    least=st.none() | st.integers(1, 1234567),
    many=st.lists(inners, max_size=3).map(tuple),
    table=st.dictionaries(words, inners, max_size=2),
    client=words.map(ClientId),
)


@given(configs)
def test_plain_is_the_inverse_of_parse(config: Config) -> None:
    """Settings go through JSON and come back equal, defaults included."""
    told = plain(config)
    assert parse(Config, json.loads(json.dumps(told, allow_nan=False))) == config
    assert plain(parse(Config, told)) == told


def test_plain_has_one_order() -> None:
    """A set has no order of its own; as plain data it has one."""
    assert plain(frozenset({Role.TARGET, Role.SOURCE, Role.PEER})) == ["peer", "source", "target"]


# What was made of a value is made once, and forgotten in the end.


class Made:
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def test_made_once_for_a_source_and_what_else_it_depends_on() -> None:
    recent, make = Recent[int](8), Made()
    source = {"rounds": 1}
    assert [recent.of(source, make, "a"), recent.of(source, make, "a"), recent.of(source, make, "b")] == [1, 1, 2]


def test_an_equal_source_is_another_one() -> None:
    recent, make = Recent[int](8), Made()
    assert recent.of({"rounds": 1}, make) != recent.of({"rounds": 1}, make)


def test_the_oldest_is_forgotten() -> None:
    recent, make, sources = Recent[int](2), Made(), [{"n": i} for i in range(3)]
    assert [recent.of(each, make) for each in sources] == [1, 2, 3] and recent.of(sources[2], make) == 3
    assert recent.of(sources[0], make) == 4


def test_a_source_is_held_so_that_none_takes_its_place() -> None:
    recent, make = Recent[int](1000), Made()
    assert [recent.of({"n": i}, make) for i in range(500)] == list(range(1, 501))


def test_any_number_of_threads() -> None:
    """While some make values, others have the oldest forgotten; nobody is disturbed, and no more are kept than may be."""
    recent, sources = Recent[int](3), [{"n": i} for i in range(200)]
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda source: recent.of(source, lambda: source["n"]), sources * 20))
    assert made == [source["n"] for source in sources] * 20 and len(recent._made) <= 3
