"""A folder of domains that is dealt to sites: read once for all of them, each sample in memory once, nothing copied on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tideline.core.errors import DataRefused
from tideline.core.run import Role, World
from tideline.learning import folder
from tideline.learning.deals import UNSEEN, Hand, Hands
from tideline.learning.folder import Places, Room
from tideline.learning.holdings import Holdings
from tideline.learning.surveys import Labels, Survey


def role_of(site: str) -> Role:
    """What a site of a deal does in a run: the unseen one is scored alone, the others have labels to learn from."""
    return Role.TARGET if site == UNSEEN else Role.SOURCE


def read_dealt(path: Path, world: World, sites: Mapping[str, Hands]) -> dict[str, Holdings]:
    """What each site holds, as if it had read a folder of its own with its rows alone.

    All domains need labels. Raises DataRefused for what cannot be used, also for what would be refused at one site alone.
    """
    try:
        surveys = folder.survey_all(path, world, Role.SOURCE)
        folder.check_roles(path, surveys, Role.SOURCE)
        folder.check_room(path, surveys, world)
        rooms = {site: room_of(path, site, surveys, hands, world) for site, hands in sites.items()}
        lost = {s.path: folder.pour(undivided(s), world, places_of(s, rooms)) for s in surveys}
        return {
            site: folder.hold(at_site(path, site), room, [lost[s.path] for s in room.surveys], role_of(site))
            for site, room in rooms.items()
        }
    except DataRefused as error:
        folder.log_owners(error)
        raise


def room_of(path: Path, site: str, surveys: list[Survey], hands: Hands, world: World) -> Room:
    """Room for a site's rows. Raises DataRefused for what an agent would refuse, such as rows of one class alone."""
    dealt = ((s, hands.get(folder.name_of(s.path))) for s in surveys)
    own = [portion(s, hand, role_of(site)) for s, hand in dealt if hand is not None]
    folder.check_roles(at_site(path, site), own, role_of(site))
    folder.check_sides(at_site(path, site), own)
    return folder.room_for(own, world)


def portion(survey: Survey, hand: Hand, role: Role) -> Survey:
    """A domain's survey with a site's rows alone; a target's training labels are dropped."""
    y = labels(survey)
    y_train = None if role is Role.TARGET else y[hand.train]
    return replace(survey, train=hand.train, held=hand.held, y_train=y_train, y_held=y[hand.held])


def labels(survey: Survey) -> Labels:
    """The labels of all rows of a domain (n,), in the domain's own order."""
    assert survey.y_train is not None and survey.y_held is not None  # a source has them
    y = np.empty(len(survey), np.int64)
    y[survey.train], y[survey.held] = survey.y_train, survey.y_held
    return y


def undivided(survey: Survey) -> Survey:
    """A domain's survey without its own split, which means nothing to a deal."""
    return replace(survey, train=np.arange(len(survey), dtype=np.int64), held=np.empty(0, np.int64))


def places_of(survey: Survey, rooms: Mapping[str, Room]) -> Places:
    """Where a domain's rows belong, over all sites."""
    own = [(s.path, places) for room in rooms.values() for s, places in zip(room.surveys, room.places, strict=True)]
    return [place for path, places in own if path == survey.path for place in places]


def at_site(path: Path, site: str) -> Path:
    """A site of a deal, as a refusal names it."""
    return Path(f"{path} ({site})")
