"""Has notices sent: a little at a time, again and again. Whatever a kill leaves is done by the next step, here or elsewhere."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tideline.engine.model.notices import MOST_WORDS, Notice, Outgoing, Target, next_try
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.notices import Notices, Sender, Sent

CLAIM_SECONDS = 120.0  # longer than a try may take, and than coordinators' clocks may differ
MOST_SPELLS = 6  # of tries in one step, which then reads the log again
ABREAST = 4  # tries at a time, each to another target
OUTCOMES = SENT, FAILED, GIVEN_UP, GONE = "sent", "failed", "given_up", "gone"


@dataclass(frozen=True)
class Reports:
    """Who hears of what was done. tried: each outcome, as SENT. put_down: a notice that is given up, and why."""

    tried: Callable[[str], None] = lambda outcome: None
    put_down: Callable[[Outgoing, Target, str], None] = lambda *of: None


class Courier:
    """Reads the log and sends what is due. `step` is called every few seconds by one thread of each coordinator.

    watch: what this coordinator sees of itself, such as a disk that is nearly full. draw: numbers at random in 0..1.
    """

    def __init__(
        self,
        notices: Notices,
        sender: Sender,
        clock: Clock,
        watch: Callable[[float], Iterable[Notice]] = lambda now: (),
        reports: Reports | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._notices, self._sender, self._clock, self._watch, self._draw = notices, sender, clock, watch, draw
        self._reports = reports or Reports()
        self._seen: dict[str, str] = {}  # of each cause here, the source that was queued last
        self._threads = ThreadPoolExecutor(ABREAST, "notify")
        self._closed = False
        self.waiting: int | None = None  # notices, as of the last step

    def step(self) -> None:
        """Queue what is new and send what is due. Raises FederationError where the store is away; nothing is lost by it."""
        now = self._clock.now()
        self._watched(now)
        found = self._notices.pending(now)
        while found.news and self._notices.follow(now):
            pass
        if found.news or found.due:
            self._send_due()
            found = self._notices.pending(now)
        self.waiting = found.waiting

    def _watched(self, now: float) -> None:
        new = [each for each in self._watch(now) if self._seen.get(each.cause) != each.source]
        if new:
            self._notices.queue(new, now)
            self._seen |= {each.cause: each.source for each in new}

    def _send_due(self) -> None:
        """Some of what is due. A target has one try at a time, so one that hangs holds up no other for long."""
        for _ in range(MOST_SPELLS):
            if self._closed:
                return
            claimed = self._notices.claim(self._clock.now(), secrets.token_hex(8), CLAIM_SECONDS, ABREAST)
            list(self._threads.map(lambda each: self._try(*each), claimed))
            if not claimed:
                return

    def _try(self, outgoing: Outgoing, target: Target) -> None:
        found = self._sender.send(target, outgoing, self._clock.now())
        now = self._clock.now()
        if found.taken:
            self._notices.sent(outgoing, now)
            self._reports.tried(SENT)
        elif found.gone:
            self._notices.end_target(target, found.words[:MOST_WORDS], now)
            self._put_down(GONE, outgoing, target, found)
        else:
            self._again(outgoing, target, found, now)

    def _again(self, outgoing: Outgoing, target: Target, found: Sent, now: float) -> None:
        due = next_try(outgoing, now, self._draw(), found.pause)
        if due is None:
            self._notices.give_up(outgoing, target, found.words[:MOST_WORDS], now)
            self._put_down(GIVEN_UP, outgoing, target, found)
        else:
            self._notices.put_off(outgoing, due, found.words[:MOST_WORDS])
            self._reports.tried(FAILED)

    def _put_down(self, outcome: str, outgoing: Outgoing, target: Target, found: Sent) -> None:
        self._reports.tried(outcome)
        self._reports.put_down(outgoing, target, found.words)

    def close(self) -> None:
        """Begin no more tries. Those under way end by themselves; what they send may be sent again."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
