"""What an agent's owner decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline.core.run import Role


@dataclass(frozen=True)
class AgentSettings:
    """One agent. `roles` are those that its owner allows; `home` holds its credential, memory and unacknowledged replies.

    `coordinator`: HOST:PORT, or those of several replicas with commas between them.
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
    insecure: bool = False
    parallel: int = 4
    trainer_idle: float = 60.0
    wait: float = 60.0

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the coordinators are."""
        return tuple(dict.fromkeys(each.strip() for each in self.coordinator.split(",")))

    @property
    def folder(self) -> Path:
        """The home, `~/.tideline/agents/NAME` unless another is given."""
        return (self.home or Path("~/.tideline/agents") / self.name).expanduser()


def check(settings: AgentSettings) -> None:
    """Refuse what cannot work, before anything is sent. Raises ConfigRefused."""
    for address in settings.addresses:
        check_address(address, secured=settings.ca is not None or settings.insecure)
    if not settings.data.is_dir():
        raise ConfigRefused(f"--data {settings.data} is not a folder", "Give the folder that holds the site's .npz files")


def check_address(address: str, secured: bool) -> None:
    """One coordinator's address. Raises ConfigRefused."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigRefused(
            f"--coordinator {address!r} is no address",
            "Write it as HOST:PORT, such as 127.0.0.1:7800; several replicas with commas between them",
        )
    if not secured and host.strip("[]") not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigRefused(
            f"Calling {host} without TLS would send the token and models in the clear",
            "Give --ca CERTIFICATE, or say --insecure on a network that you trust",
        )
