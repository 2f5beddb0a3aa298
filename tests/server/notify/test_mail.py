"""Mail against a real server: plain, behind STARTTLS, behind TLS; with a password; refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.receivers import certified, mailing
from tideline.core.errors import ConfigRefused
from tideline.engine.model.notices import Form, Kind, Notice, Outgoing, Target
from tideline_server.notify.building import mail_server_of, sender_of
from tideline_server.notify.mail import MailServer, mailbox_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.settings import CoordinatorSettings

ONE = Outgoing("msg_1", "t", Notice(kind=Kind.FAILED, at=1.7e9, words="Run x has failed", source="1", run_name="x"))
ANN = Target(
    id="t", name="ann", project="", url="mailto:ann@example.org", form=Form.EMAIL, kinds=(Kind.FAILED,), secret="", created=0.0
)


def server(port: int, **more: Any) -> MailServer:
    """The server of a test."""
    return MailServer(**{"host": "127.0.0.1", "port": port, "sender": "tideline@example.org", "security": "none", **more})


def test_a_notice_is_handed_in() -> None:
    """From the coordinator to one mailbox."""
    with mailing() as box:
        found = NoticeSender(mail=server(box.port)).send(ANN, ONE, 0.0)
    assert found.taken
    [(sender, to, _)] = box.mails
    assert "<tideline@example.org>" in sender and [each.split(":")[1] for each in to] == ["<ann@example.org>"]
    [message] = box.messages
    assert message["Subject"] == "Tideline: Run failed: x" and message["To"] == "ann@example.org"


def test_behind_starttls_with_a_password(tmp_path: Path) -> None:
    """The password goes over the encrypted line alone, to who has the name's certificate."""
    ours, theirs = certified(tmp_path, "127.0.0.1")
    with mailing(upgrade=ours) as box:
        box.users = {"tideline": "secret"}
        good = server(box.port, security="starttls", user="tideline", password="secret", trust=lambda: theirs)
        assert good.send(message()).taken and box.secured == [True]
        wrong = server(box.port, security="starttls", user="tideline", password="guess", trust=lambda: theirs)
        assert wrong.send(message()).words == "The mail server refuses (535)"
        stranger = server(box.port, security="starttls", user="tideline", password="secret")
        assert stranger.send(message()).words == "The mail server cannot be used (SSLCertVerificationError)"
    assert len(box.mails) == 1


def test_a_server_without_starttls_gets_nothing() -> None:
    """Where the operator asks for it, which is the default."""
    with mailing() as box:
        found = server(box.port, security="starttls").send(message())
    assert found.words == "The mail server cannot be used (SMTPNotSupportedError)" and not box.mails


def test_behind_tls(tmp_path: Path) -> None:
    """From the first byte on."""
    ours, theirs = certified(tmp_path, "127.0.0.1")
    with mailing(wrapped=ours) as box:
        assert server(box.port, security="tls", trust=lambda: theirs).send(message()).taken


def test_refusals() -> None:
    """Their codes, and nothing that the server said."""
    with mailing() as box:
        box.refuse = "550 nobody of that name"
        assert server(box.port).send(message()).words == "The mail server refuses the recipient (550)"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert server(port).send(message()).words == "The mail server cannot be used (ConnectionRefusedError)"


def message() -> Any:
    """A mail."""
    from tideline_server.notify.forms import as_mail

    return as_mail(ONE, "tideline@example.org", "ann@example.org")


NO_MAILBOXES = (
    *("mailto:", "mailto:ann", "mailto:ann@", "mailto:@example.org", "mailto:ann@example.org,bob@example.org"),
    *("mailto:ann@example.org?bcc=bob@example.org", "mailto:ann@example.org\r\nBcc: x@y", "mailto:Ann <ann@example.org>"),
    "mailto:ann@ex ample.org",
)


def test_one_mailbox_and_nothing_else(subtests: pytest.Subtests) -> None:
    """No second recipient, no header."""
    for url in NO_MAILBOXES:
        with subtests.test(url), pytest.raises(ConfigRefused, match="one mailbox"):
            mailbox_in(url)


def test_settings_of_mail(tmp_path: Path) -> None:
    """A password comes from a file or the environment; what does not fit is refused at the start."""
    (tmp_path / "password").write_text("from a file\n")
    given = {"smtp": "mail.example:587", "smtp_from": "tideline@example.org", "smtp_user": "t"}
    made = mail_server_of(CoordinatorSettings(**given, smtp_password_file=tmp_path / "password"))  # type: ignore[arg-type]
    assert made is not None
    assert (made.host, made.port, made.security, made.password) == ("mail.example", 587, "starttls", "from a file")
    made = mail_server_of(CoordinatorSettings(**given, smtp_password="from the environment"))  # type: ignore[arg-type]
    assert made is not None and made.password == "from the environment" and "environment" not in repr(made)
    assert mail_server_of(CoordinatorSettings()) is None
    for wrong, words in (
        ({"smtp": "mail.example:587"}, "--smtp needs --smtp-from"),
        ({**given, "smtp_security": "ssl"}, "--smtp-security is 'ssl'"),
        ({**given, "smtp": "mail.example"}, "mail.example"),
        ({**given, "smtp_from": "nobody"}, "one mailbox"),
        ({**given, "smtp_password_file": tmp_path / "none"}, "cannot be read"),
        ({"public_url": "tideline.example"}, "--public-url is 'tideline.example'"),
        ({"notify_private": ("10.0.0.0/33",)}, "is no network"),
    ):
        with pytest.raises(ConfigRefused, match=words):
            sender_of(CoordinatorSettings(**wrong), "1")  # type: ignore[arg-type]


def test_without_a_server_there_is_no_mail() -> None:
    """That is said when a target is added."""
    with pytest.raises(ConfigRefused, match="This coordinator sends no e-mail"):
        NoticeSender().check(ANN)
    assert NoticeSender().send(ANN, ONE, 0.0).words == "This coordinator sends no e-mail"
