"""The Helm chart, rendered by Helm's own engine: no cluster is asked."""

from __future__ import annotations

import functools
import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.docs.manual import DOCS, ROOT, blocks

CHART = ROOT / "deploy" / "helm" / "tideline"
PAGE = DOCS / "kubernetes.md"
RELEASE, NAMESPACE = "tideline", "federation"
OLDEST, NEWEST = "1.25.0", "1.37.0"  # the versions whose schemas objects are held to
Object = dict[str, Any]


def why_not() -> str:
    """Why charts cannot be tried here; nothing if they can."""
    for module, package in (("helm_python", "helm-python-sdk"), ("kubernetes_validate", "kubernetes-validate")):
        if importlib.util.find_spec(module) is None:
            return f"NOT TESTED: {package} is not installed"
    has_library = any((files("helm_python") / "lib").glob("*helm_c*"))
    return "" if has_library else "NOT TESTED: helm-python-sdk has no library for this machine"


def files(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


class Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which no key stands twice, as an API server reads it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys} {node.start_mark}"
        return super().construct_mapping(node, deep=True)


def read(text: str) -> Any:
    loader = Strict(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


@functools.cache
def loaded() -> Any:
    import helm_python

    return helm_python.Chart.load(CHART)


def defaults() -> dict[str, Any]:
    return dict(read((CHART / "values.yaml").read_text(encoding="utf-8")))


def texts(values: Object, release: str = RELEASE) -> dict[str, str]:
    """What each template says. Raises HelmError for values that are refused."""
    return dict(loaded().render(values, name=release, namespace=NAMESPACE))


def render(values: Object, release: str = RELEASE) -> list[Object]:
    """The objects that would be sent to the cluster. Raises HelmError for values that are refused."""
    return parsed(texts(values, release))


def parsed(said: dict[str, str]) -> list[Object]:
    documents = [each for name, text in said.items() if name.endswith(".yaml") for each in text.split("\n---\n")]
    return [made for each in documents if (made := read(each)) is not None]


def of(objects: list[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in of(objects, kind)}


def pods(objects: list[Object]) -> list[Object]:
    return [each["spec"]["template"] for each in of(objects, "Deployment")]


def containers(objects: list[Object]) -> list[Object]:
    return [each for pod in pods(objects) for key in ("initContainers", "containers") for each in pod["spec"].get(key, [])]


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value.values(), *value]
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value


def picked(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether a selector finds something with these labels."""
    return selector.items() <= labels.items()


@functools.cache
def validator(version: str, kind: str, api: str) -> Any:
    """The API's own schema of a kind, in which unknown fields are refused."""
    import jsonschema
    from referencing import Resource

    group, _, of_group = api.rpartition("/")
    words = filter(None, (kind.lower(), group.split(".")[0], of_group))
    schema = json.loads((schemas(version) / f"{'-'.join(words)}.json").read_text())
    made = Resource.from_contents(schema)
    return jsonschema.Draft202012Validator(schema, registry=made @ definitions(version))


@functools.cache
def definitions(version: str) -> Any:
    from referencing import Registry, Resource

    return Resource.from_contents(json.loads((schemas(version) / "_definitions.json").read_text())) @ Registry()


def schemas(version: str) -> Path:
    return files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"


def examples() -> dict[str, Object]:
    """The values that the manual prints, by the name of their file."""
    found = {}
    for block in blocks(PAGE, "yaml"):
        first, _, rest = block.partition("\n")
        found[first.removeprefix("# ").removesuffix(".yaml")] = dict(read(rest))
    return found


# A stand-in for a cluster's API: it knows some Secrets, and Helm asks it as it asks a cluster.
SECRETS = {"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@contextmanager
def cluster(secrets: dict[str, dict[str, str]]) -> Iterator[str]:
    """A cluster with these Secrets, each with its data; the kubeconfig that leads to it."""
    answers: dict[str, Object] = {"/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [SECRETS]}}
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

    answers: dict[str, Object]

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
