"""Sends a notice in its target's form: over HTTP, or as mail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tideline.core.errors import ConfigRefused
from tideline.engine.model.notices import Form, Outgoing, Target
from tideline.engine.ports.notices import Sent
from tideline_server.notify.forms import as_mail, body_of
from tideline_server.notify.mail import MailServer, mailbox_in
from tideline_server.notify.signing import signed
from tideline_server.notify.webhooks import Webhooks


@dataclass(frozen=True)
class NoticeSender:
    """The port `Sender` over networks. public_url: where users find the coordinator, for links."""

    webhooks: Webhooks = field(default_factory=Webhooks)
    mail: MailServer | None = None
    public_url: str = ""
    version: str = ""

    def check(self, target: Target) -> None:
        if target.form is not Form.EMAIL:
            self.webhooks.check(target.url)
            return
        mailbox_in(target.url)
        if self.mail is None:
            todo = "Have its operator start it with --smtp HOST:PORT and --smtp-from, or give the address of a webhook"
            raise ConfigRefused("This coordinator sends no e-mail", todo, path="url")

    def send(self, target: Target, outgoing: Outgoing, now: float) -> Sent:
        try:
            if target.form is Form.EMAIL:
                return self._mailed(target, outgoing)
            body = body_of(target.form, outgoing, self.public_url)
            return self.webhooks.post(target.url, self._headers(target, outgoing, now, body), body)
        except ConfigRefused as error:  # what was right when it was added
            return Sent(False, error.what)

    def _headers(self, target: Target, outgoing: Outgoing, now: float, body: bytes) -> Mapping[str, str]:
        named = {"Content-Type": "application/json", "User-Agent": f"tideline/{self.version}"}
        return named | dict(signed(target.secret, outgoing.id, now, body))

    def _mailed(self, target: Target, outgoing: Outgoing) -> Sent:
        self.check(target)
        assert self.mail is not None, "it was checked"
        return self.mail.send(as_mail(outgoing, self.mail.sender, mailbox_in(target.url), self.public_url))
