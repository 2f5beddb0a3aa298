"""A coordinator whose users sign in with a provider of identities on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from api_world import OWN, locked
from listening import Port

from tests.oidc.provider import CLIENT, Clock, Provider
from tideline.oidc.fetching import Fetcher
from tideline_server.oidc.browser import BrowserSignIn
from tideline_server.oidc.callers import SignIn
from tideline_server.oidc.keys import ProviderKeys
from tideline_server.oidc.options import options_of
from tideline_server.settings import CoordinatorSettings

FETCHER = Fetcher()  # it keeps nothing of a call, and takes a while to make
GRANTS = (
    "cardio-ops=operator:cardio",
    "retina-look=viewer:retina",
    "retina-ops=operator:retina",
    "tide-admins=admin",
    "auditors=viewer:all",
)


class Realm:
    """The provider, the coordinator and their clock."""

    def __init__(self, provider: Provider, reader: ThreadPoolExecutor, **settings: Any) -> None:
        self.provider, self.clock, self.reader = provider, provider.clock, reader
        given = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_grant": GRANTS} | settings
        options = options_of(CoordinatorSettings(**given))
        assert options is not None
        self.door = locked()
        keys = ProviderKeys(FETCHER, provider.issuer, self.clock, self.read_now)
        sign_in = SignIn(options, keys, self.door.services.journal, self.clock, "pepper")
        self.door.wear(clock=self.clock, browser=BrowserSignIn(sign_in, FETCHER))
        for name in ("cardio", "retina"):
            self.door.add_project(name)

    def read_now(self, work: Any) -> None:
        """Do at once what is to be done beside a call; on another thread, as there is a loop on this one."""
        self.reader.submit(work).result()

    def bearer(self, **changes: Any) -> dict[str, str]:
        """The header of a new token."""
        return {"Authorization": f"Bearer {self.provider.token(**changes)}"}

    def get(self, path: str = "/whoami", token: str | None = None, **changes: Any) -> httpx.Response:
        """A GET with a token: this one, or a new one with other claims."""
        headers = self.bearer(**changes) if token is None else {"Authorization": f"Bearer {token}"}
        return self.door.get(path, headers=headers)

    def audit(self, kind: str) -> list[dict[str, Any]]:
        """The entries of a kind in the audit log."""
        return list(self.door.get(f"/audit?kind={kind}", headers=OWN).json())


@contextlib.contextmanager
def realm(secret: str = "", **settings: Any) -> Iterator[Realm]:
    """A provider that serves, and its coordinator."""
    with Provider(Clock(), secret).serving() as provider, ThreadPoolExecutor(1) as reader:
        yield Realm(provider, reader, **settings)


@contextlib.contextmanager
def browsing(realm: Realm, port: Port) -> Iterator[httpx.Client]:
    """A browser that calls the realm's coordinator at a port."""
    realm.provider.redirects.add(f"{port.url}/sign-in/callback")
    with port.browser(realm.door.app) as client:
        yield client


def sign_in(client: httpx.Client, leads: str = "") -> httpx.Response:
    """All redirects of a sign-in; the answer of the callback."""
    started = client.get("/sign-in/start", params={"next": leads} if leads else {})
    assert started.status_code == 303, started.text
    agreed = client.get(started.headers["location"])
    assert agreed.status_code == 302, agreed.text
    return client.get(agreed.headers["location"])
