"""Cohorts: who is drawn, what is refused, and what a run that asks a part of its sites does, records and tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.test_kernel import game, idle, one_by_one, to_everybody
from tests.engine.toys import METHODS, ROSTER, start, until
from tests.laws.stage import Stage
from tests.laws.trace import asked
from tests.synthetic import NAMES, experiment, sites
from tideline.core.asked.sampling import Draw, Last, Sampling
from tideline.core.errors import Refused
from tideline.core.phase import Phase
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.settings import EMPTY, parse, plain
from tideline.engine.compute.turns import game as turns
from tideline.engine.compute.turns.cohort import drawn
from tideline.engine.coordinator.scheduler import HEARD_SECONDS
from tideline.engine.model.experiment import read_experiment
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.ports.compute import BeginRequest

CROWD = dict.fromkeys(NAMES, "source")
TEN = tuple(ClientId(f"site-{i}") for i in range(10))
DRAWS = 2000


def stage() -> Stage:
    """Five sites."""
    return Stage(METHODS, sites(NAMES))


def cohort(sampling: Sampling, cursor: int = 0, named: tuple[ClientId, ...] = TEN, **more: Any) -> list[ClientId]:
    """One draw."""
    return drawn(sampling, named, **{"least": 1, "seed": 3, "cursor": cursor, "first": frozenset(), **more})


def cohorts(on: Stage, run: RunId) -> dict[int, list[str]]:
    """Who was asked, by cursor, after the join."""
    made: dict[int, list[str]] = {}
    for order in asked(on.journal, run):
        if order.cursor != JOIN:
            made.setdefault(order.cursor, []).append(order.client)
    return made


@pytest.mark.parametrize(
    ("sites_", "named", "least", "expected"),
    [
        (0.05, 1000, 1, 50),
        (0.07, 100, 1, 7),
        (0.071, 100, 1, 8),
        (1.0, 7, 1, 7),
        (0.01, 3, 1, 1),
        (0.01, 3, 2, 2),
        (0.2, 10, 5, 5),
        (0.2, 3, 5, 3),
        (50, 1000, 1, 50),
        (50, 30, 1, 30),
        (1, 30, 1, 1),
    ],
)
def test_how_many_are_asked(sites_: float, named: int, least: int, expected: int) -> None:
    """A share is rounded up, of what it is written as, and gives as many as the phase needs, where these are named."""
    assert Sampling(sites_).size(named, least) == expected


def test_all_are_drawn_alike() -> None:
    """Three of ten: each site in three of ten draws, and each pair in one of fifteen."""
    draws = [cohort(Sampling(3), cursor) for cursor in range(DRAWS)]
    assert all(len(set(each)) == 3 for each in draws)
    seen = Counter(name for each in draws for name in each)
    assert all(abs(seen[name] / DRAWS - 0.3) < 0.05 for name in TEN)
    pairs = Counter(frozenset(pair) for each in draws for pair in ((each[0], each[1]), (each[0], each[2]), (each[1], each[2])))
    assert len(pairs) == 45 and all(abs(count / DRAWS - 1 / 15) < 0.03 for count in pairs.values())


def test_weights_are_the_odds_of_the_first_that_is_drawn() -> None:
    """And of those that are left, the odds of the second."""
    weights = {name: float(i) for i, name in enumerate(TEN)}
    sampling = Sampling(2, Draw.WEIGHTS, weights)
    draws = [cohort(sampling, cursor) for cursor in range(DRAWS)]
    firsts = Counter(first for first, _ in draws)
    assert all(abs(firsts[name] / DRAWS - weights[name] / 45) < 0.03 for name in TEN)
    after_nine = Counter(second for first, second in draws if first == TEN[9])
    assert all(abs(after_nine[name] / firsts[TEN[9]] - weights[name] / 36) < 0.08 for name in TEN[:9])


def test_a_site_of_weight_zero_comes_last() -> None:
    """It is drawn only where the others are not enough, and then all of those are drawn alike."""
    sampling = Sampling(3, Draw.WEIGHTS, {**dict.fromkeys(TEN, 0.0), TEN[4]: 1e-300, TEN[7]: 5.0})
    draws = [cohort(sampling, cursor) for cursor in range(DRAWS)]
    assert all({TEN[4], TEN[7]} < set(each) for each in draws) and len({each[2] for each in draws}) == 8


def test_equal_weights_are_no_weights() -> None:
    """The same cohorts as without."""
    equal = Sampling(4, Draw.WEIGHTS, dict.fromkeys(TEN, 1.0))
    assert [cohort(equal, cursor) for cursor in range(9)] == [cohort(Sampling(4), cursor) for cursor in range(9)]


def test_who_else_is_named_changes_nothing() -> None:
    """Of fewer sites those that are drawn first are the same, in whatever order they are named."""
    whole = cohort(Sampling(10))
    half = tuple(sorted(whole)[::2])
    assert cohort(Sampling(5), named=half) == [name for name in whole if name in half]
    assert cohort(Sampling(5), named=half[::-1]) == cohort(Sampling(5), named=half)


def test_those_who_are_available_are_drawn_first() -> None:
    """Then the others; who is available is drawn alike, and where all or none are, that is a uniform draw."""
    by = replace(Sampling(4), by=Draw.AVAILABILITY)
    for cursor in range(50):
        few = cohort(by, cursor, first=frozenset(TEN[:2]))
        assert set(TEN[:2]) < set(few) and set(cohort(by, cursor, first=frozenset(TEN[:6]))) < set(TEN[:6])
        alike = [cohort(by, cursor, first=frozenset(first)) for first in ((), TEN, few)]
        assert alike[0] == alike[1] == cohort(Sampling(4), cursor) and set(alike[2]) == set(few)
        assert cohort(Sampling(4), cursor, first=frozenset(TEN[:2])) == alike[0], "no other draw asks who is available"


def test_what_is_not_drawn_is_not_made() -> None:
    """Of messages that are made one by one, only those of the cohort; a phase that may not be sampled asks all."""
    looked: list[str] = []
    phase = Phase("ask", idle, ask=one_by_one(looked, *ROSTER), sampled=True)
    turned = turns.begin(replace(game(phase), sampling=Sampling(1)))
    assert len(turned.orders) == 1 and looked == [] and list(dict(turned.orders)) == looked
    for sampled, expected in ((True, 2), (False, 3)):
        played = game(Phase("ask", idle, ask=to_everybody, sampled=sampled))
        assert len(turns.begin(replace(played, sampling=Sampling(2))).orders) == expected


@pytest.mark.parametrize("short", [2, 0.4])
def test_a_run_asks_a_part_of_its_sites_and_tells_how_many(short: float) -> None:
    """In each exchange another two; the last scoring asks all. A short form is the long one."""
    on = stage()
    run = start(on, roster=CROWD, rounds=4, sample=short)
    assert on.play(run).status is Status.COMPLETED
    result, made = on.result(run), cohorts(on, run)
    assert [len(made[cursor]) for cursor in sorted(made)] == [2, 2, 2, 2, 5]
    assert len({tuple(made[cursor]) for cursor in range(4)}) > 1
    assert [phase["asked"] for phase in result["phases"]] == [5, 2, 2, 2, 2, 5]
    told = [event.data["asked"] for event in on.journal.events(run) if event.kind == "closed"]
    assert told[:-1] == [2, 2, 2, 2, 5]
    assert all(client["accuracy"] is not None and not client["failures"] for client in result["clients"])
    assert result["sample"] == {"sites": short, "by": "uniform", "weights": {}, "last": "all"}
    other = stage()
    again = start(other, roster=CROWD, rounds=4, sample={"sites": short})
    assert other.play(again).state_digest == on.row(run).state_digest


def test_who_is_never_asked_has_no_accuracy_and_no_failure() -> None:
    """With `last: sample` some sites take part in nothing but the join; they trained nothing, and were sent nothing."""
    on = stage()
    run = start(on, roster=CROWD, rounds=1, sample={"sites": 2, "last": "sample"})
    on.play(run)
    never = set(NAMES) - {name for names in cohorts(on, run).values() for name in names}
    assert never
    for client in on.result(run)["clients"]:
        assert (client["accuracy"] is None, client["failures"]) == (client["name"] not in cohorts(on, run)[1], [])
        if client["name"] in never:
            assert (client["bytes_up"], client["metrics"]) == (0, {})
    assert {name for name, cursor in on.jobs if cursor != JOIN} == set(NAMES) - never


def test_another_seed_draws_another_cohort() -> None:
    """And the same seed the same."""
    made = []
    for seed in (7, 8, 7):
        on = stage()
        run = start(on, roster=CROWD, rounds=6, sample=2, seed=seed)
        on.play(run)
        made.append([names for _, names in sorted(cohorts(on, run).items())])
    assert made[0] == made[2] != made[1]


def test_waiting_rules_are_of_those_who_were_asked() -> None:
    """A target of more replies than there are asked is met by all of them."""
    on = stage()
    run = start(on, roster=CROWD, rounds=2, sample=2, waiting={"target_replies": 4, "min_replies": 3})
    assert on.play(run).status is Status.COMPLETED
    assert [len(closed.folded) for closed in on.journal.rounds(run)] == [5, 2, 2, 5]


def hear(on: Stage, *names: str) -> None:
    """Only these have been heard of lately."""
    on.clock.advance(2 * HEARD_SECONDS)
    for name in names:
        on.journal.saw(ClientId(name), on.clock.now())


@pytest.mark.parametrize("every", [1, 9])
def test_a_recorded_cohort_is_used_again_whoever_is_heard_of_then(every: int) -> None:
    """Each round's cohort is of those who lived; computed again after a restart, rounds are those that were asked."""
    on = stage()
    given = {"sites": 2, "by": "availability"}
    run = start(on, roster=CROWD, rounds=4, sample=given, checkpoint_every=every, waiting={"deadline": 1e6})
    living = [("anna", "bert"), ("carl", "dora"), ("dora", "emil"), ("anna", "emil", "bert"), ()]
    for cursor, names in enumerate(living):
        hear(on, *names)
        until(on, run, cursor)
        on.rebuild()
    assert on.play(run).status is Status.COMPLETED
    made = cohorts(on, run)
    assert [set(made[cursor]) for cursor in range(3)] == [set(names) for names in living[:3]]
    assert set(made[3]) < set(living[3]) and len(made[4]) == 5
    assert [closed.asked.keys() for closed in on.journal.rounds(run)[1:]] == [set(names) for _, names in sorted(made.items())]


def test_in_a_simulation_everybody_is_available() -> None:
    """The same bytes as from a uniform draw."""
    ends = []
    for by in ("uniform", "availability"):
        on = stage()
        run = start(on, roster=CROWD, sample={"sites": 2, "by": by})
        ends.append(on.play(run).state_digest)
    assert ends[0] == ends[1] is not None


def test_a_client_that_is_revoked_is_not_available() -> None:
    """However lately it was heard of."""
    on = stage()
    run = start(on, roster=CROWD, sample={"sites": 2, "by": "availability"}, waiting={"deadline": 1e6, "min_replies": 1})
    until(on, run, 0)
    hear(on, "anna", "bert")
    on.run_service.revoke("anna")
    assert on.scheduler.available(on.row(run)) == {"bert"}
    uniform = start(on, roster=dict.fromkeys(NAMES[1:], "source"), sample=2)
    assert on.scheduler.available(on.row(uniform)) == frozenset(), "no other draw asks who is available"


def test_the_reference_is_sampled_alike() -> None:
    """Where its method may be; a reference that is not asks all of its sites."""
    on = stage()
    run = on.start(experiment("toy", CROWD, sample=2, reference={"method": "fedavg"}))
    row = on.row(run)
    assert row.reference is not None and on.row(row.reference).spec.sampling == row.spec.sampling == Sampling(2)


def test_requests_cross_to_the_worker() -> None:
    """As plain data and back: a number and a share stay what they are."""
    on = stage()
    for given in (2, 1.0, {"sites": 0.5, "by": "weights", "weights": dict.fromkeys(NAMES, 2), "last": "sample"}):
        spec = on.row(start(on, roster=CROWD, sample=given)).spec
        assert spec.sampling is not None
        request = BeginRequest(spec, (), with_checkpoint=False, available=frozenset(map(ClientId, NAMES)))
        again = parse(BeginRequest, plain(request))
        assert again.available == request.available and again.spec.sampling == spec.sampling
        assert type(again.spec.sampling.sites) is type(spec.sampling.sites)  # type: ignore[union-attr]


AT_NIGHT = pytest.mark.nightly(job="services")
WEIGHTS = dict.fromkeys(NAMES, 1.0)
REFUSED: list[tuple[Any, str, str]] = [
    (0, "sample", "sample is 0; one site at least is asked"),
    (-3, "sample", "sample is -3; one site"),
    (0.0, "sample", "sample is 0.0; one site"),
    (-0.5, "sample", "sample is -0.5; one site"),
    (1.5, "sample", "sample is 1.5; a share of the sites is at most 1.0"),
    ({"sites": 2.0}, "sample.sites", "sample.sites is 2.0; a share"),
    ({"sites": 0}, "sample.sites", "sample.sites is 0; one site"),
    (True, "sample", "it should be a number"),
    ("half", "sample", "sample is 'half'; it should be a number"),
    ({"sites": "half"}, "sample.sites", "it should be a number"),
    ({}, "sample.sites", "sample.sites is missing"),
    ({"sites": 2, "by": "chance"}, "sample.by", "it should be one of uniform, weights, availability"),
    ({"sites": 2, "last": "none"}, "sample.last", "it should be one of all, sample"),
    ({"sites": 2, "share": 0.1}, "sample.share", "is not a known setting"),
    (6, "sample.sites", "sample.sites is 6, and the roster has 5 sites"),
    (1, "sample.sites", "sample.sites is 1; move, whose single replies no other site may get, needs the replies of 2 sites"),
    ({"sites": 2, "by": "weights"}, "sample.weights", "sample.weights has no weight for anna"),
    ({"sites": 2, "by": "weights", "weights": {**WEIGHTS, "dara": 1}}, "sample.weights.dara", "(did you mean dora?)"),
    ({"sites": 2, "by": "weights", "weights": {"anna": 1}}, "sample.weights", "no weight for bert"),
    ({"sites": 2, "by": "weights", "weights": dict.fromkeys(NAMES, 0)}, "sample.weights", "no weight above 0"),
    ({"sites": 2, "by": "weights", "weights": {**WEIGHTS, "bert": -1}}, "sample.weights.bert", "it should be at least 0"),
    ({"sites": 2, "weights": WEIGHTS}, "sample.weights", "sample.by is uniform, which has no use for them"),
]


@pytest.mark.parametrize(("sample", "path", "words"), REFUSED)
def test_a_sample_that_cannot_be_is_refused(sample: Any, path: str, words: str) -> None:
    """With the place of what is wrong, and what to do, before anything is written."""
    on = stage()
    with pytest.raises(Refused) as refusal:
        start(on, roster=CROWD, sample=sample)
    assert refusal.value.context["path"] == path and words in refusal.value.what + refusal.value.todo
    assert refusal.value.todo and on.journal.run_ids() == ()


def robust(rule: str, **more: Any) -> dict[str, Any]:
    """Federated averaging with a rule that bears one wrong site."""
    return experiment("fedavg", CROWD, config={"robust": rule, "byzantine": 1}, **more)


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        ("median", 3),
        ("krum", 5),
        *(pytest.param(*rule, marks=pytest.mark.nightly(job="services")) for rule in (("trimmed_mean", 3), ("multi_krum", 5))),
    ],
)
def test_a_robust_fold_counts_the_cohort(rule: str, least: int) -> None:
    """A round has no more replies than its cohort: a smaller number is refused, a share gives as many as are needed."""
    on = stage()
    with pytest.raises(Refused) as refusal:
        on.start(robust(rule, sample=least - 1))
    assert refusal.value.context["path"] == "sample.sites"
    assert f"{rule} with byzantine: 1 needs the replies of {least} sites" in refusal.value.what
    run = on.start(robust(rule, sample=0.1))
    assert f"sample: train asks {least} sites or more, however small the share" in " ".join(on.row(run).spec.notes)
    assert on.play(run).status is Status.COMPLETED
    named = {fact.phase for fact in on.row(run).plan if fact.floor}
    asked_ = [len(names) for cursor, names in cohorts(on, run).items() if on.row(run).plan[cursor].phase in named]
    assert set(asked_) == {least} and on.play(on.start(robust(rule, sample=least))).status is Status.COMPLETED


def test_a_run_from_before_has_no_sampling() -> None:
    """What was written without it is read, and an experiment without it has none."""
    assert read_experiment({"method": "fedavg"}).sampling is None
    assert read_experiment({"method": "fedavg", "sample": None}).sampling is None
    spec: Mapping[str, Any] = plain(stage_spec())
    assert parse(type(stage_spec()), {k: v for k, v in spec.items() if k != "sampling"}).sampling is None
    assert Sampling(2) == Sampling(2, Draw.UNIFORM, EMPTY, Last.ALL)


def stage_spec() -> Any:
    """The specification of a run."""
    on = stage()
    return on.row(start(on, roster=CROWD)).spec


def test_a_sample_of_a_phase_that_diverges_is_noticed() -> None:
    """A recorded cohort that the draw does not give ends the run: nobody made another draw in its place."""
    on = stage()
    run = start(on, roster=CROWD, rounds=4, sample=2, checkpoint_every=9)
    until(on, run, 2)
    rounds = on.journal._rounds[run]
    at = next(i for i, r in enumerate(rounds) if r.cursor == 1)
    rounds[at] = replace(rounds[at], asked={ClientId("nobody"): Digest("b3-" + "0" * 64)})
    on.rebuild()
    row = on.play(run)
    assert row.status is Status.FAILED and "Round 1 computed again differs" in row.cause
