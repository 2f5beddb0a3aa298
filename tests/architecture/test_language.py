"""No layer but the methods' own knows the name of a method."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from tests.architecture.sources import Source, place, report, sources
from tideline.algorithms import METHODS

BLIND = (
    *("tideline.core", "tideline.archive", "tideline.engine", "tideline.learning", "tideline.nets", "tideline.numerics"),
    *("tideline.planning", "tideline.secure"),
    *("tideline_server", "tideline_agent", "tideline_protos"),
)
NAMES = frozenset(name for name, _ in METHODS)
# English words that are methods' names as well: looked for as a name alone, not as a word in a sentence.
ENGLISH = frozenset({"local", "central"})
# The reference that an experiment means if it names none; an experiment is what a person writes, and people write names.
EXCEPTIONS = {
    ("tideline.engine.model.experiment", "fedavg"),
    ("tideline.engine.process.ray_tasks", "local"),  # Ray's own word for a Ray of this machine
    ("tideline_server.api.openapi", "fedavg"),
    ("tideline_server.api.openapi", "fedprox"),
}


def mentions(source: Source) -> Iterator[tuple[str, int]]:
    """Yield each name of a method in a module's identifiers, texts and docstrings, with its line."""
    lower = source.text.lower()
    if not any(name in lower for name in NAMES):  # tokens take a hundred times as long
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.NAME and token.string.lower() in NAMES:
            yield token.string.lower(), token.start[0]
        if token.type == tokenize.STRING:
            yield from ((name, token.start[0]) for name in named(token.string))


def named(text: str) -> Iterator[str]:
    """Yield the methods that a text names, as whole words in any case."""
    words = set(re.findall(r"\w+", text.lower()))
    alone = text.strip("rbuf'\"").lower()
    for name in NAMES:
        if (name in words and name not in ENGLISH) or name == alone:
            yield name


def test_no_method_is_named() -> None:
    """What depends on a method's name belongs into the method's folder. Exceptions that are no longer needed are removed."""
    blind = [s for s in sources() if s.module.startswith(BLIND)]
    assert len(blind) > 100
    places = {(s.module, name): place(s, line) for s in blind for name, line in mentions(s)}
    report(f"{where} names {name}" for (module, name), where in places.items() if (module, name) not in EXCEPTIONS)
    assert places.keys() >= EXCEPTIONS


def test_the_search_finds_names() -> None:
    """A name alone, a word in a sentence, a capital letter; not a part of a word, not plain English."""
    texts = {"'fedavg'": ["fedavg"], '"like FedAvg."': ["fedavg"], "'fedavgs'": [], "'local'": ["local"], "'a local model'": []}
    assert {text: sorted(named(text)) for text in texts} == texts
