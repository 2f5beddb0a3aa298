"""Sessions of browsers: one's own, and for admins those of all."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tideline.core.errors import NotFound
from tideline.engine.model.access.projects import ALL
from tideline.engine.model.access.user_sessions import UserSession
from tideline_server.api.models import GrantLine, SessionLine, SessionShown
from tideline_server.api.requests.access import Asking
from tideline_server.api.requests.cookies import SESSION, drop_cookie, own_address
from tideline_server.api.services import Given, Name, Named, Services
from tideline_server.oidc.callers import Begun, SignIn

router = APIRouter(tags=["sign-in"])


@router.get("/session", summary="Show your browser's session")
def show_session(request: Request, response: Response, asking: Asking) -> SessionShown:
    """Whose it is, and `csrf`: the value of the header `Tideline-CSRF`, which each change with this session needs."""
    begun, response.headers["Cache-Control"] = begun_in(request), "no-store"
    session = begun.session
    grants = [GrantLine(role=grant.role.value, project=grant.project or ALL) for grant in asking.grants]
    return SessionShown(
        name=session.name,
        issuer=session.issuer,
        subject=session.subject,
        expires=session.expires,
        csrf=begun.csrf,
        grants=grants,
    )


@router.post("/sign-out", summary="End your browser's session")
def sign_out(request: Request, response: Response, services: Given, asking: Asking) -> SessionLine:
    """At once, at every replica. The provider's own session goes on."""
    begun, users = begun_in(request), users_of(services)
    drop_cookie(response, SESSION, own_address(request.scope, users.options.url))
    return line(users.end(begun.session.id, asking.name))


@router.get("/sessions", summary="List the sessions of browsers")
def list_sessions(services: Given) -> list[SessionLine]:
    """The oldest first, also those that ended within the last week."""
    return [line(each) for each in services.journal.user_sessions()]


@router.delete("/sessions/{name}", summary="End a session")
def end_session(services: Given, identity: Named, name: Name) -> SessionLine:
    """At once, at every replica. Its user may sign in again, as long as the provider and the grants let him."""
    return line(users_of(services).end(name, identity.by))


def begun_in(request: Request) -> Begun:
    """The session that a call came with. Raises NotFound for a call with a key or a token."""
    found: Begun | None = getattr(request.state, "begun", None)
    if found is None:
        raise NotFound("This call came without a browser's session", "Sign in at /sign-in/start; keys and tokens have none")
    return found


def users_of(services: Services) -> SignIn:
    """Raises NotFound where users do not sign in with a provider."""
    if services.browser is None:
        raise NotFound("Users of this coordinator do not sign in with a provider", "Nothing is to be done")
    return services.browser.sign_in


def line(row: UserSession) -> SessionLine:
    """A session as it is listed: without hashes, for which a line has no place."""
    return SessionLine(**{name: value for name, value in vars(row).items() if name in SessionLine.model_fields})
