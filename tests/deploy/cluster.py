"""A stand-in for a cluster's API: it knows some Secrets, and Helm asks it as it asks a cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.deploy.chart import NAMESPACE, RELEASE, Object, loaded, parsed

Answers = dict[str, Object]
SECRETS = {"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@contextmanager
def cluster(secrets: dict[str, dict[str, str]]) -> Iterator[str]:
    """A cluster with these Secrets, each with its data; the kubeconfig that leads to it."""
    answers: Answers = {"/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [SECRETS]}}
    for name, data in secrets.items():
        whole = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, "data": data}
        answers[f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"] = whole
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Api,), {"answers": answers}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kubeconfig(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Api(BaseHTTPRequestHandler):
    """Answers reads."""

    answers: Answers

    def do_GET(self) -> None:
        found = self.answers.get(self.path.partition("?")[0])
        body = json.dumps(found or NOT_FOUND).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


def kubeconfig(port: int) -> str:
    clusters = [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}]
    contexts = [{"name": "here", "context": {"cluster": "here", "user": "anybody"}}]
    found = {"clusters": clusters, "contexts": contexts, "users": [{"name": "anybody", "user": {}}]}
    return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **found})


def rendered_in(config: str, values: Object) -> list[Object]:
    """The objects, as they would be sent to a cluster that has been asked."""
    import helm_python

    with helm_python.Config(kubeconfig_content=config, namespace=NAMESPACE) as there:
        return parsed(dict(there.render(loaded(), values, name=RELEASE, namespace=NAMESPACE)))
