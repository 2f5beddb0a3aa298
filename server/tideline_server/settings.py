"""The coordinator's settings: command line, then environment (TIDELINE_...), then these defaults."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from tideline.core.tokens import split_address

LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERYWHERE = ("0.0.0.0", "::", "")


class CoordinatorSettings(BaseSettings):
    """Where the coordinator keeps things and listens. Port 0 takes a free one."""

    model_config = SettingsConfigDict(env_prefix="TIDELINE_", frozen=True)

    home: Path = Field(Path("~/.tideline/coordinator"), description="database, parts and admin key")
    database: SecretStr | None = Field(None, description="URL of the database; none: an SQLite file in the home")
    parts: str | None = Field(None, description="directory or s3://BUCKET/PREFIX of the parts; none: a folder in the home")
    parts_cache: float = Field(10.0, gt=0, allow_inf_nan=False, description="GB of a bucket's parts that are kept in the home")
    wait: float = Field(60.0, ge=0.0, le=86400.0, description="seconds to wait at the start for a database that does not answer")
    host: str = Field("127.0.0.1", description="address that both ports listen on")
    redis: str | None = Field(None, description="redis://HOST:PORT, through which replicas wake each other and share limits")
    lease: float = Field(15.0, ge=1.0, le=3600.0, description="seconds of silence after which another replica conducts the runs")
    connections: int = Field(256, ge=0, description="connections from one address at the HTTP API; 0: any number")
    admin_key_file: Path | None = Field(None, description="file with an admin key that replicas share, beside the home's own")
    admin_key: SecretStr | None = Field(None, description="the same key itself, from the environment alone")
    grpc_port: int = Field(7800, ge=0, le=65535, description="the gRPC port for agents")
    advertise: str | None = Field(None, description="HOST:PORT,... that agents call; none: this host and port")
    http_port: int = Field(7880, ge=0, le=65535, description="the port of the HTTP API")
    tls_cert: Path | None = Field(None, description="certificate chain (PEM) for both ports")
    tls_key: Path | None = Field(None, description="its key (PEM)")
    tls_client_ca: Path | None = Field(None, description="certificate (PEM) of the authority that must sign each agent's own")
    insecure: bool = Field(False, description="listen beyond this machine without TLS")
    rate: int = Field(3000, ge=0, description="requests a minute from one address at the HTTP API; 0: any number")
    rate_wrong_keys: int = Field(30, ge=0, description="requests a minute from one address without the right key; 0: any number")
    rate_enrol: int = Field(1200, ge=0, description="enrolments a minute from one address; 0: any number")
    weights_limit: float = Field(4.0, gt=0, allow_inf_nan=False, description="GB of a file of weights that may be uploaded")
    methods: str = Field("tideline.algorithms:METHODS", description="the registry of methods, MODULE:TUPLE")

    @property
    def folder(self) -> Path:
        return self.home.expanduser()

    @property
    def store(self) -> Path | str:
        """Where the journal lies: a file, or a URL, which may hold a password."""
        return self.folder / "coordinator.db" if self.database is None else self.database.get_secret_value()

    @property
    def place(self) -> tuple[str, Path, float]:
        """Where parts lie, the home that may hold a cache of them, and how many GB of it."""
        return self.parts or str(self.folder / "parts"), self.folder, self.parts_cache

    @property
    def weights_bytes(self) -> int:
        return int(self.weights_limit * 10**9)

    @property
    def advertised(self) -> tuple[str, ...]:
        """The addresses that --advertise names. Raises ConfigRefused."""
        return addresses_in(self.advertise or "")


def addresses_in(text: str) -> tuple[str, ...]:
    """HOST:PORT,HOST:PORT as a tuple, each once. Raises ConfigRefused."""
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for each in found:
        split_address(each)
    return found
