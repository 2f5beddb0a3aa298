"""Nothing leaves a private run that is neither charged nor withheld: every field, metric and setting of every method is walked.

The tables say of all that a person can write whether it reads rows. What is new is in none of them, and fails here until somebody
has thought about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import pytest

from tests.laws.case import Case, cases
from tests.laws.stage import Stage
from tests.synthetic import FEATURES, IMAGES, experiment, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import Update
from tideline.core.algorithm import Algorithm, contract, plan_of
from tideline.core.asked.normalise import Normalise, Scaling
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.scoring import Prior, Scores, Scoring, Selection
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, FederationError
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, leaves, record
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, charged_before
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.private.metering import able, check_plan, check_training, in_private
from tideline.engine.compute.sums.phases import summed_in
from tideline.engine.model.experiment import Experiment
from tideline.engine.ports.site import Done, Job, Pool
from tideline.engine.site.agent import Agent
from tideline.learning.around.clipping import adapting
from tideline.learning.in_world import in_world
from tideline.learning.local_training import TrainingOptions

PRIVACY = Privacy(rows=20, noise=2.0, delta=1e-3)
PRIVATE = {"rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5}


def varied(algorithm: Algorithm[Any, Any, Any]) -> Iterator[Any]:
    """A method's settings as they are by default, and with each one changed by itself, as far as they go together."""
    yield algorithm.configure({}, "tiny")
    for each in fields(algorithm.config):
        values = [*(each.metadata.get("choices") or ()), *(() if each.default is MISSING else others(each.default))]
        for value in values:
            try:
                yield algorithm.configure({each.name: value}, "tiny")
            except FederationError:
                continue


def others(value: object) -> list[object]:
    """Values that a setting may have in place of its default."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value + 1, 0, 2 * value]
    return []


def around(algorithm: Algorithm[Any, Any, Any]) -> Iterator[tuple[Algorithm[Any, Any, Any], Scoring]]:
    """The method as it is played in each of a run's ways to ask more of its sites."""
    yield algorithm, Scoring(Scores.ACCURACY)
    yield adapting(algorithm, True), Scoring(Scores.ACCURACY)
    yield in_world(algorithm, Normalise(Scaling.SHARED)), Scoring(Scores.ACCURACY)
    yield in_world(algorithm, Normalise(Scaling.SITE)), Scoring(Scores.ACCURACY)
    yield in_world(algorithm, prior=Prior.EM), Scoring(Scores.ACCURACY, prior=Prior.EM)
    yield in_world(algorithm, fills=True), Scoring(Scores.ACCURACY)
    yield algorithm, Scoring(Scores.EVERY)
    yield algorithm, Scoring(Scores.LAST, outputs=True)
    yield summed_in(algorithm, SecureSums(), private=True), Scoring(Scores.ACCURACY)
    for selection in Selection:
        yield algorithm, Scoring(Scores.ACCURACY, selection)


def let_in(method: Configured, privacy: Privacy) -> bool:
    """Whether nothing is refused."""
    try:
        check_plan(method, lambda: ["one"], privacy)
        check_training(method.config)
    except ConfigRefused as error:
        assert error.todo and error.context["path"], error
        return False
    return True


def unprotected(method: Configured, privacy: Privacy) -> list[str]:
    """What of a plan that is let in would leave without a charge: looked at by itself, not by what refuses."""
    found = list[str]()
    clauses = contract(method.algorithm, method.config, method.scoring, privacy=privacy)
    told = {(each.phase, each.step, each.field) for each in clauses}
    found += [f"{each.phase}: {each.field}" for each in clauses if not each.private]
    for phase in plan_of(method.algorithm, method.config, method.scoring):
        if phase.step is None:
            continue
        place, sent = (phase.name, phase.step.name), [each.path for each in leaves(phase.step.gives)]
        found += [f"{phase.name}: {path} is in no clause" for path in sent if (*place, path) not in told]
        free = [name for name in phase.step.metrics if name not in phase.step.reports]
        found += [f"{phase.name}: {name} is told" for name in free if (*place, f"metrics.{name}") in told]
        spends = phase.step.spends
        if spends is None or (
            (sent or phase.step.reports) and spends is not charged_before and not spends(method.config, privacy)
        ):
            found.append(f"{phase.name} spends nothing")
        if privacy.unit is not None and not phase.step.by_unit:
            found.append(f"{phase.name} counts rows")
    return found


@pytest.mark.parametrize("case", cases(METHODS), ids=str)
@pytest.mark.parametrize("together", [False, pytest.param(True, marks=pytest.mark.nightly(job="methods"))])
def test_of_every_method_nothing_is_neither_charged_nor_refused(case: Case, together: bool) -> None:
    """With each of its settings, and each of a run's ways around it, one at a time or together; for rows and for units."""
    played, settings = 0, list(varied(case.algorithm))
    for at, (algorithm, scoring) in enumerate(around(case.algorithm)):
        for config in settings if together or at == 0 else settings[:1]:
            for privacy in (PRIVACY, replace(PRIVACY, unit="patient")):
                method = Configured(algorithm, config, scoring, privacy=privacy)
                if let_in(method, privacy):
                    assert not unprotected(method, privacy), (case.name, config)
                    played += 1
    assert played or case.name not in able(METHODS), "of others that many are let in that only score: of no rounds"


# Planted faults, one at a time: an exchange of fedavg's that would tell something for nothing.


@record
class Inner:
    """Something inside of a reply."""

    norm: float = field("", Exposure.METRIC, doc="the mean norm of rows")


@record
class WithNorm(Update):
    """A field without a word on what it is made of."""

    norm: float = field("", Exposure.METRIC, doc="the mean norm of rows")


@record
class Nested(Update):
    """The same, deeper: in records in a tuple."""

    inner: tuple[Inner, ...] = field(doc="several")


def nothing(config: object, privacy: Privacy) -> tuple[Charge, ...]:
    return ()


FAULTS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "a field without a word": ({"gives": WithNorm}, "sends as norm has no noise"),
    "a field inside of records": ({"gives": Nested}, r"sends as inner\.\*\.norm has no noise"),
    "no price": ({"spends": None}, "reads rows without adding noise"),
    "a price of nothing": ({"spends": nothing}, "tells something and spends nothing"),
    "a metric for nothing": ({"gives": Nothing, "reports": ("loss",), "spends": nothing}, "tells something and spends nothing"),
    "a metric that is none": ({"reports": ("norm",)}, "reports norm, which it does not measure"),
}


def faulty(**changed: Any) -> Configured:
    """Federated averaging whose training is otherwise."""
    from tideline.algorithms.averaging import fedavg

    method = Configured(fedavg, fedavg.configure({}, "tiny"))
    steps = (p if p.name != "train" or p.step is None else replace(p, step=replace(p.step, **changed)) for p in method.plan)
    method.__dict__["plan"] = tuple(steps)
    return method


@pytest.mark.parametrize(("changed", "said"), FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_refused(changed: Mapping[str, Any], said: str) -> None:
    """Before anybody is asked, with the methods that can."""
    check_plan(faulty(), lambda: ["one"], PRIVACY)
    with pytest.raises(ConfigRefused, match=said) as refused:
        check_plan(faulty(**changed), lambda: ["one", "another"], PRIVACY)
    assert "Use one of: one, another" in refused.value.todo and refused.value.context["path"] == "privacy"


def test_what_is_made_of_earlier_charges_may_be_told() -> None:
    """Where a step says so."""
    check_plan(faulty(spends=charged_before), lambda: ["one"], PRIVACY)


def test_metrics_that_nothing_was_charged_for_stay() -> None:
    """Whatever a step gives."""
    step = next(phase.step for phase in faulty().plan if phase.step)
    meter = Meter(PRIVACY, b"k" * 32)
    meter.spend(Charge(2.0, 0.1, 10), by_unit=True)
    given: Outcome[Any, Any] = Outcome(Nothing(), Nothing(), {"loss": 1.0, "samples": 41.0})
    assert in_private(step, given, meter, faulty().config).metrics == {}


def test_progress_says_nothing_of_rows() -> None:
    """Shares of rows would tell how many there are; who waits still hears that work goes on."""
    heard = list[float]()
    meter = Meter(PRIVACY, b"k" * 32, tick=heard.append)
    for share in (512 / 1000, 1.0):
        meter.alive(share)
    meter.progress(0.5)
    meter.alive(0.9)
    assert heard == [0.0, 0.0, 0.5, 0.5]


def test_a_step_that_is_scored_in_private_tells_no_share_of_its_rows() -> None:
    """Of training the shares of its steps are heard, which follow from what the run says."""
    ticks = dict[int, set[float]]()

    class Heard(Stage):
        def agent(self, name: ClientId) -> Agent:
            made = super().agent(name)
            inner = made.pool
            made.pool = Listening(inner, ticks)
            return made

    stage = Heard(METHODS, sites())
    given = experiment("fedavg", {"anna": "source", "bert": "source"}, world={**FEATURES, "normalise": "none"})
    assert stage.play(stage.start({**given, "privacy": PRIVATE})).status == "completed"
    assert ticks[0] == {0.5, 1.0} and ticks[1] == {0.0}, "two steps; and a scoring of sixty rows"


@dataclass
class Listening:
    """A pool whose ticks are noted, by the place in the plan."""

    pool: Pool
    ticks: dict[int, set[float]]

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        return self.pool.run(job, self.ticks.setdefault(job.cursor, set()).add)


# All that a person can write. What is not harmless reads rows beside what is charged, and is refused: here with a value.
HARMLESS = "harmless"
EXPERIMENT: Mapping[str, object] = {
    **dict.fromkeys(("name", "method", "preset", "config", "world", "roster", "select", "data", "deal", "seed"), HARMLESS),
    **dict.fromkeys(("waiting", "sample", "checkpoint_every", "threads", "computing", "wire", "privacy"), HARMLESS),
    "secure_sums": HARMLESS,  # of what is charged, and what they tell beside it reads no rows
    **dict.fromkeys(("weights", "track", "shares"), HARMLESS),  # made elsewhere, kept elsewhere, or of what was told
    "scores": HARMLESS,  # set aside: a private run tells an accuracy
    "then": HARMLESS,  # of a rehearsal, which is refused
    "selection": "accuracy",
    "prior": "em",
    "augment": {"flip": "horizontal"},
    "reference": {"method": "central"},
    "rehearse": {"candidates": ["adabn"]},
}
WORLD: Mapping[str, object] = {
    **dict.fromkeys(("inputs", "classes", "model", "sizes", "class_names", "options", "trains", "dtype", "vocabulary"), HARMLESS),
    "normalise": "shared",
    "columns": {f"c{i}": {"missing": "median"} for i in range(8)},
}
TRAINING: Mapping[str, object] = {
    **dict.fromkeys(("optimiser", "nesterov", "schedule", "warmup", "decay_every", "decay_by", "label_smoothing"), HARMLESS),
    "clip_gradient": HARMLESS,  # of mini-batches, which there are none of
    "class_weights": "balanced",
    "patience": 2,
}
# What a step sees of its site, and by what nothing of it leaves a private run for free.
SITE: Mapping[str, str] = {
    **dict.fromkeys(("config", "world", "me", "role", "round", "rng", "device", "fetch", "tick", "transfers"), "no rows"),
    **dict.fromkeys(("least_per_class", "least_rows"), "the owner's rules"),
    "data": "charged: the meter counts",
    "validation": "refused: selection, patience",
    "training": "refused: prior; outputs of rehearsals, which are refused",
    "outputs": "refused: rehearse",
    "normalised_by": "refused: normalise",
    "filled_by": "refused: columns that are filled",
    "source_shares": "refused: prior",
    "private": "the meter",
    "noise_key": "no rows",
}


@pytest.mark.parametrize(
    ("kind", "known"), [(Experiment, EXPERIMENT), (World, WORLD), (TrainingOptions, TRAINING), (Site, SITE)], ids=str
)
def test_every_setting_has_been_thought_about(kind: type[Any], known: Mapping[str, object]) -> None:
    """A new one is neither harmless nor refused until somebody says so here."""
    assert {each.name for each in fields(kind)} == set(known)


def reading() -> Iterator[tuple[str, dict[str, Any]]]:
    """Experiments, each with one setting that reads rows."""
    for name, value in EXPERIMENT.items():
        if value != HARMLESS:
            yield name, {name: value, **({"world": dict(IMAGES)} if name == "augment" else {})}
    yield from (
        (f"world.{name}", {"world": {**FEATURES, "normalise": "none", name: value}})
        for name, value in WORLD.items()
        if value != HARMLESS
    )
    yield from ((f"config.{name}", {"config": {name: value}}) for name, value in TRAINING.items() if value != HARMLESS)


@pytest.mark.parametrize(("path", "more"), list(reading()), ids=[path for path, _ in reading()])
def test_settings_that_read_rows_are_refused(path: str, more: Mapping[str, Any]) -> None:
    """By their place, before anybody is asked; and the same experiment without privacy, or without them, begins."""
    roster = {"anna": "source", "bert": "source", "carl": "target"}
    given = {**experiment("fedavg", roster, world={**FEATURES, "normalise": "none"}), **more}
    stage = Stage(METHODS, sites())
    with pytest.raises(ConfigRefused) as refused:
        stage.start({**given, "privacy": PRIVATE})
    assert refused.value.context["path"].startswith(path) and refused.value.todo
    assert stage.start(
        {key: value for key, value in given.items() if key not in more or key == "world"} | {"world": given["world"]}
    )
