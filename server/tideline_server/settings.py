"""The coordinator's settings: command line, then environment (TIDELINE_...), then these defaults."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from tideline.core.algorithm import REGISTRY
from tideline.core.errors import ConfigRefused
from tideline.core.settings import setting
from tideline.core.tokens import place_of
from tideline.engine.coordinator.retention.keeping import Rules
from tideline.engine.coordinator.unreported import Allowance

LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERYWHERE = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class CoordinatorSettings:
    """Where the coordinator stores its files and listens. Each field is an option and a variable; `doc` is the option's help."""

    home: Path = setting(Path("~/.tideline/coordinator"), doc="Folder of the database, the parts and the admin key.")
    # May hold a password, and so is not shown.
    database: str | None = field(
        default=None, repr=False, metadata={"doc": "URL of a Postgres database. Without it, an SQLite file in the home."}
    )
    parts: str | None = setting(None, doc="Directory of the parts, or s3://BUCKET/PREFIX. Without it, a folder in the home.")
    parts_cache: float = setting(10.0, low=0.001, doc="GB of a bucket's parts that the home caches.")
    scrub_days: float = setting(7.0, low=0, doc="Days within which every part is read once, to find damage. 0: never.")
    retain_runs_days: float = setting(0.0, low=0, doc="Days after its end that a run is kept. 0: for ever.")
    retain_events_days: float = setting(0.0, low=0, doc="Days after a run's end that its events are kept. 0: for ever.")
    retain_audit_days: float = setting(0.0, low=0, doc="Days after which entries of the audit log are archived. 0: never.")
    audit_archive: Path | None = setting(None, doc="Folder in which old entries of the audit log become files.")
    wait: float = setting(60.0, low=0, high=86400, doc="Seconds to wait at the start for a database that does not answer.")
    host: str = setting("127.0.0.1", doc="Address to listen on.")
    redis: str | None = setting(None, doc="redis://HOST:PORT through which replicas wake each other and share limits.")
    redis_password_file: Path | None = setting(None, doc="File with the password of Redis, so that no URL has to hold it.")
    lease: float = setting(15.0, low=1, high=3600, doc="Seconds of silence after which another replica takes over the runs.")
    connections: int = setting(256, low=0, doc="Connections from one address to the HTTP port. 0: no limit.")
    grpc_connections: int = setting(1024, low=0, doc="Connections from one address to the gRPC port. 0: no limit.")
    admin_key_file: Path | None = setting(None, doc="File with an admin key that replicas share, beside the home's own.")
    signing_key: Path | None = setting(
        None, doc="File with the private key (Ed25519, PEM) that signs dossiers. [default: signing.key in the home]"
    )
    # From the environment alone: other users of the machine can see a command's options.
    admin_key: str | None = field(default=None, repr=False)
    grpc_port: int = setting(7800, low=0, high=65535, doc="gRPC port, for agents. 0: any free port.")
    advertise: str | None = setting(None, doc="HOST:PORT or https://HOST,... that agents call. Without it, this host and port.")
    http_port: int = setting(7880, low=0, high=65535, doc="HTTP port, for users and programs. 0: any free port.")
    dashboard: str = setting("on", choices=("on", "off"), doc="Pages for people on the HTTP port: on or off.")
    bulk: str | None = setting(
        None, doc="[HOST:]PORT over which agents move parts faster, at the HOST that they call. 0: any free port. [default: off]"
    )
    agents_over_http: bool = setting(False, doc="Let agents call over the HTTP port too, for those that reach no other.")
    trusted_proxies: str | None = setting(
        None, doc="ADDRESS,... of reverse proxies whose X-Forwarded-For says who calls. [default: this machine's]"
    )
    tls_cert: Path | None = setting(None, doc="Certificate chain (PEM) for all ports.")
    tls_key: Path | None = setting(None, doc="Private key (PEM) of that certificate.")
    tls_ca: Path | None = setting(None, doc="CA certificates (PEM) that agents trust. [default: the last of --tls-cert]")
    tls_client_ca: Path | None = setting(None, doc="CA certificate (PEM) that must have signed each agent's certificate.")
    insecure: bool = setting(False, doc="Listen beyond this machine without TLS.")
    public_url: str | None = setting(None, doc="Where users find the HTTP port, such as https://HOST: for links in notices.")
    notify_private: tuple[str, ...] = setting(
        (), doc="Private network, such as 10.0.0.0/8, to which webhooks may go; all: any. Repeatable."
    )
    smtp: str | None = setting(None, doc="HOST:PORT of the mail server that sends notices.")
    smtp_from: str | None = setting(None, doc="Sender of mail, NAME@HOST.")
    smtp_security: str = setting(
        "starttls", choices=("starttls", "tls", "none"), doc="How to speak to it: starttls, tls or none."
    )
    smtp_user: str | None = setting(None, doc="User at the mail server.")
    smtp_password_file: Path | None = setting(None, doc="File with that user's password.")
    smtp_password: str | None = field(default=None, repr=False)  # from the environment alone, as the admin key
    rate: int = setting(3000, low=0, doc="HTTP requests a minute from one address. 0: no limit.")
    rate_wrong_keys: int = setting(30, low=0, doc="HTTP requests a minute from one address without a valid key. 0: no limit.")
    rate_enrol: int = setting(1200, low=0, doc="Enrolments a minute from one address. 0: no limit.")
    weights_limit: float = setting(4.0, low=1e-6, doc="GB that an uploaded file of initial weights may have.")
    reply_limit: float = setting(4.0, low=1e-6, doc="GB that a site's reply may have where its contract does not bound it.")
    unreported_limit: float = setting(32.0, low=1e-6, doc="GB that a client may have pushed and not reported yet.")
    oidc_issuer: str | None = setting(None, doc="Issuer of the OpenID Connect provider by which users sign in. [default: none]")
    oidc_client_id: str = setting("", doc="The client that is registered there for this coordinator.")
    oidc_client_secret_file: Path | None = setting(None, doc="File with that client's secret, if it has one.")
    # From the environment alone, as other secrets are.
    oidc_client_secret: str | None = field(default=None, repr=False)
    oidc_cli_client_id: str = setting("", doc="A public client for the command line, where the other one has a secret.")
    oidc_audience: str = setting("", doc="Audience that tokens have to name. Without it, the clients' ids.")
    oidc_claim: str = setting("groups", doc="Claim whose values grant roles, such as realm_access.roles.")
    oidc_grant: tuple[str, ...] = setting(
        (), doc="VALUE=ROLE[:PROJECT]: a value of the claim, what it grants, where. Repeatable."
    )
    oidc_scopes: str = setting("openid profile email", doc="Scopes that are asked for; the command line adds offline_access.")
    oidc_url: str | None = setting(None, doc="This HTTP port's address as browsers call it. Without it, as they say.")
    oidc_session_hours: float = setting(8.0, low=0.01, high=720.0, doc="Hours for which a browser's session is good.")
    oidc_ca: Path | None = setting(None, doc="CA certificate (PEM) that is trusted for the provider, beside the machine's.")
    oidc_insecure: bool = setting(False, doc="Call the provider without TLS too.")
    methods: str = setting(REGISTRY, doc="Methods beside the built-in ones, MODULE:TUPLE.")
    networks: tuple[str, ...] = setting((), doc="Networks beside the built-in ones, MODULE:NAME. Repeatable.")

    @property
    def folder(self) -> Path:
        return self.home.expanduser()

    @property
    def store(self) -> Path | str:
        """Where the journal is: a file, or a URL, which may hold a password."""
        return self.folder / "coordinator.db" if self.database is None else self.database

    @property
    def place(self) -> tuple[str, Path, float]:
        """Where parts are stored, the home that may hold a cache of them, and how many GB of it."""
        return self.parts or str(self.folder / "parts"), self.folder, self.parts_cache

    @property
    def lane(self) -> tuple[str, int] | None:
        """The bulk lane's port, and the host that agents are told where it is another than that of gRPC. Raises ConfigRefused."""
        if not self.bulk:
            return None
        host, _, port = self.bulk.rpartition(":")
        if not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ConfigRefused(f"--bulk {self.bulk!r} is no port", "Write PORT or HOST:PORT, such as 7801", path="bulk")
        return host, int(port)

    @property
    def proxies(self) -> tuple[str, ...]:
        """The addresses that --trusted-proxies names. Raises ConfigRefused for what is none."""
        named = tuple(dict.fromkeys(each.strip() for each in (self.trusted_proxies or "").split(",") if each.strip()))
        for each in named:
            try:
                ipaddress.ip_address(each)
            except ValueError:
                todo = "Write addresses, such as 10.0.0.5,10.0.0.6"
                raise ConfigRefused(f"--trusted-proxies {each!r} is no address", todo, path="trusted_proxies") from None
        return named

    @property
    def weights_bytes(self) -> int:
        return int(self.weights_limit * 10**9)

    @property
    def rules(self) -> Rules:
        return Rules(self.retain_runs_days, self.retain_events_days)

    @property
    def allowance(self) -> Allowance:
        return Allowance(int(self.reply_limit * 10**9), int(self.unreported_limit * 10**9))

    @property
    def advertised(self) -> tuple[str, ...]:
        """The addresses that --advertise names. Raises ConfigRefused."""
        return addresses_in(self.advertise or "")


def addresses_in(text: str) -> tuple[str, ...]:
    """HOST:PORT,https://HOST as a tuple, each once. Raises ConfigRefused."""
    addresses = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for each in addresses:
        place_of(each)
    return addresses
