"""Notices: what somebody is to hear without asking, where it goes, and when it is tried again.

A target is an address and what it wants to hear. A notice is queued once for each target; its cause (what happened, and to
what) is told at most once an hour, and the newest tells how many came since.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tideline.core.run import RunId
from tideline.core.settings import Plain
from tideline.engine.model.access.projects import EVERY

HOUR, DAY = 3600.0, 86400.0
MOST_TARGETS = 20  # of one project, and of all together
MOST_WAITING = 1000  # notices of one target
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 4 * HOUR  # between two tries
RETAINED = 2 * DAY  # for so long it is known what was sent
MOST_WORDS = 500  # characters of a notice, and of a reason


class Kind(StrEnum):
    """What happened. TEST: somebody tries the target."""

    STALLED = "stalled"
    FAILED = "failed"
    COMPLETED = "completed"
    APPROVAL = "approval"
    CERTIFICATE = "certificate"
    DISK = "disk"
    TEST = "test"


OF_RUNS = (Kind.STALLED, Kind.FAILED, Kind.COMPLETED, Kind.APPROVAL)
OF_COORDINATOR = (Kind.CERTIFICATE, Kind.DISK)  # which no project sees
PERIODS: Mapping[Kind, float] = {Kind.CERTIFICATE: DAY, Kind.DISK: 6 * HOUR}  # after which what lasts is told again


class Form(StrEnum):
    """How a notice is written."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"
    EMAIL = "email"


@dataclass(frozen=True)
class Target:
    """Where notices go.

    project  whose notices: one project's, or (EVERY) those of all and of the coordinator itself
    url      https://..., or mailto:NAME@HOST; it may hold a secret
    secret   by which notices are signed, whsec_...; none of e-mail
    ended    since when nothing is sent, because the receiver said that it is gone
    reason   why the last try did not succeed
    tested   when somebody tried it last
    left_out notices that did not fit among those that wait
    """

    id: str
    name: str
    project: str
    url: str = field(repr=False)
    form: Form
    kinds: tuple[Kind, ...]
    secret: str = field(repr=False)
    created: float
    created_by: str = ""
    ended: float | None = None
    reason: str = ""
    last_sent: float | None = None
    tested: float = 0.0
    left_out: int = 0

    def wants(self, notice: Notice) -> bool:
        seen = self.project == EVERY if notice.kind in OF_COORDINATOR else self.project in (EVERY, notice.project)
        return seen and self.ended is None and notice.kind in self.kinds


@dataclass(frozen=True)
class Notice:
    """Something that happened. `source`: what it is told from, the same however often that is read.

    subject: of a notice about no run, what it is about, such as a disk. site: whom an approval is awaited of.
    """

    kind: Kind
    at: float
    words: str
    source: str
    project: str = EVERY
    run: RunId = RunId("")
    run_name: str = ""
    site: str = ""
    subject: str = ""

    @property
    def cause(self) -> str:
        return f"{self.kind.value}/{self.run or self.subject}"

    def plain(self) -> dict[str, Plain]:
        return {name: str(value) if isinstance(value, Kind) else value for name, value in vars(self).items()}


def notice_in(stored: Mapping[str, str | float]) -> Notice:
    """A notice from its plain data, as `plain` made them."""
    return Notice(**{**stored, "kind": Kind(str(stored["kind"]))})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Outgoing:
    """A notice on its way to a target. `id`: by which a receiver knows one that comes twice.

    more   how many of its cause it stands for beside its own
    slot   the moment from which on it may be sent: an hour after the one before it
    due    when it is tried next; None: it is over
    claim  who is trying it
    """

    id: str
    target: str
    notice: Notice
    more: int = 0
    slot: float = 0.0
    due: float | None = 0.0
    attempts: int = 0
    claim: str = ""


def id_of(target: str, notice: Notice) -> str:
    """The name of a notice to a target, the same for everybody who reads what it is told from."""
    return f"msg_{hashlib.sha256(f'{target} {notice.cause} {notice.source}'.encode()).hexdigest()[:32]}"


def queued(target: str, notice: Notice, last: Outgoing | None, now: float) -> Outgoing:
    """What waits once a notice has come. last: the newest of its target and cause, which it replaces if that has its id or waits.

    >>> first = queued("t", Notice(Kind.DISK, 0.0, "full", "1"), None, 100.0)
    >>> second = queued("t", Notice(Kind.DISK, 9.0, "fuller", "2"), replace(first, due=None, attempts=1), 200.0)
    >>> third = queued("t", Notice(Kind.DISK, 9.0, "fullest", "3"), second, 300.0)
    >>> (first.due, second.due, third.due, third.more, third.notice.words)
    (100.0, 3700.0, 3700.0, 1, 'fullest')
    """
    made = id_of(target, notice)
    if last is not None and waits_unseen(last):
        return replace(last, id=made, notice=notice, more=last.more + 1)
    slot = now if last is None else max(now, last.slot + HOUR)
    return Outgoing(made, target, notice, slot=slot, due=slot)


def waits_unseen(outgoing: Outgoing) -> bool:
    """Whether nobody can have received it yet."""
    return outgoing.due is not None and outgoing.attempts == 0


def next_try(outgoing: Outgoing, now: float, draw: float, asked: float = 0.0) -> float | None:
    """When to try again what was tried so often; None a day after its first moment. draw: at random in 0..1.

    asked: the pause that the receiver asks for.

    >>> one = Outgoing("m", "t", Notice(Kind.DISK, 0.0, "full", "1"), attempts=1)
    >>> next_try(one, 0.0, 0.0), next_try(one, 0.0, 1.0), next_try(replace(one, attempts=4), 0.0, 1.0), next_try(one, DAY, 0.0)
    (5.0, 10.0, 80.0, None)
    """
    if now - outgoing.slot >= DAY:
        return None
    pause = min(FIRST_PAUSE * 2.0 ** min(outgoing.attempts - 1, 20), LONGEST_PAUSE)
    pause = max(pause * (0.5 + 0.5 * draw), min(asked, HOUR))
    return min(now + pause, outgoing.slot + DAY)


def place_of(url: str) -> str:
    """An address without what may be a secret in it.

    >>> place_of("https://hooks.example/services/T0/B1/secret?x=1"), place_of("mailto:ann@example.org")
    ('https://hooks.example/...', 'mailto:ann@example.org')
    """
    scheme, mark, rest = url.partition("://")
    host, *more = re.split("[/?#]", rest, maxsplit=1)
    return f"{scheme}://{host}{'/...' if any(more) else ''}" if mark else url


def lasting(kind: Kind, at: float) -> str:
    """The source of what lasts: another one in each of its periods."""
    return f"{math.floor(at / PERIODS[kind])}"
