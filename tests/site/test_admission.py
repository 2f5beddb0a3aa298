"""What a site's owner lets run: methods, users, weights, settings, sizes, hours and a day's worth."""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import pytest

from tideline.core.asked.normalise import Normalise, Scaling
from tideline.core.asked.world import World
from tideline.core.errors import ContractRefused, PolicyRefused, StepFailed
from tideline.core.privacy import Audience, Clause, Exposure
from tideline.core.rows import Augment, Flip
from tideline.core.run import ClientId, Digest, OrderId, Role, RunId
from tideline.core.settings import Plain
from tideline.engine.model.brief import Brief
from tideline.engine.model.intent import NO_INTENT, Intent, intent_in
from tideline.engine.model.orders import Hold, Order
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.ledger import NoLedger, Spent
from tideline.engine.site.admission import check_run, facts_of, intent_digest
from tideline.engine.site.owner import Owner, Said
from tideline.engine.site.rules import FREE, Approval, InitialWeights, Least, Quotas, RunRules, SiteRules, bound_of, within

WEIGHTS = Digest("b3-" + "ab" * 32)
BRIEF = Brief(
    method="fedavg",
    config={"rate": 0.01, "rounds": 5, "batch": 32, "nesterov": True, "inner": {"source_rate": 0.5}},
    world=World((4,), 3, "mlp"),
    threads=1,
    keeps=False,
    contract=(),
    role=Role.SOURCE,
    intent=Intent(by="alice", sites=3),
)
CONSTANTS = replace(BRIEF.world, normalise=Normalise(Scaling.GIVEN, mean=(0.0,) * 4, std=(1.0,) * 4))
RUN, ME, NOON = RunId("run"), ClientId("me"), datetime(2026, 5, 4, 12, 0)
ORDER = Order(
    id=OrderId("o"), run=RUN, cursor=JOIN, phase="", step="", round=1, files=(), seed=0, after=-2, seconds_left=1.0, brief={}
)


def asking(**more: Any) -> Brief:
    """The brief with other fields, its intent's among them."""
    own = {each.name for each in fields(Intent)}
    intent = replace(BRIEF.intent, **{name: value for name, value in more.items() if name in own})
    return replace(BRIEF, intent=intent, **{name: value for name, value in more.items() if name not in own})


def rules(**runs: Any) -> SiteRules:
    return SiteRules(RunRules(**runs))


@pytest.mark.parametrize(
    ("allowed", "asked", "words"),
    [
        (rules(), {}, None),
        (rules(methods=("fedavg",)), {}, None),
        (rules(methods=("feddadil",)), {}, "the method fedavg"),
        (rules(users=("bob",)), {}, "runs of alice"),
        (rules(users=("bob",)), {"by": ""}, "runs of a user without a name"),
        (rules(projects=("cardio",)), {}, "runs of the project default"),
        (rules(projects=("cardio",)), {"project": "retina"}, "runs of the project retina"),
        (rules(), {"weights": WEIGHTS}, f"weights that a user brings ({WEIGHTS})"),
        (rules(), {"base": WEIGHTS}, None),  # a trainer looks whether a package that is installed here has them
        (rules(), {"base": WEIGHTS, "weights": Digest("cd" * 32)}, "weights that a user brings"),
        (rules(weights=InitialWeights.DIGESTS, digests=("cd" * 32,)), {"base": WEIGHTS}, f"a user brings ({WEIGHTS})"),
        (rules(weights=InitialWeights.ANY), {"weights": WEIGHTS}, None),
        (rules(digests=(WEIGHTS,)), {"weights": WEIGHTS}, None),
        (rules(digests=("cd" * 32,)), {"weights": WEIGHTS}, "weights that a user brings"),
        (rules(), {"world": CONSTANTS}, "rows that are normalised by numbers of the run's user"),
        (rules(constants=True), {"world": CONSTANTS}, None),
        (SiteRules(bounds={"rounds": 4}), {}, "config.rounds of 5, which is bound to 4"),
        (SiteRules(bounds={"*rate": 0.1}), {}, "config.inner.source_rate of 0.5, which is bound to 0.1"),
        (SiteRules(bounds={"*rate": 0.1, "source_rate": 1.0}), {}, None),
        (SiteRules(bounds={"nesterov": 0.0}), {}, None),
        (SiteRules(bounds={"distil": 10.0}), {"config": {"distil": (1, 5, 20)}}, "config.distil of 20, which is bound to 10"),
        # As an agent reads it from the JSON of an order.
        (SiteRules(bounds={"distil": 10.0}), {"config": {"distil": [1, 5, 20]}}, "config.distil of 20, which is bound to 10"),
        (SiteRules(), {"config": {"rate": 100.0}}, "config.rate of 100, which is bound to 10"),
        (SiteRules(least=Least(sites=4)), {}, "3 sites, where 4 are wanted"),
        (SiteRules(least=Least(sites=4)), {"sites": 0}, None),
        (FREE, {"weights": WEIGHTS, "world": CONSTANTS, "config": {"rate": 1e9}}, None),
    ],
)
def test_what_an_owner_allows(allowed: SiteRules, asked: dict[str, Any], words: str | None) -> None:
    """A refusal says what is not allowed and which line of the policy would; nothing else is refused."""
    brief = asking(**asked)
    if words is None:
        check_run(allowed, brief)
        return
    with pytest.raises(PolicyRefused) as refusal:
        check_run(allowed, brief)
    assert words in refusal.value.what and "policy file: [" in refusal.value.todo, str(refusal.value)


def test_all_that_is_not_allowed_is_said_at_once() -> None:
    """So that an owner is asked once."""
    with pytest.raises(PolicyRefused) as refusal:
        check_run(rules(users=("bob",), methods=("kd3a",)), asking(weights=WEIGHTS))
    assert refusal.value.context["rules"] == ["[runs] methods", "[runs] users", "[runs] weights and digests"]


@pytest.mark.parametrize(
    ("hours", "at", "inside"),
    [
        ("", "03:00", True),
        ("08:00-17:30", "08:00", True),
        ("08:00-17:30", "17:30", False),
        ("20:00-06:00", "23:59", True),
        ("20:00-06:00", "05:59", True),
        ("20:00-06:00", "06:00", False),
        ("20:00-06:00", "12:00", False),
    ],
)
def test_hours(hours: str, at: str, inside: bool) -> None:
    """Of a day, or over midnight; the first minute is in, the last is not."""
    hour, minute = map(int, at.split(":"))
    assert within(hours, NOON.replace(hour=hour, minute=minute)) is inside


def test_the_narrowest_of_patterns_binds_and_a_name_outweighs_them() -> None:
    """A name of its own is the owner's last word."""
    bounds = {"*": 9.0, "*rate": 5.0, "rate": 7.0}
    assert [bound_of(bounds, name) for name in ("rate", "source_rate", "epochs")] == [7.0, 5.0, 9.0]
    assert bound_of({}, "rate") is None


NOTHING = Spent()


class Words(NoLedger):
    """A ledger in which these were approved, by run and by intent, and so much was spent."""

    def __init__(
        self, words: dict[str, bool], intents: Set[str] = frozenset(), spent: Spent = NOTHING, begun: bool = False
    ) -> None:
        self.words, self.intents, self._spent, self._begun = words, intents, spent, begun

    def word(self, run: RunId, intent: Digest) -> bool | None:
        return self.words.get(run)

    def approved(self, intent: Digest) -> bool:
        return intent in self.intents

    def began(self, run: RunId) -> bool:
        return self._begun

    def spent(self, since: float) -> Spent:
        return self._spent


def owner(allowed: SiteRules, ledger: NoLedger, now: datetime = NOON) -> Owner:
    return Owner(rules=allowed, ledger=ledger, now=lambda: now)


@pytest.mark.parametrize(
    ("asks", "words", "intents", "held"),
    [
        (Approval.NEVER, {}, set(), None),
        (Approval.ALWAYS, {}, {intent_digest(BRIEF)}, Hold.APPROVAL),
        (Approval.ALWAYS, {"run": True}, set(), None),
        (Approval.ALWAYS, {"whole": True}, set(), None),
        (Approval.NEW, {}, set(), Hold.APPROVAL),
        (Approval.NEW, {}, {intent_digest(BRIEF)}, None),
        (Approval.NEW, {"run": False}, {intent_digest(BRIEF)}, None),
    ],
)
def test_what_waits_for_the_owners_word(asks: Approval, words: dict[str, bool], intents: set[str], held: Hold | None) -> None:
    """Approving a run covers those that belong to it, by `new` those that ask for the same; what is declined does not wait."""
    asked = owner(rules(approve=asks), Words(words, intents))
    brief = asking(parent=RunId("whole"))
    assert asked.holds(ORDER, brief) is held
    if held is None and words.get("run") is not False:
        asked.check(ME, ORDER, brief)
    else:
        with pytest.raises(PolicyRefused):
            asked.check(ME, ORDER, brief)


def test_an_owner_may_take_the_word_back() -> None:
    """Then nothing more is worked on, also where no run needs to be approved."""
    with pytest.raises(PolicyRefused, match="has declined the run"):
        owner(rules(), Words({"run": False})).check(ME, ORDER, BRIEF)


def test_another_intent_is_not_the_same() -> None:
    """User, role, method, settings, world, contract, weights and augmentation enter; what differs from run to run does not."""
    others = (
        {"by": "bob"},
        {"role": Role.TARGET},
        {"method": "fedprox"},
        {"config": {}},
        {"world": CONSTANTS},
        {"weights": WEIGHTS},
        {"base": WEIGHTS},
        {"augment": Augment(flip=Flip.BOTH)},
    )
    made = [intent_digest(asking(**other)) for other in others]
    assert len({intent_digest(BRIEF), *made}) == len(others) + 1
    assert intent_digest(asking(version="9", best=3, parent=RunId("whole"), sites=7)) == intent_digest(BRIEF)


@pytest.mark.parametrize(
    ("allowed", "spent", "begun", "held"),
    [
        (SiteRules(RunRules(hours="20:00-06:00")), Spent(), False, Hold.HOURS),
        (SiteRules(quotas=Quotas(runs=2)), Spent(runs=1), False, None),
        (SiteRules(quotas=Quotas(runs=2)), Spent(runs=2), False, Hold.QUOTA),
        (SiteRules(quotas=Quotas(runs=2)), Spent(runs=2), True, None),
        (SiteRules(quotas=Quotas(replies=5)), Spent(replies=5), True, Hold.QUOTA),
        (SiteRules(quotas=Quotas(bytes_out="1 kB")), Spent(bytes=999), True, None),
        (SiteRules(quotas=Quotas(bytes_out="1 kB")), Spent(bytes=1000), True, Hold.QUOTA),
    ],
)
def test_what_waits_for_an_hour_or_a_day(allowed: SiteRules, spent: Spent, begun: bool, held: Hold | None) -> None:
    """A run that has begun may go on though no other may begin."""
    assert owner(allowed, Words({}, spent=spent, begun=begun)).holds(ORDER, BRIEF) is held


WHOLE = Intent(by="alice", experiment=Digest("ab" * 32), sites=3, weights=WEIGHTS, parent=RunId("whole"))


@pytest.mark.parametrize("intent", [NO_INTENT, Intent(by="alice"), replace(WHOLE, parent=None), WHOLE])
def test_an_intent_reads_as_it_was_written(intent: Intent) -> None:
    """By JSON, with and without what it may lack; and the ledger has the same words of it as the brief."""
    assert intent_in(json.loads(json.dumps(intent.plain()))) == intent
    facts = facts_of(replace(BRIEF, intent=intent))
    assert {name: facts[name] for name in intent.plain()} == intent.plain()


@pytest.mark.parametrize(
    "said",
    [
        *([], "alice", {"by": None}, {"by": 1}, {"experiment": None}, {"sites": True}, {"sites": "3"}),
        *({"weights": 3}, {"parent": []}, {"by": "a" * 201}, {"other": "word"}),
    ],
)
def test_what_is_no_intent(said: object) -> None:
    """No coordinator of ours says it."""
    with pytest.raises(ValueError, match="no intent"):
        intent_in(said)


class Recorded(NoLedger):
    """A ledger that holds what it is given."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, Plain]]] = []

    def record(self, kind: str, **facts: Plain) -> None:
        self.entries.append((kind, facts))


def test_a_refusal_stands_once() -> None:
    """However often the same is asked; other failures are no refusals."""
    ledger = Recorded()
    asked = Owner(rules=rules(), ledger=ledger)
    for error in (PolicyRefused("no"), PolicyRefused("no"), PolicyRefused("not so"), StepFailed("broken")):
        asked.refuses(ORDER, error)
    asked.refuses(replace(ORDER, run=RunId("other")), PolicyRefused("no"))
    assert [(facts["run"], facts["what"]) for _, facts in ledger.entries] == [("run", "no"), ("run", "not so"), ("other", "no")]


def test_an_owner_says_something_else_of_a_projects_runs() -> None:
    """By the project that is in the order: what may run, what waits, what is bound, and what may leave."""
    own = Said(frozenset(), SiteRules(RunRules(methods=("fada",), approve=Approval.ALWAYS, clip=1.0), least=Least(rows=77)))
    asked = Owner(rules=rules(), ledger=Words({}), projects={"cardio": own})
    cardio = asking(project="cardio")
    asked.check(ME, ORDER, BRIEF)
    asked.check(ME, ORDER, asking(project="retina"))
    with pytest.raises(PolicyRefused, match="the method fedavg"):
        asked.check(ME, ORDER, cardio)
    assert (asked.holds(ORDER, BRIEF), asked.holds(ORDER, cardio)) == (None, Hold.APPROVAL)
    assert (asked.limits(cardio).rows, asked.limits(cardio).clip, asked.limits(BRIEF).rows) == (77, 1.0, 20)
    contract = (
        Clause(
            phase="train", step="s", field="w", dims="d", exposure=Exposure.WEIGHTS, audience=frozenset({Audience.COORDINATOR})
        ),
    )
    asked.permit(contract, BRIEF)
    with pytest.raises(ContractRefused):
        asked.permit(contract, cardio)
