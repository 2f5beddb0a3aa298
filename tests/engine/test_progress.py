"""When a round is ready."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.core.run import ClientId, Waiting
from tideline.engine.coordinator.scheduler import Progress, Verdict, duration, verdict, waits_for


@dataclass(frozen=True)
class Answered:
    """A client's reply was accepted."""

    client: ClientId


@dataclass(frozen=True)
class Failed:
    """A client cannot answer."""

    client: ClientId
    reason: str


@dataclass(frozen=True)
class Expired:
    """The deadline has passed."""


ProgressEvent = Answered | Failed | Expired


def note(progress: Progress, event: ProgressEvent, rules: Waiting, floor: int | None = None) -> tuple[Progress, Verdict]:
    """The progress after an event, and what it means. A client's first answer or failure counts; later ones change nothing."""
    if isinstance(event, Expired):
        return progress, verdict(progress.counted, rules, floor, expired=True)
    if event.client in progress.waiting:
        progress = replace(progress, waiting=progress.waiting - {event.client})
        if isinstance(event, Answered):
            progress = replace(progress, answered=progress.answered | {event.client})
        else:
            progress = replace(progress, failed=tuple(sorted((*progress.failed, (event.client, event.reason)))))
    return progress, verdict(progress.counted, rules, floor)


CLIENTS = [ClientId(c) for c in "abcde"]
client = st.sampled_from(CLIENTS)
event = st.one_of(
    st.builds(Answered, client), st.builds(Failed, client, st.sampled_from(["broken", "refused"])), st.just(Expired())
)
limit = st.none() | st.integers(1, 6)


@dataclass
class Ledger:
    """The same rules in other words: a list of what became of each client."""

    asked: list[ClientId]
    target: int | None
    least: int | None
    floor: int | None
    fate: dict[ClientId, str] = field(default_factory=dict)

    def hear(self, heard: ProgressEvent) -> Verdict:
        """One event, and what it means."""
        if isinstance(heard, Expired):
            return self.judge(expired=True)
        if heard.client in self.asked:
            self.fate.setdefault(heard.client, "answered" if isinstance(heard, Answered) else heard.reason)
        return self.judge(expired=False)

    def judge(self, expired: bool) -> Verdict:
        """Enough and at the target: close. Somebody may still come: wait. Enough: close. Else stall."""
        n, have = len(self.asked), list(self.fate.values()).count("answered")
        wanted = self.target if self.least is None else self.least  # the quorum is the target unless it is given
        least = n if wanted is None or wanted > n else wanted
        enough = have >= least and (self.floor is None or have >= self.floor)
        target = n if self.target is None or self.target > n else self.target
        if enough and (have >= target or expired or len(self.fate) == n):
            return Verdict.CLOSE
        return Verdict.STALL if expired or len(self.fate) == n else Verdict.WAIT


@settings(max_examples=examples(50))
@given(st.lists(client, min_size=1, unique=True), limit, limit, limit, st.lists(event, max_size=12))
def test_random_events_agree_with_a_reference(
    asked: list[ClientId], target: int | None, least: int | None, floor: int | None, events: list[ProgressEvent]
) -> None:
    """Whatever happens in whatever order, note says what a plain list of fates says."""
    rules, ledger = Waiting(target, least), Ledger(asked, target, least, floor)
    progress = Progress(frozenset(asked))
    assert verdict(progress.counted, rules, floor) is ledger.judge(expired=False)
    for each in events:
        progress, said = note(progress, each, rules, floor)
        assert said is ledger.hear(each) and progress.asked == len(asked)
        assert progress.answered == {c for c, f in ledger.fate.items() if f == "answered"}
        assert dict(progress.failed) == {c: f for c, f in ledger.fate.items() if f != "answered"}
        assert progress.waiting == set(asked) - set(ledger.fate)


@settings(max_examples=examples(50))
@given(st.permutations([Answered(CLIENTS[0]), Failed(CLIENTS[1], "x"), Answered(CLIENTS[2])]))
def test_the_order_of_events_does_not_matter(events: list[ProgressEvent]) -> None:
    """The progress after all events is the same in any order of arrival."""
    progress = Progress(frozenset(CLIENTS[:3]))
    for each in events:
        progress, said = note(progress, each, Waiting(min_replies=2))
    assert progress == Progress(frozenset(), frozenset({CLIENTS[0], CLIENTS[2]}), ((CLIENTS[1], "x"),))
    assert said is Verdict.CLOSE


def test_a_wait_says_for_whom_and_how_long() -> None:
    """The visible reason of a wait names the sites and the end."""
    progress = Progress(frozenset({CLIENTS[1], CLIENTS[0]}), frozenset({CLIENTS[2]}))
    assert waits_for(progress, Waiting(), 540.0) == "waiting for 2 of 3 sites (a, b); gives up in 9 min"
    here = Progress(answered=frozenset(CLIENTS[:2]), failed=((CLIENTS[2], "x"),))
    assert waits_for(here, Waiting(), 540.0) == "all 3 sites have answered; waiting for a coordinator to close the round"
    assert [duration(s) for s in (-1, 90, 7200, 300000)] == ["0 s", "90 s", "2 h", "3 d"]
