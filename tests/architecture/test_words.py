"""Names say one thing each, in the field's words: a verb has one sense, and words that only this project knew stay out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import REPOSITORY, Source, sources

# A verb with one sense, and where functions may have it as their name. Elsewhere another verb says better what is meant.
SENSES = {
    "ring": (
        "wakes who waits for a topic",
        ("tideline.engine.ports.clock", "tideline.engine.simulation", "tideline_server.bell"),
    ),
    "fold": ("makes one state of a state and its replies", ("tideline.core", "tideline.engine.compute", "tideline.algorithms")),
    "sync": ("makes files safe from a power cut", ("tideline.archive", "tideline.engine.ports", "tideline_server.parts")),
    "beat": (
        "says that somebody is alive",
        ("tideline.engine", "tideline_server", "tideline_agent.link", "tideline_agent.heartbeats"),
    ),
}
# Words with several senses, or with one that an engineer from outside would not guess: and what to say in their place.
OUT = {
    "tell": "fold, send, report, show",
    "told": "reply, row, report, details",
    "settle": "prepare, close, sync, configure",
    "look": "read, check, find, poll",
    "keep": "save, put, store, retain",
    "door": "port, API, listener",
    "doors": "ports, listeners",
    "people": "users, the HTTP API",
    "person": "user",
    "errand": "idempotency record",
    "deed": "audit event",
    "thrift": "malloc",
    "mill": "compute",
    "office": "run service",
    "desk": "agent service",
    "storeroom": "part store",
    "conductor": "scheduler",
    "stepper": "step runner",
    "keyring": "API keys",
    "brought": "initial weights",
    "supplied": "initial weights",
    "lies": "where, path",
    "lying": "where, path",
}


# HTTP's own word, and an option's name.
ALLOWED = {"KEEP_ALIVE", "keep_alive_seconds", "keep_states"}


def names(source: Source) -> Iterator[tuple[str, int]]:
    """Every name that a module gives: to itself, to functions, classes, arguments and variables."""
    yield source.path.stem, 1
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def words(name: str) -> list[str]:
    """The words of a name: `look_at`, `LookAt` and `LOOK_AT` have two."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return [word for word in parts.lower().split("_") if word]


def functions(source: Source) -> Iterator[tuple[str, int]]:
    """The functions and methods of a module."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.strip("_"), node.lineno


def place(source: Source, line: int) -> str:
    """Where a name stands."""
    return f"{source.path.relative_to(REPOSITORY)}:{line}"


def test_no_name_has_a_word_that_is_out() -> None:
    """Each offender with what to say in its place."""
    offenders = [
        f"{place(source, line)} {name}: say {OUT[word]}"
        for source in sources()
        for name, line in sorted(set(names(source)), key=lambda each: each[1])
        for word in words(name)
        if word in OUT and name not in ALLOWED
    ]
    assert not offenders, "\n".join(["", *offenders])


@pytest.mark.parametrize("verb", SENSES)
def test_a_verb_has_one_sense(verb: str) -> None:
    """It names functions where it has that sense, and nowhere else; and there it is used."""
    sense, modules = SENSES[verb]
    found = [(s, line) for s in sources() for name, line in functions(s) if name == verb]
    assert found, f"nothing is named {verb} any more"
    offenders = [place(s, line) for s, line in found if not s.module.startswith(modules)]
    assert not offenders, "\n".join([f"`{verb}` {sense}; it says something else in", *offenders])


def test_the_words_of_a_name() -> None:
    """However it is written."""
    assert words("_look_at") == words("LookAt") == words("LOOK_AT") == ["look", "at"]
    assert words("folded") == ["folded"], "a word is looked for as a whole"
