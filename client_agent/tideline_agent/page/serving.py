"""The page on a port of this machine, on a thread of its own, as long as the agent works."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import uvicorn

from tideline.core.errors import ConfigRefused
from tideline_agent.home.identity import write
from tideline_agent.machine.use import Machine
from tideline_agent.page.access import Access
from tideline_agent.page.app import OwnersPage
from tideline_agent.page.content import Site
from tideline_agent.page.link import ADDRESS, new_link
from tideline_agent.page.work import Work
from tideline_agent.settings import LOOPBACK, AgentSettings

MOST_CALLS = 64  # at once


@contextlib.contextmanager
def serve_page(settings: AgentSettings, place: tuple[str, int], works: Callable[[], Sequence[Work]]) -> Iterator[str]:
    """Serve the page as long as the block lasts, which is given the link. Raises ConfigRefused for a port that is taken."""
    home, listener = settings.folder, listen(place)
    port = listener.getsockname()[1]
    names = frozenset({*(named(each, port) for each in LOOPBACK), *(each.lower() for each in settings.page_host)})
    site = Site(name=settings.name, home=home, machine=Machine(settings.device), policy=settings.policy, works=works)
    page = OwnersPage(site, Access(home, names), f"tideline_page_{port}")
    config = uvicorn.Config(
        page.app(),
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        limit_concurrency=MOST_CALLS,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="page", daemon=True)
    write(home / ADDRESS, named(place[0] if place[0] in LOOPBACK else "127.0.0.1", port).encode())
    thread.start()
    try:
        yield new_link(home)
    finally:
        server.should_exit = True
        thread.join(5.0)
        listener.close()
        with contextlib.suppress(OSError):
            (home / ADDRESS).unlink(missing_ok=True)


def named(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(place: tuple[str, int]) -> socket.socket:
    """Raises ConfigRefused."""
    host, port = place
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as cause:
        what = f"--page {named(host, port)} cannot be listened on: {cause.strerror}"
        raise ConfigRefused(what, "Choose another port, or end what listens there", path="page") from None
