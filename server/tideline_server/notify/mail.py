"""E-mail, through a mail server that the coordinator's operator names."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage

from tideline.core.errors import ConfigRefused
from tideline.engine.coordinator.notices.targets import MAIL
from tideline.engine.ports.notices import Sent

SECONDS = 10.0  # of each step of a conversation
SECURITIES = ("starttls", "tls", "none")
# One mailbox of plain letters: no second recipient, no header, no comment.
MAILBOX = re.compile(r"[A-Za-z0-9!#$&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class MailServer:
    """Where mail is handed in, and by whom."""

    host: str
    port: int
    sender: str
    security: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context

    def send(self, message: EmailMessage) -> Sent:
        """Try once. A server may take a mail and fail later: that it was handed in is all that is known."""
        try:
            with self._line() as line:
                if self.security == "starttls":
                    line.starttls(context=self.trust())
                if self.user:
                    line.login(self.user, self.password)
                line.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            return Sent(False, f"The mail server refuses the recipient ({next(iter(error.recipients.values()))[0]})")
        except smtplib.SMTPResponseException as error:
            return Sent(False, f"The mail server refuses ({error.smtp_code})")
        except (smtplib.SMTPException, OSError) as error:
            return Sent(False, f"The mail server cannot be used ({type(error).__name__})")
        return Sent(True, "handed to the mail server")

    def _line(self) -> smtplib.SMTP:
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=SECONDS, context=self.trust())
        return smtplib.SMTP(self.host, self.port, timeout=SECONDS)


def mailbox_in(url: str) -> str:
    """Who gets the mail of mailto:NAME@HOST. Raises ConfigRefused."""
    found = url.removeprefix(MAIL)
    if not MAILBOX.fullmatch(found):
        raise ConfigRefused("url is no address of one mailbox", "Give mailto:NAME@HOST", path="url")
    return found
