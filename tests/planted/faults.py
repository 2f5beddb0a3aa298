"""The table of planted faults, and the patch of each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE, PATCHES = HERE / "faults.toml", HERE / "patches"
PRODUCT = ("shared/tideline/", "server/tideline_server/", "client_agent/tideline_agent/")


@dataclass(frozen=True)
class Fault:
    """One fault. harm: what would happen to a user. expected: the folder or file of tests that should catch it first."""

    name: str
    harm: str
    expected: str

    @property
    def patch(self) -> Path:
        """What plants it."""
        return PATCHES / f"{self.name}.patch"

    @property
    def files(self) -> list[str]:
        """The files that its patch changes, from the root."""
        return re.findall(r"^\+\+\+ b/(\S+)$", self.patch.read_text(encoding="utf-8"), flags=re.MULTILINE)


def read_faults() -> dict[str, Fault]:
    """Every fault by name, in the order of the table."""
    raw = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Fault(name, **row) for name, row in raw.items()}


def chosen(names: Iterable[str]) -> list[Fault]:
    """The faults of these names, or all. Raises LookupError for a name that is not in the table."""
    known, wanted = read_faults(), list(names)
    if odd := [name for name in wanted if name not in known]:
        raise LookupError(f"There is no fault {odd[0]}. There are: {', '.join(known)}")
    return [known[name] for name in wanted or known]
