"""The coordinator's people's door, from the other side."""

from __future__ import annotations

import functools
import json
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import typer

from tideline import __version__
from tideline.cli.guard import clean
from tideline.cli.options import Door
from tideline.client.logins import Login, address, logins
from tideline.core.errors import (
    ConfigRefused,
    FederationError,
    IdentityRefused,
    Malformed,
    NotFound,
    Refused,
    Underway,
    Unreachable,
    VersionRefused,
)
from tideline.engine.process.pipe import from_plain

# What both ends say of themselves with each call and each answer; the API that is spoken here.
API, VERSION = "Tideline-Api", "Tideline-Version"
SPOKEN = 2
DEFAULT_HOME = Path("~/.tideline/coordinator")
AGENTS_PORT = 7800
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# The stream says every 15 s that it is alive.
STREAM_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
# Once a file is there, the coordinator syncs it to its disk or sends it on to a bucket before it answers.
UPLOAD_TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=600.0)
# A plan is searched for as long as it asks, and some seconds more.
PLAN_TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=60.0)
PATIENCE_SECONDS = 60.0
# What changes something is sent again for so long after the first try failed: a restart takes less.
AGAIN_SECONDS = 30.0
PAUSE_SECONDS = 1.0
# The run service's words for its list of runs; whoever types commands sees it by one.
LISTED = "See the list of runs"
UNKNOWN = "See that it runs, and with `tideline run list` what was done, before you ask for it again"
DISTRUSTED = "CERTIFICATE_VERIFY_FAILED"
AWAY = (502, 503, 504)
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Told(FederationError):
    """An error of a kind that this version does not know."""

    @property
    def kind(self) -> str:
        """As the coordinator named it."""
        return str(self.context["kind"])


class Client:
    """One coordinator. Raises its errors as our own, and Unreachable where nobody answers."""

    def __init__(self, base_url: str, key: str | None, agents: str | None = None, said: str = "", ca: Path | None = None) -> None:
        self.base_url, self._agents, self._said = base_url, agents, said
        headers = {API: str(SPOKEN), VERSION: __version__, "User-Agent": f"tideline/{__version__}"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        # A proxy stands between us and the world, not between us and this machine.
        outside = not is_loopback(host_of(base_url))
        self._http = httpx.Client(headers=headers, timeout=TIMEOUT, verify=ssl_context(ca), trust_env=outside)

    @classmethod
    def of(cls, door: Door) -> Client:
        """The coordinator that the options, the environment or a home on this machine name."""
        home = (door.home or DEFAULT_HOME).expanduser()
        url, agents, said = find(only_login(door, home), home)
        login = Login(door.api_key) if door.api_key else login_for(door, url)
        # The key of this machine's coordinator is not shown to others by mistake.
        ours = door.url is None or door.home is not None or is_loopback(host_of(url))
        key = login.key or (read_key(home / "admin.key") if ours else None)
        return cls(url, key, agents, said, door.ca or (Path(login.ca) if login.ca else None))

    @classmethod
    def of_home(cls, home: Path) -> Client:
        """The coordinator that runs with a home on this machine."""
        return cls.of(Door(home=home))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, patience: float = 0.0) -> Any:
        """What stands at an address. `patience`: seconds for which an unreachable coordinator is asked again."""
        return patiently(lambda: self._call("GET", path), patience)

    def post(self, path: str, body: Any = None, patience: httpx.Timeout = TIMEOUT) -> Any:
        """Ask for something to be done, once: what may have been lost is sent again under the same key, for a while."""
        return self._change("POST", path, body, patience)

    def delete(self, path: str) -> Any:
        """Ask for something to be ended, in the same way."""
        return self._change("DELETE", path, None)

    def bring(self, digest: str, size: int, content: Callable[[], Iterator[bytes]]) -> None:
        """Upload weights, unless they are there. Raises ConfigRefused for more bytes than the coordinator takes.

        content: the file's bytes, once more each time that it is called.
        """
        path = f"/weights/{digest}"
        try:
            self._insist(lambda: self.get(path))  # from here on they wait for the run that is to name them
            return
        except NotFound as error:
            check_limit(self.base_url, size, error.context.get("limit"))
        self._insist(lambda: self._put(path, size, content()))

    def _put(self, path: str, size: int, content: Iterator[bytes]) -> None:
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        with self._reached():
            answer = self._http.put(self.base_url + path, content=content, headers=headers, timeout=UPLOAD_TIMEOUT)
        self._check(answer)

    def _change(self, method: str, path: str, body: Any, patience: httpx.Timeout = TIMEOUT) -> Any:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        return self._insist(functools.partial(self._call, method, path, body, key, patience))

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """The answer to what may be asked again; asked again for a while where none came."""
        try:
            return ask()
        except (Unreachable, Underway) as error:
            if not passes(error):
                raise
            typer.echo(f"{clean(error.what)}. Trying again for {AGAIN_SECONDS:.0f} s", err=True)
        time.sleep(PAUSE_SECONDS)
        try:
            return patiently(ask, AGAIN_SECONDS)
        except (Unreachable, Underway) as error:
            raise type(error)(error.what, UNKNOWN, **error.context) from None

    def download(self, path: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece."""
        with self._reached(), self._http.stream("GET", self.base_url + path) as answer:
            self._check(answer)
            yield from answer.iter_bytes(1 << 20)

    def events(self, run: str, after: int = 0, patience: float = 0.0) -> list[dict[str, Any]]:
        """A run's events so far."""
        found: list[dict[str, Any]] = patiently(lambda: list(self._events(run, after)), patience)
        return found

    def _events(self, run: str, after: int) -> Iterator[dict[str, Any]]:
        with self._reached(), self._http.stream("GET", f"{self.base_url}/runs/{run}/events?after={after}&follow=false") as answer:
            self._check(answer)
            yield from (event for event in frames(answer.iter_lines()) if event)

    def follow(self, run: str, after: int) -> Iterator[dict[str, Any] | None]:
        """A run's events as they come, without end; None says: look for yourself. What is cut is begun again, for a while."""
        heard = time.monotonic()
        while True:
            try:
                for event in self._follow(run, after):
                    heard = time.monotonic()
                    after = event["seq"] if event else after
                    yield event
                yield None
            except Unreachable:
                if time.monotonic() - heard > PATIENCE_SECONDS:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _follow(self, run: str, after: int) -> Iterator[dict[str, Any] | None]:
        path = f"/runs/{run}/events?after={after}"
        with self._reached(), self._http.stream("GET", self.base_url + path, timeout=STREAM_TIMEOUT) as answer:
            self._check(answer)
            yield from frames(answer.iter_lines())

    def agents_door(self) -> str:
        """Where agents knock, with the scheme of the people's door. A guess where only an URL was given."""
        there = urlsplit(self.base_url)
        host = f"[{there.hostname}]" if ":" in (there.hostname or "") else there.hostname
        return f"{there.scheme}://{self._agents or f'{host}:{AGENTS_PORT}'}"

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        patience: httpx.Timeout = TIMEOUT,
    ) -> Any:
        with self._reached():
            answer = self._http.request(method, self.base_url + path, json=body, headers=headers, timeout=patience)
        self._check(answer)
        try:
            return answer.json()
        except ValueError:
            raise stranger(self.base_url) from None

    def _check(self, answer: httpx.Response) -> None:
        """Raise the error that an answer tells, or that it is of no coordinator that we understand."""
        if API not in answer.headers and answer.status_code not in AWAY:
            with self._reached():
                raise silent(self.base_url, self._http.get(self.base_url + "/health"))
        agree(answer, self.base_url)
        checked(answer, self.base_url)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.StreamError, httpx.InvalidURL) as cause:
            words = str(cause) or type(cause).__name__
            raise Unreachable(
                f"No coordinator answers at {self.base_url} (from {self._said}): {words}", remedy(words), url=self.base_url
            ) from None


def patiently(ask: Callable[[], Any], patience: float) -> Any:
    """An answer; an unreachable coordinator, or one that is still at it, is asked again for so many seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask()
        except (Unreachable, Underway):
            if time.monotonic() >= until:
                raise
            time.sleep(PAUSE_SECONDS)


def check_limit(url: str, size: int, limit: Any) -> None:
    """Raises ConfigRefused for weights of more bytes than a coordinator takes, which says so where it takes any."""
    if not isinstance(limit, int):
        raise ConfigRefused(f"The coordinator at {url} takes no weights", "Upgrade it, or leave weights out", path="weights")
    if size > limit:
        what = f"The weights have {size} bytes; the coordinator at {url} takes {limit} at most"
        raise ConfigRefused(what, "Start it with a larger --weights-limit", path="weights")


def passes(error: FederationError) -> bool:
    """Whether waiting may help."""
    return DISTRUSTED not in error.what


def remedy(words: str) -> str:
    """What to do about a connection that failed with these words."""
    if DISTRUSTED in words:
        return "Name the coordinator's certificate with --ca, and call it by a name that the certificate has"
    return "Start one with `tideline coordinator`, or say where it is with --url or --home"


def only_login(door: Door, home: Path) -> Door:
    """The door, at the only coordinator that this user is logged in to, if nothing else says which one."""
    if door.url is not None or door.home is not None or (home / "coordinator.json").exists():
        return door
    known = logins()
    if len(known) != 1:
        return door
    (url,) = known
    typer.echo(f"Using {clean(url)}, where you are logged in", err=True)
    return replace(door, url=url)


def login_for(door: Door, url: str) -> Login:
    """What is kept for an address; nothing where a home is named, whose own key goes first."""
    return Login("") if door.home is not None else logins().get(address(url), Login(""))


def find(door: Door, home: Path) -> tuple[str, str | None, str]:
    """The people's door, the agents' door if it is known, and where that was read."""
    if door.url is not None:
        return door.url.rstrip("/"), None, "--url or TIDELINE_URL"
    path = home / "coordinator.json"
    try:
        doors = json.loads(path.read_text(encoding="utf-8"))
        people, agents = str.strip(doors["http"]), str.strip(doors["grpc"])
        return reachable(people), reachable(f"//{agents}")[2:], str(path)
    except FileNotFoundError:
        raise Unreachable(
            f"No coordinator has run with the home {home}: there is no {path.name}",
            "Start one with `tideline coordinator`, or say where it is with --url or --home",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise Refused(f"{path} cannot be read ({type(cause).__name__})", "Give --url, or start the coordinator again") from None


def reachable(url: str) -> str:
    """An address to call. A coordinator that listens on every address of this machine is called on this machine."""
    there = urlsplit(url)
    host = ANYWHERE.get(there.hostname or "")
    if host is None:
        return url
    bracketed = f"[{host}]" if ":" in host else host
    return there._replace(netloc=f"{bracketed}:{there.port}").geturl()


def host_of(url: str) -> str:
    """The host of an address. Raises ConfigRefused for what is none."""
    try:
        there = urlsplit(url)
        good = there.scheme in ("http", "https") and there.hostname is not None and there.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigRefused(f"{url!r} is no address", "Write it as http://HOST:PORT", path="url")
    return there.hostname or ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    return host in ("127.0.0.1", "::1", "localhost")


def read_key(path: Path) -> str | None:
    """The key that the coordinator left for this machine's commands. Raises IdentityRefused if it may not be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise IdentityRefused(
            f"The key {path} cannot be read: {cause.strerror}", "Give --api-key or TIDELINE_API_KEY, or ask its owner"
        ) from None


def ssl_context(ca: Path | None) -> ssl.SSLContext | bool:
    """What vouches for the coordinator's certificate. Raises ConfigRefused."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as cause:
        raise ConfigRefused(f"--ca {ca} cannot be used: {cause}", "Give --ca or TIDELINE_CA a certificate (PEM)") from None


def checked(answer: httpx.Response, url: str) -> None:
    """Raise the error that an answer tells, if it tells one."""
    if answer.is_success:
        return
    try:
        answer.read()
        told = answer.json()
        kind, what, todo = str(told["kind"]), str(told["detail"]), str(told["todo"])
        context = {str(k): v for k, v in dict(told.get("context") or {}).items()}
    except (ValueError, KeyError, TypeError):
        raise between(url, answer.status_code) if answer.status_code in AWAY else stranger(url) from None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        todo = (
            "Log in with `tideline login`, or give --api-key or TIDELINE_API_KEY; the coordinator's own key is in HOME/admin.key"
        )
    raise rebuilt(kind, what, todo.replace(LISTED, "See `tideline run list`"), context, told.get("path"))


def rebuilt(kind: str, what: str, todo: str, context: Mapping[str, Any], path: Any) -> FederationError:
    """The coordinator's error, of its own class where this version knows it."""
    free = {k: v for k, v in context.items() if k not in ("self", "what", "todo", "kind", "path")}
    place = {"path": path} if path else {}
    made = from_plain({"kind": kind, "what": what, "todo": todo, "context": free | place})
    return made if made.kind == kind else Told(what, todo, **free, **place, kind=kind)


def agree(answer: httpx.Response, url: str) -> None:
    """Raises VersionRefused for a coordinator whose API is not spoken here."""
    said = answer.headers.get(API, str(SPOKEN))
    if said != str(SPOKEN):
        raise other_version(url, answer.headers.get(VERSION, "of unknown version"), said)


def silent(url: str, health: httpx.Response) -> FederationError:
    """An answer said no API: it is of a coordinator from before there were versions, as its health tells, or of a stranger."""
    try:
        told = health.json()
        if told["status"] == "ok" and isinstance(told["version"], str):
            return other_version(url, told["version"], "1")
    except (ValueError, KeyError, TypeError):
        pass
    return stranger(url)


def other_version(url: str, version: str, api: str) -> VersionRefused:
    """The refusal of a coordinator whose API is not spoken here."""
    newer = api.isdecimal() and len(api) < 9 and int(api) > SPOKEN
    return VersionRefused(
        f"The coordinator at {url} is tideline {version[:40]} and speaks API {api[:20]}; "
        f"this is tideline {__version__}, which speaks API {SPOKEN}",
        "Upgrade this tideline" if newer else "Upgrade the coordinator, or use the tideline of its version",
        url=url,
    )


def stranger(url: str) -> Malformed:
    """Somebody else answered."""
    return Malformed(f"What answers at {url} is no Tideline coordinator", "Check the address: it is the HTTP API")


def between(url: str, status: int) -> Unreachable:
    """A proxy answered, whose coordinator does not."""
    return Unreachable(f"What stands before the coordinator at {url} answers {status}", "See that the coordinator runs", url=url)


def frames(lines: Iterator[str]) -> Iterator[dict[str, Any] | None]:
    """The events of a stream of server-sent events; None for a comment, which is a sign of life."""
    for line in lines:
        if line.startswith("data:"):
            event: dict[str, Any] = json.loads(line[5:])
            yield event
        elif line.startswith(":"):
            yield None
