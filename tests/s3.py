"""An S3 for the tests: a real server on this machine, which can go away, refuse and run full."""

from __future__ import annotations

import logging
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

KEY, SECRET = "AKIATIDELINE", "s3cret-key-of-the-bucket"
AT = "{http://s3.amazonaws.com/doc/2006-03-01/}"
NOBODY, EVERYBODY = b"0", b"inf"
Asked = dict[str, Any]  # a request, as WSGI puts it


class Server:
    """S3 on a port of its own. What was stored is there again when it is started again."""

    def __init__(self, tls: tuple[Path, Path] | None = None) -> None:
        self._tls = tls
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self.port, self.running = 0, False
        self.asked: list[str] = []
        self.instead: Callable[[str], str | None] = lambda asked: None
        self.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it finds in its environment."""
        names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "NO_PROXY")
        return dict(zip(names, (self.url, KEY, SECRET, "us-east-1", "127.0.0.1"), strict=True))

    def start(self) -> None:
        """Answer, on the same port as before."""
        tls: Any = self._tls and tuple(map(str, self._tls))
        self._server = make_server("127.0.0.1", self.port, self._serve, threaded=True, ssl_context=tls)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.running = True

    def stop(self) -> None:
        """Answer nobody."""
        self.running = False
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, environ: Asked, begin: Callable[..., Any]) -> Iterable[bytes]:
        asked = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        self.asked.append(asked)
        answer = self.instead(asked)
        if answer is None:
            return self._app(environ, begin)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        begin(answer, [("Content-Length", "0")])
        return [b""]

    def bucket(self) -> str:
        """Make an empty bucket."""
        name = f"tideline-{uuid.uuid4()}"
        self.send("PUT", name)
        return name

    def objects(self, bucket: str) -> dict[str, int]:
        """The bytes of every object, by name."""
        listed = ElementTree.fromstring(self.send("GET", f"{bucket}?list-type=2"))
        return {str(o.findtext(f"{AT}Key")): int(o.findtext(f"{AT}Size") or 0) for o in listed.iter(f"{AT}Contents")}

    def unfinished(self, bucket: str) -> int:
        """How many large objects were begun and neither completed nor taken back."""
        return self.send("GET", f"{bucket}?uploads").count(b"<UploadId>")

    def admits(self, whom: bytes) -> None:
        """Let everybody in, whatever their credentials, or nobody."""
        self.send("POST", "moto-api/reset-auth", whom)

    def send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """A request behind the back of the library under test."""
        headers = {"Content-Type": "application/octet-stream", "Authorization": f"AWS {KEY}:unsigned"}
        request = urllib.request.Request(f"{self.url}/{path}", data=body, method=method, headers=headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return bytes(answer.read())
