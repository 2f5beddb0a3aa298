"""The options of sign-in, read and checked before anything is started. The provider is not asked for that."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tideline.core.errors import ConfigRefused
from tideline.engine.model.access.grants import Rules, read_rules
from tideline.oidc.fetching import check_issuer
from tideline_server.settings import CoordinatorSettings

EXAMPLE = "--oidc-grant 'tideline-admins=admin' --oidc-grant 'cardio-ops=operator:cardio'"


@dataclass(frozen=True)
class OidcOptions:
    """How users sign in.

    client, cli   the client's id for browsers, and for the command line
    secret        of the browsers' client; empty: it is a public one
    audiences     of which a token has to name one
    by_id_token   whether the command line sends ID tokens, whose audience is its client, and not access tokens
    claim, rules  by the values of which claim roles are granted, and which
    url           the HTTP port's address as browsers call it; empty: as they say
    seconds       for which a browser's session is good
    """

    issuer: str
    client: str
    cli: str
    secret: str = field(repr=False)
    audiences: tuple[str, ...]
    by_id_token: bool
    claim: str
    rules: Rules
    scopes: str
    url: str
    seconds: float
    ca: Path | None
    insecure: bool


def options_of(settings: CoordinatorSettings) -> OidcOptions | None:
    """What the settings say of sign-in; None where they name no provider. Raises ConfigRefused."""
    if settings.oidc_issuer is None:
        check_none(settings)
        return None
    issuer = check_issuer(settings.oidc_issuer, settings.oidc_insecure, "--oidc-issuer")
    if not settings.oidc_client_id:
        raise ConfigRefused("--oidc-issuer needs --oidc-client-id", "Register a client at the provider", path="--oidc-client-id")
    if not settings.oidc_grant:
        what = "--oidc-issuer needs --oidc-grant: without one nobody who signs in may do anything"
        raise ConfigRefused(what, f"Say which values of {settings.oidc_claim} grant what: {EXAMPLE}", path="--oidc-grant")
    client, cli = settings.oidc_client_id, settings.oidc_cli_client_id or settings.oidc_client_id
    return OidcOptions(
        issuer=issuer,
        client=client,
        cli=cli,
        secret=secret_of(settings),
        audiences=(settings.oidc_audience,) if settings.oidc_audience else tuple(dict.fromkeys((client, cli))),
        by_id_token=not settings.oidc_audience,
        claim=settings.oidc_claim,
        rules=read_rules(settings.oidc_grant, "--oidc-grant"),
        scopes=settings.oidc_scopes,
        url=own_address(settings.oidc_url),
        seconds=settings.oidc_session_hours * 3600.0,
        ca=settings.oidc_ca,
        insecure=settings.oidc_insecure,
    )


def check_none(settings: CoordinatorSettings) -> None:
    """Raises ConfigRefused for options of sign-in that would do nothing."""
    given = settings.oidc_client_id or settings.oidc_audience or settings.oidc_grant or settings.oidc_client_secret_file
    if given or settings.oidc_client_secret or settings.oidc_cli_client_id:
        raise ConfigRefused("Options of sign-in are given, and no provider", "Give --oidc-issuer too", path="--oidc-issuer")


def secret_of(settings: CoordinatorSettings) -> str:
    """The client's secret, from the environment or from its file. Raises ConfigRefused."""
    if settings.oidc_client_secret is not None:
        return settings.oidc_client_secret.strip()
    if settings.oidc_client_secret_file is None:
        return ""
    try:
        return settings.oidc_client_secret_file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as cause:
        why = f"--oidc-client-secret-file {settings.oidc_client_secret_file} cannot be read ({type(cause).__name__})"
        raise ConfigRefused(why, "Name a file with the secret in one line", path="--oidc-client-secret-file") from None


def own_address(url: str | None) -> str:
    """An address as browsers name it in `Origin`. Raises ConfigRefused."""
    if not url:
        return ""
    try:
        parts = urlsplit(url.rstrip("/").lower())
        good = parts.scheme in ("http", "https") and parts.hostname and not (parts.path or parts.query or parts.fragment)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise ConfigRefused(f"--oidc-url is {url[:200]!r}", "Write it as https://HOST or https://HOST:PORT", path="--oidc-url")
    return parts.geturl()
