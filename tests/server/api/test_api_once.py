"""A call with an Idempotency-Key is done once and answered alike, whoever sends it again, when and where."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_world import EXPERIMENT, JSON, QUICK, Coordinator, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.enrolling import enrol
from tests.postgres import own_schema
from tests.server.loops import LONG
from tideline.core.errors import Unreachable
from tideline.core.tokens import secret_of
from tideline.engine.coordinator.enrolment import secret_hash
from tideline.engine.coordinator.idempotency import KEPT_SECONDS
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.ports.compute import Draft, DraftRequest
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.api import ApiSettings
from tideline_server.api.requests.idempotency import HEADER, SAFE, canonical
from tideline_server.api.routes import clients, runs
from tideline_server.api.services import identity_of
from tideline_server.store import SqlJournal

KEY = {HEADER: "0b1f8a3e-9d0c-4d7b-8a51-6f1d2c3b4a59"}
HASTY = ApiSettings(patience_seconds=0.02)
INVITATION = {"name": "dora", "labels": {"country": "nl"}, "ttl_seconds": 60}
MARK = "idempotent-replayed"


def same(first: httpx.Response, again: httpx.Response) -> None:
    """The second answer is the first, and says so."""
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert MARK not in first.headers and again.headers[MARK] == "true"
    assert headers_of(again) == headers_of(first)
    assert again.headers["x-request-id"] != first.headers["x-request-id"]  # each try is a request of its own


def headers_of(answer: httpx.Response) -> dict[str, str]:
    """What an answer's headers say of what was done."""
    return {k: v for k, v in answer.headers.items() if k not in (MARK, "x-request-id")}


# The answer again


def test_a_run_is_started_once(coordinator: Coordinator) -> None:
    """The same answer byte for byte, Location included, however the body's names are ordered; one run."""
    first = coordinator.post("/runs", EXPERIMENT, headers=KEY)
    assert first.status_code == 201 and first.headers["location"] == f"/runs/{first.json()['run']}"
    same(first, coordinator.post("/runs", EXPERIMENT, headers=KEY))
    body = json.dumps(dict(reversed(EXPERIMENT.items())), indent=2)
    same(first, coordinator.post("/runs", content=body, headers=KEY | JSON))
    assert len(coordinator.get("/runs").json()) == 1


def test_an_invitation_is_made_once(coordinator: Coordinator) -> None:
    """The token comes again, though later, and though it was used meanwhile; it still serves once."""
    first = coordinator.post("/invites", INVITATION, headers=KEY)
    enrol(coordinator.federation.run_service, first.json()["token"], "dora", ("source",))
    coordinator.federation.clock.advance(3600.0)
    same(first, coordinator.post("/invites", INVITATION, headers=KEY))
    invite = coordinator.federation.journal.invite(secret_hash(secret_of(first.json()["token"])))
    assert invite is not None and invite.used_by == "dora"


def test_cancelling_and_resuming_are_done_once(coordinator: Coordinator) -> None:
    """A repeat is told of the success again; another key hears that there is nothing to do."""
    run = coordinator.start(roster=EXPERIMENT["roster"] | {"nobody": "source"})
    coordinator.play(run)
    for what, key in (("resume", {HEADER: "r"}), ("cancel", {HEADER: "c"})):
        first = coordinator.post(f"/runs/{run}/{what}", headers=key)
        assert first.status_code == 200
        same(first, coordinator.post(f"/runs/{run}/{what}", headers=key))
        refused(
            coordinator.post(f"/runs/{run}/{what}", headers=KEY | {HEADER: f"other {what}".replace(" ", "-")}), 409, "Refused"
        )


def test_a_refusal_is_told_again(coordinator: Coordinator) -> None:
    """What was refused stays refused under its key, also when it would be done by now: a repeat changes nothing."""
    given = EXPERIMENT | {"select": [{"labels": {"country": "nl"}, "role": "source"}]}
    first = coordinator.post("/runs", given, headers=KEY)
    refused(first, 422, "RosterRefused", "select[0]")
    token = coordinator.post("/invites", INVITATION).json()["token"]
    enrol(coordinator.federation.run_service, token, "dora", ("source",))
    same(first, coordinator.post("/runs", given, headers=KEY))
    assert coordinator.post("/runs", given, headers={HEADER: "another"}).status_code == 201


def test_without_a_key_all_is_as_it_was(coordinator: Coordinator) -> None:
    """Each call is done, and nothing is remembered."""
    runs = [coordinator.post("/runs", EXPERIMENT).json()["run"] for _ in range(2)]
    assert len(set(runs)) == 2
    tokens = [coordinator.post("/invites", {}).json()["token"] for _ in range(2)]
    assert len(set(tokens)) == 2 and all(len(secret_of(token)) == 32 for token in tokens)
    assert coordinator.federation.journal._records == {}


def test_what_changes_nothing_needs_no_key(coordinator: Coordinator) -> None:
    """A key on a GET means nothing: it is neither looked at nor kept."""
    for key in ("k", "no key at all \xe9"):
        assert MARK not in coordinator.get("/runs", headers={HEADER: key.encode("latin-1")}).headers
        assert coordinator.get("/runs", headers={HEADER: key.encode("latin-1")}).status_code == 200
    assert coordinator.federation.journal._records == {}


def test_a_key_is_forgotten_after_a_day(coordinator: Coordinator) -> None:
    """Within the day the answer comes again; later the call is a new one, and the old record is gone when new ones come."""
    first = coordinator.post("/runs", EXPERIMENT, headers=KEY)
    coordinator.federation.clock.advance(KEPT_SECONDS)
    same(first, coordinator.post("/runs", EXPERIMENT, headers=KEY))
    coordinator.federation.clock.advance(1.0)
    assert coordinator.post("/runs", EXPERIMENT, headers=KEY).json()["run"] != first.json()["run"]
    assert len(coordinator.federation.journal._records) == 1


# Another call, and no key at all


OTHER_CALLS = (
    ("POST", "/runs", EXPERIMENT | {"seed": 4}),
    ("POST", "/runs?x=1", EXPERIMENT),
    ("POST", "/invites", EXPERIMENT),
    ("POST", "/runs", None),
    ("DELETE", "/runs", EXPERIMENT),
)


def test_a_key_belongs_to_one_call(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Another body, address or method under the same key is refused, whatever became of the first, and nothing is done."""
    first = coordinator.post("/runs", EXPERIMENT, headers=KEY)
    for method, path, body in OTHER_CALLS:
        with subtests.test(f"{method} {path}"):
            error = refused(coordinator.send(method, path, json=body, headers=KEY), 422, "KeyReused", HEADER)
            assert "new key" in error["todo"]
    assert len(coordinator.get("/runs").json()) == 1 and coordinator.federation.journal.clients()[-1].name == "carl"
    same(first, coordinator.post("/runs", EXPERIMENT, headers=KEY))


def test_a_key_belongs_to_one_api_key() -> None:
    """Behind a door with another API key it is no answer that is told: no token can be made again there."""
    one = Coordinator(api_key_hash=secret_hash("one"))
    first = one.post("/invites", INVITATION, headers=KEY | {"Authorization": "Bearer one"})
    two = Coordinator(api_key_hash=secret_hash("two")).beside(one.federation.journal)
    refused(two.post("/invites", INVITATION, headers=KEY | {"Authorization": "Bearer two"}), 422, "KeyReused", HEADER)
    same(first, one.post("/invites", INVITATION, headers=KEY | {"Authorization": "Bearer one"}))


def test_what_is_no_key(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Keys are 1 to 255 visible ASCII characters; for anything else nothing is done."""
    for key in (b"", b" ", b"a b", b"a\tb", "ä".encode(), b"\xff", b"a" * 256, b"\x7f"):
        with subtests.test(repr(key[:20])):
            error = refused(coordinator.post("/runs", EXPERIMENT, headers={HEADER: key}), 422, "ConfigRefused", HEADER)
            assert "255 visible" in error["detail"]
    twice = coordinator.post("/runs", EXPERIMENT, headers=[(HEADER, "a"), (HEADER, "b")])  # it could mean either
    assert "2 times" in refused(twice, 422, "ConfigRefused", HEADER)["detail"]
    assert coordinator.get("/runs").json() == []


FUZZ = settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(key=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255))
def test_every_key_is_a_key(coordinator: Coordinator, key: str) -> None:
    """The same answer twice, whatever visible characters it consists of."""
    first = coordinator.post("/invites", {}, headers={HEADER: key})
    again = coordinator.post("/invites", {}, headers={HEADER: key})
    assert first.status_code == again.status_code == 201 and first.content == again.content


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@FUZZ
@given(one=values, two=values, indent=st.none() | st.integers(0, 3))
def test_equal_bodies_are_those_that_mean_the_same(one: Any, two: Any, indent: int | None) -> None:
    """The order of names and the space between them do not count; all else does."""
    assert canonical(json.dumps(turned(one), indent=indent).encode()) == canonical(json.dumps(one).encode())
    alike = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (canonical(json.dumps(one).encode()) == canonical(json.dumps(two).encode())) is alike


def turned(value: Any) -> Any:
    """The same value with every object's names in the opposite order."""
    if isinstance(value, dict):
        return {k: turned(v) for k, v in reversed(value.items())}
    return [turned(v) for v in value] if isinstance(value, list) else value


# At once


def at_once(calls: list[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    """The answers to calls that begin at the same moment, each in a thread of its own."""
    gate, answers = threading.Barrier(len(calls)), list[httpx.Response]()

    def play(call: Callable[[], httpx.Response]) -> None:
        gate.wait()
        answers.append(call())

    threads = [threading.Thread(target=play, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Journal, Journal]]:
    """The journals of two coordinators, which are one."""
    if request.param == "memory":
        yield (one := MemoryJournal(), one)
        return
    if request.param == "sqlite":
        with closing(SqlJournal(tmp_path / "j.db")) as one, closing(SqlJournal(tmp_path / "j.db")) as two:
            yield one, two
        return
    with own_schema() as url, closing(SqlJournal(url)) as one, closing(SqlJournal(url)) as two:
        yield one, two


def test_sixteen_at_once_start_one_run(coordinator: Coordinator, journals: tuple[Journal, Journal]) -> None:
    """Eight at each of two coordinators send the same call with the same key: one run, one answer, told once as the first."""
    patient = ApiSettings(patience_seconds=LONG)
    doors = [coordinator.beside(journal, patient).built() for journal in journals]
    answers = at_once([lambda door=door: door.post("/runs", EXPERIMENT, headers=KEY) for door in doors for _ in range(8)])
    assert {(a.status_code, a.content, a.headers["location"]) for a in answers} == {
        (201, answers[0].content, f"/runs/{answers[0].json()['run']}")
    }
    assert sorted(MARK in a.headers for a in answers) == [False] + [True] * 15
    (run,) = journals[0].run_ids()
    assert [e.kind for e in journals[1].events(run)] == ["created"] and len(journals[0].orders(run)) == 3


@pytest.mark.nightly(job="services")
def test_sixteen_hasty_ones_start_one_run(coordinator: Coordinator, journals: tuple[Journal, Journal]) -> None:
    """Those that take the others for dead at once, at four coordinators: some are told to come again, and there is one run."""
    doors = [coordinator.beside(journal, ApiSettings(patience_seconds=0.0)).built() for journal in journals * 2]
    answers = at_once([lambda door=door: door.post("/runs", EXPERIMENT, headers=KEY) for door in doors for _ in range(4)])
    assert {a.status_code for a in answers} <= {201, 409, 503} and 201 in {a.status_code for a in answers}
    assert len({a.content for a in answers if a.status_code == 201}) == 1
    last = doors[0].post("/runs", EXPERIMENT, headers=KEY)
    assert last.content in {a.content for a in answers} and len(journals[0].run_ids()) == 1


class SlowCompute:
    """A worker whose `draft` waits until it may go on."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.compute = coordinator.federation.compute
        self.describe = self.compute.describe
        self.begun, self.go = threading.Event(), threading.Event()

    def draft(self, asked: DraftRequest) -> Draft:
        self.begun.set()
        assert self.go.wait(LONG)
        return self.compute.draft(asked)


def slow(
    coordinator: Coordinator, settings: ApiSettings
) -> tuple[SlowCompute, Coordinator, threading.Thread, list[httpx.Response]]:
    """A door at which a call is under way, and its answer once it has one."""
    compute = SlowCompute(coordinator)
    door = coordinator.beside(coordinator.federation.journal, settings)
    door.services.run_service.compute = compute  # type: ignore[assignment]
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(door.post("/runs", EXPERIMENT, headers=KEY)))
    thread.start()
    assert compute.begun.wait(LONG)
    return compute, door, thread, answers


def test_a_call_that_is_under_way_is_waited_for(coordinator: Coordinator) -> None:
    """The second gets the first's answer as soon as there is one."""
    compute, door, thread, answers = slow(coordinator, ApiSettings(patience_seconds=LONG))
    second = threading.Thread(target=lambda: answers.append(door.post("/runs", EXPERIMENT, headers=KEY)))
    second.start()
    compute.go.set()
    thread.join()
    second.join()
    same(*sorted(answers, key=lambda a: MARK in a.headers))
    assert len(coordinator.get("/runs").json()) == 1


@pytest.mark.nightly(job="services")
def test_a_call_that_is_long_under_way_is_a_conflict(coordinator: Coordinator) -> None:
    """Who has waited in vain is told to come again, and when; a process never takes over from itself."""
    compute, door, thread, answers = slow(coordinator, HASTY)
    told = door.post("/runs", EXPERIMENT, headers=KEY)
    assert "not done twice" in refused(told, 409, "Underway")["todo"] and told.headers["retry-after"] == "2"
    compute.go.set()
    thread.join()
    same(answers[0], door.post("/runs", EXPERIMENT, headers=KEY))


def test_a_coordinator_that_is_silent_too_long_is_taken_for_dead(coordinator: Coordinator) -> None:
    """Another does what was asked. The first, when it wakes, writes nothing and says that it was overtaken."""
    compute, _, thread, answers = slow(coordinator, HASTY)
    other = coordinator.beside(coordinator.federation.journal, HASTY)
    first = other.post("/runs", EXPERIMENT, headers=KEY)
    assert first.status_code == 201 and MARK not in first.headers
    compute.go.set()
    thread.join()
    refused(answers[0], 503, "Unreachable")
    same(first, other.post("/runs", EXPERIMENT, headers=KEY))
    assert len(coordinator.get("/runs").json()) == 1


# What is kept


def test_no_secret_lies_in_the_store(tmp_path: Path) -> None:
    """Neither the token, nor the key that was sent, nor the API key is in the database, and yet the token comes again."""
    coordinator = Coordinator(api_key_hash=secret_hash("the api key"))
    auth = KEY | {"Authorization": "Bearer the api key"}
    with closing(SqlJournal(tmp_path / "j.db")) as journal:
        door = coordinator.beside(journal)
        first = door.post("/invites", INVITATION, headers=auth)
        same(first, door.post("/invites", INVITATION, headers=auth))
    kept = (tmp_path / "j.db").read_bytes()
    assert b"dora" in kept and secret_hash(secret_of(first.json()["token"])).encode() in kept
    secrets = (first.json()["token"], secret_of(first.json()["token"]), KEY[HEADER], "the api key", secret_hash("the api key"))
    assert [secret for secret in secrets if secret.encode() in kept] == []


def test_every_operation_that_changes_something_names_by_its_key(subtests: pytest.Subtests) -> None:
    """A new one that did not ask for its identity could be done twice by a repeat after a kill."""
    for route in (*runs.router.routes, *clients.router.routes):
        with subtests.test(route.name):  # type: ignore[attr-defined]
            needed = [found.call for found in route.dependant.dependencies]  # type: ignore[attr-defined]
            assert route.methods <= SAFE or identity_of in needed  # type: ignore[attr-defined]


def test_a_reference_is_begun_with_its_run(coordinator: Coordinator) -> None:
    """Both or neither: a try that finds the run finds its reference."""
    given = EXPERIMENT | {"method": "fedprox", "reference": {"method": "fedavg"}}
    first = coordinator.post("/runs", given, headers=KEY).json()
    assert coordinator.post("/runs", given, headers=KEY).json() == first
    assert sorted(row["id"] for row in coordinator.get("/runs").json()) == sorted([first["run"], first["reference"]])


def test_the_office_is_asked_without_a_key() -> None:
    """A simulation, say: nothing is reserved."""
    coordinator = Coordinator(QUICK)
    run_service = coordinator.federation.run_service
    assert isinstance(run_service, RunService)
    run = run_service.start(EXPERIMENT)
    run_service.cancel(run)
    with pytest.raises(Exception, match="cancelled already"):
        run_service.cancel(run)
    assert coordinator.federation.journal._records == {}


def test_a_store_that_is_away_is_told_as_such(coordinator: Coordinator) -> None:
    """Before anything is done."""

    class Away(MemoryJournal):
        def reserve(self, *_: Any) -> Any:
            raise Unreachable("The store does not answer", "Look at it")

    refused(coordinator.beside(Away()).post("/runs", EXPERIMENT, headers=KEY), 503, "Unreachable")
