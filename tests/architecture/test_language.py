"""No layer but the methods' own knows the name of a method."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from tests.architecture.sources import REPOSITORY, Source, sources
from tideline.algorithms import METHODS

BLIND = (
    *("tideline.core", "tideline.archive", "tideline.engine", "tideline.learning", "tideline.nets", "tideline.numerics"),
    *("tideline.planning", "tideline.secure"),
    *("tideline_server", "tideline_agent", "tideline_protos"),
)
NAMES = frozenset(name for name, _ in METHODS)
SOMEWHERE = re.compile("|".join(map(re.escape, NAMES)), re.IGNORECASE)
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
    """Each method's name in a module, and its line: identifiers, and words of texts and comments' neighbours, the docstrings."""
    text = source.path.read_text()
    if not SOMEWHERE.search(text):  # tokens take a hundred times as long
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string.lower() in NAMES:
            yield token.string.lower(), token.start[0]
        if token.type == tokenize.STRING:
            yield from ((name, token.start[0]) for name in named(token.string))


def named(text: str) -> Iterator[str]:
    """The methods that a text names, as whole words in any case."""
    words = set(re.findall(r"\w+", text.lower()))
    alone = text.strip("rbuf'\"").lower()
    for name in NAMES:
        if (name in words and name not in ENGLISH) or name == alone:
            yield name


def test_no_method_is_named() -> None:
    """Neither as a string nor as an identifier: what depends on a method's name belongs into its folder."""
    blind = [s for s in sources() if s.module.startswith(BLIND)]
    assert len(blind) > 100
    told = [(s, name, line) for s in blind for name, line in mentions(s) if (s.module, name) not in EXCEPTIONS]
    assert not told, "\n".join(["", *(f"{s.path.relative_to(REPOSITORY)}:{line} names {name}" for s, name, line in told)])


def test_the_search_finds_names() -> None:
    """A name alone, a word in a sentence, a capital letter; not a part of a word, not plain English."""
    assert NAMES
    found = {text: sorted(named(text)) for text in ("'fedavg'", '"like FedAvg."', "'fedavgs'", "'local'", "'a local model'")}
    assert list(found.values()) == [["fedavg"], ["fedavg"], [], ["local"], []]


def test_every_exception_is_still_one() -> None:
    """An exception that is no longer needed is removed."""
    modules = {module for module, _ in EXCEPTIONS}
    told = {(s.module, name) for s in sources() if s.module in modules for name, _ in mentions(s)}
    assert told >= EXCEPTIONS
