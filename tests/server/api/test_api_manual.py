"""The manual, written and generated, says what the door does."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from api_world import EXPERIMENT, Coordinator

from tideline.core.settings import plain
from tideline.engine.model.experiment import Experiment, read_experiment
from tideline_server.api.answers import jsonable
from tideline_server.api.app import KEYED
from tideline_server.api.openapi import schema_of

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"
OPEN = ("GET /health", "GET /ready", "GET /sign-in")  # what needs no key
SIGNING_IN = "POST /sign-in/key"  # it needs no key in a header, and refuses as what does
UNCHANGING = ("POST /links/plan", "POST /runs/check", SIGNING_IN)  # nor is its answer kept, which has a secret
UNFAILING = ("GET /health", "GET /sign-in")  # what takes nothing and asks nobody


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    """The generated description."""
    described: dict[str, Any] = Coordinator().get("/openapi.json").json()
    return described


def operations(openapi: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every operation by method and path."""
    return {f"{method.upper()} {path}": op for path, ops in openapi["paths"].items() for method, op in ops.items()}


def test_the_surface_is_what_the_manual_says(openapi: dict[str, Any]) -> None:
    """docs/http-api.md has a paragraph and one curl line for each address, and for none that does not exist."""
    sections = re.findall(r"\*\*`((?:GET|POST|PUT|DELETE) [^`]+)`\*\*[^`].*?```sh\n([^\n]+)\n```", PAGE.read_text(), re.S)
    assert sorted(name for name, _ in sections) == sorted(operations(openapi))
    for name, line in sections:
        pattern = re.sub(r"\\{\w+\\}", r"[^/?\\s\"]+", re.escape(name.partition(" ")[2]))
        assert re.search(rf"\$URL{pattern}(\?|\"|$)", line), line
        assert name.startswith("GET") == ("--json" not in line and "-X" not in line and "-T" not in line), line


def test_every_operation_is_good_reading(openapi: dict[str, Any]) -> None:
    """Each has a tag, a summary, a description, a name for generated clients, and its errors in the one shape."""
    found = operations(openapi)
    named = {f"{method} {route.path}": route.name for router in KEYED for route in router.routes for method in route.methods}  # type: ignore[attr-defined]
    assert {name: op["operationId"] for name, op in found.items() if name in named} == named, "generated clients call them so"
    assert len({op["operationId"] for op in found.values()}) == len(found)
    for name, op in found.items():
        assert op["tags"] and op["summary"] and op["description"], name
        errors = {status: r for status, r in op["responses"].items() if status >= "400"}
        schemas = {r["content"]["application/problem+json"]["schema"]["$ref"] for r in errors.values()}
        assert schemas == (set() if name in UNFAILING else {"#/components/schemas/Problem"}), name
        keyed = bool(op.get("security"))
        assert keyed == (name not in (*OPEN, SIGNING_IN)) and (name not in OPEN) == ("401" in errors), name


def test_what_changes_something_takes_a_key(openapi: dict[str, Any]) -> None:
    """By method and not by name: each such operation declares the header, its form and the mark of a repeat; no other does.

    One whose address says what is sent needs none: a PUT. Nor does one that changes nothing, though it has a body.
    """
    for name, op in operations(openapi).items():
        keys = [each for each in op.get("parameters", []) if each["name"] == "Idempotency-Key"]
        marked = {status for status, r in op["responses"].items() if "Idempotent-Replayed" in r.get("headers", {})}
        if name.startswith(("GET ", "PUT ")) or name in UNCHANGING:
            assert not keys and not marked, name
        else:
            (key,) = keys
            assert key["in"] == "header" and not key["required"] and key["description"]
            assert key["schema"] == {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]{1,255}$"}
            assert marked == {s for s in op["responses"] if s < "500"} - {"400", "401", "408", "413", "415", "429"}
        assert ("Retry-After" in op["responses"].get("429", {}).get("headers", {})) == (name not in OPEN)


def test_every_declared_tag_is_explained(openapi: dict[str, Any]) -> None:
    """Tags in use are those with a description."""
    used = {tag for op in operations(openapi).values() for tag in op["tags"]}
    assert used == {tag["name"] for tag in openapi["tags"]}


def test_the_experiments_schema_is_that_of_the_reader(openapi: dict[str, Any]) -> None:
    """The manual's experiment has the settings of the engine's, with documentation, bounds and words."""
    body = operations(openapi)["POST /runs"]["requestBody"]["content"]["application/json"]
    schema = body["schema"]
    assert set(schema["properties"]) == {field.name for field in fields(Experiment)}
    assert set(plain(read_experiment(EXPERIMENT))) == set(schema["properties"])
    assert schema["required"] == ["method"] and schema["additionalProperties"] is False
    assert schema["properties"]["roster"]["additionalProperties"] == {"type": "string", "enum": ["source", "target", "peer"]}
    assert schema["properties"]["threads"]["minimum"] == 1 and schema["properties"]["threads"]["maximum"] == 1024
    assert all(p.get("description") for p in schema["properties"].values())
    assert len(body["examples"]) == 3


def test_a_schema_of_everything() -> None:
    """Nested dataclasses, lists, optional values and free mappings have a schema each."""
    properties = schema_of(Experiment)["properties"]
    assert properties["world"]["properties"]["inputs"]["items"] == {"type": "integer", "minimum": 1, "maximum": 1 << 26}
    assert properties["preset"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert properties["config"]["additionalProperties"] == {}
    assert properties["select"]["items"]["required"] == ["labels", "role"]


def test_the_pages_are_served(openapi: dict[str, Any]) -> None:
    """/docs shows the description; there is no second page."""
    coordinator = Coordinator()
    assert "/openapi.json" in coordinator.get("/docs/begin.js").text
    assert coordinator.get("/redoc").status_code == 404
    assert openapi["info"]["version"] == "1.2.3"


def test_the_manual_comes_from_the_coordinator_alone() -> None:
    """All that its page names is there, and its policy lets a browser load nothing else and run no script in the page."""
    coordinator = Coordinator()
    page = coordinator.get("/docs")
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert named == ["data:,", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/docs/begin.js"]
    assert "<script>" not in page.text and "://" not in page.text
    sizes = {place: len(coordinator.get(place).content) for place in named[1:]}
    assert sizes["/docs/swagger-ui-bundle.js"] > 1_000_000
    policy = dict(each.strip().split(" ", 1) for each in page.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"


def test_a_browser_may_do_nothing_with_other_answers() -> None:
    """Also with refusals."""
    for place in ("/health", "/runs", "/nowhere"):
        policy = Coordinator().get(place).headers["Content-Security-Policy"]
        assert policy == "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def test_plain_data_is_what_json_carries() -> None:
    """Context of any kind becomes data; what is no number becomes null."""
    given = {1: (1.5, float("inf")), "set": {2}, "path": Path("a"), "no": None, "yes": True}
    assert jsonable(given) == {"1": [1.5, None], "set": [2], "path": "a", "no": None, "yes": True}


def test_the_door_loads_neither_numbers_nor_stores() -> None:
    """Importing the door brings in no torch, no database and no gRPC: they are the shell's to choose."""
    script = "import sys, tideline_server.api; print({'torch', 'sqlalchemy', 'grpc'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
