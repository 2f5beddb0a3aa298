"""Puts together what notifies, from the coordinator's settings, and keeps it going."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from tideline import __version__
from tideline.core.errors import ConfigRefused, FederationError
from tideline.core.tokens import split_address
from tideline.engine.coordinator.notices.courier import Courier, Reports
from tideline.engine.coordinator.notices.targets import MAIL, Targets
from tideline.engine.model.notices import Outgoing, Target
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.notices import Notices
from tideline_server.metrics import Metrics
from tideline_server.notify.addresses import allowed_in
from tideline_server.notify.mail import SECURITIES, MailServer, mailbox_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.watching import Watch
from tideline_server.notify.webhooks import Webhooks
from tideline_server.settings import CoordinatorSettings

log = structlog.get_logger()
PAUSE_SECONDS = 2.0  # between two looks at what there is to do; a look reads two indexes
Ends = Callable[[], Mapping[str, float]]


def sender_of(settings: CoordinatorSettings, version: str) -> NoticeSender:
    """What sends notices. Raises ConfigRefused for settings that do not fit."""
    public = settings.public_url or ""
    if public and urlsplit(public).scheme not in ("http", "https"):
        raise ConfigRefused(f"--public-url is {public!r}", "Write https://HOST, as users call the HTTP port", path="public_url")
    webhooks = Webhooks(allowed_in(settings.notify_private))
    return NoticeSender(webhooks, mail_server_of(settings), public, version)


def mail_server_of(settings: CoordinatorSettings) -> MailServer | None:
    """The mail server, if the operator names one. Raises ConfigRefused."""
    if settings.smtp is None:
        return None
    if settings.smtp_security not in SECURITIES:
        what = f"--smtp-security is {settings.smtp_security!r}"
        raise ConfigRefused(what, f"Use one of: {', '.join(SECURITIES)}", path="smtp_security")
    if settings.smtp_from is None:
        raise ConfigRefused("--smtp needs --smtp-from", "Name the sender of mail: --smtp-from NAME@HOST", path="smtp_from")
    host, port = split_address(settings.smtp)
    return MailServer(
        host=host,
        port=int(port),
        sender=mailbox_in(f"{MAIL}{settings.smtp_from}"),
        security=settings.smtp_security,
        user=settings.smtp_user or "",
        password=password_of(settings),
    )


def password_of(settings: CoordinatorSettings) -> str:
    """The password at the mail server, from the environment or a file. Raises ConfigRefused."""
    if settings.smtp_password is not None or settings.smtp_password_file is None:
        return settings.smtp_password or ""
    try:
        return settings.smtp_password_file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as cause:
        why = f"--smtp-password-file {settings.smtp_password_file} cannot be read ({type(cause).__name__})"
        raise ConfigRefused(why, "Name a file with the password in one line", path="smtp_password_file") from None


@dataclass(frozen=True)
class Notifying:
    """What notifies: `targets` for users, `courier` for the loop."""

    targets: Targets
    courier: Courier


def notifying_of(
    settings: CoordinatorSettings, notices: Notices, clock: Clock, disks: tuple[Path, ...], metrics: Metrics, ends: Ends
) -> Notifying:
    """ends: when the certificates end that are known, by whose they are. Raises ConfigRefused."""
    sender = sender_of(settings, __version__)
    watch = Watch(socket.gethostname(), disks, ends)
    reports = Reports(metrics.notice, put_down)
    courier = Courier(notices=notices, sender=sender, clock=clock, watch=watch, reports=reports)
    return Notifying(Targets(notices, sender, clock), courier)


def ends_of(own: Callable[[], float] | None, agents: Callable[[], Mapping[str, float]]) -> Ends:
    """When certificates end: the coordinator's own, if it has one, and those that agents showed."""

    def ends() -> dict[str, float]:
        there = {} if own is None else {"the coordinator": own()}
        return there | {f"the agent {name}": end for name, end in agents().items()}

    return ends


def put_down(outgoing: Outgoing, target: Target, reason: str) -> None:
    """A notice will not arrive. Its target stands by its name: the address may hold a secret."""
    log.warning("notice_given_up", notice=outgoing.id, target=target.name, project=target.project or "all", reason=reason)


async def notifying(courier: Courier) -> None:
    """Have what is due sent, until it is cancelled. While the database is away nothing is, and nothing is lost."""
    failure = ""
    while True:
        try:
            await asyncio.to_thread(courier.step)
            failure = ""
        except FederationError as error:
            if str(error) != failure:
                failure = str(error)
                log.warning("notices_wait", reason=failure)
        except Exception:
            log.exception("notifying_failed")
        await asyncio.sleep(PAUSE_SECONDS)
