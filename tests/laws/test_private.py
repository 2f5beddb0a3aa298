"""Laws of runs that protect rows, over all methods: prices, noise in all that reads rows, and what they are without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.laws.case import Case, cases
from tests.laws.stage import Stage
from tests.laws.values import like
from tests.synthetic import TRAIN
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.private import Charge, Price, Privacy, together
from tideline.core.errors import ConfigRefused
from tideline.core.record import is_record, leaves
from tideline.core.run import Role, RunId
from tideline.core.settings import parse
from tideline.core.step import no_tick
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.private.metering import able, charges, cost
from tideline.engine.model.brief import Brief, brief_in
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.site import Done, Job
from tideline.engine.site.agent import Agent, driven
from tideline.learning.private.words import NUMBER, UNREAD

ABLE = [Case(name, METHODS) for name in able(METHODS)]
REFUSED = [case for case in cases(METHODS) if case.name not in able(METHODS)]
PRIVACY = {"rows": TRAIN, "noise": 2.0, "delta": 1e-3, "rate": 0.5}
AT_NIGHT = pytest.mark.nightly(job="methods")
every = pytest.mark.parametrize("case", ABLE, ids=str)
# Settings by which two targets are in two clusters, so that there are weights to send.
SEVERAL: Mapping[str, Mapping[str, Any]] = {"fedwca": {"clustering": "agglomerative", "clusters": 2}}
PUBLIC = parse(Privacy, PRIVACY, "privacy")
OF_NO_ROW = (NUMBER, UNREAD)  # what the fields are made of that are the same whatever the noise is


def test_each_method_protects_rows_or_says_why_it_cannot() -> None:
    assert {case.name for case in REFUSED} == {"central", "adabn", "feddadil", "stlf", "fada", "fdann"}
    assert all(case.algorithm.unprotected for case in REFUSED)
    assert not any(case.algorithm.unprotected for case in ABLE)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_method_that_cannot_is_refused_with_its_reason(case: Case) -> None:
    with pytest.raises(ConfigRefused) as refused:
        case.played(case.stage(), privacy=PRIVACY)
    assert case.algorithm.unprotected in refused.value.what and "self_training" in refused.value.todo
    assert refused.value.context["path"] == "privacy"


@every
def test_all_that_leaves_says_what_it_is_made_of(case: Case) -> None:
    """The notes have the method's sentences, no site spends more than the run promises, and nothing else passes a link."""
    stage, run = case.played(case.stage(), privacy=PRIVACY)
    check_words(stage, run)
    row, result = stage.row(run), stage.result(run)
    assert row.status == "completed", row.cause
    assert all(clause.private for clause in row.contract)
    assert set(case.algorithm.privately) <= set(row.spec.notes)
    for order in stage.journal.orders(run):
        asks = () if order.cursor == JOIN else case.plan[order.cursor].asks
        assert not asks or case.roster[order.client] in asks, "who is asked pays for it"
    spent = [each["epsilon"] for each in result["clients"]]
    assert max(spent) == pytest.approx(result["privacy"]["epsilon"], rel=0.3) and max(spent) <= result["privacy"]["epsilon"]


@every
def test_with_a_bound_that_follows_the_gradients_nothing_else_leaves(case: Case) -> None:
    """A method whose steps clip no gradients refuses it."""
    try:
        stage, run = case.played(case.stage(), privacy={**PRIVACY, "quantile": 0.5})
    except ConfigRefused as error:
        assert error.context["path"] == "privacy.quantile", error
    else:
        assert stage.row(run).status == "completed", stage.row(run).cause
        check_words(stage, run)


def check_words(stage: Stage, run: RunId) -> None:
    """Check that metrics and facts of every reply, as they crossed the link, are those of the contract."""
    told = {each.field.removeprefix("metrics.") for each in stage.row(run).contract if each.field.startswith("metrics.")}
    for _, _, words in stage.wire.words:
        metrics, facts, failure = json.loads(words)
        assert set(metrics) <= told and failure is None
        assert set(facts) <= {"labelled", "abilities", "network", "computed", "ledger", "charges"}, facts


@every
def test_coordinator_and_site_come_to_the_same_price(case: Case) -> None:
    """By each role: what a site reserves at its join is what the coordinator counts; and its exchanges add up to it at most."""
    stage = case.stage()
    run = stage.start(case.experiment(privacy=PRIVACY))
    method = Configured(case.algorithm, case.config, privacy=PUBLIC)
    assert stage.row(run).spec.epsilon == pytest.approx(cost(method, privacy_of(method)))
    for order in stage.waiting():
        brief = brief_in(order)
        whole = priced(stage, order, brief).run
        assert order.cursor == JOIN and whole == charges(method.plan, case.config, privacy_of(method), brief.role)
    known = stage.row(run).spec.charges
    assert known is not None
    for role in Role:
        paid = [phase for phase in method.plan if phase.step and (not phase.asks or role in phase.asks)]
        found = together(charge for phase in paid for charge in known[f"{phase.name}/{phase.step.name}"])  # type: ignore[union-attr]
        assert found == charges(method.plan, case.config, privacy_of(method), role)


def privacy_of(method: Configured) -> Privacy:
    assert method.privacy is not None
    return method.privacy


@every
def test_every_field_that_reads_rows_has_noise(case: Case) -> None:
    """Each exchange once by the site's own secret and once by another: all but public numbers change somewhere, these nowhere."""
    stage = case.stage()
    run = stage.start(case.experiment(privacy=PRIVACY, config=SEVERAL.get(case.name, {})))
    declared, changed = set[tuple[str, str]](), set[tuple[str, str]]()
    ticks = list[float]()
    for order, mine, other in answered_twice(stage, run, ticks):
        step = step_of(stage, run, order)
        spends = step.spends(case.config, PUBLIC)
        counted = (tick for tick in ticks if tick)  # nothing done is a sign of life
        assert all(of_steps(tick, spends) for tick in counted), "progress is of steps that all can count"
        ticks.clear()
        for leaf in leaves(step.gives):
            place = (step.name, leaf.path)
            declared |= set() if leaf.private in OF_NO_ROW or leaf.private.startswith(NUMBER) else {place}
            changed |= {place} if differs(getattr(mine, leaf.path), getattr(other, leaf.path)) else set()
    assert stage.row(run).status == "completed", stage.row(run).cause
    assert changed == declared


def answered_twice(stage: Stage, run: RunId, ticks: list[float]) -> Iterator[tuple[Order, Any, Any]]:
    """Every order of a run with its reply, and with the one that the same site gives by another secret, on the same order."""
    for action in stage.actions(run):
        action()
        for order in stage.waiting():
            if order.cursor == JOIN:
                continue
            row = stage.journal.order(order.id)
            assert row is not None
            client, step = row.client, step_of(stage, run, order)
            rules = like(decode(step.takes, row.files[0][0], stage.parts, LAX))
            agent, vault = stage.agents[client], stage.vaults[client]
            before, own = vault.head(run), agent.secret
            replies = []
            for secret in (lambda: b"o" * 32, own):
                agent.secret = secret
                vault.restore(run, before)
                head = driven(agent.ready(order), partial(run_with, agent, ticks))
                replies.append(decode(step.gives, head.reply[0][0], vault.parts(run), rules))
            yield order, replies[1], replies[0]


def run_with(agent: Agent, ticks: list[float], job: Job) -> Done:
    return agent.pool.run(job, ticks.append)


def of_steps(tick: float, spent: tuple[Charge, ...]) -> bool:
    """Whether a share is of whole steps of training, as many as are declared, or of those that are made one after the other."""
    return any(abs(tick * steps - round(tick * steps)) < 1e-6 for each in spent if each.rate < 1 for steps in (each.times, 2))


def step_of(stage: Stage, run: Any, order: Order) -> Any:
    row = stage.row(run)
    algorithm = next(case for case in ABLE if case.name == row.spec.method).algorithm
    step = algorithm.plan(algorithm.configure(row.spec.config))[order.cursor].step
    assert step is not None
    return step


def differs(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return not torch.equal(a, b)
    if isinstance(a, Mapping):
        return any(differs(a[name], b[name]) for name in a)
    return bool(a != b)


def priced(stage: Stage, order: Order, brief: Brief) -> Price:
    """What an order costs by the code of the site that it waits for."""
    row = stage.journal.order(order.id)
    assert row is not None
    agent = stage.agents[row.client]
    price = agent.pool.run(next(agent.charged(order, brief)), no_tick).price
    assert price is not None
    return price


# Settings that turn off what a method does otherwise in private runs, where it steps on all rows at once.
ALIKE: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "fedprox": {"mu": 0.1},
    "fedgma": {"tau": 0.0},
    "self_training": {"quantile": 0.0},
    "local": {},
    "source_model": {},
    "shot": {"labels": "predicted"},
    "fedavg_shot": {"labels": "predicted"},
    "fedprox_pl": {"labels": "predicted", "mu": 0.1},
    "fedamp_pl": {"labels": "predicted", "prox": 0.1},
    "ifca_pl": {"labels": "predicted", "k": 2, "noise": 0.5},
    "ladd_pl": {"labels": "predicted", "style_transfer": False},
    "fedwca": {"labels": "predicted", "mu": 0.0, "weights": "equal"},
    "kd3a": {"distillation": "paper"},
    "fdan": {},
}
NEARLY_PLAIN = {"rows": TRAIN, "noise": 0.01, "delta": 1e-3, "rate": 1.0, "clip": 20.0, "score_noise": 0.01}
FAST = {"rounds": 3, "rate": 0.2, "batch": 1000, "source_batch": 1000, "epochs": 1, "source_epochs": 1}
CLIPS: Mapping[str, Mapping[str, Any]] = {"ladd_pl": {"clip": 2.0}}  # of images, whose gradients are short, beside their noise
CLOSE = 0.2  # of the way that training goes


@pytest.mark.parametrize(
    "case",
    [case if case.name == "fedavg" else pytest.param(case, marks=AT_NIGHT) for case in ABLE if case.name in ALIKE],
    ids=str,
)
def test_with_hardly_any_noise_it_is_the_method_itself(case: Case) -> None:
    """The same steps on all rows at once: all ends where it does in the plain run, beside the way that training went."""
    config = {name: value for name, value in FAST.items() if hasattr(case.config, name)} | ALIKE[case.name]
    if case.name == "source_model":
        config["rounds"] = 0
    still = config | ({"source_rate": 0.0} if case.name == "source_model" else {"rate": 0.0})
    plain, unlearnt = (ended(case, *case.played(case.stage(), config=each)) for each in (config, still))
    if "s2" in plain:
        config["width"] = float(plain["s2"])
    stage, run = case.played(case.stage(), config=config, privacy=NEARLY_PLAIN | CLIPS.get(case.name, {}))
    assert stage.row(run).status == "completed", stage.row(run).cause
    private = ended(case, stage, run)
    places = [name for name, each in plain.items() if each.numel() and "styles" not in name]
    assert private.keys() == plain.keys()
    way = max(float((plain[name] - unlearnt[name]).abs().max()) for name in places)
    far = {name: float((plain[name] - private[name]).abs().max()) for name in places}
    assert max(far.values()) < CLOSE * way, (way, far)


def ended(case: Case, stage: Stage, run: RunId) -> dict[str, Tensor]:
    """All numbers of the final state and of the sites' memories, by their places."""
    state = decode(case.algorithm.state, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    found = dict(numbers_in(state, ""))
    for name, vault in stage.vaults.items():
        head = vault.head(run)
        if head is not None and head.memory:
            memory = decode(case.algorithm.memory, head.memory[0][0], vault.parts(run), LAX)
            found |= numbers_in(memory, f"{name}.")
    return found


def numbers_in(value: Any, place: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield place.rstrip("."), value.double()
    elif isinstance(value, float):
        yield place.rstrip("."), torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, Mapping):
        for name in value:
            yield from numbers_in(value[name], f"{place}{name}.")
    elif isinstance(value, tuple):
        for at, each in enumerate(value):
            yield from numbers_in(each, f"{place}{at}.")
    elif is_record(type(value)):
        for each in fields(value):
            yield from numbers_in(getattr(value, each.name), f"{place}{each.name}.")
