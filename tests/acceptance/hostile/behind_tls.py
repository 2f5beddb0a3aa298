"""A coordinator whose doors have TLS, under an authority of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from tests.acceptance.harness import COORDINATOR, Net
from tests.cli.world import tide
from tideline.client.http import Client, Endpoint


def start_with_tls(federation: Net) -> Path:
    """Start the coordinator. Gives the certificate of the authority that all who call it trust."""
    made = federation.home / "authority"
    assert tide("tls", "init", "--out", made, "--host", "127.0.0.1").exit_code == 0
    federation.coordinator("--tls-cert", str(made / "coordinator.pem"), "--tls-key", str(made / "coordinator.key"))
    federation._clients[COORDINATOR] = Client.of(Endpoint(home=federation.folder, ca=made / "ca.pem"))
    return made / "ca.pem"


def channel(address: str, authority: Path | None) -> Any:
    """A line to the agents' port; without TLS where there is no authority."""
    if authority is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority.read_bytes()))
