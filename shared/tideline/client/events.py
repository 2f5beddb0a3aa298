"""An event of a run in words: how much it matters, where it happened, and what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tideline.client.answers import Event, EventData
from tideline.client.output import counted
from tideline.core.errors import ConfigRefused
from tideline.core.notes import KINDS, Level
from tideline.core.settings import nearest
from tideline.engine.peers.relay import without

NOTE = "note"
# Notes whose words the reply to the order has, too.
ANSWERED = ("step_failed", "declined", "data_unreadable", "device_missing")
ALARMING = {"failed": Level.ERROR, "stalled": Level.ERROR, "held_up": Level.WARNING, "late": Level.WARNING}
LEVELS = [level.value for level in Level]  # from the lowest


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
        """All of it, with this machine's time."""
        moment = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M:%S")
        return f"{moment}  {self.level:<7}  {self.where}: {self.what}"


def happening(event: Event) -> Happening:
    """An event of the HTTP API, in words."""
    kind, data = str(event["kind"]), event["data"]
    client, at = str(data.get("client", "")), float(event.get("at", 0.0))
    where = f"{client}, {data['phase']} {data['round']}" if client and "phase" in data else client or "run"
    return Happening(at=at, level=level_of(kind, data), client=client, where=where, what=words_of(kind, data))


def level_of(kind: str, data: EventData) -> str:
    """How much an event matters. A kind of note that this version does not know has its own level."""
    if kind != NOTE:
        return ALARMING.get(kind, Level.INFO).value
    known = KINDS.get(str(data.get("note")))
    level = known.level.value if known else str(data.get("level"))
    return level if level in LEVELS else Level.INFO.value


def words_of(kind: str, data: EventData) -> str:
    if kind == NOTE:
        return str(data.get("what", ""))
    if "client" in data:
        if "what" in data:
            return f"{kind}, {data['kind']}: {data['what']}"
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in sorted(data.get("metrics", {}).items()))
        return f"{kind}{': ' if numbers else ''}{numbers}"
    if kind == "closed":
        line = f"closed {data['phase']} {data['round']} with {counted(data['replies'], 'reply', 'replies')}"
        return line + without(data.get("without") or {})
    why = data.get("cause") or data.get("why") or ""
    if "min_replies" in data:
        why = f"{why}, from now on with {counted(data['min_replies'], 'reply', 'replies')} at least"
    return f"{kind.replace('_', ' ')}{': ' if why else ''}{why}"


def levels_from(level: str) -> list[str]:
    """A level and those above it. Raises ConfigRefused."""
    if level not in LEVELS:
        todo = f"Use one of: {', '.join(LEVELS)}{nearest(level, LEVELS)}"
        raise ConfigRefused(f"--level is {level!r}", todo, path="--level")
    return LEVELS[LEVELS.index(level) :]
