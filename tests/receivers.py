"""Those who are notified: a receiver of webhooks and a mail server, real ones, on ports of this machine."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tideline.client.certificates import issue_coordinator

Behave = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Got:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Receiver:
    """A receiver of webhooks. answers: a status each, or what is done with the request; the last one stays."""

    port: int = 0
    answers: list[int | Behave] = field(default_factory=lambda: [204])
    got: list[Got] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/hook"

    def behave(self, request: BaseHTTPRequestHandler) -> None:
        """Take a request, then answer as it is the turn of."""
        length = int(request.headers.get("Content-Length", 0))
        sent = {name.lower(): value for name, value in request.headers.items()}
        self.got.append(Got(request.path, sent, request.rfile.read(length)))
        turn = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if callable(turn):
            turn(request)
            return
        request.send_response(turn)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", "0")
        request.end_headers()


@contextlib.contextmanager
def receiving(secured: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Receiver]:
    """A receiver for the time of the block."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with contextlib.suppress(OSError):  # whoever asked may be gone
                made.behave(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.handle_error = lambda *of: None  # type: ignore[method-assign]
    if secured is not None:
        server.socket = secured.wrap_socket(server.socket, server_side=True)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certified(folder: Path, *hosts: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side of TLS for these hosts, and a client's that trusts their authority."""
    issue_coordinator(folder, hosts)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "coordinator.pem", folder / "coordinator.key")
    return server, ssl.create_default_context(cafile=folder / "ca.pem")


@dataclass
class MailBox:
    """A mail server that takes mail for anybody, or as it is told. users: who may log in; none: nobody has to."""

    port: int = 0
    users: dict[str, str] = field(default_factory=dict)
    refuse: str = ""  # what it answers to a recipient
    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    secured: list[bool] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        """What came, read."""
        return [message_from_bytes(content, policy=default) for _, _, content in self.mails]


@contextlib.contextmanager
def mailing(upgrade: ssl.SSLContext | None = None, wrapped: ssl.SSLContext | None = None) -> Iterator[MailBox]:
    """A mail server for the time of the block. upgrade: what STARTTLS leads to; wrapped: TLS from the first byte on."""
    box = MailBox()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        box.port = listener.getsockname()[1]
        thread = threading.Thread(target=serve, args=(listener, box, upgrade, wrapped))
        thread.start()
        try:
            yield box
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for the next client
            thread.join()


def serve(listener: socket.socket, box: MailBox, upgrade: ssl.SSLContext | None, wrapped: ssl.SSLContext | None) -> None:
    """One conversation after the other, until the listener is shut."""
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        held = Conversation(line, box, upgrade)
        with contextlib.suppress(OSError):  # who called may be gone, or mean no TLS
            if wrapped is not None:
                held.begin_tls(wrapped)
            held.hold()
        held.line.close()


class Conversation:
    """One client of the mail server."""

    def __init__(self, line: socket.socket, box: MailBox, upgrade: ssl.SSLContext | None) -> None:
        self.line, self.box, self.upgrade, self.secured = line, box, upgrade, False
        self.sender, self.to, self.known = "", list[str](), not box.users

    def say(self, text: str) -> None:
        """An answer."""
        self.line.sendall(f"{text}\r\n".encode())

    def hear(self) -> str:
        """A line, byte by byte: what follows STARTTLS is not ours to read."""
        heard = b""
        while not heard.endswith(b"\r\n"):
            byte = self.line.recv(1)
            if not byte:
                return "QUIT"
            heard += byte
        return heard.decode()[:-2]

    def hold(self) -> None:
        """Talk until it ends."""
        self.say("220 box")
        while True:
            word, _, rest = (said := self.hear()).partition(" ")
            if word.upper() == "QUIT":
                self.say("221 bye")
                return
            if word.upper() == "STARTTLS" and self.upgrade is not None:
                self.say("220 go on")
                self.begin_tls(self.upgrade)
            else:
                self.answer(word.upper(), rest, said)

    def begin_tls(self, context: ssl.SSLContext) -> None:
        """Go on behind TLS."""
        self.line, self.secured = context.wrap_socket(self.line, server_side=True), True

    def answer(self, word: str, rest: str, said: str) -> None:
        """Answer any other word."""
        if word in ("EHLO", "HELO"):
            more = ["AUTH PLAIN"] if self.box.users else []
            more += ["STARTTLS"] if self.upgrade is not None and not self.secured else []
            lines = ["box", *more]
            for line in lines[:-1]:
                self.say(f"250-{line}")
            self.say(f"250 {lines[-1]}")
        elif word == "AUTH":
            _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
            self.known = self.box.users.get(user) == password
            self.say("235 welcome" if self.known else "535 who are you")
        elif word == "MAIL":
            self.sender = rest
            self.say("250 ok" if self.known else "530 log in")
        elif word == "RCPT":
            self.to.append(rest)
            self.say(self.box.refuse or "250 ok")
        elif word == "DATA":
            self.say("354 go on")
            self.take()
        else:
            self.say("250 ok" if word in ("RSET", "NOOP") else f"500 {said[:20]}")

    def take(self) -> None:
        """A mail's content, up to its dot."""
        lines = list[str]()
        while (line := self.hear()) != ".":
            lines.append(line.removeprefix("."))
        self.box.mails.append((self.sender, self.to, "\r\n".join(lines).encode()))
        self.box.secured.append(self.secured)
        self.say("250 taken")
