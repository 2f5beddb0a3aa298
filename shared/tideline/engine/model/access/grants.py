"""What users who sign in with a provider of identities may do: roles in projects, by the values of one of their claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest
from tideline.engine.model.access.projects import ALL, DEFAULT, EVERY, NAME
from tideline.engine.model.accounts import KeyRole


@dataclass(frozen=True)
class Grant:
    """A role in a project; in every one where the project is empty."""

    role: KeyRole
    project: str = EVERY


# Of each value of the claim, what it grants.
Rules = Mapping[str, tuple[Grant, ...]]


def read_rules(texts: Iterable[str], place: str) -> Rules:
    """Rules from texts such as `cardio-ops=operator:cardio`. Raises ConfigRefused, which names the place."""
    rules: dict[str, tuple[Grant, ...]] = {}
    for text in texts:
        value, grant = read_rule(text, place)
        rules[value] = (*rules.get(value, ()), grant)
    return rules


def read_rule(text: str, place: str) -> tuple[str, Grant]:
    """VALUE=ROLE or VALUE=ROLE:PROJECT. Values may have equals signs of their own, as names in a directory do."""
    value, equals, given = text.rpartition("=")
    word, _, project = given.partition(":")
    if not equals or not value.strip():
        raise ConfigRefused(
            f"{place} is {text[:200]!r}", "Write VALUE=ROLE:PROJECT, such as cardio-ops=operator:cardio", path=place
        )
    if word not in tuple(KeyRole):
        todo = f"Use one of: {', '.join(KeyRole)}{nearest(word, list(KeyRole))}"
        raise ConfigRefused(f"{place} {text[:200]!r} grants the role {word!r}", todo, path=place)
    role = KeyRole(word)
    if role is KeyRole.ADMIN and project not in ("", ALL):
        todo = "Leave the project out, or grant another role"
        raise ConfigRefused(f"{place} {text[:200]!r}: an admin is one of every project", todo, path=place)
    if project and not NAME.fullmatch(project):
        todo = "Use a project's name, or all"
        raise ConfigRefused(f"{place} {text[:200]!r}: {project!r} cannot name a project", todo, path=place)
    everywhere = role is KeyRole.ADMIN or project == ALL
    return value.strip(), Grant(role, EVERY if everywhere else project or DEFAULT)


def granted(rules: Rules, values: Iterable[str]) -> tuple[Grant, ...]:
    """What these values of the claim grant, each once, in a fixed order."""
    found = {grant for value in values for grant in rules.get(value, ())}
    return tuple(sorted(found, key=lambda grant: (grant.project, grant.role)))


def highest(grants: Iterable[Grant], *projects: str) -> KeyRole | None:
    """The highest role that is granted in any of these projects by their names; None: none is."""
    roles = [grant.role for grant in grants if grant.project in projects]
    return max(roles, key=tuple(KeyRole).index, default=None)
