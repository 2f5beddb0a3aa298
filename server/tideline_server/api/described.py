"""The description of the API: what the routes say of themselves, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from tideline.core.errors import MEDIA_TYPE
from tideline_server.api.requests.handshake import API, SPOKEN, VERSION
from tideline_server.api.requests.idempotency import declare_key
from tideline_server.api.requests.request_ids import HEADER
from tideline_server.api.requests.roles import NEEDS

SIGNED = {
    VERSION: {"description": "the coordinator's version", "schema": {"type": "string"}, "required": True},
    API: {"description": "the API that it speaks", "schema": {"type": "integer"}, "required": True},
    HEADER: {"description": "the request's id: the caller's own, or a new one", "schema": {"type": "string"}, "required": True},
}
SAYS = {
    "name": API,
    "in": "header",
    "required": False,
    "schema": {"type": "integer", "enum": [SPOKEN]},
    "description": "the API that the caller speaks; without it the call is served as current",
}
KNOWN = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": '^(W/)?"[!#-~]{0,80}"$'},
    "description": "the ETag of an answer that is known: 304 if it would be the same",
}
RANGE = {
    "name": "Range",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": "^bytes=[0-9]{0,12}-[0-9]{0,12}$"},
    "description": "the bytes that are wanted, such as bytes=0-1023",
}
UNTAGGED = {"text/event-stream", "text/plain"}  # what is another at each look
TAG = {"ETag": {"description": "changes when the answer does", "schema": {"type": "string"}, "required": True}}
OF_RUN = ("show_run", "run_events", "run_files", "cancel_run")
# What an answer leads to: of an operation and a status, the operations and their parameters.
LINKS: Mapping[tuple[str, str], Mapping[str, Mapping[str, str]]] = {
    ("start_run", "201"): {name: {"run": "$response.body#/run"} for name in (*OF_RUN, "resume_run")},
    ("list_runs", "200"): {name: {"run": "$response.body#/0/id"} for name in OF_RUN},
    ("run_files", "200"): {"part_bytes": {"digest": "$response.body#/root", "run": "$request.path.run"}},
    ("list_algorithms", "200"): {name: {"name": "$response.body#/0/name"} for name in ("show_algorithm", "show_contract")},
    ("add_key", "201"): {"revoke_key": {"name": "$response.body#/name"}},
    ("list_keys", "200"): {"revoke_key": {"name": "$response.body#/0/name"}},
}


class Described(FastAPI):
    """An app whose description says of every operation what the doors before it add."""

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            for path, operations in super().openapi()["paths"].items():
                for method, operation in operations.items():
                    describe(f"{method.upper()} {path}", operation)
        return super().openapi()


def describe(name: str, operation: dict[str, Any]) -> None:
    """Complete the description of one operation."""
    method = name.partition(" ")[0]
    parameters, responses = operation.setdefault("parameters", []), operation["responses"]
    declare_key(name, operation)
    if name in NEEDS:
        role = NEEDS[name].role.value
        operation["security"] = [{each: [role] for each in scheme} for scheme in operation.get("security", [])]
        operation["description"] = f"{operation['description']}\n\nNeeds the role {role}."
        parameters.append(SAYS)
    if method == "GET" and name in NEEDS and not UNTAGGED & set(responses["200"]["content"]):
        parameters.extend([KNOWN, RANGE] if "206" in responses else [KNOWN])
        responses["304"] = {"description": "It is as you know it"}
        for status in {"200", "206", "304"} & set(responses):
            responses[status]["headers"] = responses[status].get("headers", {}) | TAG
    for status, response in responses.items():
        finish(operation["operationId"], status, response)


def finish(operation: str, status: str, response: dict[str, Any]) -> None:
    """Complete one answer: its headers, the type of a refusal, and where it leads."""
    response["headers"] = SIGNED | response.get("headers", {})
    if status >= "400":
        response["content"] = {MEDIA_TYPE: next(iter(response["content"].values()))}
    links = LINKS.get((operation, status), {})
    if links:
        response["links"] = {to: {"operationId": to, "parameters": dict(given)} for to, given in links.items()}
