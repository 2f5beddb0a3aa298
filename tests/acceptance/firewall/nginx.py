"""Nginx before a coordinator, with the configuration that is shipped: other ports and files, and nothing else changed."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.services import free_port
from tideline.client.certificates import issue_coordinator

SHIPPED = Path(__file__).resolve().parents[3] / "deploy" / "nginx" / "tideline.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def configured(folder: Path, port: int, to: int, more: str = "") -> str:
    """The shipped file, on this machine. more: lines that go before its location."""
    text = SHIPPED.read_text()
    for was, now in (
        ("server 127.0.0.1:7880;", f"server 127.0.0.1:{to};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("server_name coordinator.example.org;", "server_name localhost 127.0.0.1;"),
        ("/etc/nginx/tls/coordinator.pem", str(folder / "tls" / "coordinator.pem")),
        ("/etc/nginx/tls/coordinator.key", str(folder / "tls" / "coordinator.key")),
        ("    location / {", f"{more}\n    location / {{"),
    ):
        assert text.count(was) == 1, was
        text = text.replace(was, now)
    return text


@contextmanager
def nginx(folder: Path, to: int, more: str = "", change: tuple[str, str] = ("", "")) -> Iterator[int]:
    """Nginx before a port, over TLS by an authority in `folder`/tls; gives its port. change: one line for another."""
    assert NGINX is not None
    issue_coordinator(folder / "tls", ["localhost", "127.0.0.1"])
    port, place = free_port(), folder / "nginx"
    place.mkdir()
    text = configured(folder, port, to, more)
    if change[0]:
        assert change[0] in text
        text = text.replace(*change)
    temporary = "".join(f"{kind}_temp_path {place / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = f"daemon off; pid {place / 'pid'}; error_log {place / 'error.log'} info; worker_processes 1;\n"
    events = "events { worker_connections 1024; }\n"
    (place / "nginx.conf").write_text(f"{main}{events}http {{\naccess_log off;\n{temporary}{text}\n}}\n")
    process = subprocess.Popen([NGINX, "-c", str(place / "nginx.conf"), "-p", str(place), "-e", str(place / "error.log")])
    try:
        end = time.monotonic() + 60.0
        while not (place / "pid").exists() or not (place / "pid").read_text().strip():
            assert process.poll() is None and time.monotonic() < end, (place / "error.log").read_text()
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def alerts(folder: Path) -> list[str]:
    return re.findall(r".*\[(?:error|alert|crit|emerg|warn)\].*", (folder / "nginx" / "error.log").read_text())
