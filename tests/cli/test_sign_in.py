"""Sign-in of the command line with a provider: by a code, renewed, ended; against a real provider and a real coordinator."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import KEY, Coordinator, assert_refuses, refusal_of, tide
from tests.oidc.provider import CLIENT, FAULTS, HOUR, SECRET, Provider
from tideline.client.logins import Login, file_of_logins, logins, save
from tideline.client.sign_in import MARGIN_SECONDS, Device, Renewal, Way, log_in
from tideline.core.errors import ConfigRefused, FederationError, IdentityRefused, Refused, Unreachable
from tideline_server.api import create_app
from tideline_server.main import WallClock
from tideline_server.oidc.building import sign_in_of
from tideline_server.oidc.options import options_of
from tideline_server.settings import CoordinatorSettings


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that agrees at the first poll, at the time of this machine."""
    with Provider(WallClock()).serving() as made:
        made.refusals, made.interval = [], 0.0
        yield made


@pytest.fixture
def there(tmp_path: Path, data: dict[str, Path], provider: Provider) -> Iterator[Coordinator]:
    """A coordinator whose users sign in with it."""
    made = Coordinator(tmp_path / "home", data)
    extend(made, provider)
    with made.open() as opened:
        yield opened


def extend(made: Coordinator, provider: Provider, **settings: Any) -> None:
    grants = ("cardio-ops=operator", "admins=admin", "both=viewer:retina", "both=operator:default")
    given = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_grant": grants} | settings
    options = options_of(CoordinatorSettings(**given))
    assert options is not None
    services, clock = made.app.state.services, WallClock()
    browser = sign_in_of(options, services.journal, clock, "pepper")
    made.app = create_app(replace(services, clock=clock, browser=browser))


def way(provider: Provider, token: str = "id_token") -> Way:
    return Way(provider.issuer, CLIENT, "openid profile", token)


class Waiting:
    """A clock that moves when somebody pauses."""

    def __init__(self) -> None:
        self.at, self.pauses = 0.0, list[float]()

    def pause(self, seconds: float) -> None:
        self.at += seconds
        self.pauses.append(seconds)

    def now(self) -> float:
        return self.at


def signed_in(provider: Provider, waiting: Waiting, token: str = "id_token") -> tuple[Login, list[Device]]:
    shown: list[Device] = []
    return log_in(way(provider, token), None, shown.append, waiting.pause, waiting.now), shown


def test_login_and_logout(there: Coordinator, provider: Provider) -> None:
    """The code is shown; the tokens are saved for this user alone, and not printed; later commands use them; both ends forget."""
    told = tide("login", "--oidc", "--url", there.url)
    assert told.exit_code == 0, told.output
    assert "WDJB-MJHT" in told.stderr and f"{provider.issuer}/activate" in told.stderr
    assert f"Logged in to {there.url} as alice <{provider.issuer}#42>, operator in the project default" in told.stdout
    saved = logins()[there.url]
    assert stat.S_IMODE(file_of_logins().stat().st_mode) == 0o600
    assert saved.key not in told.output and saved.refresh not in told.output and saved.refresh
    assert tide("run", "list", "--url", there.url).exit_code == 0
    assert "is an operator; listing the keys needs admin" in refusal_of(tide("keys", "list", "--url", there.url))
    assert tide("logout", "--url", there.url).exit_code == 0
    assert provider.revoked == [saved.refresh] and logins() == {}


def test_json_shows_no_token(there: Coordinator) -> None:
    told = tide("login", "--oidc", "--url", there.url, "--json")
    saved, shown = logins()[there.url], json.loads(told.stdout.splitlines()[-1])
    assert shown["role"] == "operator" and shown["issuer"] == saved.issuer
    assert saved.key not in told.output and saved.refresh not in told.output


def test_several_projects(there: Coordinator, provider: Provider) -> None:
    provider.user["groups"] = ["both"]
    assert tide("projects", "add", "retina", "--url", there.url, "--api-key", KEY).exit_code == 0
    told = tide("login", "--oidc", "--url", there.url)
    assert "operator in default, viewer in retina: name the project" in told.stdout
    assert "--project" in refusal_of(tide("run", "list", "--url", there.url))
    assert tide("run", "list", "--url", there.url, "--project", "retina").exit_code == 0


def test_without_a_role_nothing_is_saved(there: Coordinator, provider: Provider) -> None:
    provider.user["groups"] = ["nurses"]
    assert "'nurses'" in refusal_of(tide("login", "--oidc", "--url", there.url)) and not file_of_logins().exists()


def test_where_there_is_no_way(tmp_path: Path, data: dict[str, Path], provider: Provider) -> None:
    """Without a provider, and without a public client; a key is named as the other way."""
    plain = Coordinator(tmp_path / "home", data)
    with plain.open():
        assert "do not sign in with a provider" in refusal_of(tide("login", "--oidc", "--url", plain.url))
    extend(plain, provider, oidc_client_secret=SECRET)
    with plain.open():
        assert_refuses(tide("login", "--oidc", "--url", plain.url), "no public client", "--oidc-cli-client-id")


def test_sessions_of_browsers(there: Coordinator) -> None:
    listed = tide("sessions", "list", "--url", there.url, "--api-key", KEY, "--json")
    assert json.loads(listed.stdout) == []
    assert_refuses(tide("sessions", "revoke", "0123456789abcdef", "--url", there.url, "--api-key", KEY), "tideline sessions list")


def test_the_provider_is_asked_as_often_as_it_says(provider: Provider) -> None:
    provider.interval, waiting = 5, Waiting()
    provider.refusals = ["authorization_pending", "slow_down", "authorization_pending"]
    login, (device,) = signed_in(provider, waiting)
    assert waiting.pauses == [5, 5, 10, 10] and device.user_code == "WDJB-MJHT"
    assert login.issuer == provider.issuer and login.refresh and float(login.expires) > time.time() + HOUR - 60


def test_a_provider_that_is_away_meanwhile(provider: Provider) -> None:
    provider.interval, waiting = 5, Waiting()
    provider.fault["/token"] = FAULTS["cut"]
    with pytest.raises(IdentityRefused, match="Nobody agreed"):
        signed_in(provider, waiting)
    assert waiting.pauses[:5] == [5, 10, 20, 40, 60] and len(waiting.pauses) < 20


@pytest.mark.parametrize("word", ["access_denied", "expired_token", "invalid_grant", "\x1b[31mred"])
def test_a_user_who_refuses(provider: Provider, word: str) -> None:
    """Gets no login, and the provider's word for it without what would steer a terminal."""
    provider.refusals = [word]
    with pytest.raises(IdentityRefused) as told:
        signed_in(provider, Waiting())
    assert told.value.what.isprintable()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/device"])
def test_a_provider_that_fails(provider: Provider, path: str, fault: str) -> None:
    provider.fault[path] = FAULTS[fault]
    with pytest.raises(FederationError) as told:
        signed_in(provider, Waiting())
    assert told.value.todo and isinstance(told.value, Unreachable | Refused)


def test_a_provider_without_device_codes(provider: Provider) -> None:
    provider.without = {"device_authorization_endpoint"}
    with pytest.raises(Unreachable, match="no device_authorization_endpoint"):
        signed_in(provider, Waiting())


@pytest.mark.parametrize("issuer", ["http://idp.example", "ftp://x", "x", "https://u:p@h", "https://h?x=1"])
def test_a_coordinator_names_no_provider_without_tls(issuer: str) -> None:
    shown = {"provider": {"issuer": issuer, "client": "x", "scopes": "openid", "token": "id_token"}}
    with pytest.raises(ConfigRefused):
        Way.of(shown, "http://127.0.0.1:1")


def test_access_tokens_where_those_are_asked_for(provider: Provider) -> None:
    login, _ = signed_in(provider, Waiting(), "access_token")
    ours, _ = signed_in(provider, Waiting())
    assert login.token == "access_token" and login.key.split(".")[1] != ours.key.split(".")[1]


def test_a_token_is_renewed_before_it_ends(there: Coordinator, provider: Provider) -> None:
    tide("login", "--oidc", "--url", there.url)
    first = logins()[there.url]
    save(there.url, replace(first, expires=str(time.time() + MARGIN_SECONDS - 1)))
    assert tide("run", "list", "--url", there.url).exit_code == 0
    second = logins()[there.url]
    assert second.refresh != first.refresh and float(second.expires) > time.time() + MARGIN_SECONDS
    assert tide("run", "list", "--url", there.url).exit_code == 0
    assert logins()[there.url] == second


def test_of_several_commands_one_renews(there: Coordinator, provider: Provider) -> None:
    tide("login", "--oidc", "--url", there.url)
    save(there.url, replace(logins()[there.url], expires="5"))
    before, found = provider.asked["/token"], list[str]()
    renewals = [Renewal(there.url, logins()[there.url]) for _ in range(4)]
    threads = [threading.Thread(target=lambda each=each: found.append(each.current())) for each in renewals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1 and provider.asked["/token"] == before + 1


def test_a_token_that_cannot_be_renewed(there: Coordinator, provider: Provider) -> None:
    """Is used while it is good; then the user hears what to do. A provider that is away is another thing."""
    tide("login", "--oidc", "--url", there.url)
    provider.refreshes.clear()
    save(there.url, replace(logins()[there.url], expires=str(time.time() + MARGIN_SECONDS / 2)))
    assert tide("run", "list", "--url", there.url).exit_code == 0
    save(there.url, replace(logins()[there.url], expires="5"))
    assert_refuses(tide("run", "list", "--url", there.url), "tideline login --oidc", "invalid_grant")
    provider.fault["/token"] = FAULTS["cut"]
    assert tide("run", "list", "--url", there.url).exit_code == 3
    save(there.url, replace(logins()[there.url], refresh=""))
    assert "nothing to renew it with" in tide("run", "list", "--url", there.url).stderr


@pytest.mark.nightly(job="services")
def test_logging_out_while_the_provider_is_away(there: Coordinator, provider: Provider) -> None:
    """The tokens are forgotten here, and the user hears that they are not ended there."""
    for fault in ("cut", "broken", None):
        tide("login", "--oidc", "--url", there.url)
        provider.fault = {"/revoke": FAULTS[fault]} if fault else {}
        provider.without = set() if fault else {"revocation_endpoint"}
        told = tide("logout", "--url", there.url)
        assert told.exit_code == 0 and "Note: " in told.stderr and logins() == {}
