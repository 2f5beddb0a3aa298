"""A coordinator, called from a program."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tideline.client.answers import RunLine
from tideline.client.http import Client, Endpoint
from tideline.client.output import warn
from tideline.core.algorithm import Methods
from tideline.core.errors import FederationError
from tideline.core.settings import Plain
from tideline.experiments.initial_weights import upload
from tideline.nets import registry
from tideline.python.asked import Asked, methods_of, text_of
from tideline.python.run import Networks, RemoteRun, Run


class Server:
    """A coordinator. `tideline.connect` gives one.

    >>> import tideline
    >>> tideline.Server.__name__
    'Server'
    """

    def __init__(self, client: Client, methods: Methods, networks: Networks) -> None:
        self._client, self._methods, self._networks = client, methods, networks

    def __repr__(self) -> str:
        return f"<Server {self._client.base_url}>"

    def start(self, experiment: Asked = None, **settings: Plain) -> Run:
        """Start an experiment: a dict, the path of a file, or keywords, which go over these. Raises ConfigRefused with the place.

        A file that `weights` names is checked and uploaded first.
        """
        text = text_of(experiment, settings)
        with text.located(), registry.beside(self._networks):
            started = self._client.post("/runs", upload(text, self._client).value)
        for note in started["notes"]:
            warn(f"Note: {note}")
        return self._run(str(started["run"]))

    def run(self, run: str) -> Run:
        """A run by its id. Raises NotFound."""
        self._client.run(quote(run, safe=""))
        return self._run(run)

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        lines: list[RunLine] = self._client.get("/runs")
        return [self._run(line["id"]) for line in lines]

    def _run(self, run: str) -> Run:
        return RemoteRun(self._client, run, self._methods, self._networks)


def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    ca: Path | str | None = None,
    home: Path | str | None = None,
    project: str | None = None,
    methods: Methods | str | None = None,
    networks: Networks = None,
) -> Server:
    """A coordinator, by the URL of its HTTP port and an API key. Raises Unreachable, IdentityRefused.

    Without these they are found as the command line finds them: by the only login, or in the home of this machine's coordinator.
    ca: certificate (PEM) that signed the coordinator's. project: where the key opens several.
    methods, networks: as `tideline.simulate` takes them; they are needed
    where models are built, and where an experiment has `weights`.

    >>> import tideline
    >>> try:
    ...     tideline.connect("http://127.0.0.1:9", "a key")
    ... except tideline.errors.Unreachable as error:
    ...     print(error.todo.split(",")[0])
    Start one with `tideline coordinator`
    """
    endpoint = Endpoint(
        url=url,
        api_key=key,
        home=None if home is None else Path(home),
        ca=None if ca is None else Path(ca),
        project=project,
    )
    client = Client.of(endpoint)
    try:
        client.get("/runs")  # what is wrong with the address or the key is said here
    except FederationError:
        client.__exit__()
        raise
    return Server(client, methods_of(methods), networks)
