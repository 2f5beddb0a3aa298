"""A small provider of identities on a port of its own: real HTTP, real signatures, and faults on demand."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

CLIENT, SECRET = "tideline", "the client's secret & more"
HOUR = 3600.0


class Clock:
    """A clock that stands until it is set."""

    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.at = at

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.at


class Away(Exception):
    """The connection is cut without an answer."""


@cache
def first_key() -> RSAKey:
    """The key of every provider before it is changed: one takes a while to make."""
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


class Provider:
    """A provider with one realm. `user` are the claims of who signs in next; `fault` answers in the place of an address."""

    def __init__(self, clock: Any = None, secret: str = "") -> None:
        self.clock, self.secret = clock or Clock(), secret
        self.key: Any = first_key()
        self.shown: list[Any] = [self.key]
        self.user: dict[str, Any] = {"sub": "42", "preferred_username": "alice", "groups": ["cardio-ops"]}
        self.redirects: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.fault: dict[str, Callable[[Handler], None]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.devices: dict[str, list[str]] = {}  # of a device code, what its polls are answered before it is approved
        self.refreshes: dict[str, dict[str, Any]] = {}
        self.revoked: list[str] = []
        self.refusals: list[str] = ["authorization_pending"]  # what the next device's polls are answered first
        self.refreshing, self.interval = True, 5.0
        self.without: set[str] = set()  # what its description lacks
        self.issuer = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator[Provider]:
        """At a free port, in a thread."""
        with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"provider": self})) as server:
            self.issuer = f"http://127.0.0.1:{server.server_port}/realms/hospital"
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def rotate(self, kid: str = "two", kind: str = "EC") -> None:
        """Sign with a new key, and show it alone."""
        alg = "ES256" if kind == "EC" else "RS256"
        parameters = {"kid": kid, "use": "sig", "alg": alg}
        self.key = ECKey.generate_key("P-256", parameters) if kind == "EC" else RSAKey.generate_key(2048, parameters)
        self.shown = [self.key]

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a good token; None takes one out."""
        now = int(self.clock.now())
        good = {"iss": self.issuer, "aud": CLIENT, "azp": CLIENT, "exp": now + HOUR, "iat": now, "nbf": now, "typ": "ID"}
        return {name: value for name, value in (good | self.user | changes).items() if value is not None}

    def token(self, key: Any = None, header: Mapping[str, Any] | None = None, **changes: Any) -> str:
        """A token that is signed, by this key or another."""
        key = key or self.key
        head = {"alg": key.get("alg", "RS256"), "kid": key.kid} | dict(header or {})
        return jwt.encode({k: v for k, v in head.items() if v is not None}, self.claims(**changes), key, algorithms=[head["alg"]])

    def description(self) -> dict[str, Any]:
        """What it says of itself."""
        named = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "certs"}
        named |= {"device_authorization_endpoint": "device", "revocation_endpoint": "revoke"}
        addresses = {name: f"{self.issuer}/{path}" for name, path in named.items() if name not in self.without}
        return {"issuer": self.issuer, "token_endpoint_auth_methods_supported": ["client_secret_basic"], **addresses}

    def tokens(self, **more: Any) -> dict[str, Any]:
        """What the token endpoint gives."""
        made = {"access_token": self.token(aud="account"), "id_token": self.token(**more), "token_type": "Bearer"}
        if self.refreshing:
            refresh = secrets.token_hex(8)
            self.refreshes[refresh] = dict(self.user)
            made["refresh_token"] = refresh
        return made | {"expires_in": int(HOUR)}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    provider: Provider
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        """A description, keys, or the page where a user says yes."""
        self.answer({"/.well-known/openid-configuration": self.describe, "/certs": self.show_keys, "/auth": self.authorize})

    def do_POST(self) -> None:
        """A token, a device, or the end of a token."""
        self.answer({"/token": self.give_token, "/device": self.begin_device, "/revoke": self.revoke})

    def answer(self, known: Mapping[str, Callable[[], None]]) -> None:
        """By the address's last part; a fault goes first."""
        path = urlsplit(self.path).path.removeprefix("/realms/hospital")
        self.provider.asked[path] += 1
        with contextlib.suppress(Away, BrokenPipeError, ConnectionResetError):
            if path in self.provider.fault:
                self.provider.fault[path](self)
            elif path in known:
                known[path]()
            else:
                self.send({"error": "not_found"}, 404)
            return
        self.close_connection = True

    def send(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """JSON, or bytes as they are."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def describe(self) -> None:
        self.send(self.provider.description())

    def show_keys(self) -> None:
        self.send({"keys": [key.as_dict(private=False) for key in self.provider.shown]})

    def authorize(self) -> None:
        """Says yes at once, in the place of a page."""
        asked = dict(parse_qsl(urlsplit(self.path).query))
        good = asked.get("client_id") == CLIENT and asked.get("response_type") == "code" and "openid" in asked.get("scope", "")
        good = good and asked.get("code_challenge_method") == "S256" and asked.get("redirect_uri") in self.provider.redirects
        if not good:
            self.send({"error": "invalid_request", "asked": asked}, 400)
            return
        code = secrets.token_hex(8)
        self.provider.codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"], "iss": self.provider.issuer})
        self.send({}, 302, {"Location": f"{asked['redirect_uri']}?{back}"})

    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))

    def client_is_known(self, form: Mapping[str, str]) -> bool:
        """A public client by its name, one with a secret by both."""
        if not self.provider.secret:
            return form.get("client_id") == CLIENT
        given = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        return tuple(map(unquote, given.partition(":")[::2])) == (CLIENT, self.provider.secret)

    def give_token(self) -> None:
        """For a code, a refresh token or a device."""
        form = self.form()
        if not self.client_is_known(form):
            self.send({"error": "invalid_client"}, 401)
            return
        kinds = {"authorization_code": self.of_code, "refresh_token": self.of_refresh}
        kinds |= {"urn:ietf:params:oauth:grant-type:device_code": self.of_device}
        kinds[form["grant_type"]](form)

    def of_code(self, form: Mapping[str, str]) -> None:
        """Once, with the verifier."""
        asked = self.provider.codes.pop(form["code"], None)
        digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if asked is None or digest != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            self.send({"error": "invalid_grant", "error_description": 'The "code" is not good'}, 400)
        else:
            self.send(self.provider.tokens(nonce=asked["nonce"]))

    def of_refresh(self, form: Mapping[str, str]) -> None:
        """Once: each comes with the next."""
        if self.provider.refreshes.pop(form["refresh_token"], None) is None:
            self.send({"error": "invalid_grant"}, 400)
        else:
            self.send(self.provider.tokens())

    def begin_device(self) -> None:
        device = secrets.token_hex(8)
        self.provider.devices[device] = list(self.provider.refusals)
        page = f"{self.provider.issuer}/activate"
        known = {"device_code": device, "user_code": "WDJB-MJHT", "verification_uri": page, "expires_in": 600}
        known |= {"interval": self.provider.interval, "verification_uri_complete": f"{page}?user_code=WDJB-MJHT"}
        self.send(known)

    def of_device(self, form: Mapping[str, str]) -> None:
        """What it is refused with first, then a token."""
        waiting = self.provider.devices[form["device_code"]]
        if waiting:
            self.send({"error": waiting.pop(0)}, 400)
        else:
            self.send(self.provider.tokens())

    def revoke(self) -> None:
        token = self.form()["token"]
        self.provider.revoked.append(token)
        self.provider.refreshes.pop(token, None)
        self.send(b"")


def cut(handler: Handler) -> None:
    """No answer."""
    raise Away


def page(handler: Handler) -> None:
    """A page for people in the place of JSON."""
    handler.send(b"<html>Bad gateway</html>", 200, {"Content-Type": "text/html"})


def too_much(handler: Handler) -> None:
    """More bytes than anybody reads."""
    handler.send(b'{"keys": "' + b"a" * (1 << 20) + b'"}')


def elsewhere(handler: Handler) -> None:
    """To another host."""
    handler.send({}, 302, {"Location": "http://localhost:9/keys"})


def no_keys(handler: Handler) -> None:
    """Keys by which no signature can be checked."""
    handler.send({"keys": [{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}, {"kty": "RSA", "n": 5}, "x", {"kty": "AKP"}]})


def broken(handler: Handler) -> None:
    """An error of its own."""
    handler.send({"error": "server_error"}, 500)


FAULTS: dict[str, Callable[[Handler], None]] = {each.__name__: each for each in (cut, page, too_much, elsewhere, no_keys, broken)}
