"""Which modules stay in one process of the suite, so that what they share is started once, and in which order all go."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling

ACCEPTANCE = "tests/acceptance"
# The fixtures of the session that start processes, and the modules that use them.
SHARED = {
    "federation": (
        "test_alignment",
        "test_best",
        "test_dossiers",
        "test_hours",
        "test_links",
        "test_notes",
        "test_peers",
        "test_private_runs",
        "test_refusals",
        "test_rehearsal",
        "test_same_bytes",
        "test_site_commands",
        "test_stopping",
        "test_survival",
    ),
    "coordinator": (
        "hostile/test_bytes",
        "hostile/test_coordinator",
        "hostile/test_hours",
        "hostile/test_wrong_clocks",
        "test_link_plans",
        "test_wire",
    ),
}
GROUPS = {f"{ACCEPTANCE}/{name}.py": group for group, names in SHARED.items() for name in names}


class Together(LoadFileScheduling):
    """A module's tests stay together, and so do the modules that share a fixture. What comes first is begun first."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)  # type: ignore[arg-type]
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """With whom a test stays together."""
    module = nodeid.partition("::")[0]
    return GROUPS.get(module, module)


def in_order(items: list[pytest.Item]) -> None:
    """What is shared first, then the modules that start processes, which take long, then the others: so all end together."""
    places = [*SHARED, *dict.fromkeys(group_of(item.nodeid) for item in items if item.get_closest_marker("processes"))]
    items.sort(key=lambda item: places.index(group) if (group := group_of(item.nodeid)) in places else len(places))


def strangers(items: Iterable[pytest.Item]) -> set[str]:
    """Modules that use a shared fixture and are not named above."""
    found = set()
    for item in items:
        known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        used = {name for name in SHARED if name in known and known[name][-1].scope == "session"}
        if used - {group_of(item.nodeid)}:
            found.add(item.nodeid.partition("::")[0])
    return found
