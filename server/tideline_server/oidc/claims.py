"""What a token claims of a user: who it is, and the values that roles are granted by. Of the token itself nothing is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tideline.core.errors import PermissionRefused
from tideline.engine.model.access.grants import Rules, granted

Claims = Mapping[str, Any]
NAMES = ("preferred_username", "email", "name")  # by which people know a user: the first that is there
MOST_SHOWN = 20  # names or values in a refusal
LONGEST_NAME = 80
LISTS_OF_WORDS = ("scope", "scp")  # claims whose text is a list, by spaces


def claim_at(claims: Claims, path: str) -> Any:
    """A claim by its name, or by the names on the way to it: `groups`, `realm_access.roles`. None: it is not there.

    Names may have dots of their own, such as `https://example.org/roles`: a whole name goes before a way.
    """
    if path in claims:
        return claims[path]
    for at in range(1, len(path)):
        if path[at] == "." and isinstance(inner := claims.get(path[:at]), Mapping):
            found = claim_at(inner, path[at + 1 :])
            if found is not None:
                return found
    return None


def values_at(claims: Claims, path: str) -> tuple[str, ...]:
    """The values of a claim: those of a list that are texts, or a text alone."""
    found = claim_at(claims, path)
    if isinstance(found, str):
        return tuple(found.split()) if path in LISTS_OF_WORDS else (found,)
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def granting(claims: Claims, path: str, rules: Rules, issuer: str) -> tuple[str, ...]:
    """Those values that grant something. Raises PermissionRefused, with what was found, where none does."""
    values = values_at(claims, path)
    if found := tuple(value for value in values if granted(rules, (value,))):
        return found
    whose = f"{name_of(claims, issuer)} is signed in and has no role here: "
    todo = "Ask who runs the provider for membership, or the coordinator's operator for an --oidc-grant"
    if claim_at(claims, path) is None:
        what = f"{whose}the token has no claim {path!r}; it has {listed(claims)}"
        if path.partition(".")[0] in (claims.get("_claim_names") or ()):
            todo = "The provider left it out, as it has too many values: have it put fewer there, or app roles in another claim"
        raise PermissionRefused(what, todo, claim=path)
    what = f"{whose}none of the values of the claim {path!r} grants one; they are {listed(values) or 'no texts'}"
    raise PermissionRefused(what, todo, claim=path)


def listed(words: Any) -> str:
    """Names or values in a sentence, cut to a length that people read."""
    some = [printable(str(each)) for each in sorted(words)]
    more = f" and {len(some) - MOST_SHOWN} more" if len(some) > MOST_SHOWN else ""
    return ", ".join(repr(each) for each in some[:MOST_SHOWN]) + more


def printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:LONGEST_NAME]


def name_of(claims: Claims, issuer: str) -> str:
    """A user in lists and in the audit log: readable, and with the issuer and the subject, by which alone it is the same user.

    No key's name looks so.
    """
    subject = str(claims["sub"])
    named = (claims.get(each) for each in NAMES)
    readable = next((text for each in named if isinstance(each, str) and (text := printable(each).strip("<> "))), subject)
    return f"{readable.replace('<', '').replace('>', '')} <{issuer}#{subject}>"
