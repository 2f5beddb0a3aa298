"""What this site lets out: the default policy, and a file in which its owner allows more or less.

[allow]
features = ["coordinator"]
[forbid]
weights = ["peers"]
notes = ["coordinator"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure, Policy
from tideline.core.settings import nearest

NOTES = "notes"  # beside the exposures: what an agent tells of its work (core.notes)


@dataclass(frozen=True)
class SitePolicy:
    """What may leave a site in replies, and whether its agent tells the coordinator of its work."""

    allowed: Policy = DEFAULT_POLICY
    notes: bool = True


def read_policy(path: Path | None) -> SitePolicy:
    """The default policy, changed by the file. Raises ConfigRefused with the place of what is wrong."""
    if path is None:
        return SitePolicy()
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigRefused(f"The policy file {path} does not exist", "Create it, or leave --policy out") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise ConfigRefused(f"The policy file {path} is not TOML: {cause}", "Correct the file") from None
    for table in raw:
        if table not in ("allow", "forbid"):
            raise ConfigRefused(
                f"{path}: [{table}] is not known", f"Use [allow] and [forbid]{nearest(table, ['allow', 'forbid'])}"
            )
    allowed = DEFAULT_POLICY | frozenset(pairs(path, raw, "allow"))
    return SitePolicy(allowed - frozenset(pairs(path, raw, "forbid")), not raw.get("forbid", {}).get(NOTES))


def pairs(path: Path, raw: dict[str, Any], table: str) -> Iterator[tuple[Exposure, Audience]]:
    """What one table says."""
    rows = raw.get(table, {})
    if not isinstance(rows, dict):
        raise ConfigRefused(f"{path}: {table} is not a table", f"Write [{table}] and lines such as features = ['coordinator']")
    for exposure, audiences in rows.items():
        words = [*(e.value for e in Exposure), NOTES]
        if exposure not in words:
            todo = f"Use one of: {', '.join(words)}{nearest(exposure, words)}"
            raise ConfigRefused(f"{path}: {table}.{exposure} is no exposure", todo)
        for audience in audiences if isinstance(audiences, list) else [audiences]:
            if audience not in [a.value for a in Audience]:
                raise ConfigRefused(f"{path}: {table}.{exposure} names {audience!r}", "Use 'coordinator' and 'peers'")
            if exposure != NOTES:
                yield Exposure(exposure), Audience(audience)
            elif audience != Audience.COORDINATOR:
                raise ConfigRefused(f"{path}: {table}.{exposure} names {audience!r}", "Notes go to the 'coordinator' alone")
