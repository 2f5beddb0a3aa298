"""A client of the coordinator's HTTP API."""

from __future__ import annotations

import json
import ssl
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httpx

from tideline import __version__
from tideline.client.answers import Event, RunResult
from tideline.client.logins import Login, address, logins
from tideline.client.output import warn
from tideline.client.sign_in import Renewal
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
from tideline.engine.model.access.projects import NAME
from tideline.engine.process.pipe import from_plain

# Headers in which both ends name the API and the version that they speak.
API, VERSION = "Tideline-Api", "Tideline-Version"
PROJECT = "Tideline-Project"  # in which a call names the project that it is about
SPOKEN = 2  # the API of this version
DEFAULT_HOME = Path("~/.tideline/coordinator")
GRPC_PORT = 7800
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# The stream sends a sign of life every 15 s.
STREAM_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
# Once a file is there, the coordinator syncs it to its disk or sends it on to a bucket before it answers.
UPLOAD_TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=600.0)
# A dossier is made when it is asked for, of all that a run has.
DOSSIER_TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=600.0)
# The coordinator searches for a plan for as long as the request says, and some seconds more.
PLAN_TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=60.0)
PATIENCE_SECONDS = 60.0
# A change is sent again for so long after the first try failed: a restart takes less.
AGAIN_SECONDS = 30.0
PAUSE_SECONDS = 1.0
# The run service's words for its list of runs, which a command shows.
LISTED = "See the list of runs"
UNKNOWN = "Check that it runs, and with `tideline run list` what was done, before you try again"
START = "Start one with `tideline coordinator`, or say where it is with --url or --home"
DISTRUSTED = "CERTIFICATE_VERIFY_FAILED"
AWAY = (502, 503, 504)
RESERVED = ("path", "self", "what", "todo", "kind")  # of an error's context; `path` stands beside it
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
T = TypeVar("T")


class UnknownError(FederationError):
    """An error of a kind that this version does not know, under the coordinator's name for it."""

    @property
    def kind(self) -> str:
        return str(self.context["kind"])


@dataclass(frozen=True)
class Endpoint:
    """The options that say where the coordinator is, which API key to use, and which project is meant. None: look it up
    (Client.of).
    """

    url: str | None = None
    api_key: str | None = None
    home: Path | None = None
    ca: Path | None = None
    project: str | None = None


class Bearer(httpx.Auth):
    """Says with each request who asks, by a token that may be another one each time."""

    def __init__(self, current: Callable[[], str]) -> None:
        self._current = current

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._current()}"
        yield request


class Client:
    """One coordinator. Raises its errors as our own, and Unreachable if it does not answer."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        grpc: str | None = None,
        source: str = "",
        ca: Path | None = None,
        project: str = "",
        current: Callable[[], str] | None = None,
    ) -> None:
        self.base_url, self._grpc, self._source, self.project = base_url, grpc, source, project
        headers = {API: str(SPOKEN), VERSION: __version__, "User-Agent": f"tideline/{__version__}"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {PROJECT: checked_project(project)} if project else {}
        # A proxy is for other machines, not for this one.
        outside = not is_loopback(host_of(base_url))
        auth = None if current is None else Bearer(current)
        self._http = httpx.Client(headers=headers, timeout=TIMEOUT, verify=ssl_context(ca), trust_env=outside, auth=auth)
        weakref.finalize(self, self._http.close)  # where a program lets it go without a block

    @classmethod
    def of(cls, endpoint: Endpoint) -> Client:
        """The coordinator that the options, the environment, a home on this machine or the only login name."""
        home = (endpoint.home or DEFAULT_HOME).expanduser()
        url, grpc, source = find(with_only_login(endpoint, home), home)
        login = Login(endpoint.api_key or "")
        if not login.key and endpoint.home is None:  # the own key of a home that is named goes first
            login = logins().get(address(url), login)
        # Never show the key of this machine's coordinator to another by mistake.
        ours = endpoint.url is None or endpoint.home is not None or is_loopback(host_of(url))
        key = login.key or (read_key(home / "admin.key") if ours else None)
        project = login.project if endpoint.project is None else endpoint.project
        ca = endpoint.ca or (Path(login.ca) if login.ca else None)
        current = Renewal(address(url), login).current if login.issuer else None
        return cls(url, None if current else key, grpc, source, ca=ca, project=project, current=current)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, patience: float = 0.0) -> Any:
        """The JSON at a path. patience: seconds for which an unreachable coordinator is asked again."""
        return patiently(lambda: self._json(self._ask("GET", path)), patience)

    def post(self, path: str, body: Any = None, patience: httpx.Timeout = TIMEOUT) -> Any:
        """Ask for a change, done once: a request that may have been lost is sent again under the same key, for a while."""
        return self._change("POST", path, body, patience)

    def delete(self, path: str) -> Any:
        """Ask for something to be deleted, in the same way."""
        return self._change("DELETE", path, None)

    def run(self, run: str, patience: float = 0.0) -> RunResult:
        """A run's result, or as much as there is of it."""
        return cast("RunResult", self.get(f"/runs/{run}", patience))

    def upload_weights(self, digest: str, size: int, content: Callable[[], Iterator[bytes]]) -> None:
        """Upload weights, unless they are there. Raises ConfigRefused for more bytes than the coordinator accepts.

        content: the file's bytes, from the start each time that it is called.
        """
        path = f"/weights/{digest}"
        try:
            self._insist(lambda: self.get(path))  # from here on they wait for the run that will name them
            return
        except NotFound as error:
            check_limit(self.base_url, size, error.context.get("limit"))
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        self._insist(lambda: self._ask("PUT", path, content=content(), headers=headers, timeout=UPLOAD_TIMEOUT))

    def _change(self, method: str, path: str, body: Any, patience: httpx.Timeout = TIMEOUT) -> Any:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        return self._insist(lambda: self._json(self._ask(method, path, json=body, headers=key, timeout=patience)))

    def _insist(self, ask: Callable[[], T]) -> T:
        """The response to a request that may be repeated; it is repeated for a while where none came."""
        try:
            return ask()
        except (Unreachable, Underway) as error:
            if not may_pass(error):
                raise
            warn(f"{error.what}. Trying again for {AGAIN_SECONDS:.0f} s")
        time.sleep(PAUSE_SECONDS)
        try:
            return patiently(ask, AGAIN_SECONDS)
        except (Unreachable, Underway) as error:
            raise type(error)(error.what, UNKNOWN, **error.context) from None

    def download(self, path: str, patience: httpx.Timeout = TIMEOUT) -> Iterator[bytes]:
        """A file's bytes, piece by piece."""
        with self._reached(), self._http.stream("GET", self.base_url + path, timeout=patience) as response:
            self._check(response)
            yield from response.iter_bytes(1 << 20)

    def events(self, run: str, after: int = 0, patience: float = 0.0, limit: int | None = None) -> list[Event]:
        """A run's events so far, or the first so many of them."""
        more = "&follow=false" + ("" if limit is None else f"&limit={limit}")
        return patiently(lambda: [event for event in self._stream(run, after, more) if event], patience)

    def follow(self, run: str, after: int) -> Iterator[Event | None]:
        """A run's events as they come, without end; None: check the run yourself. A broken stream is reopened, for a while."""
        heard = time.monotonic()
        while True:
            try:
                for event in self._stream(run, after):
                    heard = time.monotonic()
                    after = event["seq"] if event else after
                    yield event
                yield None
            except Unreachable:
                if time.monotonic() - heard > PATIENCE_SECONDS:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _stream(self, run: str, after: int, more: str = "") -> Iterator[Event | None]:
        path = f"/runs/{run}/events?after={after}{more}"
        with self._reached(), self._http.stream("GET", self.base_url + path, timeout=STREAM_TIMEOUT) as response:
            self._check(response)
            yield from frames(response.iter_lines())

    def grpc_address(self) -> str:
        """The coordinator's gRPC port, with the scheme of the HTTP API. A guess if only a URL was given."""
        parts = urlsplit(self.base_url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{self._grpc or f'{host}:{GRPC_PORT}'}"

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The coordinator's response, if it is no error. more: as httpx has it."""
        with self._reached():
            response = self._http.request(method, self.base_url + path, **more)
        self._check(response)
        return response

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise stranger(self.base_url) from None

    def _check(self, response: httpx.Response) -> None:
        """Raise the error that a response contains, or that it is not of a coordinator that we understand."""
        if API not in response.headers and response.status_code not in AWAY:
            with self._reached():
                raise without_api(self.base_url, self._http.get(self.base_url + "/health"))
        if (api := response.headers.get(API, str(SPOKEN))) != str(SPOKEN):
            raise other_version(self.base_url, response.headers.get(VERSION, "of unknown version"), api)
        check_status(response, self.base_url)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.StreamError, httpx.InvalidURL) as cause:
            words = str(cause) or type(cause).__name__
            what = f"No coordinator answers at {self.base_url} (from {self._source}): {words}"
            raise Unreachable(what, remedy(words), url=self.base_url) from None


def checked_project(project: str) -> str:
    """A project's name, which goes into a header. Raises ConfigRefused."""
    if not NAME.fullmatch(project):
        todo = "Use small letters, digits and dashes; all stands for every project"
        raise ConfigRefused(f"{project[:80]!r} cannot name a project", todo, path="project")
    return project


def patiently(ask: Callable[[], T], patience: float) -> T:
    """The response; an unreachable coordinator, or one that is still busy with it, is asked again for so many seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask()
        except (Unreachable, Underway):
            if time.monotonic() >= until:
                raise
            time.sleep(PAUSE_SECONDS)


def may_pass(error: FederationError) -> bool:
    """Whether waiting may help."""
    return DISTRUSTED not in error.what


def check_limit(url: str, size: int, limit: Any) -> None:
    """Raises ConfigRefused for weights of more bytes than the coordinator accepts. limit: None if it accepts none."""
    if not isinstance(limit, int):
        raise ConfigRefused(f"The coordinator at {url} accepts no weights", "Upgrade it, or leave weights out", path="weights")
    if size > limit:
        what = f"The weights have {size} bytes; the coordinator at {url} accepts {limit} at most"
        raise ConfigRefused(what, "Start it with a larger --weights-limit", path="weights")


def remedy(words: str) -> str:
    """What to do about a connection that failed with this message."""
    if DISTRUSTED in words:
        return "Name the coordinator's certificate with --ca, and call it by a name that the certificate has"
    return START


def with_only_login(endpoint: Endpoint, home: Path) -> Endpoint:
    """The endpoint, with the address of the only coordinator that you are logged in to, if nothing else names one."""
    if endpoint.url is not None or endpoint.home is not None or (home / "coordinator.json").exists() or len(logins()) != 1:
        return endpoint
    (url,) = logins()
    warn(f"Using {url}, where you are logged in")
    return replace(endpoint, url=url)


def find(endpoint: Endpoint, home: Path) -> tuple[str, str | None, str]:
    """The URL of the HTTP API, the gRPC address if it is known, and where that was read."""
    if endpoint.url is not None:
        return endpoint.url.rstrip("/"), None, "--url or TIDELINE_URL"
    path = home / "coordinator.json"
    try:
        addresses = json.loads(path.read_text(encoding="utf-8"))
        http, grpc = str.strip(addresses["http"]), str.strip(addresses["grpc"])
        return reachable(http), reachable(f"//{grpc}")[2:], str(path)
    except FileNotFoundError:
        raise Unreachable(f"No coordinator has run with the home {home}: there is no {path.name}", START) from None
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise Refused(f"{path} cannot be read ({type(cause).__name__})", "Give --url, or start the coordinator again") from None


def reachable(url: str) -> str:
    """An address to call: the loopback address for a coordinator that listens on every address."""
    parts = urlsplit(url)
    host = ANYWHERE.get(parts.hostname or "")
    if host is None:
        return url
    bracketed = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{bracketed}:{parts.port}").geturl()


def host_of(url: str) -> str:
    """The host of a URL. Raises ConfigRefused if it is not one."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0:
            return parts.hostname
    raise ConfigRefused(f"{url!r} is not an address", "Write it as http://HOST:PORT", path="url")


def is_loopback(host: str) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


def read_key(path: Path) -> str | None:
    """The admin key in a coordinator's home; None without one. Raises IdentityRefused if you may not read it."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except OSError as cause:
        what = f"The key {path} cannot be read: {cause.strerror}"
        raise IdentityRefused(what, "Give --api-key or TIDELINE_API_KEY, or ask its owner") from None


def ssl_context(ca: Path | None) -> ssl.SSLContext | bool:
    """The certificate authority to trust; True: the system's. Raises ConfigRefused."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as cause:
        raise ConfigRefused(f"--ca {ca} cannot be used: {cause}", "Give --ca or TIDELINE_CA a certificate (PEM)") from None


def check_status(response: httpx.Response, url: str) -> None:
    """Raise the error that a response contains, if it is one."""
    if response.is_success:
        return
    try:
        response.read()
        problem = response.json()
        kind, what, todo = str(problem["kind"]), str(problem["detail"]), str(problem["todo"])
        context = {str(k): v for k, v in dict(problem.get("context") or {}).items() if k not in RESERVED}
    except (ValueError, KeyError, TypeError):
        if response.status_code not in AWAY:
            raise stranger(url) from None
        what = f"The proxy before the coordinator at {url} answers {response.status_code}"
        raise Unreachable(what, "Check that the coordinator runs", url=url) from None
    if response.status_code == httpx.codes.UNAUTHORIZED:
        todo = "Log in with `tideline login` (or --oidc), or give --api-key or TIDELINE_API_KEY"
        todo += "; the coordinator's own key is in HOME/admin.key"
    context |= {"path": problem["path"]} if problem.get("path") else {}
    todo = todo.replace(LISTED, "See `tideline run list`")
    error = from_plain({"kind": kind, "what": what, "todo": todo, "context": context})
    raise error if error.kind == kind else UnknownError(what, todo, **context, kind=kind)


def without_api(url: str, health: httpx.Response) -> FederationError:
    """The error for a response without an API version: an older coordinator's, if /health says so, or a stranger's."""
    with suppress(ValueError, KeyError, TypeError):
        facts = health.json()
        if facts["status"] == "ok" and isinstance(facts["version"], str):
            return other_version(url, facts["version"], "1")
    return stranger(url)


def other_version(url: str, version: str, api: str) -> VersionRefused:
    newer = api.isdecimal() and len(api) < 9 and int(api) > SPOKEN
    what = f"The coordinator at {url} is tideline {version[:40]} and speaks API {api[:20]}"
    what += f"; this is tideline {__version__}, which speaks API {SPOKEN}"
    todo = "Upgrade this tideline" if newer else "Upgrade the coordinator, or use the tideline of its version"
    return VersionRefused(what, todo, url=url)


def stranger(url: str) -> Malformed:
    """Something other than a coordinator answered."""
    return Malformed(f"The server at {url} is not a Tideline coordinator", "Check the address: it should be the HTTP port")


def frames(lines: Iterator[str]) -> Iterator[Event | None]:
    """The events of a stream of server-sent events; None for a comment, which is a sign of life."""
    for line in lines:
        if line.startswith("data:"):
            event: Event = json.loads(line[5:])
            yield event
        elif line.startswith(":"):
            yield None
