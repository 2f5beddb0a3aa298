"""Users of a provider, by its token or a browser's session. What they may do is looked up at each call."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from joserfc.jwk import Key

from tideline.core.errors import IdentityRefused
from tideline.engine.coordinator.api_keys import Caller, hash_of
from tideline.engine.model.access.grants import Grant, granted, highest
from tideline.engine.model.access.projects import SEVERAL
from tideline.engine.model.access.user_sessions import UserSession
from tideline.engine.model.accounts import KeyRole
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal
from tideline_server.browsers.sessions import Begun
from tideline_server.oidc.claims import Claims, granting, name_of
from tideline_server.oidc.keys import ProviderKeys
from tideline_server.oidc.options import OidcOptions
from tideline_server.oidc.tokens import Head, check_claims, check_signature, head_of

BEGIN = "Sign in again at /sign-in/start"


class SignIn:
    """Users of one provider. Any number of threads.

    secret: something that all replicas have and no store has; by it a user's calls are known again (idempotency).
    """

    def __init__(self, options: OidcOptions, keys: ProviderKeys, journal: Journal, clock: Clock, secret: str = "") -> None:
        self.options, self.keys = options, keys
        self._journal, self._clock, self._secret = journal, clock, secret

    @property
    def issuer(self) -> str:
        return self.options.issuer

    def at_once(self, token: str) -> Caller | None:
        """Whose token it is; None where the provider's keys have to be read for that. Never blocks. Raises as `caller`."""
        head = head_of(token)
        keys = self.keys.at_once(head.kid, head.algorithm)
        return self._caller(self._checked(token, head, keys)) if keys else None

    def caller(self, token: str) -> Caller:
        """Whose token it is. Raises IdentityRefused, PermissionRefused for a user without a role, and Unreachable."""
        return self._caller(self.claims(token))

    def claims(self, token: str) -> Claims:
        """What a token claims that is genuine, for this coordinator, and good now. Raises IdentityRefused, Unreachable."""
        head = head_of(token)
        check_claims(head.claims, self.options, self._clock.now())  # what is refused anyway has nobody ask the provider
        keys = self.keys.find(head.kid, head.algorithm)
        if not keys:
            what = "The token is signed by a key that the provider does not show"
            raise IdentityRefused(what, "Sign in again; just after the provider has changed its keys, wait some seconds")
        return self._checked(token, head, keys)

    def _checked(self, token: str, head: Head, keys: Sequence[Key]) -> Claims:
        claims = check_signature(token, head, keys)
        check_claims(claims, self.options, self._clock.now())
        return claims

    def _caller(self, claims: Claims) -> Caller:
        values = granting(claims, self.options.claim, self.options.rules, self.options.issuer)
        return self._user(name_of(claims, self.options.issuer), str(claims["sub"]), values)

    def _user(self, name: str, subject: str, values: Sequence[str]) -> Caller:
        grants = granted(self.options.rules, values)
        user = f"idempotency of {self.options.issuer}\n{subject}"
        secret = hmac.new(self._secret.encode(), user.encode(), hashlib.sha256).hexdigest()
        return Caller(name, most(grants), secret, SEVERAL, whole=False, grants=grants)

    def begin(self, claims: Claims, secret: str, state: str) -> Begun:
        """A session for who has just signed in. Raises PermissionRefused, and IdentityRefused for a sign-in that began one."""
        options, now = self.options, self._clock.now()
        values = granting(claims, options.claim, options.rules, options.issuer)
        hashed = hash_of(secret)
        session = UserSession(
            id=hashed[:16],
            token_hash=hashed,
            state_hash=hash_of(state),
            issuer=options.issuer,
            subject=str(claims["sub"]),
            name=name_of(claims, options.issuer),
            values=values,
            created=now,
            expires=now + options.seconds,
        )
        if not self._journal.begin_user_session(session):
            raise IdentityRefused("This sign-in was finished before", BEGIN)
        return Begun(session, secret)

    def of_session(self, session: UserSession) -> Caller:
        """Whose session it is, by what is granted now. Raises PermissionRefused."""
        return self._user(session.name, session.subject, session.values)


def most(grants: Sequence[Grant]) -> KeyRole:
    """The highest role of a user in any project: what the calls about oneself show. None: a viewer, who sees nothing."""
    return highest(grants, *(grant.project for grant in grants)) or KeyRole.VIEWER
