"""Sessions of browsers: one's own, and for admins those of all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from tideline.core.errors import NotFound
from tideline.engine.coordinator.api_keys import Caller
from tideline.engine.model.access.projects import ALL
from tideline.engine.model.access.user_sessions import UserSession
from tideline_server.api.models import GrantLine
from tideline_server.api.requests.access import Asking
from tideline_server.api.requests.admission import Admission
from tideline_server.api.requests.cookies import SESSION, drop_cookie
from tideline_server.api.services import Given, Name, Named
from tideline_server.api.session_models import SessionLine, SessionShown
from tideline_server.browsers.sessions import OF_KEYS, Begun

router = APIRouter(tags=["sign-in"])


async def admission_of(request: Request) -> Admission:
    admission: Admission = request.app.state.admission
    return admission


Admitting = Annotated[Admission, Depends(admission_of)]


@router.get("/session", summary="Show your browser's session")
def show_session(request: Request, response: Response, admission: Admitting, asking: Asking) -> SessionShown:
    """Whose it is, and `csrf`: the value of the header `Tideline-CSRF`, which each change with this session needs."""
    response.headers["Cache-Control"] = "no-store"
    return shown(asking, None if admission.api_keys.open else begun_in(request))


@router.post("/sign-out", summary="End your browser's session")
def sign_out(request: Request, response: Response, admission: Admitting, asking: Asking) -> SessionLine:
    """At once, at every replica. The key goes on, and so does the provider's own session."""
    begun = begun_in(request)
    drop_cookie(response, SESSION, admission.own.of(request.scope))
    return line(admission.sessions.end(begun.session.id, asking.name))


@router.get("/sessions", summary="List the sessions of browsers")
def list_sessions(services: Given) -> list[SessionLine]:
    """The oldest first, also those that ended within the last week."""
    return [line(each) for each in services.journal.user_sessions()]


@router.delete("/sessions/{name}", summary="End a session")
def end_session(admission: Admitting, identity: Named, name: Name) -> SessionLine:
    """At once, at every replica. Who had it may sign in again, as long as the key or the grants let him."""
    return line(admission.sessions.end(name, identity.by))


def begun_in(request: Request) -> Begun:
    """The session that a call came with. Raises NotFound for a call with a key or a token."""
    found: Begun | None = getattr(request.state, "begun", None)
    if found is None:
        what = "This call came without a browser's session"
        raise NotFound(what, "Sign in at / or /sign-in/start; calls with a key or a token in a header have none")
    return found


def shown(caller: Caller, begun: Begun | None) -> SessionShown:
    """A session as its own browser is shown it. None: this coordinator asks for no key."""
    return SessionShown(
        kind="open" if begun is None else "key" if begun.by_key else "user",
        name=caller.name if begun is None else begun.session.name,
        role=caller.role.value,
        project=caller.scope or ALL,
        issuer="" if begun is None else begun.session.issuer,
        subject="" if begun is None else subject_of(begun.session),
        expires=None if begun is None else begun.session.expires,
        csrf="" if begun is None else begun.csrf,
        grants=[GrantLine(role=grant.role.value, project=grant.project or ALL) for grant in caller.grants],
    )


def subject_of(session: UserSession) -> str:
    """By what the provider knows the user. What a session has of a key is nobody's to see."""
    return "" if session.issuer == OF_KEYS else session.subject


def line(row: UserSession) -> SessionLine:
    """A session as it is listed: without hashes, for which a line has no place."""
    found = {name: value for name, value in vars(row).items() if name in SessionLine.model_fields}
    return SessionLine(**found | {"subject": subject_of(row)})
