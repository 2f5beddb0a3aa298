"""TLS as Python's own servers want it: from bytes that were checked, and not from files that may change meanwhile."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline_server.tls.files import Tls

MEMORY = Path("/dev/shm")


def context_of(tls: Tls, asked: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    """A server's context. asked: whether callers have to show a certificate. Raises ConfigRefused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        load(context, tls)
        if asked is not ssl.CERT_NONE and tls.clients is not None:
            context.load_verify_locations(cadata=tls.clients.decode("ascii", "ignore"))
            context.verify_mode = asked
    except (OSError, ssl.SSLError) as cause:
        todo = "Give a certificate and its key, as PEM files"
        raise ConfigRefused(f"--tls-cert and --tls-key do not fit: {cause}", todo) from None
    return context


def load(context: ssl.SSLContext, tls: Tls) -> None:
    """The key passes through a file, as ssl takes nothing else: in memory where there is such a place, and of this user alone."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        path = Path(folder) / "own.pem"
        path.touch(0o600)
        path.write_bytes(tls.key + b"\n" + tls.chain)
        context.load_cert_chain(path)
