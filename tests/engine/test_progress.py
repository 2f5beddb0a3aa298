"""When a round is ready."""

from __future__ import annotations

import doctest
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.core.errors import ConfigRefused, IdentityRefused
from tideline.core.notes import Note
from tideline.core.run import ClientId, OrderId, RunId, Waiting
from tideline.engine.coordinator.agent_service import MINUTE, PER_CLIENT, PER_RUN, Notebook
from tideline.engine.coordinator.notices.targets import Wanted, form_of, kinds_of, name_of
from tideline.engine.coordinator.scheduler import Progress, Verdict, duration, verdict, waits_for
from tideline.engine.model import notices
from tideline.engine.model.notices import DAY, HOUR, Form, Kind, Notice, Outgoing, next_try
from tideline.engine.simulation.federation import Federation


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


# Notes of agents become events of their runs, as many as the limits let, and those of members alone.


ANNA, BERT = ClientId("anna"), ClientId("bert")
STARTED, CUT = Note("order_started"), Note("upload_cut")


@pytest.fixture
def there() -> tuple[Federation, Notebook, RunId]:
    """A run that has asked two sites to join."""
    federation = Federation(METHODS, sites())
    run = federation.start(experiment("fedavg", {"anna": "source", "bert": "source"}))
    return federation, Notebook(federation.agent_service), run


def order_of(federation: Federation, run: RunId, client: ClientId) -> OrderId:
    """What a client is asked."""
    return next(o.id for o in federation.journal.orders(run) if o.client == client)


def notes(federation: Federation, run: RunId) -> list[dict[str, Any]]:
    """What was written."""
    return [dict(e.data) for e in federation.journal.events(run) if e.kind == "note"]


def test_a_note_is_an_event(there: tuple[Federation, Notebook, RunId]) -> None:
    """With its client, its order and its sentence."""
    federation, notebook, run = there
    order = order_of(federation, run, ANNA)
    notebook.take(ANNA, [(order, Note("step_failed", {"seconds": 2.25}, {"error": "ValueError"}))])
    (told,) = notes(federation, run)
    assert (told["client"], told["order"], told["cursor"]) == ("anna", order, -1)
    assert (told["note"], told["level"], told["what"]) == ("step_failed", "error", "failed after 2.2 s: ValueError")
    assert (told["numbers"], told["words"]) == ({"seconds": 2.25}, {"error": "ValueError"})


def test_of_others_orders_nobody_tells(there: tuple[Federation, Notebook, RunId]) -> None:
    """Neither of a neighbour's, nor of one that does not exist; the rest of what is told with the latter is written."""
    federation, notebook, run = there
    with pytest.raises(IdentityRefused):
        notebook.take(BERT, [(order_of(federation, run, ANNA), STARTED)])
    with pytest.raises(IdentityRefused):
        notebook.take(ClientId("carl"), [(order_of(federation, run, ANNA), STARTED)])
    assert notes(federation, run) == []
    notebook.take(ANNA, [(OrderId("none"), STARTED), (order_of(federation, run, ANNA), CUT), (OrderId("none"), STARTED)])
    assert [note["note"] for note in notes(federation, run)] == ["upload_cut"]


def test_a_client_tells_so_much_a_minute(there: tuple[Federation, Notebook, RunId]) -> None:
    """Of warnings up to the limit, of information half of it; what is left out is counted and said when the minute is over."""
    federation, notebook, run = there
    order = order_of(federation, run, ANNA)
    notebook.take(ANNA, [(order, STARTED)] * PER_CLIENT)
    assert len(notes(federation, run)) == PER_CLIENT // 2
    notebook.take(ANNA, [(order, CUT)] * PER_CLIENT)
    assert len(notes(federation, run)) == PER_CLIENT
    notebook.take(BERT, [(order_of(federation, run, BERT), CUT)])
    assert notes(federation, run)[-1]["client"] == "bert" and not notebook.overdue()
    federation.clock.advance(MINUTE)
    assert notebook.overdue()
    notebook.flush()
    last = notes(federation, run)[-1]
    assert (last["client"], last["note"], last["numbers"]) == ("anna", "left_out", {"count": PER_CLIENT})
    assert not notebook.overdue()
    notebook.take(ANNA, [(order, STARTED)])
    assert notes(federation, run)[-1]["note"] == "order_started"


def test_a_run_takes_so_much_a_minute() -> None:
    """However many clients tell."""
    names = [f"site-{i}" for i in range(8)]
    federation = Federation(METHODS, {name: next(iter(sites().values())) for name in names})
    run, notebook = federation.start(experiment("fedavg", dict.fromkeys(names, "source"))), Notebook(federation.agent_service)
    for name in names:
        client = ClientId(name)
        notebook.take(client, [(order_of(federation, run, client), CUT)] * PER_CLIENT)
    assert len(notes(federation, run)) == PER_RUN
    federation.clock.advance(MINUTE)
    notebook.flush()
    last = notes(federation, run)[-1]
    assert last["numbers"] == {"count": 8 * PER_CLIENT - PER_RUN} and "client" not in last


def test_a_run_that_has_ended_takes_none(there: tuple[Federation, Notebook, RunId]) -> None:
    """But for a minute: a note may come a little after the answer that ended the run."""
    federation, notebook, run = there
    order = order_of(federation, run, ANNA)
    federation.run_service.cancel(run)
    notebook.take(ANNA, [(order, CUT)])
    federation.clock.advance(MINUTE)
    notebook.take(ANNA, [(order, CUT)])
    assert len(notes(federation, run)) == 1


# When notices are sent and tried again, and what a target may be.
ONE = Outgoing("msg", "t", Notice(kind=Kind.FAILED, at=0.0, words="", source="1", project="cardio"))


def test_the_examples_of_the_rules() -> None:
    """As the module shows them."""
    assert doctest.testmod(notices).failed == 0


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
def test_tries_grow_apart_up_to_a_day(draw: float) -> None:
    """Each pause is longer than the one before until the longest; the last try is a day after the first."""
    now, pauses, attempts = 0.0, list[float](), 1
    while (due := next_try(Outgoing("m", "t", ONE.notice, attempts=attempts), now, draw)) is not None:
        pauses.append(due - now)
        now, attempts = due, attempts + 1
    assert now == DAY and 10 < attempts < 40 and pauses[:-1] == sorted(pauses[:-1]) and max(pauses) <= 4 * HOUR


def test_a_receiver_may_ask_for_a_pause() -> None:
    """Of an hour at most."""
    once = Outgoing("m", "t", ONE.notice, attempts=1)
    assert next_try(once, 0.0, 0.0, asked=120.0) == 120.0 and next_try(once, 0.0, 0.0, asked=1e9) == HOUR


def test_the_name_of_a_notice_is_the_same_for_all_who_read_it() -> None:
    """Of another target, or of another entry, it is another."""
    other = Notice(kind=Kind.FAILED, at=0.0, words="", source="2", project="cardio")
    assert notices.id_of("t", ONE.notice) == notices.id_of("t", ONE.notice)
    assert len({notices.id_of("t", ONE.notice), notices.id_of("u", ONE.notice), notices.id_of("t", other)}) == 3


def test_a_notice_comes_back_as_it_was_stored() -> None:
    """Through plain data."""
    assert notices.notice_in(ONE.notice.plain()) == ONE.notice  # type: ignore[arg-type]


def test_names_and_forms_that_nobody_gave() -> None:
    """The host, or who gets the mail; JSON, or e-mail."""
    assert (name_of("https://hooks.example/a/b"), name_of("mailto:ann@example.org"), name_of("https://[")) == (
        "hooks.example",
        "ann",
        "",
    )
    assert form_of(Wanted("https://a", ())) is Form.JSON and form_of(Wanted("mailto:a@b", ())) is Form.EMAIL
    for url, form in (("https://a", Form.EMAIL), ("mailto:a@b", Form.SLACK)):
        with pytest.raises(ConfigRefused, match="does not go with this address"):
            form_of(Wanted(url, (), form))


def test_what_a_project_may_hear() -> None:
    """Nothing of the coordinator; each kind once; a test is asked for otherwise."""
    assert kinds_of([Kind.FAILED, Kind.FAILED, Kind.STALLED], "cardio") == (Kind.STALLED, Kind.FAILED)
    assert kinds_of([Kind.DISK], "") == (Kind.DISK,)
    for kinds, scope in (([Kind.DISK], "cardio"), ([], ""), ([Kind.TEST], "")):
        with pytest.raises(ConfigRefused):
            kinds_of(kinds, scope)
