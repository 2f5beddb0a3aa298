"""A folder of domains that is dealt to sites by a rule: read once for all of them, each sample in memory once, nothing copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role, World
from tideline.learning.formats import folder
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.folder import Places, Room
from tideline.learning.formats.holdings import Holdings, Labels, Sides, none, parted
from tideline.learning.formats.surveys import Survey
from tideline.learning.partition import deals, dirichlet
from tideline.learning.partition.deal_folders import labels_of, sizes_of
from tideline.learning.partition.deals import UNSEEN, Deal, Hand, Hands
from tideline.learning.partition.dirichlet import Dirichlet

Rule = Deal | Dirichlet
RULES: Mapping[str, type[Deal] | type[Dirichlet]] = {"leave-out": Deal, "dirichlet": Dirichlet}


def role_of(site: str) -> Role:
    """A site's role in a leave-one-out deal: the unseen site is only scored, the others have labels to learn from."""
    return Role.TARGET if site == UNSEEN else Role.SOURCE


def read_dealt(
    path: Path, world: World, sites: Mapping[str, Hands], roles: Mapping[str, Role] | None = None
) -> dict[str, Holdings]:
    """What each site holds, as if it had read a folder with its own rows alone. `roles`: by `role_of` unless given.

    Every row of the dealt domains needs a label. Raises DataRefused for data that cannot be used, at one site or at all.
    """
    roles = {site: role_of(site) for site in sites} if roles is None else roles
    try:
        surveys = folder.survey_all(path, world, Role.SOURCE, {name for hands in sites.values() for name in hands})
        folder.check_roles(path, surveys, Role.SOURCE)
        rows = sum(len(h.train) + len(h.held) + len(h.bare) for hands in sites.values() for h in hands.values())
        folder.check_room(path, rows, world)
        rooms = {site: room_of(at_site(path, site), surveys, hands, roles[site], world) for site, hands in sites.items()}
        lost = {s.path: folder.pour(undivided(s), world, places_of(s, rooms)) for s in surveys}
        return {
            site: folder.holdings_of(at_site(path, site), room, [lost[s.path] for s in room.surveys], roles[site])
            for site, room in rooms.items()
        }
    except DataRefused as error:
        folder.log_owners(error)
        raise


def room_of(site: Path, surveys: list[Survey], hands: Hands, role: Role, world: World) -> Room:
    """Empty tensors for a site's rows. Raises DataRefused for what an agent would refuse, such as rows of a single class."""
    dealt = ((s, hands.get(folder.name_of(s.path))) for s in surveys)
    own = folder.together([replace(s, sides=portion(s, hand, role)) for s, hand in dealt if hand is not None])
    folder.check_roles(site, own, role)
    folder.check_sides(site, own)
    return folder.room_for(own, world)


def portion(survey: Survey, hand: Hand, role: Role) -> Sides:
    """A site's rows of a domain, without a target's training labels and without the labels of `hand.bare`."""
    y = labels(survey)
    y[hand.bare] = UNKNOWN
    train = np.union1d(hand.train, hand.bare)
    return parted((train, hand.held), None if role is Role.TARGET else y[train], y[hand.held])


def labels(survey: Survey) -> Labels:
    """The labels of all rows of a domain (n,), in the domain's own order. Raises DataRefused if one is missing."""
    sides, y = survey.sides, np.full(len(survey), UNKNOWN, np.int64)
    if sides.y_train is None or sides.y_held is None or sides.bare.size or sides.unscored.size:
        todo = "Label every row, or leave the others out; a deal that needs rows without labels hides labels itself"
        raise DataRefused(f"{survey.path}: there are rows without a label", todo, path=str(survey.path))
    y[sides.train], y[sides.held] = sides.y_train, sides.y_held
    return y


def undivided(survey: Survey) -> Survey:
    """A domain's survey without its own split, which a deal ignores."""
    return replace(survey, sides=Sides(np.arange(len(survey), dtype=np.int64), none()))


def places_of(survey: Survey, rooms: Mapping[str, Room]) -> Places:
    """Where a domain's rows go, over all sites."""
    own = [(s.path, places) for room in rooms.values() for s, places in zip(room.surveys, room.places, strict=True)]
    return [place for path, places in own if path == survey.path for place in places]


def at_site(path: Path, site: str) -> Path:
    return Path(f"{path} ({site})")


@dataclass(frozen=True)
class Sites:
    """The sites of a deal: each one's rows by domain, and its role."""

    hands: Mapping[str, Hands]
    roles: Mapping[str, Role]


def rule_in(name: str, given: Mapping[str, Any]) -> Rule:
    """The rule of a name with these settings. Raises ConfigRefused, its `path` a field, for a missing or unknown setting."""
    own = {f.name: f for f in fields(RULES[name])}
    for key in given:
        if key not in own:
            others = [other for other, kind in RULES.items() if key in {f.name for f in fields(kind)}]
            todo = f"Leave it out, or deal by the rule {' or '.join(others)}"
            raise ConfigRefused(f"{key} has no meaning for the rule {name}", todo, path=key)
    for key, f in own.items():
        if f.default is MISSING and key not in given:
            raise ConfigRefused(f"the rule {name} needs {key}, which is missing", f"Give {key}", path=key)
    return RULES[name](**given)


def sites_of(path: Path, rule: Rule) -> Sites:
    """Deal the folder at `path`. Raises ConfigRefused, its `path` a field of the rule; DataRefused."""
    if isinstance(rule, Dirichlet):
        return Sites(dirichlet.deal(labels_of(path, rule.take), rule), dirichlet.roles(rule))
    hands = deals.deal(sizes_of(path), rule)
    return Sites(hands, {site: role_of(site) for site in hands})
