"""A settings dataclass as JSON schema, so that the manual says what the reader in core.settings takes."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

from tideline.core.settings import Plain

WORDS: Mapping[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
BOUNDS = {"low": "minimum", "high": "maximum", "choices": "enum"}


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """The schema of one dataclass and of those within it."""
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
        inner = next(a for a in args if a is not type(None))
        return doc | {"anyOf": [schema_of_hint(inner, bounds), {"type": "null"}]}
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
    """An operation's request body for OpenAPI."""
    content = {"application/json": {"schema": schema_of(kind), "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}
