"""The sites of a `deal:` section: one folder of domains, read once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tideline.cli.experiments import ExperimentText
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role, World
from tideline.engine.experiment import DealData
from tideline.learning.dealing import sizes_of
from tideline.learning.deals import Deal, Hands, deal
from tideline.learning.dealt import read_dealt
from tideline.learning.folder import find
from tideline.learning.holdings import Holdings


@dataclass
class DealtTable:
    """A folder whose domains are dealt. It is read once for all sites, when a world is known; a refusal is kept as well."""

    path: Path
    sites: Mapping[str, Hands]
    world: World | None = None
    read: Mapping[str, Holdings] | DataRefused = field(default_factory=dict)

    def holdings(self, site: str, world: World) -> Holdings:
        """What a site holds. Raises DataRefused."""
        if self.world != world:
            self.world, self.read = world, {}  # those of another world are let go before
            try:
                self.read = read_dealt(self.path, world, self.sites)
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
    def domains(self) -> str:
        """The names of the domains that it has rows of."""
        hands = self.table.sites[self.name]
        return ", ".join(name for name in find(self.table.path) if name in hands)


def dealt_sites(given: DealData, text: ExperimentText) -> dict[str, DealtSite]:
    """The sites of a deal. Raises ConfigRefused, with `context["path"]`, for what cannot be dealt; DataRefused."""
    path = Path(text.name).parent / Path(given.folder).expanduser()
    if not path.is_dir():
        raise ConfigRefused(f"deal.folder: there is no folder {path}", "Correct the path", path="deal.folder")
    rule = Deal(given.leave_out, given.clients, given.domains, given.seed, given.share, given.shots)
    try:
        table = DealtTable(path, deal(sizes_of(path), rule))
    except ConfigRefused as error:
        raise ConfigRefused(f"deal: {error.what}", error.todo, path=f"deal.{error.context.get('path', '')}") from None
    return {name: DealtSite(table, name) for name in table.sites}
