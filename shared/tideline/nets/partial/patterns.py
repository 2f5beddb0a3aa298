"""Which tensors of a network `world.trains` names: patterns as a shell has them, on the names of its state dict."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase

from tideline.core.asked.world import ALL, HEAD
from tideline.core.errors import ConfigRefused
from tideline.nets.layers import BUFFERS, CLASSIFIER, is_buffer, layer_of

SHOWN, NEAR = 6, 3  # names in a refusal; of them that are alike
PATH = "world.trains"


def chosen(trains: Sequence[str], own: Mapping[str, str], parameters: Set[str], model: str) -> frozenset[str]:
    """The names that train: those that a pattern matches, and what batch norm measures where something of that layer trains.

    own: each name of the state dict with the one that the network itself has for it; a pattern may match either. parameters:
    which of the names are no buffers. Raises ConfigRefused for a pattern that matches none, and where nothing is left to train.
    """
    if trains == ALL:
        return frozenset(own)
    if trains == HEAD:
        return frozenset(name for name in own if name.startswith(CLASSIFIER))
    for pattern in trains:
        if not any(matches(pattern, *pair) for pair in own.items()):
            raise ConfigRefused(f"{PATH} has {pattern!r}, which no tensor of {model} matches", known(pattern, own), path=PATH)
    named = {name for name, theirs in own.items() if any(matches(pattern, name, theirs) for pattern in trains)}
    if not named & parameters:
        what = f"{PATH} is {list(trains)}, and nothing of that is trained: {', '.join(sorted(named)[:SHOWN])}"
        raise ConfigRefused(what, f"Name a parameter. {listed(own[name] for name in own if name in parameters)}", path=PATH)
    moving = {layer_of(name) for name in named}
    return frozenset(named | {name for name in own if is_buffer(name) and layer_of(name) in moving})


def matches(pattern: str, *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def known(pattern: str, own: Mapping[str, str]) -> str:
    """The names that there are, and some that are like the pattern."""
    if (pattern,) in (ALL, HEAD):
        return f"Write trains: {pattern} alone: beside others a word is a pattern of names, and no tensor has it"
    stem = pattern.strip("*?.")
    pieces = dict[str, str]()  # as long as the pattern's, each with the first name that it is in
    for name in (*ALL, *HEAD, *own.values(), *own):
        for piece in runs(name, stem.count(".") + 1):
            pieces.setdefault(piece, name)
    near = list(dict.fromkeys(pieces[piece] for piece in difflib.get_close_matches(stem, pieces, n=NEAR)))
    words = f" (did you mean {' or '.join(near)}?)" if near else ""
    return f"Write all, head, or patterns such as classifier.*. {listed(own.values())}{words}"


def runs(name: str, length: int) -> Iterator[str]:
    """The parts of a dotted name that have so many steps."""
    steps = name.split(".")
    yield from (".".join(steps[i : i + length]) for i in range(len(steps) - length + 1))


def listed(names: Iterable[str]) -> str:
    every = [name for name in names if name.rpartition(".")[2] not in BUFFERS]
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"Its tensors: {', '.join(every[:SHOWN])}{more}"
