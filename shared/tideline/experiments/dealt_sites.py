"""The sites of a `deal:` section: one folder of domains, read once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role, World
from tideline.engine.model.experiment import DealData
from tideline.experiments.files import ExperimentText
from tideline.learning.formats.folder import find
from tideline.learning.formats.holdings import Holdings
from tideline.learning.partition.dealt_folder import read_dealt
from tideline.learning.partition.rules import Sites, rule_in, sites_of


@dataclass
class DealtTable:
    """A folder whose domains are dealt. It is read once for all sites, when a world is known; so is a refusal."""

    path: Path
    sites: Sites
    world: World | None = None
    read: Mapping[str, Holdings] | DataRefused = field(default_factory=dict)

    def holdings(self, site: str, world: World) -> Holdings:
        """What a site holds. Raises DataRefused."""
        if self.world != world:
            self.world, self.read = world, {}  # those of another world are let go before
            try:
                self.read = read_dealt(self.path, world, self.sites.hands, self.sites.roles)
            except DataRefused as error:
                self.read = error
        if isinstance(self.read, DataRefused):
            raise self.read
        return self.read[site]


@dataclass(frozen=True)
class DealtSite:
    """One site of a deal."""

    table: DealtTable
    name: str

    def __call__(self, world: World, role: Role) -> Holdings:
        """Its rows; the roster has given it the role that they were dealt for."""
        return self.table.holdings(self.name, world)

    @property
    def role(self) -> Role:
        """The role that its rows were dealt for."""
        return self.table.sites.roles[self.name]

    @property
    def domains(self) -> str:
        """The names of the domains that it has rows of."""
        hands = self.table.sites.hands[self.name]
        return ", ".join(name for name in find(self.table.path) if name in hands)


def dealt_sites(given: DealData, text: ExperimentText) -> dict[str, DealtSite]:
    """The sites of a deal. Raises ConfigRefused, with `context["path"]`, for what cannot be dealt; DataRefused."""
    path = Path(text.name).parent / Path(given.folder).expanduser()
    if not path.is_dir():
        raise ConfigRefused(f"deal.folder: there is no folder {path}", "Correct the path", path="deal.folder")
    given_settings = {
        f.name: value for f in fields(given) if f.name not in ("folder", "rule") and (value := getattr(given, f.name)) is not None
    }
    try:
        table = DealtTable(path, sites_of(path, rule_in(given.rule, given_settings)))
    except ConfigRefused as error:
        raise ConfigRefused(f"deal: {error.what}", error.todo, path=f"deal.{error.context.get('path', '')}") from None
    return {name: DealtSite(table, name) for name in table.sites.hands}
