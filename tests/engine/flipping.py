"""A federation in this process whose every byte lies in files, of which bits flip."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tideline.core.algorithm import Methods
from tideline.core.errors import FederationError
from tideline.core.run import ClientId, RunId
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.simulation.homes import Scratch
from tideline_agent.vault import FolderVault, read_checked

LEFT_ALONE = frozenset({"damaged", "aside", "tmp"})  # folders whose files nobody reads again as parts
TURNS = 500
TRUE_CAUSES = ("is damaged", "no longer whole")


class Disk(Scratch):
    """The coordinator's parts, and each site's vault as an agent has it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def vault(self, site: ClientId) -> FolderVault:  # type: ignore[override]
        return FolderVault(self.folder / f"site-{site}" / "runs")


@dataclass
class Flipping:
    """A federation on a disk, and what its files were as they were written."""

    federation: Federation
    folder: Path
    written: dict[Path, bytes] = field(default_factory=dict)

    @classmethod
    def over(cls, folder: Path, methods: Methods, sites: Mapping[str, SimSite]) -> Flipping:
        """A new one."""
        return cls(Federation(methods, sites, Disk(folder)), folder)

    def files(self) -> Iterator[Path]:
        """Every file that somebody may read, by name."""
        every = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.suffix != ".tmp")
        return (path for path in every if LEFT_ALONE.isdisjoint(path.relative_to(self.folder).parts))

    def note(self) -> None:
        """Remember the files as they are; what was flipped is known already, and stays as it was written."""
        for path in self.files():
            if path.suffix == ".json":
                with suppress(ValueError):
                    read_checked(path)
                    self.written[path] = path.read_bytes()
            else:
                self.written.setdefault(path, path.read_bytes())

    def flip(self, pick: random.Random, kind: str = "") -> Path | None:
        """Flip a bit of one of the files; which."""
        found = [path for path in self.files() if kind in str(path.relative_to(self.folder)) and path.stat().st_size]
        if not found:
            return None
        path = pick.choice(found)
        content = bytearray(path.read_bytes())
        content[pick.randrange(len(content))] ^= 1 << pick.randrange(8)
        path.write_bytes(content)
        return path

    def heal(self) -> None:
        """Bring good copies back, as an admin does."""
        for path, content in self.written.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def play(self, run: RunId, disturb: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Until the run has ended or stalled, with a disturbance between all that happens; its result."""
        for _ in range(TURNS):
            open_still = self.federation.turn([run])
            self.note()
            if not open_still:
                return result_of(self.federation.journal, run, self.federation.clock.now())
            disturb()
            for order in list(self.federation.waiting()):
                with suppress(FederationError):  # Unreachable: an agent asks again
                    self.federation.handle(order)
                self.note()
                disturb()
        raise AssertionError("the run neither ends nor stalls")

    def ended(self, run: RunId, disturb: Callable[[], object]) -> dict[str, Any]:
        """The same, and where it stalls its cause must be true; then good copies are brought back, and it is resumed."""
        result = self.play(run, disturb)
        if result["status"] == Status.STALLED.value:
            assert any(words in result["cause"] for words in TRUE_CAUSES), result["cause"]
            self.heal()
            self.federation.run_service.resume(run)
            result = self.play(run)
        return result
