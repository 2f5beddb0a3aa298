"""Sessions that begin with a key: what a page has in the key's place, how it ends, and what other pages cannot do with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from api_world import EXPERIMENT, HOME_KEY, OWN, QUICK, Coordinator, refused
from listening import Port
from sign_in_world import GRANTS, browsing, realm, sign_in

from tests.oidc.provider import Clock
from tideline.engine.audit.log import AuditEvent, Tip
from tideline.engine.audit.witness import RESTORED
from tideline.engine.coordinator.api_keys import KNOWN_SECONDS, hash_of
from tideline_server.api.requests.access import PROJECT
from tideline_server.api.requests.cookies import CSRF, SESSION
from tideline_server.bell import LocalCounts
from tideline_server.browsers.sessions import KEY_SECONDS, OF_KEYS
from tideline_server.limits import Limits

HERE = "http://coordinator"
FROM_HERE = {"Origin": HERE}


class Door(Coordinator):
    """A coordinator with a key of its own and a clock that somebody sets. No provider."""

    def __init__(self, **more: Any) -> None:
        super().__init__(replace(QUICK, **more), api_key_hash=hash_of(HOME_KEY))
        self.clock = Clock()
        self.wear(clock=self.clock)

    def key(self, name: str, role: str, **more: Any) -> str:
        """A new key."""
        return self.add_key(name, role, **more)["Authorization"].removeprefix("Bearer ")

    def begin(self, key: str, headers: dict[str, str] = FROM_HERE, address: str = "") -> httpx.Response:
        """A sign-in with a key."""
        return self.post(f"{address}/sign-in/key", {"key": key}, headers=headers)

    def signed_in(self, key: str) -> dict[str, str]:
        """What a page of ours sends with a change, once it has signed in."""
        answer = self.begin(key)
        assert answer.status_code == 200, answer.text
        return FROM_HERE | {"Cookie": f"{SESSION}={answer.cookies[SESSION]}", CSRF: answer.json()["csrf"]}


@pytest.fixture
def door() -> Door:
    """A fresh one."""
    return Door()


@pytest.fixture
def browser(door: Door, port: Port) -> Iterator[httpx.Client]:
    """A browser, of which the coordinator at a port of its own is called."""
    with port.browser(door.app, Origin=port.url) as client:
        yield client


def test_a_page_signs_in_with_a_key(door: Door, browser: httpx.Client) -> None:
    """The key is sent once; from then on the browser has a cookie that no script can read, and no other site's page sends."""
    key = door.key("bob", "operator", ttl_seconds=9 * 3600)
    refused(browser.get("/session"), 401, "IdentityRefused")
    begun = browser.post("/sign-in/key", json={"key": f" {key}\n"})
    (cookie,) = begun.headers.get_list("set-cookie")
    assert cookie.startswith(f"{SESSION}=") and set(cookie.split("; ")[1:]) == {
        *("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={KEY_SECONDS:.0f}")
    }
    assert begun.headers["Cache-Control"] == "no-store" and key not in begun.text
    shown = browser.get("/session")
    assert shown.json() == begun.json() and shown.headers["Cache-Control"] == "no-store"
    assert {k: v for k, v in shown.json().items() if k != "csrf"} == {
        "kind": "key",
        "name": "bob",
        "role": "operator",
        "project": "default",
        "issuer": OF_KEYS,
        "subject": "",
        "expires": door.clock.at + KEY_SECONDS,
        "grants": [],
    }
    assert browser.get("/runs").json() == []
    refused(browser.post("/runs", json=EXPERIMENT), 403, "PermissionRefused")
    assert browser.post("/runs", json=EXPERIMENT, headers={CSRF: shown.json()["csrf"]}).status_code == 201
    told = door.get("/audit?kind=run_started", headers=OWN).json()[-1]
    assert told["by"] == "bob"


def test_under_tls_the_cookie_is_this_hosts_alone(door: Door) -> None:
    """And is never sent without TLS."""
    answer = door.begin(HOME_KEY, {"Origin": "https://coordinator"}, "https://coordinator")
    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith(f"__Host-{SESSION}=") and {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= set(
        cookie.split("; ")
    )
    assert "domain" not in cookie.lower()
    tossed = {"Cookie": f"{SESSION}={answer.cookies[f'__Host-{SESSION}']}"}  # as a page below a common domain could set it
    refused(door.get("https://coordinator/runs", headers=tossed), 401, "IdentityRefused")


def test_the_homes_key_is_good_too(door: Door) -> None:
    """Also without a provider, and while another coordinator's key is not."""
    shared = Door()
    shared.wear(shared_key_hash=hash_of("the replicas' key"))
    for each, key in ((door, HOME_KEY), (shared, HOME_KEY), (shared, "the replicas' key")):
        shown = each.get("/session", headers=each.signed_in(key)).json()
        assert (shown["kind"], shown["name"], shown["role"], shown["project"]) == ("key", "admin", "admin", "all")
    assert door.get("/sign-in").json() == {"provider": None}
    refused(door.begin("the replicas' key"), 401, "IdentityRefused")


def test_nothing_of_the_key_is_written(door: Door) -> None:
    """Neither in the session's row, nor in the audit log, nor in what is kept of repeated calls; nor by what to guess it."""
    key = door.key("bob", "viewer")
    for each in (key, HOME_KEY):
        answer = door.post("/sign-in/key", {"key": each}, headers=FROM_HERE | {"Idempotency-Key": f"once-{each[:4]}"})
        again = door.post("/sign-in/key", {"key": each}, headers=FROM_HERE | {"Idempotency-Key": f"once-{each[:4]}"})
        assert answer.cookies[SESSION] != again.cookies[SESSION], "a kept answer would have the secret"
    journal = door.services.journal
    rows = journal.user_sessions()
    assert len({row.subject for row in rows}) == 4, "two sessions of one key have nothing in common but its name"
    written = repr((rows, journal.audit(), vars(journal).get("_idempotency")))
    for secret in (key, HOME_KEY, hash_of(HOME_KEY), answer.cookies[SESSION], again.cookies[SESSION]):
        assert secret not in repr(rows) and secret not in written
    assert "once-" not in written


ELSEWHERE = ("null", "", "http://evil.example", "https://coordinator", "http://coordinator:81")
NEARLY_HERE = ("http://coordinator.evil.example", "coordinator", "http://coordinator/")


def test_no_other_page_signs_a_browser_in(door: Door, subtests: pytest.Subtests) -> None:
    """Else a page elsewhere could put a browser into its own session, and watch what is done there."""
    for headers in ({}, *({"Origin": origin} for origin in (*ELSEWHERE, *NEARLY_HERE))):
        with subtests.test(str(headers)):
            answer = door.begin(HOME_KEY, headers)
            refused(answer, 403, "PermissionRefused")
            assert "set-cookie" not in answer.headers and door.services.journal.user_sessions() == ()


def test_no_form_signs_a_browser_in(door: Door) -> None:
    """It sends no JSON; and a body without a key is no sign-in."""
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        answer = door.send("POST", "/sign-in/key", content=b'{"key": "x"}', headers=FROM_HERE | {"Content-Type": kind})
        assert answer.status_code == 415
    for body in ({}, {"key": 5}, {"key": HOME_KEY, "more": 1}, {"key": None}):
        assert door.post("/sign-in/key", body, headers=FROM_HERE).status_code == 422
    refused(door.begin(""), 401, "IdentityRefused")


def test_a_stranger_has_few_bytes_read(door: Door) -> None:
    """Whatever is behind an address that needs no key: nobody has shown one yet, and what was read was not counted."""
    for path in ("/sign-in/key", "/health", "/"):
        told = refused(door.post(path, {"key": "x" * 5000}, headers=FROM_HERE), 413, "TooLarge")
        assert told["context"]["limit"] == 4096
    assert door.begin("x" * 4000).status_code == 401


def test_guessers_are_counted_as_with_any_wrong_key(door: Door) -> None:
    """30 a minute; each stands in the audit log. Who has the key is not refused for them, but begins not as many either."""
    door.wear(limits=Limits(LocalCounts(), door.clock, wrong_keys=2))
    refused(door.begin("tidekey_wrong"), 401, "IdentityRefused")
    refused(door.get("/runs", headers={"Authorization": "Bearer wrong"}), 401, "IdentityRefused")
    refused(door.begin("tidekey_wrong"), 429, "TooMany")
    told = door.get("/audit?kind=sign_in_refused", headers=OWN).json()
    assert [entry["details"]["what"] for entry in told] == ["The API key is missing or wrong"]
    assert [door.begin(HOME_KEY).status_code for _ in range(3)] == [200, 200, 429]
    door.clock.at += 120.0
    assert door.begin(HOME_KEY).status_code == 200


def test_a_session_ends_with_its_key(door: Door) -> None:
    """Revoked here it is over at once; elsewhere after the seconds for which keys are known. One of its name is another."""
    page = door.signed_in(door.key("bob", "operator"))
    other = door.beside(door.services.journal)
    other.wear(clock=door.clock)
    assert other.get("/runs", headers=page).status_code == door.get("/runs", headers=page).status_code == 200
    assert door.send("DELETE", "/keys/bob", headers=OWN).status_code == 200
    door.key("bob", "operator")
    assert "was revoked" in refused(door.get("/runs", headers=page), 401, "IdentityRefused")["detail"]
    refused(door.post("/runs", EXPERIMENT, headers=page), 401, "IdentityRefused")
    door.clock.at += KNOWN_SECONDS
    refused(other.get("/runs", headers=page), 401, "IdentityRefused")


def test_a_session_ends_when_its_key_expires(door: Door) -> None:
    """And is never promised for longer."""
    page = door.signed_in(door.key("bob", "viewer", ttl_seconds=60))
    assert door.get("/session", headers=page).json()["expires"] == door.clock.at + 60
    door.clock.at += 61
    refused(door.get("/runs", headers=page), 401, "IdentityRefused")


def test_a_session_ends_after_eight_hours(door: Door) -> None:
    """Whatever it is used for meanwhile."""
    page = door.signed_in(HOME_KEY)
    for _ in range(8):
        assert door.get("/runs", headers=page).status_code == 200
        door.clock.at += KEY_SECONDS / 8
    assert "has expired" in refused(door.get("/runs", headers=page), 401, "IdentityRefused")["detail"]


def test_a_session_ends_with_a_restore(door: Door) -> None:
    """The database may have forgotten that it was ended."""
    page = door.signed_in(HOME_KEY)
    found = AuditEvent(RESTORED, door.clock.at, details={"lost": False, "from": 0, "to": 0})
    assert door.services.journal.catch_up((), found, 0, Tip(3, "f" * 64))
    refused(door.get("/runs", headers=page), 401, "IdentityRefused")


def test_signing_out(door: Door) -> None:
    """Ends it for who kept the cookie; the key goes on. It needs the header, as any change does."""
    page = door.signed_in(door.key("bob", "viewer"))
    refused(door.post("/sign-out", headers={"Cookie": page["Cookie"]}), 403, "PermissionRefused")
    ended = door.post("/sign-out", headers=page)
    assert ended.json()["ended"] == door.clock.at and "Max-Age=0" in ended.headers["set-cookie"]
    refused(door.get("/session", headers=page), 401, "IdentityRefused")
    assert [row["revoked"] for row in door.get("/keys", headers=OWN).json()] == [None]
    assert door.get("/audit?kind=session_ended", headers=OWN).json()[-1]["by"] == "bob"


def test_admins_list_and_end_them(door: Door) -> None:
    """As those of users; what the row has of the key is not shown."""
    page = door.signed_in(door.key("bob", "viewer"))
    (row,) = door.get("/sessions", headers=OWN).json()
    assert (row["name"], row["issuer"], row["subject"]) == ("bob", OF_KEYS, "")
    told = door.get("/audit?kind=signed_in", headers=OWN).json()[-1]
    assert (told["by"], told["details"]["session"]) == ("bob", row["id"])
    assert door.send("DELETE", f"/sessions/{row['id']}", headers=OWN).status_code == 200
    refused(door.get("/runs", headers=page), 401, "IdentityRefused")


def test_a_viewer_changes_nothing(door: Door) -> None:
    """With all that a page of ours sends."""
    page = door.signed_in(door.key("bob", "viewer"))
    told = refused(door.post("/runs", EXPERIMENT, headers=page), 403, "PermissionRefused")
    assert "'bob' is a viewer; starting a run needs operator" in told["detail"]


def test_the_project_is_the_keys(door: Door) -> None:
    """A key of all projects names one by the header, as without a session."""
    door.post("/projects", {"name": "retina"}, headers=OWN)
    door.post("/runs", EXPERIMENT, headers=OWN)
    native, foreign, both = (door.signed_in(door.key(p, "viewer", project=p)) for p in ("default", "retina", "all"))
    assert [len(door.get("/runs", headers=page).json()) for page in (native, foreign, both)] == [1, 0, 1]
    assert door.get("/runs", headers=both | {PROJECT: "retina"}).json() == []
    refused(door.get("/runs", headers=foreign | {PROJECT: "default"}), 404, "NotFound", "project")
    assert [door.get("/session", headers=page).json()["project"] for page in (foreign, both)] == ["retina", "all"]


@pytest.mark.nightly(job="services")
def test_a_repeat_is_the_sessions_own(door: Door) -> None:
    """An Idempotency-Key means one thing to a session; another session, and its key, are another caller."""
    key = door.key("bob", "operator")
    first, second, once = door.signed_in(key), door.signed_in(key), {"Idempotency-Key": "k1"}
    run = door.post("/runs", EXPERIMENT, headers=first | once).json()["run"]
    again = door.post("/runs", EXPERIMENT, headers=first | once)
    assert again.json()["run"] == run and again.headers["Idempotent-Replayed"] == "true"
    refused(door.post("/runs", EXPERIMENT, headers=second | once), 422, "KeyReused", "Idempotency-Key")


def test_another_coordinators_cookie_is_none(door: Door) -> None:
    """Browsers send cookies of a host to all of its ports: what another coordinator gave is unknown here, and ends nothing."""
    other = Door()
    refused(door.get("/runs", headers=other.signed_in(HOME_KEY)), 401, "IdentityRefused")
    assert door.get("/runs", headers=other.signed_in(HOME_KEY) | OWN).status_code == 200, "a key in the header counts alone"


def test_a_name_that_is_pointed_here_has_no_session(browser: httpx.Client, door: Door) -> None:
    """DNS rebinding: a page of evil.example whose name now has our address. Its origin and the header Host agree, but the browser
    has no cookie for that name; one that came by another way is good at no other address than the one where it began.
    """
    key = door.key("bob", "operator")
    assert browser.post("/sign-in/key", json={"key": key}).status_code == 200
    csrf, port = browser.get("/session").json()["csrf"], browser.base_url.port
    evil = f"evil.example:{port}"
    forged = {"Host": evil, "Origin": f"http://{evil}", CSRF: csrf}
    jar = browser.cookies.jar
    assert {cookie.domain for cookie in jar} == {"127.0.0.1"} and not any(cookie.domain_specified for cookie in jar)
    stolen = forged | {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
    browser.cookies.clear()
    refused(browser.get("/runs", headers=forged), 401, "IdentityRefused")
    told = refused(browser.get("/runs", headers=stolen), 401, "IdentityRefused")
    assert "at another address" in told["detail"]
    refused(browser.post("/runs", json=EXPERIMENT, headers=stolen), 401, "IdentityRefused")
    assert door.get("/runs", headers=OWN).json() == []


def test_odd_hosts_are_no_address_of_the_session(door: Door, subtests: pytest.Subtests) -> None:
    """Only the one at which it began."""
    page = door.signed_in(HOME_KEY)
    for host in ("", "coordinator:81", "COORDINATOR.", "coordinator, evil.example", "[::1]", "evil@coordinator"):
        with subtests.test(host):
            refused(door.get("/runs", headers=page | {"Host": host}), 401, "IdentityRefused")
    assert door.get("/runs", headers=page | {"Host": "Coordinator"}).status_code == 200, "names have no case"


def test_behind_a_proxy_that_ends_tls() -> None:
    """By its public name the coordinator is what --public-url says; by another name, what the call says."""
    door = Door(public_url="https://tide.example")
    tide = {"Host": "tide.example", "Origin": "https://tide.example"}
    answer = door.begin(HOME_KEY, tide)
    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith(f"__Host-{SESSION}=") and "Secure" in cookie
    page = tide | {"Cookie": cookie.partition(";")[0], CSRF: answer.json()["csrf"]}
    assert door.post("/runs", EXPERIMENT, headers=page).status_code == 201
    assert door.get("/runs", headers=door.signed_in(HOME_KEY)).status_code == 200
    refused(door.begin(HOME_KEY, tide | {"Host": "coordinator"}), 403, "PermissionRefused")


def test_where_no_key_is_asked_for(coordinator: Coordinator) -> None:
    """Everybody has what a session would give, and there is nothing that a cookie could add."""
    assert coordinator.get("/session").json() == {
        "kind": "open",
        "name": "",
        "role": "admin",
        "project": "all",
        "issuer": "",
        "subject": "",
        "expires": None,
        "csrf": "",
        "grants": [],
    }
    answer = coordinator.post("/sign-in/key", {"key": "any"}, headers=FROM_HERE)
    assert answer.json()["kind"] == "open" and "set-cookie" not in answer.headers
    assert coordinator.get("/runs", headers={"Cookie": f"{SESSION}=x"}).status_code == 200


def test_without_the_dashboard_keys_begin_none() -> None:
    """Nobody would ask."""
    assert Door(dashboard=False).begin(HOME_KEY).status_code in (404, 405)


def test_beside_a_provider(port: Port) -> None:
    """A session of either kind is good, and says which it is; no issuer is called as those of keys are."""
    with realm() as made, browsing(made, port) as client:
        sign_in(client)
        user = client.get("/session").json()
        assert (user["kind"], user["role"], user["project"]) == ("user", "operator", "cardio")
        client.cookies.clear()
        base = str(client.base_url).rstrip("/")
        assert client.post("/sign-in/key", json={"key": HOME_KEY}, headers={"Origin": base}).status_code == 200
        assert client.get("/session").json()["kind"] == "key"
        assert {row["issuer"] for row in made.door.get("/sessions", headers=OWN).json()} == {OF_KEYS, made.provider.issuer}
        client.cookies.clear()
        made.provider.user["groups"] = [grant.partition("=")[0] for grant in GRANTS[:2]]
        sign_in(client)
        shown = client.get("/session").json()
        assert (shown["role"], shown["project"]) == ("operator", "*")
        token = made.provider.token()
        refused(client.post("/sign-in/key", json={"key": token}, headers={"Origin": base}), 401, "IdentityRefused")
