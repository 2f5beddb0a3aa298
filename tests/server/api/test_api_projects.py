"""Projects over HTTP: nothing of one is seen in another, and quotas hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import EXPERIMENT, OWN, SITES, Coordinator, locked, refused
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sign_in_world import Realm, realm

from tests.enrolling import enrol
from tideline.archive.digests import digest_of
from tideline.core.run import ClientId, RunId
from tideline.dossier.signing import Signer
from tideline.engine.coordinator.notices.targets import Targets
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.accounts import KeyRole
from tideline.engine.model.orders import OrderStatus, Reply
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.api.requests.access import NEEDS, PROJECT
from tideline_server.api.requests.idempotency import HEADER
from tideline_server.dossiers.making import Dossiers
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.webhooks import Webhooks
from tideline_server.store import SqlJournal

GHOST_RUN, GHOST_SITE, GHOST_DIGEST = "0123456789ab", "zoe", "b3-" + "0" * 64
FILE = b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "
OCTETS = {"Content-Type": "application/octet-stream"}


def fresh(**more: Any) -> Coordinator:
    """A door with the project retina beside the default one, in which the sites are."""
    door = locked(**more)
    door.add_project("retina")
    return door


@pytest.fixture
def door() -> Coordinator:
    """A door with two projects."""
    return fresh()


class Populated:
    """A door whose default project has a run that completed, sites, weights and a target; and foreigners of each role: the holder
    of a key, a user with a provider's token, and one who works in another project, too, and names this one.
    """

    def __init__(self, realm: Realm, store: SqlJournal, folder: Path) -> None:
        sender = NoticeSender(Webhooks(find=lambda host, port: ["93.184.216.34"]))
        self.door = realm.door
        targets = Targets(store.notices, sender, ManualClock(1000.0))
        dossiers = Dossiers(self.door.federation.journal, Signer(Ed25519PrivateKey.generate()), ManualClock(1000.0), folder)
        self.door.wear(targets=targets, dossiers=dossiers)
        self.native = self.door.add_key("nat", "operator")
        self.run = self.door.post("/runs", EXPERIMENT, headers=self.native).json()["run"]
        self.door.play(self.run)
        self.digest = self.door.get(f"/runs/{self.run}/files", headers=self.native).json()["root"]
        self.weights = str(digest_of([FILE]))
        sent = self.door.send("PUT", f"/weights/{self.weights}", content=FILE, headers=self.native | OCTETS)
        assert sent.status_code == 201
        hook = {"url": "https://hooks.example/", "on": ["failed"], "name": SITES[0]}
        assert self.door.post("/notify", hook, headers=self.native).status_code == 201
        self.foreign = {role: self.door.add_key(f"of-{role}", role, "retina") for role in ("viewer", "operator")}
        for role, group in (("viewer", "retina-look"), ("operator", "retina-ops")):
            self.foreign[f"user {role}"] = realm.bearer(groups=[group])
            self.foreign[f"several {role}"] = realm.bearer(groups=[group, "cardio-ops"]) | {PROJECT: "retina"}


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Populated]:
    """For looking, and for calls that are refused."""
    folder = tmp_path_factory.mktemp("store")
    store = SqlJournal(folder / "journal.db")
    with realm() as made:
        yield Populated(made, store, folder)
    store.close()


def normal(text: str, *names: str) -> str:
    """A body without the names that a call was made with, and without its number."""
    for name in names:
        text = text.replace(name, "NAME").replace(name[:12], "NAME")
    return re.sub(r'"(request|token)": ?"[^"]*"', "", text)


def call(door: Coordinator, name: str, headers: dict[str, str], names: dict[str, str]) -> tuple[int, str]:
    """The status and the body of an operation's answer, without the names that it was called with."""
    method, _, path = name.partition(" ")
    query = f"?run={names['run']}" if path.startswith("/parts/{") else "?follow=false" if path == "/changes" else ""
    body: dict[str, Any] = {"content": b""} if method == "PUT" else {"json": {}} if method == "POST" else {}
    answer = door.send(method, path.format(**names) + query, headers=headers | (OCTETS if method == "PUT" else {}), **body)
    return answer.status_code, normal(answer.text, *names.values())


@pytest.mark.parametrize("who", ["viewer", "operator", "user viewer", "user operator", "several viewer", "several operator"])
def test_a_foreign_thing_is_as_one_that_is_not_there(populated: Populated, who: str, subtests: pytest.Subtests) -> None:
    """Every address, with the names of what another project has and with names of nothing: the same status, the same body."""
    role, ghost = who.rpartition(" ")[2], {"run": GHOST_RUN, "name": GHOST_SITE, "digest": GHOST_DIGEST}
    for name, need in NEEDS.items():
        with subtests.test(name):
            real = {"run": populated.run, "name": SITES[0], "digest": populated.digest}
            if "/algorithms/" in name:
                real["name"] = GHOST_SITE  # methods are everybody's
            theirs, nobodys = (call(populated.door, name, populated.foreign[who], names) for names in (real, ghost))
            assert theirs == nobodys
            if need.role is KeyRole.ADMIN:
                assert theirs[0] == 403
            if "{run}" in name and (role == "operator" or need.role is KeyRole.VIEWER):
                assert theirs[0] == 404


def test_lists_and_counts_are_of_ones_own_project(populated: Populated) -> None:
    """No run, no site, no target, no number of another; a page that goes on from a foreign run is not found."""
    door, viewer, operator = populated.door, populated.foreign["viewer"], populated.foreign["operator"]
    assert door.get("/notify", headers=operator).json() == [] != door.get("/notify", headers=populated.native).json()
    assert door.get("/runs", headers=viewer).json() == door.get("/clients", headers=viewer).json() == []
    texts = []
    for run in (populated.run, GHOST_RUN):
        answer = door.get(f"/runs?after={run}&limit=5", headers=viewer)
        refused(answer, 404, "NotFound")
        texts.append(normal(answer.text, run))
    assert texts[0] == texts[1]
    numbers = door.get("/metrics", headers=viewer).text
    assert 'tideline_runs{project="retina",status="completed"} 0.0' in numbers
    assert 'tideline_clients{project="retina",standing="approved"} 0.0' in numbers
    assert not re.search(r" [1-9]", "\n".join(line for line in numbers.splitlines() if not line.startswith("#")))
    assert [row["name"] for row in door.get("/projects", headers=viewer).json()] == ["retina"]
    for what in ("sweep", "verify"):
        told = refused(door.post(f"/parts/{what}", headers=operator), 403, "PermissionRefused")
        assert "is of the project retina" in told["detail"] and "--project all" in told["todo"]
    assert door.get(f"/weights/{populated.weights}", headers=populated.native).status_code == 200
    refused(door.get(f"/weights/{populated.weights}", headers=operator), 404, "NotFound")
    refused(door.post("/runs", EXPERIMENT | {"weights": populated.weights}, headers=operator), 422, "ConfigRefused", "weights")


def test_naming_another_project_finds_nothing(populated: Populated) -> None:
    """With a key of one project, any other is not found, whether or not it is there. The guess is one's own."""
    texts = []
    for name in ("default", "nothing"):
        answer = populated.door.get("/runs", headers=populated.foreign["viewer"] | {PROJECT: name})
        refused(answer, 404, "NotFound", "project")
        texts.append(normal(answer.text, name))
    assert texts[0] == texts[1]
    assert populated.door.get("/runs", headers=populated.foreign["viewer"] | {PROJECT: "retina"}).json() == []


def test_an_admin_sees_all_and_names_one(door: Coordinator) -> None:
    """Without a name every project; with one this alone. A name that nobody gave is not found. `all` is every one."""
    retina = door.add_key("ret", "operator", "retina")
    mine = door.post("/runs", EXPERIMENT, headers=OWN).json()["run"]
    other = door.post("/runs", EXPERIMENT, headers=OWN | {PROJECT: "retina"}).json()["run"]
    listed = {name: [row["id"] for row in door.get("/runs", headers=OWN | {PROJECT: name}).json()] for name in ("all", "retina")}
    assert listed == {"all": [mine, other], "retina": [other]} or listed == {"all": [other, mine], "retina": [other]}
    assert door.get(f"/runs/{other}", headers=retina).json()["project"] == "retina"
    refused(door.get(f"/runs/{mine}", headers=OWN | {PROJECT: "retina"}), 404, "NotFound")
    refused(door.get("/runs", headers=OWN | {PROJECT: "retinaa"}), 404, "NotFound", "project")
    assert [row["name"] for row in door.get("/keys", headers=OWN | {PROJECT: "retina"}).json()] == ["ret"]


def test_a_key_of_all_projects(door: Coordinator) -> None:
    """A viewer's sees every run and the coordinator's own numbers; an admin's is one by itself, and never of one project."""
    every = door.add_key("prometheus", "viewer", "all")
    run = door.post("/runs", EXPERIMENT, headers=OWN | {PROJECT: "retina"}).json()["run"]
    assert [row["id"] for row in door.get("/runs", headers=every).json()] == [run]
    assert door.get("/whoami", headers=every).json() == {"name": "prometheus", "role": "viewer", "project": "", "grants": []}
    assert "project=" not in door.get("/metrics", headers=every).text
    wrong = {"name": "boss", "role": "admin", "project": "retina"}
    refused(door.post("/keys", wrong, headers=OWN), 422, "ConfigRefused", "project")
    refused(door.post("/keys", {"name": "x", "role": "viewer", "project": "nope"}, headers=OWN), 404, "NotFound", "project")


def test_a_foreign_site_is_asked_for_nothing(door: Coordinator) -> None:
    """A run that names it waits as for one that never enrolled; it is offered no order; that it is revoked is not told."""
    operator = door.add_key("ret", "operator", "retina")
    runs = {
        site: door.post("/runs", EXPERIMENT | {"roster": {site: "source"}}, headers=operator).json()["run"]
        for site in (SITES[0], GHOST_SITE)
    }
    assert door.federation.agent_service.orders(ClientId(SITES[0])) == ()

    def shown() -> set[str]:
        found = [(site, run, door.get(f"/runs/{run}", headers=operator).text) for site, run in runs.items()]
        texts = [text.replace(run, "RUN").replace(site, "SITE") for site, run, text in found]
        return {re.sub(r'"(created|deadline_at|opened|contract_digest|seconds)":[^,}]*', "", text) for text in texts}

    assert len(shown()) == 1
    door.post(f"/clients/{SITES[0]}/revoke", {"reason": "left"}, headers=OWN)
    for run in runs.values():
        door.federation.scheduler.turn(RunId(run))
    assert len(shown()) == 1
    selected = EXPERIMENT | {"roster": {}, "select": [{"labels": {}, "role": "source"}]}
    refused(door.post("/runs", selected, headers=operator), 422, "RosterRefused", "select[0]")


def test_a_taken_name_of_a_foreign_site_is_not_told(door: Coordinator) -> None:
    """An invitation for it is made as for any; whoever comes with it is refused at the enrolment."""
    operator = door.add_key("ret", "operator", "retina")
    for site in (SITES[0], GHOST_SITE):
        assert door.post("/invites", {"name": site}, headers=operator).status_code == 201
    texts = [door.post(f"/clients/{site}/approve", headers=operator) for site in (SITES[0], GHOST_SITE)]
    assert normal(texts[0].text, SITES[0]) == normal(texts[1].text, GHOST_SITE) and texts[0].status_code == 404


def test_a_foreign_idempotency_key_is_not_told(door: Coordinator) -> None:
    """What another project has sent under the same key is another call."""
    native, operator = door.add_key("nat", "operator"), door.add_key("ret", "operator", "retina")
    first = door.post("/invites", {"name": "dora"}, headers=native | {HEADER: "k"})
    second = door.post("/invites", {"name": "emil"}, headers=operator | {HEADER: "k"})
    assert (first.status_code, second.status_code) == (201, 201) and "idempotent-replayed" not in second.headers


def test_a_site_serves_several_projects(door: Coordinator) -> None:
    """An admin says so; each project sees the site, and not the other's name. Then its runs reach it, and not before."""
    operator = door.add_key("ret", "operator", "retina")
    run = door.post("/runs", EXPERIMENT, headers=operator).json()["run"]
    for site in SITES:
        told = door.post(f"/clients/{site}/projects", {"projects": ["default", "retina"]}, headers=OWN)
        assert told.json()["projects"] == ["default", "retina"]
    assert [row["projects"] for row in door.get("/clients", headers=operator).json()] == [["retina"]] * 3
    door.play(run)
    assert door.get(f"/runs/{run}", headers=operator).json()["status"] == "completed"
    refused(door.post("/clients/anna/projects", {"projects": ["nope"]}, headers=OWN), 404, "NotFound", "project")
    refused(door.post("/clients/anna/projects", {"projects": []}, headers=OWN), 422, "ConfigRefused", "projects")
    refused(door.post("/clients/zoe/projects", {"projects": ["retina"]}, headers=OWN), 404, "NotFound")


def test_an_invitation_admits_to_its_project(door: Coordinator) -> None:
    """Whoever enrols by it serves the project of the key that made it."""
    operator = door.add_key("ret", "operator", "retina")
    token = door.post("/invites", {"name": "dora"}, headers=operator).json()["token"]
    enrol(door.federation.run_service, token, "dora", ("source",))
    assert [row["name"] for row in door.get("/clients", headers=operator).json()] == ["dora"]
    assert [row["projects"] for row in door.get("/clients", headers=OWN).json() if row["name"] == "dora"] == [["retina"]]


def test_quotas_hold(door: Coordinator) -> None:
    """Of open runs, sites and bytes: what would exceed one is refused with what is full, and goes on once there is room."""
    operator = door.add_key("ret", "operator", "retina")
    assert door.post("/projects/retina/limit", {"runs": 1, "members": 1, "bytes": 20}, headers=OWN).json()["most_runs"] == 1
    run = door.post("/runs", EXPERIMENT, headers=operator).json()["run"]
    told = refused(door.post("/runs", EXPERIMENT, headers=operator), 409, "Refused")
    assert told["context"]["quota"] == "open runs" and "tideline projects limit retina" in told["todo"]
    door.post(f"/runs/{run}/cancel", headers=operator)
    assert door.post("/runs", EXPERIMENT, headers=operator).status_code == 201
    tokens = [door.post("/invites", {"name": name}, headers=operator).json()["token"] for name in ("dora", "emil")]
    enrol(door.federation.run_service, tokens[0], "dora", ("source",))
    with pytest.raises(Exception, match="Project retina has 1 sites, and its quota is 1"):
        enrol(door.federation.run_service, tokens[1], "emil", ("source",))
    refused(door.post("/clients/anna/projects", {"projects": ["retina"]}, headers=OWN), 409, "Refused")
    weights = str(digest_of([FILE]))
    assert door.send("PUT", f"/weights/{weights}", content=FILE, headers=operator | OCTETS).status_code == 201
    other = FILE.replace(b"{}      ", b" {}     ")
    full = door.send("PUT", f"/weights/{digest_of([other])}", content=other, headers=operator | OCTETS)
    assert refused(full, 409, "Refused")["context"]["quota"] == "bytes"
    assert door.get("/projects", headers=operator).json()[0]["bytes"] == len(FILE)


def test_hours_are_a_quota_of_the_month(door: Coordinator) -> None:
    """What sites say that their steps took; the refusal says when the next month begins. A viewer of the project sees it."""
    operator, viewer = door.add_key("ret", "operator", "retina"), door.add_key("eye", "viewer", "retina")
    for site in SITES:
        door.post(f"/clients/{site}/projects", {"projects": ["default", "retina"]}, headers=OWN)
    run = RunId(door.post("/runs", EXPERIMENT, headers=operator).json()["run"])
    order = door.federation.journal.orders(run)[0]
    spent = Spent(gpu=7200.0, cpu=3600.0, devices=1, cores=1)
    door.federation.journal.answer(order.id, Reply(order.id, spent=spent), OrderStatus.ANSWERED, order.created, 0, 0)
    month = door.get("/projects/retina/hours", headers=viewer).json()
    assert (month["gpu_hours"], month["cpu_hours"], month["reported"], month["unreported"]) == (2.0, 1.0, 1, 0)
    assert [site["name"] for site in month["clients"]] == [order.client] and month["days"][0]["gpu_hours"] == 2.0
    assert door.get("/projects/default/hours", headers=OWN).json()["gpu_hours"] == 0.0
    assert 'tideline_project_gpu_hours{project="retina"} 2.0' in door.get("/metrics", headers=viewer).text
    row = door.post("/projects/retina/limit", {"gpu_hours": 2.0}, headers=OWN).json()
    assert (row["gpu_hours"], row["most_gpu_hours"], row["most_cpu_hours"]) == (2.0, 2.0, None)
    told = refused(door.post("/runs", EXPERIMENT, headers=operator), 409, "Refused")
    assert told["context"]["quota"] == "GPU hours" and told["context"]["frees"] == month["frees"] > order.created
    assert door.get(f"/runs/{run}", headers=operator).json()["spent"]["gpu_hours"] == 2.0
    assert door.post("/runs", EXPERIMENT, headers=OWN).status_code == 201
    before = door.get("/projects/retina/hours?month=1969-12", headers=viewer)
    refused(before, 422, "ConfigRefused", "month")
    assert door.get("/projects/retina/hours?month=2001-02", headers=viewer).json()["days"] == []


def test_what_is_no_month(door: Coordinator, subtests: pytest.Subtests) -> None:
    """It is refused with how to write one."""
    for month in ("2026", "2026-13", "2026-1", "2026-00", "9999-12", "x" * 5000):
        with subtests.test(month[:20]):
            error = refused(door.get(f"/projects/default/hours?month={month}", headers=OWN), 422, "ConfigRefused", "month")
            assert "2026-11" in error["todo"]


def test_foreign_hours_are_not_found(door: Coordinator) -> None:
    """As those of a project that is not there; a user of the project has them."""
    viewer = door.add_key("eye", "viewer", "retina")
    texts = [door.get(f"/projects/{name}/hours", headers=viewer) for name in ("default", "nothing")]
    assert {answer.status_code for answer in texts} == {404}
    assert normal(texts[0].text, "default") == normal(texts[1].text, "nothing")


def test_the_default_project_can_be_limited_and_not_removed() -> None:
    """It is there although nobody made it."""
    door = locked()
    assert door.post("/projects/default/limit", {"runs": 0}, headers=OWN).json()["most_runs"] == 0
    refused(door.post("/runs", EXPERIMENT, headers=OWN), 409, "Refused")
    refused(door.send("DELETE", "/projects/default", headers=OWN), 409, "Refused")
    assert [row["name"] for row in door.get("/projects", headers=OWN).json()] == ["default"]


def test_a_project_is_removed_once_nobody_uses_it(door: Coordinator) -> None:
    """What is in the way is named with the way out. Its runs stay, for admins; its name is not given again."""
    operator = door.add_key("ret", "operator", "retina")
    run = door.post("/runs", EXPERIMENT, headers=operator).json()["run"]
    door.post("/clients/anna/projects", {"projects": ["default", "retina"]}, headers=OWN)
    told = refused(door.send("DELETE", "/projects/retina", headers=OWN), 409, "Refused")
    assert told["detail"] == "Project retina is in use: 1 open runs; keys of ret; sites anna"
    door.post(f"/runs/{run}/cancel", headers=OWN)
    door.post("/clients/anna/projects", {"projects": ["default"]}, headers=OWN)
    door.send("DELETE", "/keys/ret", headers=OWN)
    assert door.send("DELETE", "/projects/retina", headers=OWN).json()["ended"] is not None
    assert [row["id"] for row in door.get("/runs", headers=OWN | {PROJECT: "retina"}).json()] == [run]
    again = refused(door.post("/projects", {"name": "retina"}, headers=OWN), 409, "Refused")
    assert "was removed" in again["detail"]
    for call in (
        door.send("DELETE", "/projects/retina", headers=OWN),
        door.post("/projects/retina/limit", {}, headers=OWN),
        door.post("/keys", {"name": "x", "role": "viewer", "project": "retina"}, headers=OWN),
        door.post("/runs", EXPERIMENT, headers=OWN | {PROJECT: "retina"}),
        door.post("/invites", {}, headers=OWN | {PROJECT: "retina"}),
    ):
        refused(call, 404, "NotFound", "project")


WRONG: tuple[tuple[dict[str, Any], int, str, str | None], ...] = (
    ({}, 422, "ConfigRefused", "name"),
    ({"name": "all"}, 422, "ConfigRefused", "name"),
    ({"name": "Retina"}, 422, "ConfigRefused", "name"),
    ({"name": "a/b"}, 422, "ConfigRefused", "name"),
    ({"name": "a" * 41}, 422, "ConfigRefused", "name"),
    ({"name": "b", "runs": -1}, 422, "ConfigRefused", "runs"),
    ({"name": "b", "bytes": "5"}, 422, "ConfigRefused", "bytes"),
    ({"name": "b", "gpu_hours": -0.5}, 422, "ConfigRefused", "gpu_hours"),
    ({"name": "b", "cpu_hours": "5"}, 422, "ConfigRefused", "cpu_hours"),
    ({"name": "b", "people": 5}, 422, "ConfigRefused", "people"),
    ({"name": "retina"}, 409, "Refused", None),
    ({"name": "default"}, 409, "Refused", None),
)


def test_wrong_projects_are_refused(door: Coordinator, subtests: pytest.Subtests) -> None:
    """With their place, and none is made."""
    for body, status, kind, path in WRONG:
        with subtests.test(str(body)[:40]):
            refused(door.post("/projects", body, headers=OWN), status, kind, path)
    assert [row["name"] for row in door.get("/projects", headers=OWN).json()] == ["default", "retina"]


@pytest.fixture(scope="module")
def deleted() -> tuple[Coordinator, str, dict[str, str]]:
    """A door where a run of the default project was deleted; the run, and an operator's key of another project."""
    door = fresh()
    native = door.add_key("native", "operator")
    run = str(door.post("/runs", EXPERIMENT, headers=native).json()["run"])
    door.play(run)
    assert door.send("DELETE", f"/runs/{run}", headers=native).json()["project"] == "default"
    refused(door.send("GET", f"/runs/{run}", headers=native), 410, "Deleted")
    return door, run, door.add_key("foreign", "operator", "retina")


def test_it_is_as_one_that_never_was(deleted: tuple[Coordinator, str, dict[str, str]], subtests: pytest.Subtests) -> None:
    """Status and body tell nobody that there was a run."""
    door, run, foreign = deleted
    for call in ("GET ", "GET /events", "GET /files", "POST /cancel", "POST /resume", "DELETE "):
        with subtests.test(call):
            method, _, tail = call.partition(" ")
            answers = [door.send(method, f"/runs/{name}{tail}", headers=foreign) for name in (run, GHOST_RUN)]
            assert [answer.status_code for answer in answers] == [404, 404]
            assert normal(answers[0].text, run) == normal(answers[1].text, GHOST_RUN)


def test_what_is_deleted_next_is_of_every_project(deleted: tuple[Coordinator, str, dict[str, str]]) -> None:
    """So a key of one project does not see it."""
    door, _, foreign = deleted
    assert door.get("/retention", headers=foreign).status_code == 403
