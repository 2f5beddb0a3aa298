"""What a provider says of itself (OpenID Connect Discovery), and a client of its endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.client import OAuth2Client

from tideline.core.errors import Unreachable
from tideline.oidc.fetching import AWAY, Fetcher, Reply, check_address, strange

WELL_KNOWN = "/.well-known/openid-configuration"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True)
class Metadata:
    """A provider's addresses; one that it lacks is empty."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    auth_methods: tuple[str, ...] = ()

    def needed(self, name: str) -> str:
        """An address that it has to have. Raises Unreachable."""
        found: str = getattr(self, name)
        if not found:
            raise Unreachable(f"The provider of identities {self.issuer} has no {name}", "Switch that on at the provider")
        return found


def discover(fetcher: Fetcher, issuer: str) -> Metadata:
    """What a provider says of itself. Raises Unreachable, also where it calls itself by another name."""
    url = issuer.rstrip("/") + WELL_KNOWN
    found = fetcher.get(url)
    if found.get("issuer") != issuer:
        raise strange(
            url, f"it calls itself {str(found.get('issuer'))[:200]!r}, and is {issuer!r} here: both have to be the same"
        )
    addresses = {name: address_in(found, name, fetcher.insecure) for name in Metadata.__dataclass_fields__ if name.endswith(ENDS)}
    if not addresses["jwks_uri"]:
        raise strange(url, "it names no jwks_uri")
    methods = found.get("token_endpoint_auth_methods_supported")
    named = tuple(map(str, methods)) if isinstance(methods, list) else ()
    return Metadata(issuer=issuer, auth_methods=named, **addresses)


ENDS = ("_endpoint", "_uri")


def address_in(found: Mapping[str, Any], name: str, insecure: bool) -> str:
    value = found.get(name, "")
    if value:
        check_address(str(value), insecure)
    return str(value)


class ProviderRefused(AuthlibBaseError):  # type: ignore[misc]
    """A provider's refusal in the words of OAuth: `error` is one of its own, such as invalid_grant."""


class ProviderClient(OAuth2Client):  # type: ignore[misc]
    """authlib's client, which raises ProviderRefused: its own error takes no description with a quotation mark."""

    oauth_error_class = ProviderRefused

    def parse_response_token(self, response: Reply) -> Mapping[str, Any]:
        """What the token endpoint gives. Raises ProviderRefused, and Unreachable for what makes no sense."""
        try:
            found: Mapping[str, Any] = super().parse_response_token(response)
        except (ValueError, TypeError, OverflowError) as cause:
            raise Unreachable(f"The provider's token makes no sense ({type(cause).__name__})", AWAY) from None
        return found


def client_of(fetcher: Fetcher, metadata: Metadata, client_id: str, secret: str = "", **more: Any) -> ProviderClient:
    """authlib's client of a provider's endpoints. Without a secret it is a public one."""
    how = "none"
    if secret:
        posts = "client_secret_post" in metadata.auth_methods and "client_secret_basic" not in metadata.auth_methods
        how = "client_secret_post" if posts else "client_secret_basic"
    return ProviderClient(
        session=fetcher,
        client_id=client_id,
        client_secret=secret or None,
        token_endpoint_auth_method=how,
        revocation_endpoint_auth_method=how,
        code_challenge_method="S256",
        **more,
    )
