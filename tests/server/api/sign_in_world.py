"""A coordinator whose users sign in with a provider of identities on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
from api_world import QUICK, Coordinator
from listening import listening

from tests.oidc.provider import CLIENT, Clock, Provider
from tideline.engine.coordinator.api_keys import hash_of
from tideline.oidc.fetching import Fetcher
from tideline_server.api import create_app
from tideline_server.oidc.browser import BrowserSignIn
from tideline_server.oidc.callers import SignIn
from tideline_server.oidc.keys import ProviderKeys
from tideline_server.oidc.options import options_of
from tideline_server.settings import CoordinatorSettings

OWN = {"Authorization": "Bearer the home's key"}
GRANTS = (
    "cardio-ops=operator:cardio",
    "retina-look=viewer:retina",
    "retina-ops=operator:retina",
    "tide-admins=admin",
    "auditors=viewer:all",
)


class Realm:
    """The provider, the coordinator and their clock."""

    def __init__(self, provider: Provider, **settings: Any) -> None:
        self.provider, self.clock = provider, provider.clock
        given = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_grant": GRANTS} | settings
        options = options_of(CoordinatorSettings(**given))
        assert options is not None
        self.door = Coordinator(api_key_hash=hash_of("the home's key"))
        self.reader = ThreadPoolExecutor(1)
        self.keys = ProviderKeys(Fetcher(), provider.issuer, self.clock, self.read_now)
        self.door.services = replace(self.door.services, clock=self.clock, browser=self.users(self.door, options))
        self.door.app = create_app(self.door.services, QUICK)
        for name in ("cardio", "retina"):
            assert self.door.post("/projects", {"name": name}, headers=OWN).status_code == 201

    def read_now(self, work: Any) -> None:
        """What is to be done beside a call is done at once, on another thread as there is a loop on this one."""
        self.reader.submit(work).result()

    def users(self, door: Coordinator, options: Any) -> BrowserSignIn:
        """What signs users in at a coordinator."""
        return BrowserSignIn(SignIn(options, self.keys, door.services.journal, self.clock, "pepper"), Fetcher())

    def bearer(self, **changes: Any) -> dict[str, str]:
        """The header of a new token."""
        return {"Authorization": f"Bearer {self.provider.token(**changes)}"}

    def get(self, path: str = "/whoami", token: str | None = None, **changes: Any) -> httpx.Response:
        """A GET with a token: this one, or a new one with other claims."""
        headers = self.bearer(**changes) if token is None else {"Authorization": f"Bearer {token}"}
        return self.door.get(path, headers=headers)


@contextlib.contextmanager
def realm(secret: str = "", **settings: Any) -> Iterator[Realm]:
    """A provider that serves, and its coordinator."""
    with Provider(Clock(), secret).serving() as provider:
        yield Realm(provider, **settings)


@contextlib.contextmanager
def browsing(realm: Realm) -> Iterator[httpx.Client]:
    """A browser, of which a coordinator at a port of its own is to be called."""
    with listening(0, door=realm.door) as (host, port):
        base = f"http://{host}:{port}"
        realm.provider.redirects.add(f"{base}/sign-in/callback")
        with httpx.Client(base_url=base, trust_env=False, timeout=20.0) as client:
            yield client


def sign_in(client: httpx.Client, leads: str = "") -> httpx.Response:
    """All redirects of a sign-in; the answer of the callback."""
    started = client.get("/sign-in/start", params={"next": leads} if leads else {})
    assert started.status_code == 303, started.text
    agreed = client.get(started.headers["location"])
    assert agreed.status_code == 302, agreed.text
    return client.get(agreed.headers["location"])
