"""What stands between an agent and its coordinator over HTTPS, by what it answers: what is wrong, and what to do."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Mapping

import httpcore

from tideline.core.errors import FederationError, IdentityRefused, Unreachable
from tideline_agent.link.outcomes import Absent, FullThere, NotSpoken, error_of
from tideline_agent.link.proxies import Proxy, denied, mute

MARK = "tideline-agents"  # on every answer of a coordinator to an agent
USERS = "tideline-version"  # on every answer of a coordinator to a user
TIMEOUTS = (httpcore.ConnectTimeout, httpcore.ReadTimeout, httpcore.WriteTimeout, httpcore.PoolTimeout)
Headers = Mapping[str, str]


def refused(address: str, status: int, headers: Headers, body: bytes) -> FederationError:
    """The error that an answer carries, or what somebody else's answer means."""
    if MARK in headers:
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            there = error_of(json.loads(body))
            return NotSpoken(there.what, there.todo) if status == 501 else there
        return FederationError(f"{address} answered {status}, and not in words of ours", "See the coordinator's log")
    return stranger(address, status, headers)


def stranger(address: str, status: int, headers: Headers) -> FederationError:
    """An answer that is not the coordinator's. All of these may pass by themselves, so an agent tries again."""
    page = headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html"
    if USERS in headers:
        what = f"The coordinator at {address} takes no agents over HTTP"
        return Unreachable(what, "Start it with --agents-over-http, or give its gRPC port as HOST:PORT")
    if status == 413:
        what = f"Something before the coordinator at {address} takes no bodies of that size (413)"
        return FullThere(what, "Raise its limit: client_max_body_size 0 in nginx, see docs/firewall.md")
    if status in (502, 503, 504):
        what = f"The reverse proxy at {address} gets no answer of the coordinator ({status})"
        todo = "See that the coordinator runs, and where the proxy looks for it"
        todo += "; it must wait for 60 s or longer" if status == 504 else ""
        return Unreachable(what, todo)
    if 300 <= status < 400:
        what = f"{address} sends us elsewhere ({status}), to {headers.get('location', 'nowhere')[:200]}"
        return Unreachable(
            what, "If that is the coordinator, give this address; a sign-in page of the network wants a browser first"
        )
    if status == 407:
        return Unreachable(f"A proxy before {address} asks for a user name and a password (407)", "Write them into --proxy")
    if page and status == 200:
        what = f"{address} answers with a web page: it is a sign-in page of the network, or no coordinator"
        return Unreachable(what, "Sign in with a browser on this machine, or correct the address")
    what = f"{address} answers {status}{' with a web page' if page else ''} and is no coordinator's port for agents"
    return Unreachable(what, "Correct the address and its prefix; see that the reverse proxy passes /agents/v1/ on")


def cut(address: str, error: Exception, proxy: Proxy | None) -> FederationError:
    """What it means that a call could not be made, or was not answered."""
    cause = error.__cause__ or error.__context__
    if isinstance(error, httpcore.ProxyError) and proxy is not None:
        status, _, reason = str(error).partition(" ")
        return denied(proxy, address, int(status) if status.isdigit() else 0, reason)
    if isinstance(cause, ssl.SSLError):
        return distrusted(address, cause)
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        words = str(error) or "it took too long"
        if proxy is not None:
            return mute(proxy, words)
        return Absent(f"{address} does not answer: {words}", "Check the address and that the coordinator runs")
    if isinstance(error, TIMEOUTS):
        return Unreachable(f"{address} has fallen silent", "It is tried again")
    return Unreachable(f"The connection to {address} was cut: {error or type(error).__name__}", "It is tried again")


def distrusted(address: str, error: ssl.SSLError) -> FederationError:
    """A handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"The certificate that {address} shows is not to be trusted: {error.verify_message}"
        todo = (
            "Give --ca with the authority that signed it. If that is not the coordinator's, a proxy opens TLS on the way: have it"
        )
        return Unreachable(what, f"{todo} except this host, or give the proxy's authority, and then the proxy reads everything")
    what = f"{address} does not agree on TLS: {error.reason or error}"
    return Unreachable(what, "See that the address is an HTTPS port, and whether it asks for a certificate (--tls-cert)")


def unlike(address: str) -> IdentityRefused:
    """An answer that says that it is the coordinator's, and is none."""
    return NotSpoken(f"What {address} answers is no message", "Install the same version on both ends, the coordinator's first")
