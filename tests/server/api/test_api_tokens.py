"""Tokens of a provider over HTTP: which let a user in, as whom, and what is said of those that do not."""

from __future__ import annotations

import base64
import hmac
import itertools
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from api_world import EXPERIMENT, OWN, refused
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, RSAKey
from sign_in_world import Realm, realm

from tests.oidc.provider import FAULTS, cut
from tideline_server.api.requests.access import PROJECT
from tideline_server.oidc.keys import AGAIN_SECONDS, FRESH_SECONDS, LASTING_SECONDS
from tideline_server.oidc.tokens import LEEWAY_SECONDS, MOST_CHARACTERS


@pytest.fixture(scope="module")
def looked() -> Iterator[Realm]:
    """For looking."""
    with realm() as made:
        yield made


@pytest.fixture
def fresh() -> Iterator[Realm]:
    """One whose provider has not been asked yet."""
    with realm() as made:
        yield made


def test_a_token_lets_its_user_in(looked: Realm) -> None:
    """By the name in the token, with issuer and subject; with the role and in the project that the groups grant."""
    who = looked.get().json()
    assert who["name"] == f"alice <{looked.provider.issuer}#42>"
    assert (who["role"], who["project"]) == ("operator", "cardio")
    assert who["grants"] == [{"role": "operator", "project": "cardio"}]


def test_the_audit_log_has_the_user(fresh: Realm) -> None:
    """Who started a run, and in which project."""
    run = fresh.door.post("/runs", EXPERIMENT, headers=fresh.bearer()).json()["run"]
    entry = fresh.door.get(f"/audit?run={run}&kind=run_started", headers=OWN).json()[0]
    assert entry["by"] == f"alice <{fresh.provider.issuer}#42>" and entry["details"]["project"] == "cardio"
    assert fresh.get(f"/runs/{run}").status_code == 200
    assert fresh.get(f"/runs/{run}", groups=["retina-look"]).status_code == 404


def test_what_a_role_does_not_cover(looked: Realm) -> None:
    """A viewer who posts is refused as a viewer's key is."""
    answer = looked.door.post("/runs", EXPERIMENT, headers=looked.bearer(groups=["retina-look"]))
    told = refused(answer, 403, "PermissionRefused")
    assert told["detail"].endswith("is a viewer; starting a run needs operator") and "The key" not in told["detail"]


def test_a_user_of_several_projects_names_one(looked: Realm) -> None:
    """With the role there. Without a name the call is refused with the user's own; what is about the user goes without."""
    both = {"groups": ["cardio-ops", "retina-look", "something else"]}
    told = refused(looked.get("/runs", **both), 422, "ConfigRefused", "project")
    assert told["detail"].endswith("works in several projects: cardio, retina")
    for name, status in (("cardio", 422), ("retina", 403), ("default", 404), ("nosuch", 404), ("all", 404)):
        answer = looked.door.post("/runs", {}, headers=looked.bearer(**both) | {PROJECT: name})
        assert answer.status_code == status, name
    who = looked.get(**both).json()
    assert (who["role"], who["project"]) == ("operator", "*") and len(who["grants"]) == 2
    assert [row["name"] for row in looked.get("/projects", **both).json()] == ["cardio", "retina"]


def test_roles_in_every_project(looked: Realm) -> None:
    """Who has one needs no name; where one has a higher role by a project's name, it is the higher one there."""
    both = {"groups": ["auditors", "cardio-ops"]}
    assert looked.get("/runs", **both).json() == []
    for name, status in (("", 403), ("retina", 403), ("cardio", 422), ("nosuch", 404)):
        answer = looked.door.post("/runs", {}, headers=looked.bearer(**both) | ({PROJECT: name} if name else {}))
        assert answer.status_code == status, name
    assert looked.get("/audit", groups=["tide-admins"]).status_code == 200


def test_a_project_that_is_not_there(fresh: Realm) -> None:
    """Or was removed: who has no other may do nothing, and hears what would help."""
    fresh.door.send("DELETE", "/projects/cardio", headers=OWN)
    told = refused(fresh.get("/runs"), 403, "PermissionRefused")
    assert "has a role in cardio, and there is no such project" in told["detail"] and "projects add" in told["todo"]
    assert fresh.get("/runs", groups=["cardio-ops", "retina-look"]).json() == []
    refused(fresh.door.get("/runs", headers=fresh.bearer() | {PROJECT: "cardio"}), 404, "NotFound", "project")


UNGRANTED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"groups": None}, "the token has no claim 'groups'; it has 'aud', 'azp', 'exp'"),
    (
        {"groups": ["nurses", "Cardio-Ops"]},
        "none of the values of the claim 'groups' grants one; they are 'Cardio-Ops', 'nurses'",
    ),
    ({"groups": []}, "grants one; they are no texts"),
    ({"groups": "nurses"}, "they are 'nurses'"),
    ({"groups": {"cardio-ops": True}}, "they are no texts"),
    ({"groups": [["cardio-ops"], 5]}, "they are no texts"),
    ({"groups": [f"group {n}" for n in range(30)]}, "and 10 more"),
)


def test_without_a_granted_value_nothing_is_open(looked: Realm, subtests: pytest.Subtests) -> None:
    """The answer says which claim was looked for and what it held, and nothing of the token itself."""
    for claims, words in UNGRANTED:
        with subtests.test(str(claims)[:60]):
            answer = looked.get(**claims)
            error = refused(answer, 403, "PermissionRefused")
            assert words in error["detail"] and "eyJ" not in answer.text and error["context"]["claim"] == "groups"


def test_claims_that_were_left_out(looked: Realm) -> None:
    """A provider that found too many values says so in another claim."""
    told = refused(looked.get(groups=None, _claim_names={"groups": "src1"}), 403, "PermissionRefused")
    assert "too many values" in told["todo"]


def test_claims_by_their_place(subtests: pytest.Subtests) -> None:
    """A claim lies inside another one, has dots of its own, or is a list of words."""
    for claim, given in (
        ("realm_access.roles", {"realm_access": {"roles": ["cardio-ops"]}}),
        ("https://hospital.example/roles", {"https://hospital.example/roles": "cardio-ops"}),
        ("scope", {"scope": "openid cardio-ops"}),
    ):
        with subtests.test(claim), realm(oidc_claim=claim) as made:
            assert made.get(groups=None, **given).json()["project"] == "cardio"
            assert made.get(groups=["cardio-ops"]).status_code == 403


def test_names_are_made_readable(looked: Realm) -> None:
    """They cannot pass for another user's, nor change a terminal."""
    odd = "admin <x#1>\u202e\x1b[31m" + "a" * 100
    name = looked.get(preferred_username=odd).json()["name"]
    assert name.endswith(f" <{looked.provider.issuer}#42>") and name.count("<") == 1 and name.isprintable() and len(name) < 160
    assert looked.get(preferred_username=None, email="a@b.example").json()["name"].startswith("a@b.example <")
    assert looked.get(preferred_username="<>").json()["name"].startswith("42 <")


@cache
def strange_key() -> RSAKey:
    """A key of the name that the provider's has."""
    return RSAKey.generate_key(2048, {"kid": "one", "alg": "RS256"})


def forged(made: Realm) -> str:
    """The right words, by another key of the same name."""
    return made.provider.token(strange_key())


def unsigned(made: Realm) -> str:
    """alg: none."""
    _, body, _ = made.provider.token().split(".")
    return f"{encoded({'alg': 'none', 'kid': 'one'})}.{body}."


def confused(made: Realm) -> str:
    """HS256 with the public key, which everybody has, as the secret."""
    signed = f"{encoded({'alg': 'HS256', 'kid': 'one'})}.{encoded(made.provider.claims())}"
    return f"{signed}.{raw(hmac.digest(made.provider.key.as_pem(private=False), signed.encode(), 'sha256'))}"


def changed(made: Realm) -> str:
    """One word changed after it was signed."""
    head, _, signature = made.provider.token().split(".")
    return f"{head}.{encoded(made.provider.claims(groups=['tide-admins']))}.{signature}"


def brought(made: Realm) -> str:
    """With its key in its head."""
    return made.provider.token(strange_key(), header={"jwk": strange_key().as_dict(private=False)})


def fetched(made: Realm) -> str:
    """With an address of keys in its head."""
    return made.provider.token(strange_key(), header={"jku": "http://127.0.0.1:9/certs", "x5u": "http://127.0.0.1:9/c.pem"})


def critical(made: Realm) -> str:
    """With an extension that has to be understood."""
    head = {"alg": "RS256", "kid": "one", "crit": ["tide"], "tide": 1}
    signed = f"{encoded(head)}.{encoded(made.provider.claims())}"
    signature = made.provider.key.private_key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{raw(signature)}"


def encoded(value: Any) -> str:
    """A part of a token."""
    return raw(json.dumps(value).encode())


def raw(value: bytes) -> str:
    """Bytes in a token."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def test_forged_tokens_are_refused(looked: Realm, subtests: pytest.Subtests) -> None:
    """With 401 and the challenge; nothing of the token is in the answer, and no address of it is called."""
    for make in (forged, unsigned, confused, changed, brought, fetched, critical):
        with subtests.test(make.__name__):
            token = make(looked)
            answer = looked.get(token=token)
            refused(answer, 401, "IdentityRefused")
            assert answer.headers["www-authenticate"] == "Bearer" and token[-20:] not in answer.text


MISFITS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"exp": 1_800_000_000 - LEEWAY_SECONDS}, "has expired"),
    ({"exp": None}, "no claim 'exp'"),
    ({"exp": "never"}, "'exp'"),
    ({"exp": float("inf")}, "'exp'"),
    ({"nbf": 1_800_000_001 + LEEWAY_SECONDS}, "not good yet: its nbf"),
    ({"iat": 1_800_000_001 + LEEWAY_SECONDS}, "not good yet: its iat"),
    ({"iat": None}, "no claim 'iat'"),
    ({"aud": "another"}, "is for 'another', and not for 'tideline'"),
    ({"aud": ["a", "b"]}, "is for 'a', 'b'"),
    ({"aud": None}, "no claim 'aud'"),
    ({"aud": 5}, "is for '5'"),
    ({"azp": "another"}, "was given to 'another'"),
    ({"aud": ["tideline", "b"], "azp": None}, "was given to 'None'"),
    ({"iss": "http://127.0.0.1/other"}, "is of 'http://127.0.0.1/other'"),
    ({"iss": None}, "no claim 'iss'"),
    ({"sub": None}, "no claim 'sub'"),
    ({"sub": ""}, "'sub'"),
    ({"sub": "a\nb"}, "'sub'"),
    ({"sub": "a" * 300}, "'sub'"),
    ({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}, "lets nobody in"),
)


def test_claims_that_do_not_fit(looked: Realm, subtests: pytest.Subtests) -> None:
    """A token that is genuine, and not good here or now: the refusal says what it held."""
    for claims, words in MISFITS:
        with subtests.test(str(claims)[:60]):
            assert words in refused(looked.get(**claims), 401, "IdentityRefused")["detail"]


def test_claims_that_just_fit(looked: Realm, subtests: pytest.Subtests) -> None:
    """Two clocks may differ a little."""
    for claims in (
        {"exp": 1_800_000_001 - LEEWAY_SECONDS},
        {"nbf": 1_800_000_000 + LEEWAY_SECONDS},
        {"nbf": None, "azp": None, "typ": None},
        {"aud": ["b", "tideline"]},
    ):
        with subtests.test(str(claims)):
            assert looked.get(**claims).status_code == 200


KIDS = ("../../etc/passwd", "one' OR '1'='1", "", "a" * 300, 5, ["one"], {"a": 1}, "http://127.0.0.1:9/")


def test_a_keys_name_is_only_compared(looked: Realm, subtests: pytest.Subtests) -> None:
    """Whatever it looks like."""
    signature = looked.provider.token().split(".")[2]
    for kid in KIDS:
        with subtests.test(str(kid)[:40]):
            head = encoded({"alg": "RS256", "kid": kid})
            refused(looked.get(token=f"{head}.{encoded(looked.provider.claims())}.{signature}"), 401, "IdentityRefused")


NO_TOKENS = ("ey..", "eyJ.a.b", "ey\u00e9.e30.x", "eyJhbGciOiJSUzI1NiJ9..", "eyJhbGciOlsxXX0.e30.x", "ey" + "W" * 900 + ".e30.x")


def test_what_is_no_token(looked: Realm, subtests: pytest.Subtests) -> None:
    """It is refused as a wrong key is."""
    for token in NO_TOKENS:
        with subtests.test(token[:40]):
            answer = looked.door.get("/whoami", headers={"Authorization": f"Bearer {token}".encode()})  # type: ignore[dict-item]
            refused(answer, 401, "IdentityRefused")


def test_deep_and_long_tokens(looked: Realm) -> None:
    """Nothing of a long one is read; one that nests without end is none."""
    long = looked.provider.token(groups=["g" * MOST_CHARACTERS])
    assert "are read" in refused(looked.get(token=long), 401, "IdentityRefused")["detail"]
    deep = base64.urlsafe_b64encode(b'{"alg":"RS256","a":' + b"[" * 7000).decode().rstrip("=")
    refused(looked.get(token=f"{deep}.e30.x"), 401, "IdentityRefused")


def test_tokens_without_a_keys_name(looked: Realm) -> None:
    """Every key that fits is tried."""
    assert looked.get(token=looked.provider.token(header={"kid": None})).status_code == 200
    key = RSAKey.generate_key(2048, {"alg": "RS256"})
    refused(looked.get(token=looked.provider.token(key, header={"kid": None})), 401, "IdentityRefused")


def test_keys_beside_tokens(looked: Realm) -> None:
    """API keys work as before, and a token does not where no provider is set up."""
    assert looked.door.get("/whoami", headers=OWN).json()["name"] == "admin"
    refused(looked.door.get("/whoami", headers={"Authorization": "Bearer tidekey_wrong"}), 401, "IdentityRefused")


def test_new_keys_are_found_without_a_restart(fresh: Realm) -> None:
    """Also of another kind. What the old one signed is good until keys are read again."""
    old = fresh.provider.token()
    assert fresh.get(token=old).status_code == 200
    fresh.provider.rotate()
    refused(fresh.get(), 401, "IdentityRefused")  # within seconds of the last reading nobody is asked
    fresh.clock.at += AGAIN_SECONDS
    assert fresh.get().status_code == 200
    refused(fresh.get(token=old), 401, "IdentityRefused")
    assert fresh.provider.asked["/certs"] == 2


def test_strangers_cannot_have_the_provider_called(fresh: Realm) -> None:
    """However many names of keys they make up; and for a token that would be refused anyway, not at all."""
    for n in range(20):
        key = ECKey.generate_key("P-256", {"kid": f"made up {n}", "alg": "ES256"})
        refused(fresh.get(token=fresh.provider.token(key)), 401, "IdentityRefused")
    assert fresh.provider.asked["/certs"] == 1
    fresh.clock.at += AGAIN_SECONDS
    key = ECKey.generate_key("P-256", {"kid": "x", "alg": "ES256"})
    for claims in ({"exp": 5}, {"iss": "http://x"}, {"aud": "y"}):
        refused(fresh.get(token=fresh.provider.token(key, **claims)), 401, "IdentityRefused")
    assert fresh.provider.asked["/certs"] == 1


def test_keys_that_are_shown_no_more_are_bad_soon(fresh: Realm) -> None:
    """They are read again every few minutes, beside the calls."""
    old = fresh.provider.token(exp=fresh.clock.at + 2 * LASTING_SECONDS)
    assert fresh.get(token=old).status_code == 200
    fresh.provider.rotate("two", "RSA")
    fresh.clock.at += FRESH_SECONDS
    fresh.get(token=old)
    assert refused(fresh.get(token=old), 401, "IdentityRefused")["detail"].endswith("does not show")


SAID = {
    "cut": "gives no usable answer",
    "page": "something else than an object of JSON",
    "too_much": "more than 262144 bytes",
    "elsewhere": "sends to http://localhost:9/keys, where nobody follows",
    "no_keys": "gives no usable answer",
    "broken": "answers 500",
}


def test_a_provider_that_fails(subtests: pytest.Subtests) -> None:
    """It is away, too. A token by a known key goes on for a day; another is 503 with what to do; keys work; then it is back."""
    for path, fault in itertools.product(("/.well-known/openid-configuration", "/certs"), FAULTS):
        with subtests.test(f"{fault} at {path}"), realm() as fresh:
            survive(fresh, path, fault)


def survive(fresh: Realm, path: str, fault: str) -> None:
    """Let an address of a provider fail before and after its keys were read."""
    known = fresh.provider.token(exp=fresh.clock.at + 2 * LASTING_SECONDS)
    fresh.provider.fault[path] = FAULTS[fault]
    answer = fresh.get(token=known)
    error = refused(answer, 503, "Unreachable")
    assert SAID[fault] in error["detail"]
    assert "API keys work without it" in error["todo"] and answer.headers["retry-after"] == "10"
    assert fresh.door.get("/whoami", headers=OWN).status_code == 200
    fresh.provider.fault = {}
    refused(fresh.get(token=known), 503, "Unreachable")  # it was asked a moment ago
    fresh.clock.at += AGAIN_SECONDS
    assert fresh.get(token=known).status_code == 200
    fresh.provider.fault[path] = FAULTS[fault]
    for seconds in (FRESH_SECONDS, LASTING_SECONDS - 2 * FRESH_SECONDS):
        fresh.clock.at += seconds
        assert fresh.get(token=known).status_code == 200
    fresh.clock.at += 2 * FRESH_SECONDS
    refused(fresh.get(token=known), 503, "Unreachable")


def test_a_provider_of_another_name(fresh: Realm) -> None:
    """A description has to be that of the issuer, byte for byte."""
    fresh.provider.fault["/.well-known/openid-configuration"] = lambda handler: handler.send(
        fresh.provider.description() | {"issuer": fresh.provider.issuer + "/"}
    )
    assert "both have to be the same" in refused(fresh.get(), 503, "Unreachable")["detail"]


def test_addresses_that_are_not_called(subtests: pytest.Subtests) -> None:
    """Without TLS only on this machine."""
    for address in ("http://idp.example/certs", "file:///etc/passwd", "https://", "https://[::1", 5):
        with subtests.test(str(address)), realm() as fresh:
            description = fresh.provider.description() | {"jwks_uri": address}
            fresh.provider.fault["/.well-known/openid-configuration"] = lambda handler, told=description: handler.send(told)
            assert "is not called" in refused(fresh.get(), 503, "Unreachable")["detail"]


def test_keys_that_are_too_weak(fresh: Realm) -> None:
    """Are as such that are not there."""
    with pytest.warns(SecurityWarning):
        fresh.provider.key = RSAKey.generate_key(1024, {"kid": "weak", "alg": "RS256"})
    fresh.provider.shown.append(fresh.provider.key)
    refused(fresh.get(), 401, "IdentityRefused")


def test_access_tokens_of_an_audience() -> None:
    """Where one is set, a token names it, whichever client it was given to; ID tokens are for another."""
    with realm(oidc_audience="https://tide.example") as made:
        assert made.get(aud="https://tide.example", azp="a robot", typ="Bearer").status_code == 200
        refused(made.get(), 401, "IdentityRefused")
        shown = made.door.get("/sign-in").json()["provider"]
        assert (shown["token"], shown["audience"]) == ("access_token", "https://tide.example")


def test_refusals_are_in_the_audit_log(fresh: Realm) -> None:
    """As those of wrong keys are; without the token."""
    token = forged(fresh)
    fresh.get(token=token)
    entries = fresh.audit("sign_in_refused")
    assert len(entries) == 1 and token[-20:] not in json.dumps(entries)


def test_a_repeated_call_is_known_again_with_another_token(fresh: Realm) -> None:
    """A token is renewed every hour; the user is the same. Another user's call under the same key is another."""
    call = {"json": {"name": "dora"}, "headers": fresh.bearer() | {"Idempotency-Key": "k"}}
    first = fresh.door.send("POST", "/invites", **call)
    fresh.clock.at += 60
    again = fresh.door.send("POST", "/invites", json=call["json"], headers=fresh.bearer() | {"Idempotency-Key": "k"})
    assert first.status_code == 201 and again.json() == first.json() and again.headers["idempotent-replayed"] == "true"
    other = fresh.bearer(sub="43") | {"Idempotency-Key": "k"}
    refused(fresh.door.send("POST", "/invites", json=call["json"], headers=other), 422, "KeyReused", "Idempotency-Key")


def test_while_it_is_away_others_are_not_held_up(fresh: Realm) -> None:
    """One that is known does not wait for one that is not."""
    assert fresh.get().status_code == 200
    fresh.provider.fault["/certs"] = cut
    fresh.clock.at += AGAIN_SECONDS
    key = ECKey.generate_key("P-256", {"kid": "x", "alg": "ES256"})
    refused(fresh.get(token=fresh.provider.token(key)), 503, "Unreachable")
    assert fresh.get().status_code == 200
