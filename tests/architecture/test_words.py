"""Names say one thing each, in the field's words: a verb has one sense, and words that only this project knew stay out."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.architecture.sources import Source, place, report, sources

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


def names(source: Source) -> dict[str, int]:
    """Return every name that a module gives, to itself, functions, classes, arguments and variables, with a line of it."""
    places = {node.id: node.lineno for node in source.of(ast.Name) if isinstance(node.ctx, ast.Store)}
    places |= {node.arg: node.lineno for node in source.of(ast.arg)}
    places |= {node.name: node.lineno for node in source.of(ast.ClassDef)}
    return places | {node.name: node.lineno for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef)} | {source.path.stem: 1}


@cache
def words(name: str) -> list[str]:
    """Return the words of a name: `look_at`, `LookAt` and `LOOK_AT` have two."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return [word for word in parts.lower().split("_") if word]


def test_no_name_has_a_word_that_is_out() -> None:
    """Each offender with what to say in its place."""
    report(
        f"{place(source, line)} {name}: say {OUT[word]}"
        for source in sources()
        for name, line in names(source).items()
        for word in words(name)
        if word in OUT and name not in ALLOWED
    )


def test_a_verb_has_one_sense() -> None:
    """It names functions where it has that sense, and nowhere else; and there it is used."""
    functions = [(s, node) for s in sources() for node in s.of(ast.FunctionDef, ast.AsyncFunctionDef)]
    for verb, (sense, modules) in SENSES.items():
        namesakes = [(s, node.lineno) for s, node in functions if node.name.strip("_") == verb]
        assert namesakes, f"nothing is named {verb} any more"
        elsewhere = [place(s, line) for s, line in namesakes if not s.module.startswith(modules)]
        report(elsewhere, f"`{verb}` {sense}; it says something else in")


def test_the_words_of_a_name() -> None:
    """However it is written."""
    assert words("_look_at") == words("LookAt") == words("LOOK_AT") == ["look", "at"]
    assert words("folded") == ["folded"], "a word is looked for as a whole"
