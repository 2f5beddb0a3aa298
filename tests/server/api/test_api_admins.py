"""Tables for admins alone: no byte of them is in any answer that a viewer's or an operator's key gets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_world import OWN, Coordinator, locked, refused

import tideline_server
from tests.engine.clusters import DEPTH, NUMBER, ROSTER, SECRET, WEIGHT, WIDTH, clusters
from tests.enrolling import enrol
from tests.laws.stage import Stage, registered
from tests.postgres import needed, own_schema
from tests.synthetic import NAMES, experiment, sites
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.api.requests.access import NEEDS
from tideline_server.store import SqlJournal

HIDDEN = (SECRET, DEPTH, WIDTH, str(NUMBER), str(NUMBER + 2), "admins")
Door = tuple[Coordinator, str, dict[str, dict[str, str]]]


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    """A journal of each kind."""
    if request.param == "memory":
        yield MemoryJournal()
    elif request.param == "sqlite":
        yield from closing(tmp_path_factory.mktemp("journal") / "j.db")
    else:
        needed()
        with own_schema() as url:
            yield from closing(url)


def closing(where: Path | str) -> Iterator[Journal]:
    """A store, for a test."""
    journal = SqlJournal(where)
    yield journal
    journal.close()


def played(journal: Any) -> Stage:
    """A coordinator over a journal, on which a run has told tables for admins."""
    on = Stage(registered(clusters), sites(NAMES[:3]))
    on.journal = journal
    on.rebuild()
    for name in on.vaults:
        enrol(on.run_service, on.run_service.invite(name, {}, 60.0), name, ("source", "target"))
    run = on.start(experiment("clusters", ROSTER, config={"secret": True}, name="told"))
    assert on.play(run).status == "completed", on.row(run).cause
    return on


@pytest.fixture(scope="module")
def door(journal: Journal) -> Door:
    """The HTTP API over the journal, the run, and a key of each role; for looking only."""
    on = played(journal)
    door = locked().beside(journal)
    door.services.part_store.parts = on.parts  # its files can be downloaded
    keys = {role: door.add_key(name, role) for role, name in (("viewer", "bob"), ("operator", "olga"), ("admin", "eve"))}
    return door, journal.run_ids()[0], keys


def looks(door: Coordinator, run: str, headers: dict[str, str]) -> Iterator[bytes]:
    """All that can be read of a run with a key, by any way that the table of roles has."""
    files = door.get(f"/runs/{run}/files", headers=OWN).json()["files"]
    for name in NEEDS:
        method, _, path = name.partition(" ")
        if method == "DELETE":  # it would leave nothing to look at
            continue
        for digest, _ in files:
            address = path.format(run=run, name="clusters", digest=digest)
            answer = door.send(method, address, headers=headers, params={"run": run, "follow": "false"})
            yield answer.content + repr(answer.headers).encode()
    for more in ("?history=true", "/events?follow=false", "/events?follow=false&limit=3", "/events?after=1"):
        yield door.get(f"/runs/{run}{more}", headers=headers).content


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_read_no_byte_of_it(door: Door, role: str) -> None:
    """Neither its name, nor its rows, nor its numbers, nor that there is one; all else of the round is there."""
    at, run, keys = door
    headers = keys[role]
    shown = at.get(f"/runs/{run}?history=true", headers=headers).json()
    assert [list(p["tables"]) for p in shown["phases"]] == [[], [WEIGHT], [WEIGHT], [WEIGHT], []]
    answers = list(looks(at, run, headers))
    assert sum(WEIGHT.encode() in each for each in answers) >= 2, "answers have what is for all"
    assert not [word for word in HIDDEN for each in answers if word.encode() in each]


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_the_final_state_is_theirs_too(door: Door, role: str) -> None:
    """It may hold what stands in the table: neither its list nor a file of it is for others, by name or by digest."""
    at, run, keys = door
    headers = keys[role]
    root = at.get(f"/runs/{run}", headers=headers).json()["state_digest"]
    for path in (f"/runs/{run}/files", f"/parts/{root}?run={run}"):
        answer = at.get(path, headers=headers)
        needed = "needs admin" if role == "operator" else "needs operator"
        assert needed in refused(answer, 403, "PermissionRefused")["detail"]
        assert at.get(path, headers=OWN).status_code == at.get(path, headers=keys["admin"]).status_code == 200


def test_a_method_may_keep_its_state_for_admins() -> None:
    """Whatever tables it has told."""
    on = Stage(registered(replace(clusters, admins=True)), sites(NAMES[:3]))
    run = on.start(experiment("clusters", ROSTER, config={"secret": False}))
    assert on.play(run).status == "completed" and on.row(run).spec.admins
    door = locked().beside(on.journal)
    door.services.part_store.parts = on.parts
    assert door.get(f"/runs/{run}/files", headers=door.add_key("olga", "operator")).status_code == 403
    assert door.get(f"/runs/{run}/files", headers=OWN).status_code == 200


def test_admins_read_it_whole(door: Door) -> None:
    """With the coordinator's own key, and with any of the role; and where no key is asked for, which is everybody."""
    at, run, keys = door
    table = {"rows": [DEPTH, WIDTH], "columns": ["at"], "values": [[NUMBER + 2], [NUMBER]], "admins": True}
    for headers in (OWN, keys["admin"]):
        assert at.get(f"/runs/{run}", headers=headers).json()["phases"][2]["tables"][SECRET] == table
    open_to_all = Coordinator().beside(at.services.journal)
    assert open_to_all.get(f"/runs/{run}").json()["phases"][2]["tables"][SECRET] == table


def test_a_tag_is_of_what_was_told(door: Door) -> None:
    """An admin's tag is no key to an admin's answer: a viewer who sends it is told what viewers are told."""
    at, run, keys = door
    viewer = keys["viewer"]
    tag = at.get(f"/runs/{run}", headers=OWN).headers["etag"]
    answer = at.get(f"/runs/{run}", headers=viewer | {"If-None-Match": tag})
    assert answer.status_code == 200 and answer.headers["etag"] != tag and SECRET not in answer.text


def test_every_door_says_for_whom_a_result_is() -> None:
    """No call of the server's leaves it to the default, which is for who owns the journal."""
    files = Path(tideline_server.__file__).parent.rglob("*.py")
    trees = [ast.parse(text) for path in files if "result_of(" in (text := path.read_text(encoding="utf-8"))]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "result_of"]
    assert calls and all("admins" in {word.arg for word in call.keywords} for call in calls)
