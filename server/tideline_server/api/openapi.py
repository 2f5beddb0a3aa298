"""The OpenAPI description: bodies from settings dataclasses, what every operation has, and examples."""

from __future__ import annotations

import dataclasses
import json
import threading
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

from fastapi import FastAPI

from tideline.core.errors import MEDIA_TYPE
from tideline.core.settings import Plain
from tideline_server.api.requests.access import NEEDS
from tideline_server.api.requests.conditional import tag_of
from tideline_server.api.requests.idempotency import declare_key
from tideline_server.api.requests.wrapping import API, HEADER, SPOKEN, VERSION

WORDS: Mapping[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
BOUNDS = {"low": "minimum", "high": "maximum", "choices": "enum"}


def schema_of(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = [f for f in dataclasses.fields(kind) if f.init]
    properties = {f.name: schema_of_hint(hints[f.name], f.metadata) for f in fields}
    required = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    return {
        "title": kind.__name__,
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "properties": properties,
        "additionalProperties": False,
        "required": required,
    }


def schema_of_hint(hint: Any, meta: Mapping[str, Any]) -> dict[str, Any]:
    """One setting. A tuple's or a mapping's bounds hold for its values, as the reader has it."""
    doc = {"description": meta["doc"]} if meta.get("doc") else {}
    bounds = {k: v for k, v in meta.items() if k != "doc"}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [{"type": "null"} if kind is type(None) else schema_of_hint(kind, bounds) for kind in args]
        return doc | {"anyOf": inner}
    if origin is tuple:
        return doc | {"type": "array", "items": schema_of_hint(args[0], bounds)}
    if origin is not None:
        return doc | {"type": "object", "additionalProperties": schema_of_hint(args[1], bounds)}
    if dataclasses.is_dataclass(hint):
        return schema_of(typing.cast(type, hint)) | doc
    return doc | schema_of_scalar(hint) | {BOUNDS[k]: v for k, v in bounds.items() if k in BOUNDS and v is not None}


def schema_of_scalar(hint: Any) -> dict[str, Any]:
    """A number, a text, a truth value, one of an enum's words, or anything."""
    if hint is Plain:
        return {}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [m.value for m in hint]}
    return {"type": WORDS[getattr(hint, "__supertype__", hint)]}


def body_of(kind: type[Any], examples: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema_of(kind), "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}


SIGNED = {
    VERSION: {"description": "the coordinator's version", "schema": {"type": "string"}, "required": True},
    API: {"description": "the API that it speaks", "schema": {"type": "integer"}, "required": True},
    HEADER: {"description": "the request's id: the caller's own, or a new one", "schema": {"type": "string"}, "required": True},
}


def header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    """A header that a caller may send."""
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


SAYS = header(API, "the API that the caller speaks; without it the call is served as current", type="integer", enum=[SPOKEN])
KNOWN = header(
    "If-None-Match",
    "the ETag of a response that you have: 304 if it would be the same",
    type="string",
    pattern='^(W/)?"[!#-~]{0,80}"$',
)
RANGE = header("Range", "the bytes that you want, such as bytes=0-1023", type="string", pattern="^bytes=[0-9]{0,12}-[0-9]{0,12}$")
UNTAGGED = {"text/event-stream", "text/plain"}  # what is another at each look
TAG = {"ETag": {"description": "changes when the answer does", "schema": {"type": "string"}, "required": True}}
OF_RUN = ("show_run", "run_events", "run_files", "cancel_run")
# What an answer leads to: of an operation and a status, the operations and their parameters.
FOLLOWING: Mapping[tuple[str, str], Mapping[str, Mapping[str, str]]] = {
    ("start_run", "201"): {name: {"run": "$response.body#/run"} for name in (*OF_RUN, "resume_run")},
    ("list_runs", "200"): {name: {"run": "$response.body#/0/id"} for name in OF_RUN},
    ("run_files", "200"): {"part_bytes": {"digest": "$response.body#/root", "run": "$request.path.run"}},
    ("list_algorithms", "200"): {name: {"name": "$response.body#/0/name"} for name in ("show_algorithm", "show_contract")},
    ("add_key", "201"): {"revoke_key": {"name": "$response.body#/name"}},
    ("list_keys", "200"): {"revoke_key": {"name": "$response.body#/0/name"}},
}


class Described(FastAPI):
    """An app whose description says of every operation what the middleware adds."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            for path, operations in super().openapi()["paths"].items():
                for method, operation in operations.items():
                    describe(f"{method.upper()} {path}", operation)
        return super().openapi()

    def setup(self) -> None:
        """FastAPI's own route of the description would write it anew for everybody, on the loop."""
        self.openapi_url = None
        self._writing, self.made = threading.Lock(), b""
        self.tag = ""
        super().setup()

    def written(self) -> bytes:
        """The description as it is sent, made once, however many ask at the same time. It takes a processor for half a second: a
        coordinator makes it before it listens, or its first readers would delay every agent.
        """
        with self._writing:
            if not self.made:
                made = json.dumps(self.openapi(), ensure_ascii=False, separators=(",", ":")).encode()
                self.tag, self.made = tag_of(made), made
            return self.made


def describe(name: str, operation: dict[str, Any]) -> None:
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
    links = FOLLOWING.get((operation, status), {})
    if links:
        response["links"] = {to: {"operationId": to, "parameters": dict(given)} for to, given in links.items()}


WRITTEN = {"yaml": {"summary": "Three lines", "value": {"text": "method: fedavg\nroster:\n  hospital-a: source\n"}}}
EXPERIMENTS: dict[str, Any] = {
    "roster": {
        "summary": "Federated averaging among named sites",
        "value": {
            "name": "first try",
            "method": "fedavg",
            "config": {"rounds": 5, "epochs": 1, "rate": 0.05},
            "world": {"inputs": [1, 28, 28], "classes": 10, "model": "lenet"},
            "roster": {"hospital-a": "source", "hospital-b": "source", "hospital-c": "target"},
            "seed": 7,
        },
    },
    "quorum": {
        "summary": "From a preset, closing rounds without the slowest",
        "value": {
            "method": "fedprox",
            "preset": "tiny",
            "config": {"mu": 0.1},
            "roster": {"hospital-a": "source", "hospital-b": "source", "hospital-c": "source"},
            "waiting": {"target_replies": 2, "min_replies": 2, "deadline": 3600},
        },
    },
    "reference": {
        "summary": "With a second run to compare with",
        "value": {
            "method": "fedprox",
            "config": {"rounds": 3},
            "roster": {"hospital-a": "source", "hospital-b": "target"},
            "reference": {"method": "fedavg", "roles": ["source"]},
        },
    },
}

LINK_PLANS: dict[str, Any] = {
    "measured": {
        "summary": "From what devices measured",
        "value": {
            "devices": [
                {"name": "hospital-a", "error": 0.12, "count": 1800, "labelled": 1600, "watts": 0.25},
                {"name": "hospital-b", "error": 0.3, "count": 1500, "labelled": 1300, "watts": 0.3},
                {"name": "hospital-c", "error": 1.0, "count": 1000, "labelled": 0, "watts": 0.2},
            ],
            "d": [[None, 0.4, 0.9], [0.4, None, 0.1], [0.9, 0.1, None]],
            "rates": [[None, 8e7, 7e7], [8e7, None, 6.5e7], [7e7, 6.5e7, None]],
            "phi": {"energy": 1.0},
            "sweep": [0.01, 100.0],
        },
    },
    "bounds": {
        "summary": "From bounds and joules, with a device that has to be a target",
        "value": {
            "devices": [{"name": "a", "S": 1.8}, {"name": "b", "S": 2.0}, {"name": "c", "S": 2.7}],
            "T": [[None, 28.4, 53.5], [28.6, None, 13.7], [54.4, 14.4, None]],
            "K": [[None, 3.1, None], [3.7, None, 4.3], [2.9, 2.9, None]],
            "pins": ["c"],
        },
    },
}
