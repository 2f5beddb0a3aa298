"""What a site's owner lets be told of its policy and its data, with the answer to a join. By default nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tideline.core.settings import Plain

DISCLOSED = "disclosed"  # among the facts of an answered join
MOST_POLICY, MOST_DIGEST = 8000, 128  # characters


@dataclass(frozen=True)
class Disclosed:
    """policy: the lines that apply to the run, without names of users and of projects. digest: of the whole policy, as the site's
    ledger has it. data: a digest of the site's data. Empty: not told.
    """

    policy: str = ""
    digest: str = ""
    data: str = ""

    @property
    def names(self) -> list[Plain]:
        """What is told, for the site's ledger."""
        return [name for name, value in vars(self).items() if value]

    def facts(self) -> dict[str, Plain]:
        return {DISCLOSED: dict(vars(self))}

    @classmethod
    def of(cls, policy: str, digest: str, data: str) -> Self | None:
        """What a site says, as far as it can be shown; None where it says nothing, or more than it may."""
        shown = all(each.isprintable() for each in (digest, data, *policy.split("\n")))
        fits = len(policy) <= MOST_POLICY and len(digest) <= MOST_DIGEST and len(data) <= MOST_DIGEST
        return cls(policy, digest, data) if shown and fits and (policy or digest or data) else None


def disclosed_in(facts: Mapping[str, Plain]) -> Disclosed | None:
    """What a join told, by its facts."""
    found = facts.get(DISCLOSED)
    if not isinstance(found, Mapping):
        return None
    return Disclosed.of(*(str(found.get(name, "")) for name in ("policy", "digest", "data")))
