"""The journal within a process, with a record of its calls: made again, they give the same journal."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from tideline.archive.disk.spill import Spill
from tideline.core.run import Digest
from tideline.core.settings import Plain, plain, read
from tideline.engine.simulation.journal import NOBODY, MemoryJournal

Call = tuple[str, Mapping[str, Any]]  # a method's name, and its arguments
# The methods that change something. What they call themselves is not recorded once more.
WRITES = (
    *("create", "create_once", "set_status", "reopen", "advance", "claim", "renew", "release", "answer", "reissue"),
    *("beat", "beat_all", "hold", "event", "add_invite", "enrol", "saw", "saw_all", "rekey", "approve", "ask_rotation"),
    *("begin_session", "let_on"),
    *("revoke", "add_key", "revoke_key", "used_key", "add_parts", "held", "collect", "adopt", "marker", "reserve"),
    *("choose", "conclude", "leave", "catch_up", "confirm_restore", "delete_runs", "trim_audit"),
    *("add_project", "limit_project", "end_project", "assign", "note_ledgers", "show_ledger"),
    *("begin_user_session", "end_user_session", "used_user_session"),
)
ASKS = ("here", "drop")  # arguments that are functions: whoever makes a call again has nothing to ask
MANY = (Iterable, Sequence, Collection)


class RecordingJournal(MemoryJournal):
    """The journal in dictionaries. `calls` are those since the last `taken`."""

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self._calls: list[Call] = []
        self._inner = False

    def taken(self) -> list[Call]:
        """The calls since the last time."""
        with self._lock:
            calls, self._calls = self._calls, []
            return calls

    def again(self, name: str, arguments: Mapping[str, Plain]) -> None:
        """Make a call that was recorded, and record nothing. Raises ConfigRefused if it cannot be read."""
        hints = KINDS[name]
        given = {key: read(hints[key], value, f"{name}.{key}") for key, value in arguments.items()}
        getattr(MemoryJournal, name)(self, **given)

    def needed(self) -> set[Digest]:
        """The parts without which an open run cannot go on, nor a completed one be read.

        All that is referred to, but replies that the last state has in it.
        """
        found = set[Digest]()
        for own in self._refs.values():
            last = max((at for what, at in own.get(NOBODY, {}) if what == "state"), default=-1)
            for named in own.values():
                kept = (files for (what, at), files in named.items() if at >= last or not what.startswith("reply:"))
                found.update(digest for files in kept for digest, _ in files)
        return found


def recorded(name: str) -> Callable[..., Any]:
    method = getattr(MemoryJournal, name)
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: RecordingJournal, *args: Any, **more: Any) -> Any:
        given = signature.bind(self, *args, **more).arguments
        del given["self"]
        given |= {key: tuple(value) for key, value in given.items() if isinstance(value, typing.Iterator)}
        with self._lock:
            outer, self._inner = not self._inner, True
            try:
                result = method(self, **given)
            finally:
                self._inner = not outer
            if outer:
                self._calls.append((name, {key: value for key, value in given.items() if key not in ASKS}))
        return result

    return call


def kinds(name: str) -> dict[str, Any]:
    """The types of a method's arguments; of those that may be any collection, a tuple's."""
    hints = typing.get_type_hints(getattr(MemoryJournal, name))
    return {key: tupled(hint) for key, hint in hints.items() if key not in (*ASKS, "return")}


def tupled(hint: Any) -> Any:
    many = typing.get_origin(hint) in MANY
    return tuple[typing.get_args(hint)[0], ...] if many else hint  # type: ignore[misc]


def shown(call: Call) -> list[Plain]:
    """A call as plain data."""
    name, arguments = call
    return [name, plain(arguments)]


KINDS = {name: kinds(name) for name in WRITES}
for each in WRITES:
    setattr(RecordingJournal, each, recorded(each))
