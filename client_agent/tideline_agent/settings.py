"""Settings of an agent, which its owner chooses, and the policy file that says what may leave the site.

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

from tideline.core.algorithm import REGISTRY
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure, Policy
from tideline.core.run import Role
from tideline.core.settings import Plain, nearest, setting
from tideline.core.tokens import split_address
from tideline.learning.sites.named import place_in

NOTES = "notes"  # beside the exposures: what an agent tells of its work (core.notes)


@dataclass(frozen=True)
class AgentSettings:
    """One agent. Fields with a `doc` are options of `tideline agent`; the doc is the option's help.

    `roles` are those that its owner allows; `home` holds its keys, its memory and replies that are not acknowledged yet.
    `notes`: whether the agent reports to the coordinator how work goes here, as far as the policy file allows it too.
    """

    coordinator: str = setting(
        doc="HOST:PORT of the coordinator's gRPC port, several replicas with commas. [default: the token's, or the home's]"
    )
    data: Path = setting(doc="Folder of the site's data, see `tideline data check`; or python:MODULE:NAME, a function.")
    roles: tuple[Role, ...] = setting()
    name: str = setting(doc="The client's name. [default: the home's, or the host's]")
    token: str = ""
    home: Path | None = setting(None, doc="Folder of the agent's keys and memory. [default: ~/.tideline/agents/NAME]")
    policy: Path | None = setting(None, doc="File (TOML) that says what may leave this site.")
    device: str = setting("auto", doc="Where steps compute: auto, cpu, cuda, ...")
    methods: str = setting(REGISTRY, doc="Methods beside the built-in ones, MODULE:TUPLE.")
    networks: tuple[str, ...] = setting((), doc="Networks beside the built-in ones, MODULE:NAME. Repeatable.")
    ca: Path | None = setting(None, doc="CA certificate (PEM) that signed the coordinator's. [default: the token's]")
    tls_cert: Path | None = setting(None, doc="The agent's own certificate (PEM), if the coordinator asks for one.")
    tls_key: Path | None = setting(None, doc="Private key (PEM) of that certificate.")
    insecure: bool = setting(False, doc="Call beyond this machine without TLS.")
    rotate: bool = setting(False, doc="Make new keys after enrolment.")
    parallel: int = setting(4, low=1, doc="Runs served at once.")
    trainer_idle: float = setting(60.0, low=0, doc="Seconds after which an idle trainer process ends.")
    wait: float = setting(60.0, low=0, doc="Seconds to wait for a coordinator at the start.")
    notes: bool = True
    metrics: str | None = setting(None, doc="[HOST:]PORT that serves metrics for Prometheus. [default: off]")

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
    if place_in(settings.data) is None and not settings.data.is_dir():
        todo = "Give the folder that holds the site's data, or python:MODULE:NAME"
        raise ConfigRefused(f"--data {settings.data} is not a folder", todo)
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigRefused("The agent's own certificate needs its key", "Give --tls-cert and --tls-key")


def check_address(address: str, secured: bool) -> None:
    """One coordinator's address. Raises ConfigRefused."""
    try:
        host, _ = split_address(address)
    except ConfigRefused:
        todo = "Write it as HOST:PORT, such as 127.0.0.1:7800; several replicas with commas between them"
        raise ConfigRefused(f"--coordinator {address!r} is not an address", todo) from None
    if not secured and host not in ("127.0.0.1", "::1", "localhost"):
        what = f"Calling {host} without TLS would send the token and models in the clear"
        raise ConfigRefused(what, "Give --ca CERTIFICATE, or say --insecure on a network that you trust")


TABLES = ("allow", "forbid", "runs")  # of a policy file


@dataclass(frozen=True)
class SitePolicy:
    """What may leave a site in replies, whether its agent tells the coordinator of its work, and whether the site rehearses."""

    allowed: Policy = DEFAULT_POLICY
    notes: bool = True
    rehearse: bool = True


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
        if table not in TABLES:
            todo = f"Use {', '.join(f'[{each}]' for each in TABLES)}{nearest(table, TABLES)}"
            raise ConfigRefused(f"{path}: [{table}] is not known", todo)
    allowed = DEFAULT_POLICY | frozenset(pairs(path, raw, "allow"))
    forbidden = frozenset(pairs(path, raw, "forbid"))
    return SitePolicy(allowed - forbidden, not raw.get("forbid", {}).get(NOTES), rehearses(path, raw.get("runs", {})))


def rehearses(path: Path, runs: Plain) -> bool:
    """What the table [runs] says of rehearsing. Raises ConfigRefused."""
    todo = "Write [runs] and below it: rehearse = false"
    if not isinstance(runs, dict):
        raise ConfigRefused(f"{path}: runs is not a table", todo)
    for key in runs:
        if key != "rehearse":
            raise ConfigRefused(f"{path}: runs.{key} is not known", f"{todo}{nearest(key, ['rehearse'])}")
    said = runs.get("rehearse", True)
    if not isinstance(said, bool):
        raise ConfigRefused(f"{path}: runs.rehearse is {said!r}, which is neither true nor false", todo)
    return said


def pairs(path: Path, raw: dict[str, Plain], table: str) -> Iterator[tuple[Exposure, Audience]]:
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
