"""What people ask of the coordinator: invite, enrol, start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests import enrolling
from tests.engine.present import present
from tests.engine.toys import ROSTER, start
from tests.laws.stage import Stage
from tests.synthetic import FEATURES, experiment
from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound, Refused, RosterRefused
from tideline.engine.model.runs import Status

ALL = ("source", "target", "peer")


def enrol(on: Stage, token: str, name: str, roles: tuple[str, ...] = ALL) -> Any:
    return enrolling.enrol(on.run_service, token, name, roles)


def test_a_token_serves_once(on: Stage) -> None:
    """A token that somebody has used is refused to anybody else, with the reason."""
    token = on.run_service.invite("", {}, 60.0)
    enrol(on, token, "dora")
    with pytest.raises(IdentityRefused, match="used by 'dora'"):
        enrol(on, token, "emil")


def test_a_token_expires(on: Stage) -> None:
    """After its lifetime a token admits nobody, and says since when."""
    token = on.run_service.invite("dora", {}, 60.0)
    on.clock.advance(75.0)
    with pytest.raises(IdentityRefused, match="expired 15 s ago"):
        enrol(on, token, "dora")


def test_an_unknown_token_is_refused(on: Stage) -> None:
    """A token that nobody issued admits nobody."""
    with pytest.raises(IdentityRefused, match="not known"):
        enrol(on, "invented", "dora")


def test_a_token_for_a_name_admits_that_name_only(on: Stage) -> None:
    """A pinned invitation is for one name, and a failed attempt does not use it up."""
    token = on.run_service.invite("dora", {}, 60.0)
    with pytest.raises(IdentityRefused, match="is for 'dora', not 'emil'"):
        enrol(on, token, "emil")
    assert enrol(on, token, "dora").name == "dora"


def test_enrolling_again_with_the_same_keys_changes_nothing_but_what_is_new(on: Stage) -> None:
    """A killed agent starts with the same command: used token, same keys, perhaps other roles."""
    token = on.run_service.invite("dora", {"site": "north"}, 60.0)
    first = enrol(on, token, "dora")
    on.clock.advance(3600.0)
    again = enrol(on, token, "dora", roles=("source",))
    assert (again.name, again.labels, again.enrolled) == (first.name, first.labels, first.enrolled)
    kept = present(on.journal.client("dora"))
    assert (kept.roles, kept.seen) == (("source",), on.clock.now())


def test_secrets_are_kept_hashed(on: Stage) -> None:
    """The token cannot be read from the journal."""
    token = on.run_service.invite("dora", {}, 60.0)
    enrol(on, token, "dora")
    known = repr(on.journal.__dict__)
    assert token not in known


@pytest.mark.parametrize("name", ["", "a b", "../x", ".hidden", "a/b", "x" * 65, "ä", "a\n"])
def test_a_name_that_is_no_name_is_refused(on: Stage, name: str) -> None:
    """Client names are safe as folder names; an empty one is only an invitation's free choice."""
    token = on.run_service.invite("", {}, 60.0)
    with pytest.raises(ConfigRefused) as refusal:
        enrol(on, token, name)
    assert refusal.value.context["path"] == "name"
    with pytest.raises(Refused):
        start(on, roster={name: "source"})


@pytest.mark.parametrize("ttl", [0.0, -1.0, 1e9, float("nan")])
def test_an_invitation_has_a_sensible_lifetime(on: Stage, ttl: float) -> None:
    """A lifetime out of range is refused."""
    with pytest.raises(ConfigRefused):
        on.run_service.invite("dora", {}, ttl)


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "an unknown method": ({"method": "fedavgg"}, "method"),
    "an unknown preset": ({"preset": "tinny"}, "preset"),
    "an unknown key": ({"metod": "toy"}, "metod"),
    "an unknown setting": ({"config": {"round": 3}}, "config.round"),
    "a setting below its bound": ({"config": {"rounds": -1}}, "config.rounds"),
    "a setting of another type": ({"config": {"rounds": "three"}}, "config.rounds"),
    "a truth value for a number": ({"config": {"rounds": True}}, "config.rounds"),
    "an unknown role": ({"roster": {"anna": "sorcerer"}}, "roster.anna"),
    "nobody": ({"roster": {}}, "roster"),
    "an unknown network": ({"method": "fedavg", "world": FEATURES | {"model": "mpl"}}, "world.model"),
    "a network that does not fit": ({"method": "fedavg", "world": FEATURES | {"model": "lenet"}}, "world.inputs"),
    "one class": ({"world": FEATURES | {"classes": 1}}, "world.classes"),
    "no deadline": ({"waiting": {"deadline": 0}}, "waiting.deadline"),
    "a quorum of none": ({"waiting": {"min_replies": 0}}, "waiting.min_replies"),
    "a selector that finds nobody": ({"select": [{"labels": {"site": "moon"}, "role": "source"}]}, "select[0]"),
    "an unknown reference": ({"reference": {"method": "fedavgg"}}, "reference.method"),
    "a wrong setting of the reference": ({"reference": {"config": {"epochs": 0}}}, "reference.config.epochs"),
    "a negative seed": ({"seed": -1}, "seed"),
    "no method": ({"method": None}, "method"),
}


@pytest.mark.parametrize("what", WRONG)
def test_every_mistake_is_answered_with_its_place(on: Stage, what: str) -> None:
    """A wrong experiment starts nothing; the refusal names the place in dots and says what to do."""
    change, path = WRONG[what]
    given = experiment("toy", ROSTER, config={"rounds": 2}) | change
    if "method" in change:
        given["config"] = {}
    with pytest.raises(Refused) as refusal:
        on.start(given)
    assert refusal.value.context["path"] == path and refusal.value.todo and on.journal.run_ids() == ()


def test_a_near_miss_is_guessed(on: Stage) -> None:
    """A refusal of a word offers the word that was probably meant."""
    with pytest.raises(NotFound, match=r"did you mean fedavg\?"):
        on.start(experiment("fedavgg", ROSTER))


def test_a_role_that_the_owner_does_not_allow_is_refused(on: Stage) -> None:
    """An enrolled client takes only the roles that its owner allows; the refusal names them."""
    enrol(on, on.run_service.invite("dora", {}, 60.0), "dora", roles=("target",))
    with pytest.raises(RosterRefused, match="its owner allows target") as refusal:
        start(on, roster={"anna": "source", "dora": "source"})
    assert refusal.value.context["path"] == "roster.dora"


def test_a_roster_that_no_method_can_use_is_refused(on: Stage) -> None:
    """A run that could never learn is refused before anybody is asked."""
    with pytest.raises(RosterRefused, match="No member can teach"):
        on.start(experiment("fedavg", {"anna": "target"}))


def test_a_roster_by_labels(on: Stage) -> None:
    """A selector takes every enrolled client that has all of its labels."""
    for name, labels in (("dora", {"site": "north", "kind": "clinic"}), ("emil", {"site": "north"}), ("fred", {})):
        enrol(on, on.run_service.invite(name, labels, 60.0), name)
    run = start(on, roster={"anna": "target"}, select=[{"labels": {"site": "north"}, "role": "source"}])
    assert dict(on.row(run).roster) == {"anna": "target", "dora": "source", "emil": "source"}
    run = start(on, roster={"anna": "target"}, select=[{"labels": {"site": "north", "kind": "clinic"}, "role": "source"}])
    assert dict(on.row(run).roster) == {"anna": "target", "dora": "source"}


def test_a_run_waits_for_members_that_enrol_later(on: Stage) -> None:
    """A member may be named before it enrols; the run says for whom it waits."""
    run = start(on, roster={"anna": "source", "zoe": "source"}, waiting={"deadline": 600.0})
    for order in on.waiting():
        on.handle(order)
    on.scheduler.turn(run)
    assert on.row(run).status is Status.WAITING
    assert on.result(run)["waits_for"] == "waiting for 1 of 2 sites (zoe); gives up in 10 min"
    row = on.play(run)
    assert row.status is Status.STALLED
    assert row.cause == "Gathering the sites: 1 of 2 sites answered. zoe: no answer in time"


def test_a_run_that_does_not_exist_is_not_found(on: Stage) -> None:
    """An unknown run is refused by name."""
    for ask in (on.run_service.find, on.run_service.cancel, on.run_service.resume):
        with pytest.raises(NotFound, match="no run 'zzz'"):
            ask("zzz")  # type: ignore[arg-type]


def test_a_reference_runs_beside_and_is_joined_as_source_only(on: Stage) -> None:
    """The reference's accuracy on the same rows is the main run's source_only; both end by themselves."""
    given = experiment("toy", ROSTER, config={"rounds": 1}, reference={"method": "fedavg", "config": {"epochs": 2}})
    run = on.start(given)
    sibling = present(on.row(run).reference)
    assert on.row(sibling).parent == run and on.row(sibling).spec.config["epochs"] == 2
    assert on.row(sibling).spec.config["rounds"] == 1 and on.row(sibling).spec.config["roles"] == ["source"]
    while any(on.scheduler.turn(r) is not None for r in (run, sibling)):
        for order in on.waiting():
            on.handle(order)
    theirs = {c["name"]: c["accuracy"] for c in on.result(sibling)["clients"]}
    assert {c["name"]: c["source_only"] for c in on.result(run)["clients"]} == theirs
    assert all(value is not None for value in theirs.values())


def test_a_plan_that_scores_the_source_only_model_needs_no_reference(on: Stage) -> None:
    """FedAvg tells its source-only accuracy itself, so that no second run is made."""
    run = on.start(experiment("fedavg", ROSTER, reference={}))
    assert on.row(run).reference is None
    on.play(run)
    for client in on.result(run)["clients"]:
        assert client["source_only"] == client["accuracy"] is not None


def test_a_reference_shares_the_fate_of_its_run(on: Stage) -> None:
    """Cancelling or resuming a run cancels or resumes its reference too."""
    runs = []
    for _ in range(2):
        run = on.start(experiment("toy", ROSTER | {"zoe": "source"}, reference={}))
        sibling = present(on.row(run).reference)
        runs.append((run, sibling))
    (first, second), (third, fourth) = runs
    on.clock.advance(2 * 86400.0)
    for run in (first, second):
        on.scheduler.turn(run)
        assert on.row(run).status is Status.STALLED
    on.run_service.resume(first)
    assert [on.row(run).status for run in (first, second)] == [Status.WAITING] * 2
    on.run_service.cancel(third)
    assert [on.row(run).status for run in (third, fourth)] == [Status.CANCELLED] * 2
