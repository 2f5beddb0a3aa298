"""The owner's page over HTTP: who is let in, what is refused, and what it shows of a ledger that is old, grows or is damaged."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tideline.core.errors import ConfigRefused, IdentityRefused, Refused, TooMany
from tideline.pages.files import table
from tideline_agent.home.ledger import FILE, FileLedger
from tideline_agent.machine.use import Machine
from tideline_agent.page import link as page_link
from tideline_agent.page.access import Access
from tideline_agent.page.app import OwnersPage
from tideline_agent.page.content import Site
from tideline_agent.page.link import ADDRESS, new_link
from tideline_agent.page.serving import listen
from tideline_agent.settings import AgentSettings, page_place

PLACE = "127.0.0.1:7890"
OURS = {"Origin": f"http://{PLACE}", "Content-Type": "application/json"}
HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J=1+1"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    ledger = FileLedger(tmp_path)
    ledger.record("order", run="old", order="o", step="train/fit", round=3)
    ledger.record("reply", run="old", order="o", files=[["b3-1", 70]], bytes=70)
    fields = [["model", "weights", "coordinator"], ["rows", "count", "coordinator"]]
    ledger.record("reply", run=HOSTILE, order="p", files=[["b3-2", 5]], bytes=5, step="train/fit", round=1, fields=fields)
    (tmp_path / ADDRESS).write_text(PLACE)
    return tmp_path


def page_of(home: Path) -> TestClient:
    site = Site("a", home, Machine("cpu"), None, lambda: ())
    return TestClient(OwnersPage(site, Access(home, frozenset({PLACE})), "c").app(), f"http://{PLACE}")


def entered(home: Path) -> tuple[TestClient, dict[str, str]]:
    """A client that came by the link, and the headers of its changes."""
    client = page_of(home)
    csrf = client.post("/api/enter", json={"link": secret(home)}, headers=OURS).json()["csrf"]
    return client, {**OURS, "Tideline-CSRF": csrf}


def secret(home: Path) -> str:
    return new_link(home).rpartition("=")[2]


def test_a_link_works_once(home: Path) -> None:
    """It is gone from the home, its cookie is for no script and no other site; what it was is nowhere."""
    client, link = page_of(home), secret(home)
    assert client.get("/api/now").status_code == 401
    made = client.post("/api/enter", json={"link": link}, headers=OURS)
    assert {"HttpOnly", "SameSite=strict"} <= set(made.headers["set-cookie"].split("; ")) and made.status_code == 200
    assert client.get("/api/now").status_code == 200
    again = page_of(home).post("/api/enter", json={"link": link}, headers=OURS)
    assert again.status_code == 401 and "tideline site page" in again.json()["todo"]
    assert not list(home.glob("page.link*"))


def test_a_cookie_ends_with_the_agent(home: Path) -> None:
    """Stolen or not; and when its owner leaves."""
    client, ours = entered(home)
    later = page_of(home)
    later.cookies = client.cookies
    assert later.get("/api/now").status_code == 401
    stolen = dict(client.cookies)
    assert client.post("/api/leave", json={}, headers=ours).status_code == 200
    client.cookies.update(stolen)
    assert client.get("/api/now").status_code == 401


def test_links_that_are_not_one(home: Path) -> None:
    """An older link, one that is too old, a damaged file; guesses are counted."""
    at = [1000.0]
    access = Access(home, frozenset(), lambda: at[0])
    first = new_link(home, at[0]).rpartition("=")[2]
    second = new_link(home, at[0]).rpartition("=")[2]
    with pytest.raises(IdentityRefused):
        access.enter(first)
    at[0] += page_link.LINK_SECONDS
    with pytest.raises(IdentityRefused):
        access.enter(second)
    (home / page_link.LINK).write_text("{")
    for _ in range(19):
        with pytest.raises(IdentityRefused):
            access.enter("\ud800é")
    with pytest.raises(TooMany):
        access.enter(second)


@pytest.mark.parametrize(
    "foreign",
    [
        {"Host": "evil.example:7890"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/now", "/api/egress.csv"])
def test_no_other_name_and_no_other_page(home: Path, foreign: dict[str, str], path: str) -> None:
    """A name that is pointed at this machine, and pages from elsewhere, see nothing, cookie or not."""
    client, _ = entered(home)
    assert client.get(path).status_code == 200 and client.get(path, headers=foreign).status_code == 403


@pytest.mark.parametrize("left", ["Origin", "Tideline-CSRF", "Content-Type"])
def test_a_change_brings_all_that_a_page_of_ours_has(home: Path, left: str) -> None:
    client, ours = entered(home)
    given = json.dumps({"on": True}).encode()
    assert client.post("/api/pause", content=given, headers={k: v for k, v in ours.items() if k != left}).status_code == 403
    assert not FileLedger(home).paused()
    assert client.post("/api/pause", content=given, headers=ours).status_code == 200
    assert FileLedger(home).paused() and client.get("/api/now").json()["paused"] > 0
    assert client.post("/api/pause", content=given, headers=ours).status_code == 409
    for wrong in (b"[]", b"{", b"[" * 9000, b"x" * 20000):
        assert client.post("/api/pause", content=wrong, headers=ours).status_code == 400


def test_every_answer_keeps_others_out(home: Path) -> None:
    """Nothing is stored, framed or loaded from elsewhere; all that the first page names is there, and packed it is small."""
    client, _ = entered(home)
    for path in ("/", "/pages/owner.js", "/pages/nothing", "/pages/../app.py", "/api/now", "/api/none"):
        answer = client.get(path)
        if answer.status_code != 404 or path.startswith("/pages"):
            assert (
                answer.headers["Cache-Control"] == "no-store"
                and "default-src 'none'" in answer.headers["Content-Security-Policy"]
            )
    for named in re.findall(r'(?:src|href)="([^"]+)"', client.get("/").text):
        assert client.get(named).status_code == 200, named
    files = table("tideline_agent.page")
    assert sum(len(each.packed) for path, each in files.items() if path.endswith(".js")) < 150_000
    assert not any(
        "http:" in each.body.decode() for path, each in files.items() if path in ("owner.js", "calls.js", "sections.js")
    )


def test_what_left(home: Path) -> None:
    """Also by entries of a version that wrote no fields; hostile names come as they are, and as no formula."""
    client, _ = entered(home)
    found = client.get("/api/egress").json()
    assert [(row["run"], row["step"], row["exposure"], row["bytes"]) for row in found["rows"]] == [
        (HOSTILE, "train/fit", "weights", 5),
        ("old", "train/fit", "unknown", 70),
    ]
    assert (found["bytes"], found["exposures"]) == (75, [["unknown", 1, 70], ["weights", 1, 5]])
    assert client.get("/api/egress", params={"text": "WEIGHTS b3-2"}).json()["found"] == 1
    assert client.get("/api/egress", params={"run": "old"}).json()["found"] == 1
    assert client.get("/api/egress", params={"since": 1e11}).json()["found"] == 0
    assert client.get("/api/egress", params={"since": "nan"}).status_code == 400
    lines = client.get("/api/egress.jsonl").text.splitlines()
    assert json.loads(lines[0])["run"] == HOSTILE and ",old,train/fit,3," in client.get("/api/egress.csv").text
    FileLedger(home).record("reply", run="=cmd", order="q", bytes=1)
    assert ",'=cmd," in client.get("/api/egress.csv").text, "and it grew while the page was open"


def test_nothing_new_costs_nothing(home: Path) -> None:
    client, _ = entered(home)
    digest = client.get("/api/now").json()["digest"]
    assert client.get("/api/now", params={"known": digest}).status_code == 204


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "no JSON"])
def test_a_damaged_ledger_is_shown_as_such(home: Path, damage: str) -> None:
    """With where it breaks and what to do; what stands before is still there."""
    client, _ = entered(home)
    assert client.get("/api/now").json()["chain"]["broken"] == ""
    path = home / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {"changed": [lines[0], lines[1].replace(b"70", b"71"), lines[2]], "cut": lines[:2], "no JSON": [lines[0], b"{\n"]}
    path.unlink() if damage == "gone" else path.write_bytes(b"".join(changed[damage]))
    chain = client.get("/api/verify").json()
    assert chain["broken"] and chain["todo"] and client.get("/api/egress").status_code == 200


def test_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that cannot be written is none, and says so."""
    client, ours = entered(home)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tideline_agent.home.ledger.os.fsync", full)
    answer = client.post("/api/pause", json={"on": True}, headers=ours)
    assert answer.status_code == 507 and "Free disk space" in answer.json()["todo"]
    monkeypatch.undo()
    assert not FileLedger(home).paused()


def test_answers_that_are_none(home: Path) -> None:
    client, ours = entered(home)
    for given, status in (
        ({"answer": "perhaps"}, 400),
        ({"answer": ["once"]}, 400),
        ({"answer": "once", "run": "../.."}, 404),
        ({"answer": "always", "run": ""}, 404),
    ):
        assert client.post("/api/say", json=given, headers=ours).status_code == status
    assert client.post("/api/end", json={"number": "1"}, headers=ours).status_code == 404


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_taken(taken: int) -> None:
    with pytest.raises(ConfigRefused, match=f"--page 127.0.0.1:{taken} cannot be listened on"):
        listen(("127.0.0.1", taken))


def settings(**more: Any) -> AgentSettings:
    return AgentSettings(coordinator="", data=Path(), roles=(), name="a", **more)


def test_this_machine_alone() -> None:
    """Unless the owner names what stands before it."""
    assert page_place(settings()) is None and page_place(settings(page="7890")) == ("127.0.0.1", 7890)
    assert page_place(settings(page="[::1]:7890")) == ("::1", 7890)
    for wrong in ("0.0.0.0:7890", "[::]:7890", "site.example:7890", "127.0.0.1:x", ""):
        with pytest.raises(ConfigRefused):
            page_place(settings(page=wrong))
    assert page_place(settings(page="0.0.0.0:7890", page_host=("site.example",))) == ("0.0.0.0", 7890)
    with pytest.raises(ConfigRefused, match="no page"):
        page_place(settings(page_host=("site.example",)))


def test_no_page_no_link(tmp_path: Path) -> None:
    FileLedger(tmp_path).record("started")
    with pytest.raises(Refused, match="No agent serves a page"):
        new_link(tmp_path)
