"""Settings of an agent, which its owner chooses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tideline.core.algorithm import REGISTRY
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.core.settings import setting
from tideline.core.tokens import place_of, split_address
from tideline.learning.cache.folder import HALF, limit_in
from tideline.learning.loading.workers import MOST
from tideline.learning.sites.named import place_in

LOOPBACK = ("127.0.0.1", "::1", "localhost")
NOTES = "notes"  # beside the exposures: what an agent tells of its work (core.notes)


class Switch(StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class AgentSettings:
    """One agent. Fields with a `doc` are options of `tideline agent`; the doc is the option's help.

    `roles` are those that its owner allows; `home` holds its keys, its memory and replies that are not acknowledged yet.
    `notes`: whether the agent reports to the coordinator how work goes here, as far as the policy file allows it too.
    """

    coordinator: str = setting(
        doc="HOST:PORT of the coordinator's gRPC port, or https://HOST; several with commas. [default: the token's or home's]"
    )
    data: Path = setting(doc="Folder of the site's data, see `tideline data check`; or python:MODULE:NAME, a function.")
    roles: tuple[Role, ...] = setting()
    name: str = setting(doc="The client's name. [default: the home's, or the host's]")
    token: str = ""
    home: Path | None = setting(None, doc="Folder of the agent's keys and memory. [default: ~/.tideline/agents/NAME]")
    policy: Path | None = setting(None, doc="File (TOML) that says which runs may run here, and what may leave.")
    device: str = setting("auto", doc="Where steps compute: auto, cpu, cuda, ...")
    workers: int | None = setting(
        None, low=0, high=MOST, doc="Threads that read rows ahead of a step; 0: none. [default: as many as cores, at most 8]"
    )
    gpu_memory: float | None = setting(
        None, low=0.001, high=1.0, doc="Share of the GPU's memory for each process that trains. [default: 1 / parallel]"
    )
    methods: str = setting(REGISTRY, doc="Methods beside the built-in ones, MODULE:TUPLE.")
    networks: tuple[str, ...] = setting((), doc="Networks beside the built-in ones, MODULE:NAME. Repeatable.")
    ca: Path | None = setting(None, doc="CA certificate (PEM) that signed the coordinator's. [default: the token's]")
    tls_cert: Path | None = setting(None, doc="The agent's own certificate (PEM), if the coordinator asks for one.")
    tls_key: Path | None = setting(None, doc="Private key (PEM) of that certificate.")
    # May hold a password, and so is not shown.
    proxy: str = field(
        default="", repr=False, metadata={"doc": "HTTP proxy on the way, http://HOST:PORT, or off. [default: HTTPS_PROXY]"}
    )
    pin_addresses: bool = setting(False, doc="Call no address but those of --coordinator, whatever the coordinator announces.")
    insecure: bool = setting(False, doc="Call beyond this machine without TLS.")
    rotate: bool = setting(False, doc="Make new keys after enrolment.")
    parallel: int = setting(4, low=1, doc="Runs served at once.")
    trainer_idle: float = setting(60.0, low=0, doc="Seconds after which an idle trainer process ends.")
    rows_cache: str = setting(
        HALF,
        doc="Size that decoded rows of large image sets may take in the home, such as 20GB; 0 for none. Half of the free disk.",
    )
    wait: float = setting(60.0, low=0, doc="Seconds to wait for a coordinator at the start.")
    notes: bool = True
    bulk: Switch = setting(Switch.ON, doc="Whether parts travel over the coordinator's bulk lane, if it has one: on, off.")
    metrics: str | None = setting(None, doc="[HOST:]PORT that serves metrics for Prometheus. [default: off]")

    page: str | None = setting(None, doc="HOST:PORT of this machine that serves the owner's page. [default: off]")
    page_host: tuple[str, ...] = setting((), doc="Name by which a proxy of yours is called that reaches --page. Repeatable.")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the coordinators are, as far as the owner says so."""
        return tuple(dict.fromkeys(each.strip() for each in self.coordinator.split(","))) if self.coordinator else ()

    @property
    def memory_share(self) -> float:
        """Of a GPU's memory, for each trainer process."""
        return 1 / self.parallel if self.gpu_memory is None else self.gpu_memory

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
    if settings.pin_addresses and not settings.addresses:
        raise ConfigRefused("--pin-addresses needs the addresses", "Give --coordinator HOST:PORT, or https://HOST")
    page_place(settings)
    limit_in(settings.rows_cache)
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigRefused("The agent's own certificate needs its key", "Give --tls-cert and --tls-key")


def page_place(settings: AgentSettings) -> tuple[str, int] | None:
    """Where the owner's page is served; None: nowhere. Raises ConfigRefused."""
    if settings.page is None:
        if settings.page_host:
            raise ConfigRefused("--page-host is given, and no page", "Add --page 127.0.0.1:7890", path="page_host")
        return None
    try:
        host, port = split_address(settings.page if ":" in settings.page else f"127.0.0.1:{settings.page}")
        number = int(port)
    except (ConfigRefused, ValueError):
        todo = "Write HOST:PORT, such as 127.0.0.1:7890"
        raise ConfigRefused(f"--page {settings.page!r} is no address", todo, path="page") from None
    if host.strip("[]") not in LOOPBACK and not settings.page_host:
        what = f"--page {settings.page} would show this site's ledger to other machines"
        todo = "Write --page 127.0.0.1:PORT and reach it by an SSH tunnel, or name your proxy with TLS: --page-host NAME"
        raise ConfigRefused(what, todo, path="page")
    return host.strip("[]"), number


def check_address(address: str, secured: bool) -> None:
    """One coordinator's address. Raises ConfigRefused."""
    try:
        place = place_of(address)
    except ConfigRefused:
        todo = "Write it as HOST:PORT, such as 127.0.0.1:7800, or as https://HOST; several with commas between them"
        raise ConfigRefused(f"--coordinator {address!r} is not an address", todo) from None
    if not secured and place.scheme != "https" and place.host not in ("127.0.0.1", "::1", "localhost"):
        what = f"Calling {place.host} without TLS would send the token and models in the clear"
        todo = "Call it with https://" if place.scheme == "http" else "Give --ca CERTIFICATE"
        raise ConfigRefused(what, f"{todo}, or say --insecure on a network that you trust")
