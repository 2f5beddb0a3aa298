"""The Helm chart, rendered by Helm's own engine: no cluster is asked."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator
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
    return (
        ""
        if any((files("helm_python") / "lib").glob("*helm_c*"))
        else "NOT TESTED: helm-python-sdk has no library for this machine"
    )


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

    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    group, _, of_group = api.rpartition("/")
    schema = json.loads(
        (folder / "-".join(filter(None, (kind.lower(), group.split(".")[0], of_group)))).with_suffix(".json").read_text()
    )
    made = Resource.from_contents(schema)
    return jsonschema.Draft202012Validator(schema, registry=made @ definitions(version))


@functools.cache
def definitions(version: str) -> Any:
    from referencing import Registry, Resource

    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    return Resource.from_contents(json.loads((folder / "_definitions.json").read_text())) @ Registry()


def examples() -> dict[str, Object]:
    """The values that the manual prints, by the name of their file."""
    found = {}
    for block in blocks(PAGE, "yaml"):
        first, _, rest = block.partition("\n")
        found[first.removeprefix("# ").removesuffix(".yaml")] = dict(read(rest))
    return found
