"""Best and last models: the state of a run's best round stays at the coordinator, and each site's memory of it at the site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine import peaks
from tests.engine.test_lasting import CASES, at, killed
from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import STORE_BEST
from tideline.core.errors import ConfigRefused, Malformed
from tideline.core.phase import VALIDATION
from tideline.core.run import ClientId, OrderId, Role, RunId
from tideline.core.settings import plain, read
from tideline.engine.coordinator.result import result_of
from tideline.engine.coordinator.scores import chance_notes, scored_state
from tideline.engine.model.brief import Brief, brief_in, plain_brief
from tideline.engine.model.orders import Files, Hold, Order
from tideline.engine.ports.site import Best, Head
from tideline.engine.simulation.federation import Federation
from tideline.engine.site.remembered import best_of

NAMES = tuple(peaks.EXPERIMENT["roster"])


def played(on: Federation, **config: Any) -> RunId:
    run = on.start({**peaks.EXPERIMENT, "config": config})
    on.run(run)
    return run


def kept(on: Federation, run: RunId) -> tuple[float, dict[str, float | None]]:
    """The count in the best state, read from the coordinator's parts, and that in what each site kept."""
    row = on.run_service.find(run)
    assert row.best is not None
    files = scored_state(on.journal.rounds(run), row.best)
    on.part_store.sweep("nobody")
    state = decode(peaks.Count, files[0][0], on.parts, LAX)
    return float(state.w), {name: count_at(on, run, name, row.best) for name in NAMES}


def count_at(on: Federation, run: RunId, name: str, best: int) -> float | None:
    vault = on.agents[ClientId(name)].vault
    head = vault.head(run)
    if head is None or head.best is None:
        return None
    assert head.best.cursor == best
    return float(decode(peaks.Mine, head.best.memory[0][0], vault.parts(run), LAX).w)


@pytest.mark.parametrize(("peak", "alone", "every"), [(1, False, 1), (2, True, 3), (3, True, 1), (4, False, 3), (4, True, 3)])
def test_the_best_is_what_was_scored_then(peak: int, alone: bool, every: int) -> None:
    """Also in the last round, also between checkpoints, and where the coordinator goes on by itself after a scoring."""
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = on.start({**peaks.EXPERIMENT, "config": {"peak": peak, "alone": alone}, "checkpoint_every": every})
        result = on.run(run)
        count, theirs = kept(on, run)
        assert result["selection"]["best"]["round"] == peak and result["status"] == "completed"
        # The scored state is not the one that the coordinator made of it afterwards.
        assert count == peak and theirs == dict.fromkeys(NAMES, float(peak))
        assert result["phases"][-1]["name"] == STORE_BEST


def test_a_site_that_was_not_asked_keeps_what_it_had_then() -> None:
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = played(on, peak=3, absent=["bert"])
        assert kept(on, run) == (3.0, {"anna": 3.0, "bert": 1.0, "carl": 3.0})
        head = on.agents[ClientId("bert")].vault.head(run)
        assert head is not None and head.best is not None and head.best.metrics == {}


def test_a_run_that_selects_by_nothing_keeps_no_best() -> None:
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = on.start({**peaks.EXPERIMENT, "selection": "none"})
        result = on.run(run)
        assert on.run_service.find(run).best is None and result["phases"][-1]["name"] == "score"
        assert all((head := on.agents[ClientId(n)].vault.head(run)) and head.best is None for n in NAMES)


@pytest.mark.parametrize("waiting", [{}, {"target_replies": 2}, {"min_replies": 3}])
def test_sites_that_are_silent_at_the_end_hold_nothing_up(waiting: dict[str, int]) -> None:
    """The run completes when time is up; they go on to hold the best that they know of."""
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = on.start({**peaks.EXPERIMENT, "config": {"peak": 4}, "waiting": {"deadline": 60.0, **waiting}})
        result = on.run(run, order_of=lambda orders: [each for each in orders if each.step != STORE_BEST])
        assert result["status"] == "completed" and result["phases"][-1]["replies"] == 0
        assert result["selection"]["best"]["round"] == 4
        first = next(r.cursor for r in on.journal.rounds(run) if r.phase == "score")
        heads = [on.agents[ClientId(name)].vault.head(run) for name in NAMES]
        assert [head.best.cursor for head in heads if head and head.best] == [first] * 3


def test_a_dead_site_holds_the_end_up_for_minutes() -> None:
    """However long rounds may take: nothing is lost with it but a newer best at that site."""
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = on.start({**peaks.EXPERIMENT, "config": {"peak": 4}, "waiting": {"deadline": 86400.0}})
        result = on.run(run, order_of=lambda orders: [each for each in orders if each.step != STORE_BEST])
        assert result["status"] == "completed" and 600 <= result["seconds"] < 700


@pytest.mark.parametrize("why", list(Hold))
def test_a_held_site_holds_the_end_up_for_minutes(why: Hold) -> None:
    """Not for a week: the last exchange tells sites alone which scoring was the best, and closes with whoever answers in time."""
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = on.start({**peaks.EXPERIMENT, "config": {"peak": 4}, "waiting": {"deadline": 86400.0}})
        said, bert = list[str](), ClientId("bert")

        def others(orders: list[Order]) -> list[Order]:
            last = [each for each in orders if each.step == STORE_BEST]
            held = {each.id: why for each in on.agent_service.orders(bert) if each.step == STORE_BEST}
            if len(last) == len(held) == 1:  # the others have answered
                on.agent_service.hold(bert, held)
                said.append(result_of(on.journal, run, on.clock.now())["waits_for"])
                on.clock.advance(601.0)
                on.agent_service.hold(bert, held)  # it lives, and says so
                on.scheduler.turn(run)
                said.append(str(on.run_service.find(run).status))
                return orders  # it answers too late
            return [each for each in orders if each.id not in held]

        result = on.run(run, order_of=others)
        assert said[0].endswith("; goes on without them in 10 min") and "bert" in said[0]
        assert said[1] == "completed" == result["status"] and result["selection"]["best"]["round"] == 4


def test_a_target_that_only_scores_stays_unseen() -> None:
    """The last exchange asks it for nothing that it could learn from."""
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = on.start({**peaks.EXPERIMENT, "config": {"peak": 2, "scored": ["carl"]}})
        result = on.run(run)
        assert result["generalization"] is not None and result["generalization"]["ood"]["sites"] == 1


def test_a_method_that_scores_in_a_way_of_its_own_is_refused() -> None:
    methods = (*METHODS, ("tells_nothing", "tests.engine.peaks:TELLS_NOTHING"))
    with closing(Federation(methods, sites())) as on, pytest.raises(ConfigRefused, match="tells no score to select") as refused:
        on.start({**peaks.EXPERIMENT, "method": "tells_nothing"})
    assert refused.value.context["path"] == "selection"


@pytest.mark.parametrize("method", ["stlf", pytest.param("feddadil", marks=pytest.mark.nightly(job="services"))])
def test_methods_that_compare_models_select_by_the_one_that_they_predict_with(method: str) -> None:
    """Each scores once, so this round is its best; its validation rows are others than those of the scores."""
    with closing(Federation(METHODS, sites())) as on:
        config = {"preset": "tiny"}
        result = on.run(on.start(experiment(method, dict(peaks.EXPERIMENT["roster"]), selection="accuracy", **config)))
        assert result["status"] == "completed" and result["selection"]["best"]["sites"] == 2
        tables = next(r.tables for r in on.journal.rounds(on.journal.run_ids()[0]) if VALIDATION in r.tables)
        assert all(0 <= value <= 1 for (value,) in tables[VALIDATION].values)


def best_heads(on: Federation) -> tuple[Files, dict[str, Best | None]]:
    run = on.journal.run_ids()[0]
    row = on.run_service.find(run)
    assert row.best is not None
    heads = {name: on.agents[ClientId(name)].vault.head(run) for name in NAMES}
    return scored_state(on.journal.rounds(run), row.best), {n: head.best if head else None for n, head in heads.items()}


@pytest.mark.nightly(job="services")
def test_a_simulation_that_was_killed_keeps_the_same_bytes(tmp_path: Path) -> None:
    times = 0
    while killed(tmp_path, "peaks", 3) and times < 100:
        times += 1
    assert times > 3
    methods, given, there = CASES["peaks"]
    with closing(at(tmp_path, "peaks")) as on, closing(Federation(methods, there)) as whole:
        on.run(on.journal.run_ids()[0])
        whole.run(whole.start(given))
        assert best_heads(on) == best_heads(whole)
        assert kept(on, on.journal.run_ids()[0]) == kept(whole, whole.journal.run_ids()[0])


def test_the_event_of_a_best_round_says_so() -> None:
    with closing(Federation(peaks.METHODS, sites())) as on:
        run = played(on, peak=3)
        told = [event.data["best"] for event in on.journal.events(run) if "best" in event.data]
        assert [(each["round"], each["sites"]) for each in told] == [(1, 2), (3, 2)]  # type: ignore[index,call-overload]
        assert told[1]["value"] > told[0]["value"]  # type: ignore[index,call-overload]


A, B = ((RunId("a"), 1),), ((RunId("b"), 2),)
BEFORE = Head(OrderId("o"), 5, A, (), {"accuracy": 0.5}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("head", "told", "found"),
    [
        (None, 3, None),
        (BEFORE, None, None),
        (BEFORE, 5, Best(5, A, {"accuracy": 0.5})),  # type: ignore[arg-type]
        (BEFORE, 7, Best(7, A)),  # type: ignore[arg-type]
        (BEFORE, 3, None),
        (replace(BEFORE, best=Best(3, B)), 3, Best(3, B)),  # type: ignore[arg-type]
        (replace(BEFORE, best=Best(3, B)), None, Best(3, B)),  # type: ignore[arg-type]
        (replace(BEFORE, best=Best(3, B)), 5, Best(5, A, {"accuracy": 0.5})),  # type: ignore[arg-type]
        (replace(BEFORE, best=Best(4, B)), 3, None),  # type: ignore[arg-type]
    ],
)
def test_what_a_site_keeps_of_what_it_is_told(head: Head | None, told: int | None, found: Best | None) -> None:
    assert best_of(head, replace(BRIEF, best=told)) == found
    assert best_of(head, replace(BRIEF, best=told, keeps=False)) is None


def order(**more: Any) -> Order:
    """An order at place 4 whose brief says more."""
    with closing(Federation(peaks.METHODS, sites())) as on:
        row = on.run_service.find(on.start(peaks.EXPERIMENT))
    brief: Mapping[str, Any] = {**plain_brief(row, Role.SOURCE, "9"), **more}
    return Order(OrderId("o"), row.id, 4, "grow", "grow", 3, (), 1, 3, 9.0, json.loads(json.dumps(brief)))


BRIEF: Brief = brief_in(order())


@pytest.mark.parametrize("odd", [4, 9, -1, True, 1.0, "1", [1]])
def test_a_best_round_that_cannot_be(odd: Any) -> None:
    with pytest.raises(Malformed, match="its best is missing or wrong"):
        brief_in(order(best=odd))


@pytest.mark.parametrize("odd", [[], "accuracy", 3, True])
def test_a_scoring_that_is_none(odd: Any) -> None:
    with pytest.raises(Malformed, match="its scoring is missing or wrong"):
        brief_in(order(scoring=odd))


@pytest.mark.parametrize("odd", [{"selection": "luck"}, {"selections": "accuracy"}, {"scores": 3}])
def test_a_scoring_with_odd_words(odd: Any) -> None:
    with pytest.raises(ConfigRefused, match="scoring"):
        brief_in(order(scoring=odd))


def test_a_best_round_is_told() -> None:
    assert (brief_in(order(best=0)).best, brief_in(order(best=3)).best, BRIEF.best) == (0, 3, None)


def test_a_head_with_its_best_is_plain_data() -> None:
    head = replace(BEFORE, best=Best(3, B, {"x": 0.25}))  # type: ignore[arg-type]
    assert read(Head, json.loads(json.dumps(plain(head))), "head") == head


@pytest.mark.parametrize(("rate", "near"), [(1e-9, True), (0.3, False)])
def test_a_run_that_learnt_nothing_says_so(rate: float, near: bool) -> None:
    with closing(Federation(METHODS, sites())) as on:
        config = {"rounds": 6, "rate": rate}
        result = on.run(on.start(experiment("fedavg", dict(peaks.EXPERIMENT["roster"]), config=config)))
        assert any("end near chance" in note and "for 3 classes" in note for note in result["notes"]) is near, result["notes"]


def test_whose_scores_are_near_chance() -> None:
    """Of sites with labels; not before the run has ended, nor where nobody tells all scores."""
    roster = {ClientId("anna"): Role.SOURCE, ClientId("carl"): Role.TARGET}

    def scores(anna: float) -> dict[str, Any]:
        return {"anna": {"balanced_accuracy": {"value": anna}}, "carl": {"balanced_accuracy": {"value": 0.1}}}

    assert chance_notes(scores(0.14), roster, 10, True) and not chance_notes(scores(0.16), roster, 10, True)
    assert not chance_notes(scores(0.14), roster, 10, False) and not chance_notes({}, roster, 10, True)
    assert chance_notes(scores(0.54), roster, 2, True)
