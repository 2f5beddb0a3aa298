"""The rules by which a folder's domains can be dealt, by name, and the sites that one of them makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.learning.partition import deals, dirichlet
from tideline.learning.partition.deal_folders import labels_of, sizes_of
from tideline.learning.partition.deals import Deal, Hands
from tideline.learning.partition.dealt_folder import roles_of
from tideline.learning.partition.devices import Dirichlet

Rule = Deal | Dirichlet
RULES: Mapping[str, type[Deal] | type[Dirichlet]] = {"leave-out": Deal, "dirichlet": Dirichlet}


@dataclass(frozen=True)
class Sites:
    """Who takes part in what is dealt: each site's rows by domain, and its role."""

    hands: Mapping[str, Hands]
    roles: Mapping[str, Role]


def rule_in(name: str, given: Mapping[str, Any]) -> Rule:
    """The rule of a name with what is said of it. Raises ConfigRefused, its `path` a field, for what lacks or has no meaning."""
    own = {f.name: f for f in fields(RULES[name])}
    for key in given:
        if key not in own:
            others = [other for other, kind in RULES.items() if key in {f.name for f in fields(kind)}]
            todo = f"Leave it out, or deal by the rule {' or '.join(others)}"
            raise ConfigRefused(f"{key} has no meaning for the rule {name}", todo, path=key)
    for key, f in own.items():
        if f.default is MISSING and key not in given:
            raise ConfigRefused(f"the rule {name} needs {key}, which is not given", f"Give {key}", path=key)
    return RULES[name](**given)


def sites_of(path: Path, rule: Rule) -> Sites:
    """Deal the folder at `path`. Raises ConfigRefused, its `path` a field of the rule; DataRefused."""
    if isinstance(rule, Dirichlet):
        return Sites(dirichlet.deal(labels_of(path, rule.take), rule), dirichlet.roles(rule))
    hands = deals.deal(sizes_of(path), rule)
    return Sites(hands, roles_of(hands))
