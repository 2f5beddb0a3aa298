"""Sign-in with a browser: authorization code with PKCE. What has to be remembered meanwhile, the browser keeps in a cookie."""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from authlib.common.security import generate_token

from tideline.core.errors import ConfigRefused, IdentityRefused
from tideline.oidc.fetching import Fetcher
from tideline.oidc.provider import ProviderRefused, client_of
from tideline_server.browsers.sessions import Begun
from tideline_server.oidc.callers import BEGIN, SignIn
from tideline_server.oidc.claims import Claims, printable

CALLBACK = "/sign-in/callback"
HOME, MANUAL = "/", "/docs"  # where a sign-in leads that names no address: to the dashboard, or to the manual
LONGEST_NEXT = 1000
OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # visible ASCII without a backslash, which browsers take for a slash


@dataclass(frozen=True)
class Pending:
    """A sign-in that was begun in a browser: what comes back has to fit it."""

    state: str
    nonce: str
    verifier: str
    next: str

    @property
    def text(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode().rstrip("=")


@dataclass(frozen=True)
class Returned:
    """What a browser brings back from the provider."""

    state: str
    code: str = ""
    error: str = ""
    issuer: str = ""


class BrowserSignIn:
    """Sign-ins of browsers with one provider. Any number of threads; both steps may wait for the provider.

    home: where a sign-in leads that names no address.
    """

    def __init__(self, sign_in: SignIn, fetcher: Fetcher, home: str = HOME) -> None:
        self.sign_in, self._fetcher, self._home = sign_in, fetcher, home

    def start(self, own: str, asked: str) -> tuple[str, Pending]:
        """The provider's address to go to, and what the browser has to bring back. own: this coordinator's address.

        Raises ConfigRefused, Unreachable.
        """
        pending = Pending(generate_token(32), generate_token(32), generate_token(64), local_path(asked or self._home))
        options, metadata = self.sign_in.options, self.sign_in.keys.metadata()
        client = client_of(self._fetcher, metadata, options.client, redirect_uri=own + CALLBACK, scope=options.scopes)
        address, _ = client.create_authorization_url(
            metadata.needed("authorization_endpoint"),
            state=pending.state,
            code_verifier=pending.verifier,
            nonce=pending.nonce,
        )
        return str(address), pending

    def finish(self, own: str, pending: Pending, returned: Returned) -> Begun:
        """The session. Raises IdentityRefused, PermissionRefused, Unreachable."""
        check_returned(pending, returned, self.sign_in.options.issuer)
        claims = self.sign_in.claims(self._id_token(own, pending, returned.code))
        check_nonce(claims, pending)
        return self.sign_in.begin(claims, secrets.token_urlsafe(32), pending.state)

    def _id_token(self, own: str, pending: Pending, code: str) -> str:
        options, metadata = self.sign_in.options, self.sign_in.keys.metadata()
        client = client_of(self._fetcher, metadata, options.client, options.secret, redirect_uri=own + CALLBACK)
        try:
            found = client.fetch_token(
                metadata.needed("token_endpoint"),
                grant_type="authorization_code",
                code=code,
                code_verifier=pending.verifier,
            )
        except ProviderRefused as error:
            what = f"The provider does not take this sign-in: {printable(str(error.error))}"
            raise IdentityRefused(what, f"{BEGIN}; if it stays so, its log and the client's settings there say more") from None
        token = found.get("id_token")
        if not isinstance(token, str):
            raise IdentityRefused("The provider sent no ID token", "Let the scope openid be among --oidc-scopes")
        return token


def check_returned(pending: Pending, returned: Returned, issuer: str) -> None:
    """Raises IdentityRefused for what does not belong to the sign-in that this browser has begun, or was refused."""
    if not hmac.compare_digest(pending.state.encode(), returned.state.encode()):
        raise IdentityRefused("This is not the sign-in that was begun in this browser", BEGIN)
    if returned.issuer and returned.issuer != issuer:
        raise IdentityRefused("Another provider answers than the one that was asked", BEGIN)
    if returned.error:
        raise IdentityRefused(f"The provider refused the sign-in: {printable(returned.error)}", BEGIN)
    if not returned.code:
        raise IdentityRefused("The provider sent no code", BEGIN)


def check_nonce(claims: Claims, pending: Pending) -> None:
    """Raises IdentityRefused for a token that was made for another sign-in, or for another client."""
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), pending.nonce.encode()):
        raise IdentityRefused("The provider's token was made for another sign-in", BEGIN)


def local_path(asked: str) -> str:
    """Where a sign-in leads: an address of this coordinator. Raises ConfigRefused for any other."""
    if len(asked) > LONGEST_NEXT or not OWN_PATH.fullmatch(asked) or urlsplit(asked).netloc:
        what = "next is no address of this coordinator"
        raise ConfigRefused(what, "Give a path that begins with one slash, such as /docs", path="next")
    return asked


def pending_in(text: str) -> Pending:
    """The sign-in that a browser remembers. Raises IdentityRefused."""
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        pending = Pending(**{name: str(found[name]) for name in Pending.__dataclass_fields__})
        local_path(pending.next)
    except (ValueError, KeyError, TypeError, RecursionError, ConfigRefused):
        raise IdentityRefused("This browser has begun no sign-in within the last ten minutes", BEGIN) from None
    return pending
