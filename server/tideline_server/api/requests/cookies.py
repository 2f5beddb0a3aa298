"""What a browser keeps for us: its session, and a sign-in that it has begun. And whether a change comes from our own pages."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from tideline.core.errors import PermissionRefused
from tideline_server.browsers.sessions import Begun

CSRF = "Tideline-CSRF"  # the header by which a change shows that a page of ours asks for it
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # methods that change nothing
SESSION, PENDING = "tideline-session", "tideline-sign-in"
PENDING_SECONDS = 600  # in which a user has to come back from the provider


@dataclass(frozen=True)
class OwnAddress:
    """This coordinator's address as browsers name it.

    given   what it is, whatever a request says; empty: as the request says
    public  what it is then for those who call it by this name: behind a proxy that ends TLS the request does not know of that
    """

    given: str = ""
    public: str = ""

    def of(self, scope: Scope) -> str:
        """The address that a request was sent to, as the header `Origin` would name it."""
        host = Headers(scope=scope).get("host", "").lower()
        if self.given or (self.public and self.public.partition("://")[2] == host):
            return self.given or self.public
        return f"{scope['scheme']}://{host}".lower()


def named(name: str, own: str) -> str:
    """A cookie's name. With TLS browsers take one of this name from this host alone, for all of its paths."""
    return f"__Host-{name}" if own.startswith("https:") else name


def cookie_in(headers: Headers, name: str, own: str) -> str:
    """A cookie's value; empty: there is none."""
    jar = SimpleCookie()
    for each in headers.getlist("cookie"):
        try:
            jar.load(each)
        except CookieError:
            continue
    found = jar.get(named(name, own))
    return found.value if found is not None else ""


def set_cookie(response: Response, name: str, value: str, own: str, seconds: float, strict: bool = False) -> None:
    """Give a browser a cookie that no script reads, and that comes with no other site's requests but with links to us.

    The sign-in comes back from the provider by such a link, and what it leads to is asked for on the same way. strict: it does
    not come with links either.
    """
    response.set_cookie(
        named(name, own),
        value,
        max_age=int(seconds),
        path="/",
        secure=own.startswith("https:"),
        httponly=True,
        samesite="strict" if strict else "lax",
    )


def drop_cookie(response: Response, name: str, own: str) -> None:
    set_cookie(response, name, "", own, 0)


def check_own_page(scope: Scope, begun: Begun, own: str) -> None:
    """A change with a browser's session: only a page of ours knows the header's value. Raises PermissionRefused."""
    headers = Headers(scope=scope)
    if scope["method"] in SAFE:
        return
    check_origin(scope, own, "A change with a browser's session")
    if not hmac.compare_digest(headers.get(CSRF, "").encode(), begun.csrf.encode()):
        what = f"A change with a browser's session needs the header {CSRF}"
        raise PermissionRefused(what, "Send the value of csrf from GET /session; programs use an API key, which needs none")


def check_origin(scope: Scope, own: str, what: str) -> None:
    """Raises PermissionRefused for what does not come from a page of ours. Scripts of other sites cannot change this header."""
    if Headers(scope=scope).get("origin", "").lower() != own:
        why = f"{what} has to come from a page of this coordinator, as the header Origin says"
        raise PermissionRefused(why, f"Open {own}; behind a proxy, --public-url or --oidc-url has to be its address")
