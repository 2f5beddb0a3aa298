"""Sign-in with a browser: the way there and back, the session, and what other sites cannot do with it."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from api_world import EXPERIMENT, OWN, refused
from listening import Port
from sign_in_world import Realm, browsing, realm, sign_in

from tests.oidc.provider import FAULTS, SECRET, cut
from tideline_server.api.requests.access import PROJECT
from tideline_server.api.requests.cookies import CSRF, PENDING, SESSION
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits

HOURS = 8 * 3600.0


@pytest.fixture
def here() -> Iterator[Realm]:
    """A provider and its coordinator."""
    with realm() as made:
        yield made


@pytest.fixture
def browser(here: Realm, port: Port) -> Iterator[httpx.Client]:
    """A browser that has not signed in."""
    with browsing(here, port) as client:
        yield client


def ours(client: httpx.Client) -> dict[str, str]:
    """What a page of ours sends with a change."""
    return {"Origin": str(client.base_url).rstrip("/"), CSRF: client.get("/session").json()["csrf"]}


def test_a_browser_signs_in(here: Realm, browser: httpx.Client) -> None:
    """It comes back to where it wanted to go, with a session that a page can use, and no script can read."""
    back = sign_in(browser, "/docs?x=1#keys")
    assert (back.status_code, back.headers["location"]) == (303, "/docs?x=1#keys")
    kept, dropped = back.headers.get_list("set-cookie")
    assert kept.startswith(f"{SESSION}=") and {"HttpOnly", "SameSite=lax", "Path=/", f"Max-Age={HOURS:.0f}"} <= set(
        kept.split("; ")
    )
    assert dropped.startswith(f'{PENDING}=""') and "Max-Age=0" in dropped
    shown = browser.get("/session").json()
    assert shown["name"] == f"alice <{here.provider.issuer}#42>" and shown["expires"] == here.clock.at + HOURS
    assert shown["grants"] == [{"role": "operator", "project": "cardio"}]
    assert browser.get("/runs").json() == []
    started = browser.post("/runs", json=EXPERIMENT, headers=ours(browser))
    assert started.status_code == 201
    entry = here.audit("signed_in")[-1]
    assert entry["by"] == shown["name"] and "session" in entry["details"]
    assert here.audit("run_started")[-1]["by"] == shown["name"]


def test_a_client_with_a_secret(port: Port) -> None:
    """The coordinator shows it, and the command line has no client then."""
    with realm(SECRET, oidc_client_secret=SECRET) as made, browsing(made, port) as client:
        assert sign_in(client).headers["location"] == "/"
        assert client.get("/sign-in").json()["provider"]["client"] == ""
    with realm(SECRET, oidc_client_secret="wrong") as made, browsing(made, port) as client:
        assert "invalid_client" in refused(sign_in(client), 401, "IdentityRefused")["detail"]


def test_the_cookies_under_tls(here: Realm) -> None:
    """Are this host's alone, and never sent without TLS."""
    answer = here.door.get("https://coordinator/sign-in/start")
    kept = answer.headers["set-cookie"]
    assert kept.startswith(f"__Host-{PENDING}=") and {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(kept.split("; "))
    assert "domain" not in kept.lower()
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked["redirect_uri"] == ["https://coordinator/sign-in/callback"] and asked["code_challenge_method"] == ["S256"]
    assert asked["scope"] == ["openid profile email"] and len(asked["nonce"][0]) == len(asked["state"][0]) == 32


def test_the_address_behind_a_proxy() -> None:
    """Where it is given, it counts, whatever a request says."""
    with realm(oidc_url="https://tide.example/") as made:
        answer = made.door.get("/sign-in/start")
        assert parse_qs(urlsplit(answer.headers["location"]).query)["redirect_uri"] == ["https://tide.example/sign-in/callback"]
        assert answer.headers["set-cookie"].startswith("__Host-")


ELSEWHERE = (
    *(
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\/evil.example",
        "javascript:alert(1)",
        "evil",
        "http:/evil",
    ),
    *("/\t/evil.example", "/a\nSet-Cookie: x=1", "///evil.example", "/\u2215/evil", "/" + "a" * 2000, " //evil"),
)


def test_it_leads_nowhere_else(here: Realm, subtests: pytest.Subtests) -> None:
    """Only to a path of this coordinator."""
    for leads in ELSEWHERE:
        with subtests.test(leads[:40]):
            refused(here.door.get("/sign-in/start", params={"next": leads}), 422, "ConfigRefused", "next")
    assert not here.provider.asked


def test_a_cookie_that_was_changed_leads_nowhere_else(browser: httpx.Client) -> None:
    """Where to go is looked at again when the browser comes back."""
    started = browser.get("/sign-in/start")
    text = browser.cookies[PENDING]
    found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    changed = base64.urlsafe_b64encode(json.dumps(found | {"next": "//evil.example"}).encode()).decode().rstrip("=")
    back = browser.get(started.headers["location"]).headers["location"]
    browser.cookies.clear()
    refused(browser.get(back, headers={"Cookie": f"{PENDING}={changed}"}), 401, "IdentityRefused")


def test_a_sign_in_is_good_once(here: Realm, browser: httpx.Client) -> None:
    """Neither the state nor the code begins a second session, also where the browser kept its cookie."""
    started = browser.get("/sign-in/start")
    pending = {"Cookie": f"{PENDING}={browser.cookies[PENDING]}"}
    back = browser.get(started.headers["location"]).headers["location"]
    assert browser.get(back).status_code == 303
    browser.cookies.clear()
    refused(browser.get(back), 401, "IdentityRefused")
    assert "invalid_grant" in refused(browser.get(back, headers=pending), 401, "IdentityRefused")["detail"]
    code = parse_qs(urlsplit(back).query)["code"][0]
    here.provider.codes[code] = parse_qs_flat(started.headers["location"])  # a provider that takes a code twice
    assert "finished before" in refused(browser.get(back, headers=pending), 401, "IdentityRefused")["detail"]
    assert len(here.door.get("/sessions", headers=OWN).json()) == 1


def parse_qs_flat(address: str) -> dict[str, str]:
    """The parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


CHANGES = ({"state": "x"}, {"state": ""}, {"code": ""}, {"iss": "http://other"}, {"error": "access_denied"}, {"code": "made-up"})


def test_what_comes_back_has_to_fit(browser: httpx.Client, subtests: pytest.Subtests) -> None:
    """Another's sign-in, a made-up code, another provider, a refusal: no session."""
    for change in CHANGES:
        with subtests.test(str(change)):
            started = browser.get("/sign-in/start")
            back = parse_qs_flat(browser.get(started.headers["location"]).headers["location"]) | change
            refused(browser.get("/sign-in/callback", params=back), 401, "IdentityRefused")
            refused(browser.get("/session"), 401, "IdentityRefused")


def test_somebody_elses_sign_in_is_not_mine(here: Realm, browser: httpx.Client) -> None:
    """A link with another's code and state signs nobody in, with or without a sign-in of one's own under way."""
    other = httpx.Client(base_url=browser.base_url, trust_env=False)
    link = other.get(other.get("/sign-in/start").headers["location"]).headers["location"]
    refused(browser.get(link), 401, "IdentityRefused")
    browser.get("/sign-in/start")
    refused(browser.get(link), 401, "IdentityRefused")
    other.close()


def test_a_token_of_another_sign_in(here: Realm, browser: httpx.Client) -> None:
    """Its nonce does not fit; so an ID token that was got elsewhere begins no session."""
    give = here.provider.tokens
    here.provider.tokens = lambda **more: give(nonce="another")  # type: ignore[method-assign]
    assert "another sign-in" in refused(sign_in(browser), 401, "IdentityRefused")["detail"]
    here.provider.tokens = lambda **more: give(**more, aud="another")  # type: ignore[method-assign]
    refused(sign_in(browser), 401, "IdentityRefused")
    here.provider.tokens = lambda **more: {"access_token": "x", "token_type": "Bearer"}  # type: ignore[method-assign]
    assert "no ID token" in refused(sign_in(browser), 401, "IdentityRefused")["detail"]


def test_who_has_no_role_gets_no_session(here: Realm, browser: httpx.Client) -> None:
    """And reads which claim was looked at."""
    here.provider.user["groups"] = ["nurses"]
    told = refused(sign_in(browser), 403, "PermissionRefused")
    assert "'nurses'" in told["detail"] and here.door.get("/sessions", headers=OWN).json() == []


def test_a_provider_that_fails(port: Port, subtests: pytest.Subtests) -> None:
    """503, or its own refusal; afterwards it works again. Nothing of it keeps the coordinator from its other work."""
    for path, fault in itertools.product(("/.well-known/openid-configuration", "/token"), FAULTS):
        with subtests.test(f"{fault} at {path}"), realm() as here, browsing(here, port) as browser:
            here.provider.fault[path] = FAULTS[fault]
            started = browser.get("/sign-in/start")
            if path == "/token":
                answer = browser.get(browser.get(started.headers["location"]).headers["location"])
                assert answer.status_code in (401, 503), answer.text
                assert answer.json()["todo"]
            else:
                refused(started, 503, "Unreachable")
            here.provider.fault = {}
            here.clock.at += 10
            assert sign_in(browser).status_code == 303


def test_a_change_needs_a_page_of_ours(here: Realm, browser: httpx.Client) -> None:
    """The header's value, and the origin: each by itself is not enough. A key beside the cookie counts alone."""
    sign_in(browser)
    good = ours(browser)
    for wrong in (
        {},
        {CSRF: good[CSRF]},
        {"Origin": good["Origin"]},
        good | {CSRF: "x"},
        good | {CSRF: ""},
        good | {"Origin": "null"},
        good | {"Origin": "http://evil.example"},
        good | {"Origin": good["Origin"] + ".evil.example"},
        good | {"Origin": good["Origin"].replace("http:", "https:")},
    ):
        refused(browser.post("/runs", json=EXPERIMENT, headers=wrong), 403, "PermissionRefused")
        refused(browser.post("/sign-out", headers=wrong), 403, "PermissionRefused")
    assert browser.get("/runs").json() == []
    assert browser.post("/runs", json=EXPERIMENT, headers=good).status_code == 201
    assert browser.get("/whoami", headers=OWN).json()["name"] == "admin"
    refused(browser.get("/whoami", headers={"Authorization": "Bearer tidekey_wrong"}), 401, "IdentityRefused")


def test_the_value_is_the_sessions_own(here: Realm, browser: httpx.Client) -> None:
    """Another session's is not taken; neither is what lies in the database enough to make it."""
    sign_in(browser)
    first = ours(browser)
    sign_in(browser)
    assert ours(browser)[CSRF] != first[CSRF]
    refused(browser.post("/runs", json=EXPERIMENT, headers=first), 403, "PermissionRefused")
    (session, _) = here.door.services.journal.user_sessions()
    assert browser.cookies[SESSION] not in repr(session) and first[CSRF] not in repr(session)


def test_signing_out(here: Realm, browser: httpx.Client) -> None:
    """Ends the session, also for who has kept its cookie."""
    sign_in(browser)
    secret = browser.cookies[SESSION]
    ended = browser.post("/sign-out", headers=ours(browser))
    assert ended.status_code == 200 and ended.json()["ended"] == here.clock.at and "Max-Age=0" in ended.headers["set-cookie"]
    assert SESSION not in browser.cookies
    told = refused(browser.get("/runs", headers={"Cookie": f"{SESSION}={secret}"}), 401, "IdentityRefused")
    assert "/sign-in/start" in told["todo"]
    assert here.audit("session_ended")[-1]["by"].startswith("alice <")


def test_tokens_that_make_no_sense(here: Realm, browser: httpx.Client, subtests: pytest.Subtests) -> None:
    """They are the provider's failure, or no sign-in."""
    give = here.provider.tokens
    for more in ({"expires_in": "soon", "expires_at": "soon"}, {"expires_in": [5]}, {"id_token": 5}, {"id_token": None}):
        with subtests.test(str(more)):
            here.provider.tokens = lambda more=more, **claims: give(**claims) | more  # type: ignore[method-assign]
            assert sign_in(browser).status_code in ((401, 503) if "id_token" in more else (303, 503))


def test_a_session_expires(here: Realm, browser: httpx.Client) -> None:
    """Whatever it is used for meanwhile."""
    sign_in(browser)
    for _ in range(8):
        assert browser.get("/runs").status_code == 200
        here.clock.at += HOURS / 8
    assert "has expired" in refused(browser.get("/runs"), 401, "IdentityRefused")["detail"]


def test_admins_list_and_end_sessions(here: Realm, browser: httpx.Client) -> None:
    """At once, and again without harm; its user may sign in anew."""
    sign_in(browser)
    (row,) = here.door.get("/sessions", headers=OWN).json()
    assert row["subject"] == "42"
    assert set(row) == {"id", "name", "issuer", "subject", "created", "expires", "last_used", "ended"}
    for _ in range(2):
        assert here.door.send("DELETE", f"/sessions/{row['id']}", headers=OWN).json()["ended"] == here.clock.at
    refused(here.door.send("DELETE", "/sessions/0123456789abcdef", headers=OWN), 404, "NotFound")
    refused(browser.get("/runs"), 401, "IdentityRefused")
    assert here.audit("session_ended")[-1]["by"] == "admin"
    assert sign_in(browser).status_code == 303
    refused(browser.get("/sessions"), 403, "PermissionRefused")


def test_sessions_are_every_replicas(here: Realm, browser: httpx.Client) -> None:
    """One that another coordinator of this database has begun is good here; ended there, it is bad here."""
    sign_in(browser)
    cookie = {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
    other = here.door.beside(here.door.services.journal)
    assert other.get("/session", headers=cookie).json()["subject"] == "42"
    (row,) = other.get("/sessions", headers=OWN).json()
    other.send("DELETE", f"/sessions/{row['id']}", headers=OWN)
    refused(browser.get("/session"), 401, "IdentityRefused")


def test_what_a_role_does_not_cover(here: Realm, browser: httpx.Client) -> None:
    """A viewer who posts, with all that a page of ours sends."""
    here.provider.user["groups"] = ["retina-look"]
    sign_in(browser)
    told = refused(browser.post("/runs", json=EXPERIMENT, headers=ours(browser)), 403, "PermissionRefused")
    assert "is a viewer; starting a run needs operator" in told["detail"]


def test_a_session_in_several_projects(here: Realm, browser: httpx.Client) -> None:
    """The header chooses, as for a token."""
    here.provider.user["groups"] = ["cardio-ops", "retina-look"]
    sign_in(browser)
    refused(browser.get("/runs"), 422, "ConfigRefused", "project")
    assert browser.get("/runs", headers={PROJECT: "retina"}).json() == []
    refused(browser.get("/runs", headers={PROJECT: "default"}), 404, "NotFound", "project")
    assert browser.post("/sign-out", headers=ours(browser)).status_code == 200


def test_without_a_session_there_is_none_to_show(here: Realm) -> None:
    """A key and a token have none."""
    for headers in (OWN, here.bearer()):
        refused(here.door.get("/session", headers=headers), 404, "NotFound")
        refused(here.door.post("/sign-out", headers=headers), 404, "NotFound")


COOKIES = ("", "x", "a" * 4000, "\u00e9".encode(), f"{SESSION}=", f'{SESSION}="\\', ";;=;", f"{SESSION}=a; {SESSION}=b")


def test_odd_cookies_are_none(here: Realm, subtests: pytest.Subtests) -> None:
    """They open as little as a wrong key."""
    for cookie in COOKIES:
        with subtests.test(repr(cookie[:20])):
            for path in ("/runs", "/sign-in/callback?state=x&code=y"):
                refused(here.door.get(path, headers={"Cookie": cookie}), 401, "IdentityRefused")  # type: ignore[dict-item]


def test_what_is_open() -> None:
    """What the command line needs to know; nothing of it is a secret."""
    with realm(SECRET, oidc_client_secret=SECRET, oidc_cli_client_id="tide-cli") as made:
        shown = made.door.get("/sign-in")
        assert shown.json() == {
            "provider": {
                "issuer": made.provider.issuer,
                "client": "tide-cli",
                "audience": "tideline",
                "scopes": "openid profile email",
                "token": "id_token",
            }
        }
        assert made.get(aud="tide-cli", azp="tide-cli").status_code == 200


def test_without_a_provider(coordinator: Any) -> None:
    """There is nothing to sign in with, and what would help is said."""
    assert coordinator.get("/sign-in").json() == {"provider": None}
    for path in ("/sign-in/start", "/sign-in/callback"):
        assert "--oidc-issuer" in refused(coordinator.get(path), 404, "NotFound")["todo"]


def test_whoever_makes_up_codes_is_slowed_down(here: Realm) -> None:
    """Each try has the provider asked."""
    here.provider.fault["/token"] = cut
    here.door.wear(limits=Limits(LocalCounts(), here.clock, wrong_keys=2))
    for status in (401, 401, 429):
        assert here.door.get("/sign-in/callback?state=x&code=y").status_code == status
