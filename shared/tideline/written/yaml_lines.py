"""YAML that remembers the line of every value.

Of YAML 1.2's core schema: `no` and `12:30` are texts, `1e-3` is a number. Not taken: tags, merge keys, documents in a row,
a key twice, and more values, depth or aliases than a person writes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml

from tideline.core.errors import ConfigRefused
from tideline.core.settings import Plain

MAX_VALUES = 20_000
MAX_ALIASES = 100
MAX_DEPTH = 32
PREFIX = "tag:yaml.org,2002:"
NUMBER = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"
SCHEMA = (
    ("null", r"(null|Null|NULL|~|)$", ("n", "N", "~", "")),
    ("bool", r"(true|True|TRUE|false|False|FALSE)$", tuple("tTfF")),
    ("int", r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", tuple("-+0123456789")),
    ("float", NUMBER, tuple("-+.0123456789")),
)


@dataclass(frozen=True)
class Document:
    """Plain data, and the line at which each of its dotted paths stands."""

    value: Plain
    lines: dict[str, int]


def read_yaml(text: str, name: str) -> Document:
    """One YAML document. Raises ConfigRefused with the line of what is wrong."""
    try:
        node = Composer(text, name).get_single_node()
    except yaml.MarkedYAMLError as cause:
        mark = cause.problem_mark or cause.context_mark
        raise refuse(name, mark.line + 1 if mark else 1, *in_words(cause)) from None
    except yaml.reader.ReaderError as cause:
        line = text.count("\n", 0, cause.position) + 1
        raise refuse(name, line, "a character that YAML does not allow", "Remove it") from None
    if node is None:
        raise ConfigRefused(f"{name} is empty", "Write at least `method: NAME`")
    reader = Reader(name)
    return Document(reader.value(node, "", 0), reader.lines)


def in_words(cause: yaml.MarkedYAMLError) -> tuple[str, str]:
    """What the parser met, and what to do."""
    problem = cause.problem or "cannot be read as YAML"
    if "'\\t'" in problem:
        return "a tab stands where YAML wants spaces", "Indent with spaces"
    if "single document" in (cause.context or ""):
        return "a second document begins", "Write one experiment to a file"
    return f"{cause.context}: {problem}" if cause.context else problem, "Correct the YAML"


def refuse(name: str, line: int, what: str, todo: str) -> ConfigRefused:
    return ConfigRefused(f"{name}:{line}: {what}", todo, file=name, line=line)


class Composer(yaml.SafeLoader):
    """PyYAML's parser with limits and the core schema's idea of what is a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.file, self.seen, self.deep, self.aliases = name, 0, 0, 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """One node, if there are not too many of them."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        self.seen += 1
        self.aliases += isinstance(event, yaml.AliasEvent)
        if self.seen > MAX_VALUES or self.aliases > MAX_ALIASES:
            raise refuse(self.file, line, "too many values or aliases", f"Keep to {MAX_VALUES} values and {MAX_ALIASES} aliases")
        if getattr(event, "tag", None) is not None:
            raise refuse(self.file, line, f"the tag {event.tag[:40]!r}", "Write plain values; tags are not taken")
        if self.deep >= MAX_DEPTH:
            raise too_deep(self.file, line)
        self.deep += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.deep -= 1


class Writer(yaml.SafeDumper):
    """PyYAML's writer with the same idea of what is a number, so that texts which look like one are quoted."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def ignore_aliases(self, data: Plain) -> bool:
        """Everything is written out where it stands."""
        return True


for kind, pattern, firsts in SCHEMA:
    for each in (Composer, Writer):
        each.add_implicit_resolver(PREFIX + kind, re.compile(pattern), list(firsts))


def write_yaml(value: Plain) -> str:
    """Plain data as one YAML document that `read_yaml` reads as the same; keys in their order."""
    return yaml.dump(value, Dumper=Writer, sort_keys=False, width=120)


class Reader:
    """Turns nodes into plain data and notes lines. An alias is read again wherever it stands, and counted each time."""

    def __init__(self, name: str) -> None:
        self.file, self.seen = name, 0
        self.lines: dict[str, int] = {}

    def value(self, node: yaml.Node, path: str, depth: int) -> Plain:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.seen += 1
        if self.seen > MAX_VALUES:
            raise refuse(self.file, line, "aliases stand for too many values", f"Keep to {MAX_VALUES} values in all")
        if depth > MAX_DEPTH:
            raise too_deep(self.file, line)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, line)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(node.value)]
        return self.mapping(node, path, depth)

    def mapping(self, node: yaml.Node, path: str, depth: int) -> dict[str, Plain]:
        """A mapping with each key once. Keys are texts as they stand, so that a site may be called `no` or `1`."""
        found: dict[str, Plain] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise refuse(self.file, line, "a key that is no text", "Write keys as plain words")
            if key.value in found:
                raise refuse(self.file, line, f"{key.value!r} appears twice here", "Give each key once")
            place = f"{path}.{key.value}" if path else key.value
            self.lines.setdefault(place, line)
            found[key.value] = self.value(value, place, depth + 1)
        return found

    def scalar(self, node: yaml.ScalarNode, line: int) -> Plain:
        text = str(node.value)
        match node.tag.removeprefix(PREFIX):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" if fits(text):
                return whole(text)
            case "float" if math.isfinite(float(text)):
                return float(text)
            case "int" | "float":
                raise refuse(self.file, line, f"the number {text[:24]} does not fit 64 bits", "Give a smaller number")
        return text


def fits(digits: str) -> bool:
    """Whether a whole number fits 64 bits."""
    return len(digits) <= 24 and -(1 << 63) <= whole(digits) < 1 << 63


def whole(digits: str) -> int:
    """A whole number: decimal, or 0x, or 0o."""
    return int(digits, {"0x": 16, "0o": 8}.get(digits[:2], 10))


def too_deep(name: str, line: int) -> ConfigRefused:
    return refuse(name, line, f"values are nested more than {MAX_DEPTH} deep", "No experiment needs that")
