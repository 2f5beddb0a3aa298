"""Sign-in of the command line: by a code that the user types at the provider (RFC 8628), and renewed before it ends."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tideline.client.logins import Login, file_of_logins, locked, logins, save
from tideline.client.output import clean
from tideline.core.errors import FederationError, IdentityRefused, Refused, Unreachable
from tideline.oidc.fetching import Fetcher, check_issuer
from tideline.oidc.provider import DEVICE_GRANT, Metadata, ProviderRefused, client_of, discover

MARGIN_SECONDS = 60.0  # before its end a token is renewed
SLOWER_SECONDS = 5.0  # by which a provider that is asked too often is asked less often
LEAST_PAUSE, MOST_PAUSE = 0.5, 60.0
OFFLINE = "offline_access"  # the scope for which providers give a token that renews others
AGAIN = "Log in again: tideline login --oidc"


@dataclass(frozen=True)
class Device:
    """What a user types, where, and how often the provider may be asked whether he has."""

    code: str
    user_code: str
    page: str
    whole_page: str
    pause: float
    seconds: float


@dataclass(frozen=True)
class Way:
    """How the command line signs in at a coordinator, as it says itself."""

    issuer: str
    client: str
    scopes: str
    token: str

    @classmethod
    def of(cls, shown: Mapping[str, Any], url: str) -> Way:
        """From `GET /sign-in`. Raises Refused where that is no way."""
        provider = shown.get("provider")
        if not isinstance(provider, Mapping):
            raise Refused(f"Users of {url} do not sign in with a provider", "Log in with a key: tideline login --url URL")
        if not provider.get("client"):
            todo = "Have it started with --oidc-cli-client-id, or log in with a key"
            raise Refused(f"The coordinator at {url} has no public client for command lines", todo)
        way = cls(**{name: str(provider.get(name, "")) for name in cls.__dataclass_fields__})
        check_issuer(way.issuer, False, "issuer")
        return way


def log_in(
    way: Way,
    ca: Path | None,
    show: Callable[[Device], None],
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Login:
    """A login, once the user has agreed at the provider. Raises IdentityRefused, Refused, Unreachable."""
    fetcher = Fetcher(ca)
    metadata = discover(fetcher, way.issuer)
    device = begin(fetcher, metadata, way)
    show(device)
    tokens = waited(fetcher, metadata, way, device, pause, now)
    return login_of(Login("", issuer=way.issuer, client=way.client, token=way.token, ca=str(ca or "")), tokens)


def begin(fetcher: Fetcher, metadata: Metadata, way: Way) -> Device:
    """Ask for a code. Raises Refused, Unreachable."""
    scopes = " ".join(dict.fromkeys([*way.scopes.split(), OFFLINE]))
    asked = {"client_id": way.client, "scope": scopes}
    reply = fetcher.post(metadata.needed("device_authorization_endpoint"), asked)
    if reply.status_code >= 400:
        what = f"The provider {way.issuer} gives no code: {clean(str(reply.content.get('error', reply.status_code)))[:80]}"
        raise Refused(what, f"Have the device authorization grant switched on for its client {way.client}")
    found = reply.content
    try:
        return Device(
            code=str(found["device_code"]),
            user_code=clean(str(found["user_code"])),
            page=clean(str(found["verification_uri"])),
            whole_page=clean(str(found.get("verification_uri_complete", ""))),
            pause=float(found.get("interval", 5)),
            seconds=float(found.get("expires_in", 600)),
        )
    except (KeyError, TypeError, ValueError):
        raise Unreachable(f"The provider {way.issuer} gives a code that makes no sense", "Tell who runs it") from None


def waited(
    fetcher: Fetcher,
    metadata: Metadata,
    way: Way,
    device: Device,
    pause: Callable[[float], None],
    now: Callable[[], float],
) -> Mapping[str, Any]:
    """The tokens. Raises IdentityRefused where the user refuses, or takes too long."""
    client, until, seconds = client_of(fetcher, metadata, way.client), now() + device.seconds, device.pause
    while now() < until:
        seconds = min(max(seconds, LEAST_PAUSE), MOST_PAUSE)
        pause(seconds)
        try:
            found: Mapping[str, Any] = client.fetch_token(
                metadata.needed("token_endpoint"), grant_type=DEVICE_GRANT, device_code=device.code
            )
            return found
        except ProviderRefused as error:
            if error.error not in ("authorization_pending", "slow_down"):
                raise IdentityRefused(f"The provider refuses: {clean(str(error.error))[:80]}", AGAIN) from None
            seconds += SLOWER_SECONDS if error.error == "slow_down" else 0.0
        except Unreachable:
            seconds *= 2
    raise IdentityRefused("Nobody agreed at the provider in time", AGAIN)


def login_of(before: Login, tokens: Mapping[str, Any]) -> Login:
    """A login with new tokens. A provider that sends no new refresh token lets the old one be used on."""
    key = tokens.get(before.token)
    if not isinstance(key, str) or not key.isascii() or " " in key:
        raise IdentityRefused(
            f"The provider sent no {before.token}", "Let the scope openid be among the coordinator's --oidc-scopes"
        )
    refresh = tokens.get("refresh_token") or before.refresh
    return replace(before, key=key, refresh=str(refresh), expires=end_of(key, tokens))


def end_of(key: str, tokens: Mapping[str, Any]) -> str:
    """When a token ends, in seconds since the epoch, as it says itself, or as was said with it. The coordinator checks it."""
    try:
        body = key.split(".")[1]
        return str(float(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]))
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return str(time.time() + float(tokens.get("expires_in") or 300))


class Renewal:
    """The token of a login, renewed before it ends. Of several commands at once one renews it, and the others use that."""

    def __init__(self, url: str, login: Login, now: Callable[[], float] = time.time) -> None:
        self._url, self._login, self._now = url, login, now

    def current(self) -> str:
        """A token that is good for a while. Raises IdentityRefused, Unreachable."""
        if self._left(self._login) > MARGIN_SECONDS:
            return self._login.key
        with locked(file_of_logins().with_name("renewal.toml")):
            login = logins().get(self._url, self._login)
            if self._left(login) <= MARGIN_SECONDS:
                login = self._renewed(login)
            self._login = login
        return login.key

    def _left(self, login: Login) -> float:
        return float(login.expires or 0) - self._now()

    def _renewed(self, login: Login) -> Login:
        """A login with a new token, saved. The old one where that fails and it is still good."""
        try:
            renewed = login_of(login, refreshed(login))
        except FederationError:
            if self._left(login) > 0:
                return login
            raise
        save(self._url, renewed)
        return renewed


def refreshed(login: Login) -> Mapping[str, Any]:
    """New tokens. Raises IdentityRefused where the provider gives none, and Unreachable."""
    if not login.refresh:
        raise IdentityRefused("The sign-in has ended, and the provider gave nothing to renew it with", AGAIN)
    fetcher = Fetcher(Path(login.ca) if login.ca else None)
    metadata = discover(fetcher, login.issuer)
    try:
        found: Mapping[str, Any] = client_of(fetcher, metadata, login.client).refresh_token(
            metadata.needed("token_endpoint"), refresh_token=login.refresh
        )
    except ProviderRefused as error:
        what = f"The provider does not renew the sign-in: {clean(str(error.error))[:80]}"
        raise IdentityRefused(what, AGAIN) from None
    return found


def revoke(login: Login) -> bool:
    """End a login's tokens at the provider. False where it has no address for that. Raises Refused, Unreachable."""
    fetcher = Fetcher(Path(login.ca) if login.ca else None)
    metadata = discover(fetcher, login.issuer)
    if not metadata.revocation_endpoint or not login.refresh:
        return False
    client = client_of(fetcher, metadata, login.client)
    reply = client.revoke_token(metadata.revocation_endpoint, token=login.refresh, token_type_hint="refresh_token")
    if reply.status_code >= 400:
        raise Refused(f"The provider {login.issuer} answers {reply.status_code}", "End the session there")
    return True
