"""Sign-in put together. The provider is not asked before somebody comes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal
from tideline.oidc.fetching import Fetcher
from tideline_server.oidc.browser import HOME, BrowserSignIn
from tideline_server.oidc.callers import SignIn
from tideline_server.oidc.keys import ProviderKeys
from tideline_server.oidc.options import OidcOptions


def sign_in_of(options: OidcOptions, journal: Journal, clock: Clock, secret: str, home: str = HOME) -> BrowserSignIn:
    """What signs users in. secret: something that all replicas have and no store has. Raises ConfigRefused."""
    fetcher = Fetcher(options.ca, options.insecure)
    reader = ThreadPoolExecutor(1, "sign-in")
    keys = ProviderKeys(fetcher, options.issuer, clock, reader.submit)
    return BrowserSignIn(SignIn(options, keys, journal, clock, secret=secret), fetcher, home)
