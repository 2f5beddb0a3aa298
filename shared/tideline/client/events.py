"""What an event of a run means to people: how much it matters, where it happened, and what, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tideline.core.errors import ConfigRefused
from tideline.core.notes import KINDS, Level
from tideline.core.settings import nearest
from tideline.engine.peers.relay import without

NOTE = "note"
# Notes of what the answer to the order tells too, with its words.
ANSWERED = ("step_failed", "declined", "data_unreadable", "device_missing")
ALARMING = {"failed": Level.ERROR, "stalled": Level.ERROR, "held_up": Level.WARNING, "late": Level.WARNING}
WEIGHTS = {level.value: weight for weight, level in enumerate(Level)}


@dataclass(frozen=True)
class Happening:
    """One event. where: the client and its place in the plan, or `run`."""

    at: float
    level: str
    client: str
    where: str
    what: str

    @property
    def line(self) -> str:
        """The whole of it, with the time of day of this machine."""
        moment = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M:%S")
        return f"{moment}  {self.level:<7}  {self.where}: {self.what}"


def happening(event: Mapping[str, Any]) -> Happening:
    """An event, as it came over the people's door."""
    kind, data = str(event["kind"]), event["data"]
    client = str(data.get("client", ""))
    place = f", {data['phase']} {data['round']}" if client and "phase" in data else ""
    where = f"{client}{place}" if client else "run"
    return Happening(
        at=float(event.get("at", 0.0)), level=level_of(kind, data), client=client, where=where, what=words_of(kind, data)
    )


def level_of(kind: str, data: Mapping[str, Any]) -> str:
    """How much an event matters. A kind of note that this version does not know says so itself."""
    if kind != NOTE:
        return ALARMING.get(kind, Level.INFO).value
    known = KINDS.get(str(data.get("note")))
    level = known.level.value if known else str(data.get("level"))
    return level if level in WEIGHTS else Level.INFO.value


def words_of(kind: str, data: Mapping[str, Any]) -> str:
    """What happened."""
    if kind == NOTE:
        return str(data.get("what", ""))
    if "client" in data:
        return reply_words(kind, data)
    if kind == "closed":
        replies = data["replies"]
        told = f"closed {data['phase']} {data['round']} with {replies} {'reply' if replies == 1 else 'replies'}"
        return told + without(data.get("without") or {})
    why = data.get("cause") or data.get("why") or ""
    return f"{kind.replace('_', ' ')}{': ' if why else ''}{why}"


def reply_words(kind: str, data: Mapping[str, Any]) -> str:
    """What became of a site's order."""
    if "what" in data:
        return f"{kind}, {data['kind']}: {data['what']}"
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in sorted(data.get("metrics", {}).items()))
    return f"{kind}{': ' if numbers else ''}{numbers}"


@dataclass(frozen=True)
class Chosen:
    """Which events somebody wants to see."""

    client: str | None
    least: int

    @classmethod
    def read(cls, client: str | None, level: str) -> Chosen:
        """From options. Raises ConfigRefused."""
        if level not in WEIGHTS:
            guess = nearest(level, list(WEIGHTS))
            raise ConfigRefused(f"--level is {level!r}", f"Use one of: {', '.join(WEIGHTS)}{guess}", path="--level")
        return cls(client, WEIGHTS[level])

    def told(self, event: Mapping[str, Any]) -> Happening | None:
        """An event in words, if it is wanted."""
        told = happening(event)
        return told if WEIGHTS[told.level] >= self.least and self.client in (None, told.client) else None
