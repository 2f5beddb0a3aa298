"""The method as a value: its contract, its settings, its plan's rounds, its replies, and how it is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tideline.algorithms import METHODS as BUILT_IN
from tideline.core.algorithm import Algorithm, attribute, casting, contract, load_methods, resolve, round_of
from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.phase import Phase, Plan, Replies, unchanged
from tideline.core.privacy import TO_BOTH, TO_COORDINATOR, Clause, Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Role
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step


@record
class Answer:
    """What leaves."""

    x: Tensor = field("n d", Exposure.FEATURES, doc="features")
    n: int = field("", Exposure.COUNT, audience=TO_BOTH)


@dataclass(frozen=True)
class Config:
    """Settings."""

    rounds: int = setting(2, low=0)
    quiet: bool = setting(False)


@step(metrics=("loss",))
def fold(order: Nothing, memory: Nothing, site: Site) -> Outcome[Answer, Nothing]:
    """A step that answers."""
    raise NotImplementedError


@step()
def hush(order: Nothing, memory: Nothing, site: Site) -> Outcome[Nothing, Nothing]:
    """A step that answers nothing."""
    raise NotImplementedError


def plan(config: Config) -> Plan:
    """Work and rest, some rounds, then a computation on the coordinator."""
    work, rest = Phase("work", fold), Phase("rest", hush)
    return (rest,) if config.quiet else (work, rest) * config.rounds + (Phase("fold", None),)


def start(*_: Any) -> Nothing:
    """No state."""
    return Nothing()


TOY = Algorithm(
    "toy", "no paper", "A toy", Config, Nothing, start, plan, presets={"tiny": {"rounds": 1}, "silent": {"quiet": True}}
)
METHODS = (
    ("toy", f"{__name__}:TOY"),
    ("config", f"{__name__}:Config"),
    ("gone", f"{__name__}:gone"),
    ("nowhere", "no.where:toy"),
)
NOT_ROWS = (("toy", 3),)
TRIPLE = (("toy", "a:b", "c"),)
TWICE = (METHODS[0], METHODS[0])
LIST = list(METHODS)


def test_a_contract_is_every_leaf_and_metric_of_the_plan_once() -> None:
    """It follows the plan's order; repetition adds nothing; what sends nothing adds nothing."""
    assert contract(TOY, Config(rounds=3)) == (
        Clause("work", "fold", "x", "n d", Exposure.FEATURES, TO_COORDINATOR, "features"),
        Clause("work", "fold", "n", "", Exposure.COUNT, TO_BOTH, ""),
        Clause("work", "fold", "metrics.loss", "", Exposure.METRIC, TO_COORDINATOR, "one number per reply"),
    )
    assert contract(TOY, Config(quiet=True)) == contract(TOY, Config(rounds=0)) == ()


def test_rounds_count_earlier_phases_of_the_name() -> None:
    """A phase's round starts from 1 and knows nothing of other phases."""
    made = plan(Config(rounds=3))
    assert [(p.name, round_of(made, i)) for i, p in enumerate(made)] == [
        ("work", 1), ("rest", 1), ("work", 2), ("rest", 2), ("work", 3), ("rest", 3), ("fold", 1),
    ]  # fmt: skip


def test_settings_come_over_a_preset() -> None:
    """Given settings win over the preset, the preset over defaults; an unknown preset is answered with a guess."""
    assert TOY.configure({}) == Config()
    assert TOY.configure({"quiet": True}, "tiny") == Config(rounds=1, quiet=True)
    assert TOY.configure({"rounds": 5}, "tiny") == Config(rounds=5)
    with pytest.raises(ConfigRefused, match="did you mean tiny") as seen:
        TOY.configure({}, "tny")
    assert seen.value.context["path"] == "preset"
    with pytest.raises(ConfigRefused, match=r"config\.rounds is -1; it should be at least 0"):
        TOY.configure({"rounds": -1}, "tiny")


def test_a_demonstration_has_a_role_for_every_site() -> None:
    """The last site takes the last role, the others go through the rest in turn."""
    assert casting(TOY.cast, 3) == (Role.SOURCE, Role.SOURCE, Role.TARGET)
    assert casting(TOY.cast, 1) == (Role.TARGET,)
    alone = Algorithm("alone", "", "", Config, Nothing, start, plan, cast=(Role.PEER,))
    assert casting(alone.cast, 3) == (Role.PEER,) * 3
    one_source = replace(TOY, cast=(Role.SOURCE, Role.TARGET, Role.TARGET))
    assert casting(one_source.cast, 4) == (Role.SOURCE, *(Role.TARGET,) * 3)
    assert [casting(one_source.cast, n) for n in (1, 2)] == [(Role.TARGET,), (Role.SOURCE, Role.TARGET)]


@given(st.permutations([ClientId(n) for n in ("a", "B", "b", "ä", "site-10", "site-2")]))
def test_replies_come_in_sorted_order_whoever_came_first(arrival: list[ClientId]) -> None:
    """Keys, values and items are sorted by client; each reply is loaded when it is looked at, and only then."""
    loaded: list[str] = []

    def load(client: ClientId) -> str:
        loaded.append(client)
        return client.upper()

    replies = Replies({c: partial(load, c) for c in arrival}, {arrival[0]: {"loss": 1.0}})
    assert len(replies) == len(arrival) and list(replies) == sorted(arrival) and loaded == []
    assert [v for _, v in zip(range(2), replies.values(), strict=False)] == [c.upper() for c in sorted(arrival)[:2]]
    assert loaded[:2] == sorted(arrival)[:2] and replies.metrics[arrival[0]] == {"loss": 1.0}
    with pytest.raises(KeyError):
        replies[ClientId("nobody")]


def test_what_a_phase_does_by_default() -> None:
    """It asks nobody and keeps the state."""
    state = Nothing()
    phase = Phase("fold", None)
    asked = phase.ask(state, None)  # type: ignore[arg-type]
    assert (dict(asked), unchanged(state, Replies({}), None), phase.skip(state)) == ({}, state, False)  # type: ignore[arg-type]


def test_a_method_is_found_by_name() -> None:
    """An unknown name is answered with those that exist, a place without a method with the reason."""
    assert resolve(METHODS, "toy") is TOY
    with pytest.raises(NotFound, match="did you mean toy") as seen:
        resolve(METHODS, "tyo")
    assert seen.value.context["path"] == "method"
    for name, reason in (("config", "is no Algorithm"), ("gone", "no attribute 'gone'"), ("nowhere", "No module named")):
        with pytest.raises(ConfigRefused, match=reason):
            resolve(METHODS, name)


REPLACING = (("fedavg", f"{__name__}:TOY"),)
AGAIN = BUILT_IN[:2]  # the same rows are the same methods
PLACES = {
    "": "Empty module name",
    ":METHODS": "Empty module name",
    __name__: "no attribute ''",
    f"{__name__}:": "no attribute ''",
    f"{__name__}:METHOD": "no attribute 'METHOD'",
    "no.such.module:METHODS": "No module named",
    ".relative:METHODS": "package",
    f"{__name__}:LIST": "not a tuple",
    f"{__name__}:TOY": "not a tuple",
    f"{__name__}:NOT_ROWS": "not a tuple",
    f"{__name__}:TRIPLE": "not a tuple",
    f"{__name__}:TWICE": "names 'toy' twice",
    f"{__name__}:REPLACING": "adds 'fedavg', and there is such a method: methods are added, never replaced",
}


@pytest.mark.parametrize(("place", "reason"), PLACES.items())
def test_an_operators_registry_is_checked(place: str, reason: str) -> None:
    """`--methods` with a wrong place or a wrong tuple is refused with the place and the reason."""
    with pytest.raises(ConfigRefused, match=reason) as seen:
        load_methods(place)
    assert "--methods" in str(seen.value) and load_methods(f"{__name__}:METHODS") == (*BUILT_IN, *METHODS)
    assert load_methods(f"{__name__}:AGAIN") == load_methods() == BUILT_IN


def test_a_module_that_is_not_there_and_one_that_imports_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where modules are looked for; what the second lacks is not the place that was named."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imports_what_is_not_there.py").write_text("import no_such_package\n")
    for place, todo in (
        ("nowhere:IT", "Start the command in the folder where the module is, or install it. Write"),
        ("imports_what_is_not_there:IT", "Install what the module imports, or correct the module"),
    ):
        with pytest.raises(ConfigRefused) as refused:
            attribute(place, "--networks")
        assert refused.value.todo.startswith(todo)
