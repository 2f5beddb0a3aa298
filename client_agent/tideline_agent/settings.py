"""What a site's owner decides: the agent's settings, and the policy file that says what may leave the site.

[allow]
features = ["coordinator"]
[forbid]
weights = ["peers"]
notes = ["coordinator"]"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure, Policy
from tideline.core.run import Role
from tideline.core.settings import nearest
from tideline.core.tokens import split_address


@dataclass(frozen=True)
class AgentSettings:
    """One agent. `roles` are those that its owner allows; `home` holds its keys, memory and unacknowledged replies.

    `coordinator`: HOST:PORT, or those of several replicas with commas between them; empty: those of the token or of the home.
    `notes`: whether the coordinator is told what happens here, as far as the policy file allows it too.
    `tls_cert` and `tls_key`: the agent's own certificate, where the coordinator asks for one.
    """

    coordinator: str
    data: Path
    roles: tuple[Role, ...]
    name: str
    token: str = ""
    home: Path | None = None
    policy: Path | None = None
    device: str = "auto"
    methods: str = "tideline.algorithms:METHODS"
    ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    rotate: bool = False
    parallel: int = 4
    trainer_idle: float = 60.0
    wait: float = 60.0
    notes: bool = True
    metrics: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the coordinators are, as far as the owner says so."""
        return tuple(dict.fromkeys(each.strip() for each in self.coordinator.split(","))) if self.coordinator else ()

    @property
    def folder(self) -> Path:
        """The home, `~/.tideline/agents/NAME` unless another is given."""
        return (self.home or Path("~/.tideline/agents") / self.name).expanduser()


def check(settings: AgentSettings) -> None:
    """Refuse what cannot work, before anything is sent. Raises ConfigRefused."""
    for address in settings.addresses:
        check_address(address, secured=True)  # whether it may be called in the clear is seen once all is known
    if not settings.data.is_dir():
        raise ConfigRefused(f"--data {settings.data} is not a folder", "Give the folder that holds the site's data")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigRefused("The agent's own certificate needs its key", "Give --tls-cert and --tls-key")


def check_address(address: str, secured: bool) -> None:
    """One coordinator's address. Raises ConfigRefused."""
    try:
        host, _ = split_address(address)
    except ConfigRefused:
        raise ConfigRefused(
            f"--coordinator {address!r} is no address",
            "Write it as HOST:PORT, such as 127.0.0.1:7800; several replicas with commas between them",
        ) from None
    if not secured and host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigRefused(
            f"Calling {host} without TLS would send the token and models in the clear",
            "Give --ca CERTIFICATE, or say --insecure on a network that you trust",
        )


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
