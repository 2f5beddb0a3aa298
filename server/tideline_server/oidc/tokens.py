"""Tokens of a provider (JWT): whether one is genuine, for this coordinator, and good now."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import ClaimError, ExpiredTokenError, JoseError, MissingClaimError
from joserfc.jwk import Key
from joserfc.jws import JWSRegistry

from tideline.core.errors import IdentityRefused
from tideline_server.oidc.claims import Claims, listed, printable
from tideline_server.oidc.keys import ALGORITHMS
from tideline_server.oidc.options import OidcOptions

MOST_CHARACTERS = 16 << 10  # of a token: the head of a request has twice as many
LONGEST_KID = 256
LONGEST_SUBJECT = 255  # as the standard has it
LEEWAY_SECONDS = 30  # by which two clocks may differ
TYPES = ("jwt", "at+jwt", "application/at+jwt")  # of what lets somebody in; a logout token, for one, is another
AGAIN = "Sign in again: tideline login --oidc, or /sign-in/start in a browser"


@dataclass(frozen=True)
class Head:
    """What a token says before its signature is checked. claims: only to tell what is not worth a call to the provider."""

    kid: str | None
    algorithm: str
    claims: Claims


def resembles(key: str) -> bool:
    """Whether what came in the place of a key is a token: three parts, the first a JSON object's."""
    return key.startswith("ey") and key.count(".") == 2


def head_of(token: str) -> Head:
    """A token's head. Raises IdentityRefused for what cannot be one, whoever signed it."""
    if len(token) > MOST_CHARACTERS:
        todo = "Have the provider put less into it, such as fewer groups"
        raise IdentityRefused(f"The token has {len(token)} characters, and {MOST_CHARACTERS} are read", todo)
    head, claims = (part_of(each) for each in token.split(".")[:2])
    algorithm, kid, kind = head.get("alg"), head.get("kid"), head.get("typ", "JWT")
    if algorithm not in ALGORITHMS:
        what = f"The token is signed by {printable(str(algorithm))!r}, which is not taken"
        raise IdentityRefused(what, f"Have the provider sign with one of {', '.join(ALGORITHMS)}")
    if not (kid is None or (isinstance(kid, str) and 0 < len(kid) <= LONGEST_KID)):
        raise IdentityRefused("The token names its key by something else than a short text", AGAIN)
    if "crit" in head:  # extensions that a reader has to know, and we know none
        raise IdentityRefused("The token has extensions that are not understood here", AGAIN)
    if not isinstance(kind, str) or kind.lower() not in TYPES or "events" in claims:
        raise IdentityRefused(f"The token is of the type {printable(str(kind))!r}, which lets nobody in", AGAIN)
    return Head(kid, algorithm, claims)


def part_of(text: str) -> dict[str, Any]:
    """A part of a token as the object that it is. Raises IdentityRefused."""
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IdentityRefused("This is neither an API key nor a token that can be read", AGAIN)
    return found


def check_claims(claims: Claims, options: OidcOptions, now: float) -> None:
    """For this coordinator, of its provider, and good now. Raises IdentityRefused, which says what was found and expected."""
    registry = jwt.JWTClaimsRegistry(
        now=int(now),
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": options.issuer},
        aud={"essential": True, "values": list(options.audiences)},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        registry.validate(dict(claims))
    except ExpiredTokenError:
        raise IdentityRefused("The token has expired", AGAIN) from None
    except MissingClaimError as error:
        raise IdentityRefused(f"The token has no claim {error.claim!r}; it has {listed(claims)}", AGAIN) from None
    except ClaimError as error:
        raise unfit(error.claim, claims, options) from None
    check_party(claims, options)
    if not 0 < len(str(claims["sub"])) <= LONGEST_SUBJECT or not str(claims["sub"]).isprintable():
        raise IdentityRefused("The token's claim 'sub' is no short text", "Tell who runs the provider")


def unfit(claim: str, claims: Claims, options: OidcOptions) -> IdentityRefused:
    """The refusal of a claim that is not as it has to be."""
    found = claims.get(claim)
    if claim == "aud":
        shown = listed(found if isinstance(found, list) else [found])
        what = f"The token is for {shown}, and not for {listed(options.audiences)}"
        return IdentityRefused(what, "Ask the provider for a token of this audience; the coordinator's --oidc-audience sets it")
    if claim == "iss":
        return IdentityRefused(f"The token is of {printable(str(found))!r}, and not of {options.issuer}", AGAIN)
    if claim in ("nbf", "iat"):
        what = f"The token is not good yet: its {claim} is {printable(str(found))}"
        return IdentityRefused(what, "Compare the clocks of the provider and of the coordinator")
    return IdentityRefused(f"The token's claim {claim!r} is not as it has to be", AGAIN)


def check_party(claims: Claims, options: OidcOptions) -> None:
    """To whom a token was given. An ID token goes to its client alone; who else is named in it may not use it here."""
    party, several = claims.get("azp"), isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
    if options.by_id_token and (several if party is None else party not in options.audiences):
        what = f"The token was given to {printable(str(party))!r} (azp), and not to {listed(options.audiences)}"
        raise IdentityRefused(what, "Sign in with the coordinator's own client, or set --oidc-audience")


def check_signature(token: str, head: Head, keys: Iterable[Key]) -> Claims:
    """The claims of a genuine token. Raises IdentityRefused."""
    registry = JWSRegistry(algorithms=[head.algorithm], strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = MOST_CHARACTERS
    for key in keys:
        try:
            return jwt.decode(token, key, algorithms=[head.algorithm], registry=registry).claims
        except (JoseError, ValueError, TypeError, RecursionError):
            continue
    raise IdentityRefused("The token is not signed by the key that it names", AGAIN)
